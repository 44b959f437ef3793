//! Runs `dwell node-sim`, and several clients of `dwell ping`, as programs.

use std::process::Command;

use serde_json::Value;

mod support;
use support::{DWELL, Server, dwell, free_port, json, said};

/// An address without outgoing connections, so that none takes a port found free.
const HOST: &str = "127.0.0.3";

/// Starts a node for both protocols; returns its URLs, TCP first.
fn node(options: &[&str]) -> (Server, [String; 2]) {
    let port = free_port(HOST);
    let urls = ["tcp", "udp"].map(|transport| format!("text+{transport}://{HOST}:{port}"));
    let mut command = Command::new(DWELL);
    command.args(["node-sim", "--json"]).args(&urls).args(options);
    (Server::ready(command, "listening on", 2), urls)
}

fn ping(url: &str, options: &str) -> Value {
    let options = options.split_whitespace();
    let all: Vec<_> =
        ["ping", url, "--json", "--pause", "1ms"].into_iter().chain(options).collect();
    let output = dwell(&all);
    let result = json(&output);
    assert!(result["packets"]["received"].as_u64() > Some(0), "{}", said(&output));
    result
}

fn metric(result: &Value, name: &str, figure: &str) -> f64 {
    let value = result["metrics"][name][figure].as_f64();
    value.unwrap_or_else(|| panic!("no {figure} of {name}: {}", result["metrics"]))
}

#[test]
fn every_client_sends_from_its_own_connection() {
    let (server, urls) = Server::reflect(&["text+tcp"], "127.0.0.1", &["--json"]);
    let result = ping(&urls[0], "--clients 4 -c 5");
    assert_eq!(result["packets"]["sent"], 20);
    assert_eq!(result["packets"]["received"], 20);
    assert_eq!(metric(&result, "connect_ns", "count"), 4.0);
    assert_eq!(metric(&result, "client_lag_ns", "count"), 20.0);
    assert_eq!(result["values"]["retransmissions"], 0);
    let served = json(&server.stop());
    // One warm-up probe per client.
    assert_eq!(metric(&served, "server_lag_ns", "count"), 24.0);
}

#[test]
fn ids_tell_clients_apart() {
    let (_server, urls) = Server::reflect(&["text+udp"], "127.0.0.1", &[]);
    let options = ["--clients", "3", "-c", "2", "--pause", "1ms", "--csv", "-"];
    let output = dwell(&[&["ping", urls[0].as_str()], &options[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text.lines().skip(1).filter_map(|row| row.split(',').next()?.parse::<u64>().ok());
    let mut ids: Vec<_> = rows.collect();
    ids.sort_unstable();
    let client = 1_u64 << 32;
    assert_eq!(ids, [0, 1, client, client + 1, 2 * client, 2 * client + 1], "{text}");
}

#[test]
fn service_time_is_kept_with_64_clients_and_requests_queue() {
    const SERVICE_NS: f64 = 4e6;
    let (server, [_, udp]) = node(&["--service-time", "4ms"]);
    let result = ping(&udp, "--clients 64 -c 3 -W 10s");
    assert_eq!(result["packets"]["received"], 3 * 64);
    let served = json(&server.stop());
    let median = metric(&served, "service_ns", "p50");
    assert!((median / SERVICE_NS - 1.0).abs() < 0.01, "{median} ns");
    // The last of 64 requests at once waits for the 63 before it.
    assert!(metric(&served, "server_lag_ns", "max") > 40.0 * SERVICE_NS, "{served}");
    assert!(metric(&result, "rtt_ns", "max") > 40.0 * SERVICE_NS);
}

#[test]
fn stream_waits_for_the_read_timeout_and_datagram_does_not() {
    let (_server, [tcp, udp]) = node(&["--read-timeout", "150ms"]);
    let [tcp, udp] = [tcp, udp].map(|url| ping(&url, "-c 3"));
    assert!(metric(&tcp, "rtt_ns", "min") >= 150e6);
    assert!(metric(&udp, "rtt_ns", "min") < 150e6);
}

#[test]
fn delays_of_a_coarse_clock_are_whole_ticks() {
    const TICK_NS: f64 = 20e6;
    let options = ["--clock-tick", "20ms", "--loop-time", "30ms..70ms", "--seed", "7"];
    let (server, [_, udp]) = node(&options);
    ping(&udp, "-c 12");
    let served = json(&server.stop());
    for figure in ["min", "max", "p50"] {
        let lag = metric(&served, "server_lag_ns", figure);
        assert_eq!(lag % TICK_NS, 0.0, "{figure}: {lag}");
    }
    assert_eq!(served["parameters"]["loop_time"], "30ms..70ms");
}

#[test]
fn client_without_a_socket_at_the_node_is_reported() {
    let (server, [tcp, _]) = node(&["--sockets", "2"]);
    let result = ping(&tcp, "--clients 3 -c 4 -W 300ms");
    let warnings = result["trust"]["warnings"].as_array().unwrap();
    let failed = warnings.iter().find(|warning| warning["code"] == "clients-failed");
    assert!(
        failed.unwrap()["text"].as_str().unwrap().starts_with("1 of 3 clients"),
        "{warnings:?}"
    );
    assert_eq!(result["packets"]["received"], 2 * 4);
    assert_eq!(json(&server.stop())["values"]["not_accepted"], 1);
}

#[test]
fn slow_node_acknowledges_requests_without_data() {
    const REQUESTS: u64 = 5;
    // Linux delays an acknowledgement by 40 ms, and sends it with data that leaves earlier.
    let (_server, [tcp, _]) = node(&["--service-time", "150ms"]);
    let slow = ping(&tcp, "-c 5");
    let (_server, urls) = Server::reflect(&["text+tcp"], "127.0.0.1", &[]);
    let fast = ping(&urls[0], "-c 5");
    let acks = |result: &Value| result["values"]["acks_received"].as_u64().unwrap();
    assert!(acks(&slow) >= REQUESTS, "{}", slow["values"]);
    assert!(acks(&fast) < REQUESTS, "{}", fast["values"]);
}

#[test]
fn usage_errors_name_the_option_and_its_range() {
    for (arguments, words) in [
        (&["node-sim", "--sockets", "0"][..], "--sockets: 1 to 256"),
        (&["node-sim", "--print-delay", "40ms..20ms"], "smaller time to the larger"),
        (&["node-sim", "--like", "uno"], "chung-2021-best"),
        (&["node-sim", "stamp://127.0.0.1"], "text+udp://"),
        (&["ping", "text+udp://127.0.0.1:9", "--clients", "65"], "--clients: 1 to 64"),
        (&["ping", "icmp://127.0.0.1", "--clients", "2"], "icmp:// has one client"),
        (&["ping", "stamp://127.0.0.1", "--clients", "2"], "text+tcp:// only"),
    ] {
        let output = dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
    }
}
