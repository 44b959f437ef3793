//! Bulk TCP traffic over a lab's link: bufferbloat, goodput, and a peer that vanishes.

use std::process::Output;
use std::thread;

use serde_json::Value;

use crate::fixture::{DWELL, Running, TestLab, as_root, said, until};

/// A lab with a 10 Mbit/s link and a TCP sink in n2.
fn ready(name: &str) -> Option<(TestLab, Running)> {
    if !as_root() {
        return None;
    }
    let lab = TestLab::up(name, &["line:2", "--rate", "10M"]);
    let sink = ["load", "sink", "tcp://0.0.0.0:5001", "--json"];
    let sink = Running::start(&lab, "n2", "listening on", &sink);
    Some((lab, sink))
}

/// The median round-trip delay of 100 ICMP probes in a second, in milliseconds.
fn median_ms(lab: &TestLab) -> f64 {
    let ping =
        [DWELL, "ping", "icmp://198.19.0.2", "-c", "100", "-i", "10ms", "-W", "2s", "--json"];
    let output = lab.exec("n1", &ping);
    result(&output)["metrics"]["rtt_ns"]["p50"].as_f64().unwrap() / 1e6
}

fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(output)))
}

/// Bytes sent by interface 'n2' of n1 (/proc/net/dev: the ninth field after the name).
fn sent_bytes(lab: &TestLab) -> u64 {
    let output = lab.exec("n1", &["cat", "/proc/net/dev"]);
    let table = String::from_utf8_lossy(&output.stdout);
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix("n2:"));
    row.and_then(|row| row.split_whitespace().nth(8)?.parse().ok())
        .unwrap_or_else(|| panic!("{table}"))
}

#[test]
fn bulk_load_fills_the_link_and_its_queue() {
    let Some((lab, sink)) = ready("bloat") else { return };
    let idle = median_ms(&lab);
    let before = sent_bytes(&lab);
    let (busy, sent) = thread::scope(|scope| {
        // TCP small queues limit the data of one connection in the queue of its host.
        let more = ["--flows", "4", "--duration", "6s", "--json"];
        let load = [&[DWELL, "load", "traffic", "tcp://198.19.0.2:5001"], &more[..]].concat();
        let lab = &lab;
        let load = scope.spawn(move || lab.exec("n1", &load));
        until("the queue is full", || sent_bytes(lab) - before > 1_000_000);
        let busy = median_ms(lab);
        (busy, result(&load.join().unwrap()))
    });
    let received = sink.end();
    let goodput = sent["values"]["payload_rate_bps"].as_f64().unwrap();
    println!("median {idle:.2} ms idle, {busy:.2} ms under load; goodput {goodput:.0} bit/s");
    assert!(idle < 5.0 && busy > 10.0 && busy > 10.0 * idle, "{idle} and {busy} ms");
    // 10 Mbit/s of frames carry 9.57 Mbit/s of payload at 1,448 B of 1,514 B.
    assert!((8e6..=10e6).contains(&goodput), "{sent:#}");
    assert!(sent["metrics"]["tcp_rtt_ns"]["p50"].as_f64().unwrap() > 10e6, "{sent:#}");
    assert!(sent["values"]["delivery_rate_bps"].as_f64().unwrap() < 20e6, "{sent:#}");
    // Data in flight at the end may or may not arrive.
    let (acked, arrived) =
        (&sent["values"]["payload_bytes"], &received["values"]["tcp_payload_bytes"]);
    let (acked, arrived) = (acked.as_f64().unwrap(), arrived.as_f64().unwrap());
    assert!(arrived >= acked && arrived < acked * 1.3, "{acked} and {arrived} B");
    assert_eq!(received["values"]["tcp_connections"], 4);
    let rates = received["parameters"]["connection_rate_bps"].as_array().unwrap();
    let sum: f64 = rates.iter().map(|rate| rate.as_f64().unwrap()).sum();
    assert!(rates.len() == 4 && (8e6..=10e6).contains(&sum), "{received:#}");
}

#[test]
fn bulk_load_ends_when_its_peer_vanishes() {
    let Some((lab, _sink)) = ready("vanish") else { return };
    let before = sent_bytes(&lab);
    let output = thread::scope(|scope| {
        // Without a duration.
        let load = [DWELL, "load", "traffic", "tcp://198.19.0.2:5001", "--json"];
        let lab = &lab;
        let load = scope.spawn(move || lab.exec("n1", &load));
        until("bytes leave", || sent_bytes(lab) - before > 100_000);
        let down = lab.exec("n2", &["ip", "link", "set", "n1", "down"]);
        assert!(down.status.success(), "{}", said(&down));
        load.join().unwrap()
    });
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("every connection to tcp://198.19.0.2:5001 ended"),
        "{output:?}"
    );
    let sent = result(&output);
    assert_eq!(sent["values"]["flows_failed"], 1, "{sent:#}");
    assert!(sent["values"]["payload_bytes"].as_u64().unwrap() > 0, "{sent:#}");
}
