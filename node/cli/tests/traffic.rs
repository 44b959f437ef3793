//! `dwell load traffic` and `dwell load sink` against each other and against the original iperf,
//! over loopback.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dwell_io::process::Signal;
use dwell_record::segment::{self, FlowEntry, Record};
use dwell_sample::{PacketObservation, PacketOutcome, Point};
use serde_json::Value;
use support::{DWELL, Server, dwell, free_port, json, said, signal};

/// A file that is removed at the end of its test.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn named(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("dwell-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Reads the flows and observations of a complete segment.
fn observations(path: &str) -> (Vec<FlowEntry>, Vec<PacketObservation>) {
    let (mut flows, mut observations) = (Vec::new(), Vec::new());
    let mut file = fs::File::open(path).unwrap();
    let end = segment::read(&mut file, &mut |record| match record {
        Record::Flow(flow) => flows.push(flow.clone()),
        Record::PacketObservation(observation) => observations.push(*observation),
        Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
    })
    .unwrap();
    assert_eq!(end.totals.unwrap().samples, observations.len() as u64, "the segment is complete");
    (flows, observations)
}

/// Starts `dwell load sink` on a free port; returns it with its URL.
fn sink(more: &[&str]) -> (Server, String) {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let mut command = Command::new(DWELL);
    command.args(["load", "sink", &url, "--json"]).args(more);
    (Server::ready(command, "listening on", 1), url)
}

/// Starts a relay of `mode` in front of `to`; returns it with its URL.
fn relay(to: &str, mode: &[&str]) -> (Server, String) {
    let listen = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let mut relay = Command::new(DWELL);
    relay.args(["relay", "--listen", &listen, "--to", to, "--json", "--mode"]).args(mode);
    relay.env("DWELL_KEY", "000102030405060708090a0b0c0d0e0f");
    (Server::ready(relay, "relaying", 1), listen)
}

/// Parses the figures of an iperf server: jitter in ms, lost, total.
fn printed(text: &str) -> Vec<(f64, u64, u64)> {
    let row = |line: &str| {
        let (before, after) = line.split_once(" ms ")?;
        let jitter = before.split_whitespace().next_back()?.parse().ok()?;
        let (lost, total) = after.split_whitespace().next()?.split_once('/')?;
        Some((jitter, lost.parse().ok()?, total.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

fn has_iperf(test: &str) -> bool {
    let found = Command::new("iperf").arg("--version").output().is_ok();
    if !found {
        println!("SKIP {test}: iperf is not installed (make setup)");
    }
    found
}

/// An iperf server on a free loopback port; stopped on drop.
struct Iperf {
    child: Child,
    port: u16,
}

impl Iperf {
    fn serve(more: &[&str]) -> Self {
        let port = free_port("127.0.0.1");
        let mut child = Command::new("iperf")
            .args(["-s", "-u", "-e", "-p", &port.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let bound = format!(":{port:04X} ");
        let since = Instant::now();
        while !fs::read_to_string("/proc/self/net/udp").unwrap().contains(&bound) {
            assert!(since.elapsed() < Duration::from_secs(10), "iperf starts to listen");
            assert!(child.try_wait().unwrap().is_none(), "iperf keeps running");
        }
        Self { child, port }
    }

    /// Stops the server; returns its output.
    fn stop(mut self) -> String {
        signal(&self.child, Signal::Terminate);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stdout.take().unwrap(), &mut text).unwrap();
        text
    }
}

impl Drop for Iperf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn both_ends_record_all_packets_in_stamp_order() {
    let (sender, receiver) = (TemporaryFile::named("sender"), TemporaryFile::named("receiver"));
    let (sink, url) = sink(&["--samples", receiver.path()]);
    let traffic = ["load", "traffic", &url, "--rate", "500pps", "--count", "300", "--json"];
    let more = ["--size", "400B", "--header", "iperf", "--flows", "2", "--samples", sender.path()];
    let sent = json(&dwell(&[&traffic[..], &more].concat()));
    let received = json(&sink.stop());
    for result in [&sent, &received] {
        assert_eq!(result["packets"]["sent"], 300, "{result}");
        assert_eq!(result["packets"]["lost"], 0, "{result}");
    }
    assert_eq!(sent["values"]["server_packets"], 300);
    assert_eq!(sent["values"]["server_payload_bytes"], 300 * 400);
    // The client repeats a FIN if the report takes long.
    assert!(received["values"]["iperf_reports"].as_u64() >= Some(2), "{received}");
    assert_eq!(received["metrics"]["one_way_forward_ns"]["count"], 298, "loopback uses one clock");
    // A busy machine sends packets late and then together, but none early.
    assert!(sent["metrics"]["schedule_error_ns"]["min"].as_i64().unwrap() >= 0, "{sent}");
    let (sender_flows, sender) = observations(sender.path());
    let (receiver_flows, receiver) = observations(receiver.path());
    let ends = |flow: &FlowEntry| (flow.from, flow.to);
    let join =
        |flows: &[FlowEntry], all: Vec<PacketObservation>| -> BTreeMap<_, PacketObservation> {
            let flow = |name| flows.iter().find(|flow| flow.flow == name).unwrap();
            all.into_iter()
                .map(|observation| ((ends(flow(observation.flow)), observation.id), observation))
                .collect()
        };
    let (sender, receiver) = (join(&sender_flows, sender), join(&receiver_flows, receiver));
    // FINs are not observed: they may be sent several times.
    assert_eq!((sender.len(), receiver.len()), (298, 298));
    let mut without = BTreeMap::new();
    for ((key, tx), (other, rx)) in sender.iter().zip(&receiver) {
        assert_eq!(key, other, "the same flow and id at both ends");
        assert_eq!(
            (tx.outcome, rx.outcome, tx.size, rx.size),
            (PacketOutcome::Sent, PacketOutcome::Received, 400, 400)
        );
        let at = |observation: &PacketObservation, point| observation.stamps.get(point);
        assert!(at(tx, Point::TxAppDone).unwrap() > at(tx, Point::TxApp).unwrap());
        let all = [
            at(tx, Point::TxApp),
            at(tx, Point::TxSched),
            at(tx, Point::TxKernel),
            at(rx, Point::RxKernel),
            at(rx, Point::RxApp),
        ];
        let all: Vec<_> = all.into_iter().flatten().collect();
        assert!(all.is_sorted(), "{key:?}: {tx:?} {rx:?}");
        without.insert(at(tx, Point::TxApp).unwrap(), all.len() < 5);
    }
    // The kernel enables timestamps a moment after the first request, so the first packets lack
    // them.
    let without: Vec<bool> = without.into_values().collect();
    let all = without.iter().rposition(|without| *without).map_or(0, |last| last + 1);
    assert!(
        without[..all].iter().all(|without| *without),
        "only the first packets may lack timestamps: {without:?}"
    );
    assert!(all < 149, "the first {all} of 298 packets lack timestamps");
}

#[test]
fn iperf_server_agrees_with_traffic_counts() {
    const TEST: &str = "iperf_server_agrees_with_traffic_counts";
    if !has_iperf(TEST) {
        return;
    }
    for (size, relayed) in
        [("1000B", false), ("100B", false), ("60B", false), ("20B", false), ("1000B", true)]
    {
        // A buffer for all packets, in case the server is stalled.
        let server = Iperf::serve(&["-w", "208K"]);
        let url = format!("udp://127.0.0.1:{}", server.port);
        let relay = relayed.then(|| relay(&url, &["translate"]));
        let url = relay.as_ref().map_or(url, |(_, listen)| listen.clone());
        let traffic = ["load", "traffic", &url, "--rate", "1000pps", "--count", "80", "--json"];
        let result = json(&dwell(&[&traffic[..], &["--size", size, "--header", "iperf"]].concat()));
        let text = server.stop();
        let [(jitter, lost, total)] = printed(&text)[..] else { panic!("{size}: {text}") };
        assert_eq!((lost, total), (0, 80), "{size}: {text}");
        let value = |name: &str| result["values"][name].as_f64().unwrap();
        assert_eq!((value("server_lost"), value("server_packets")), (0.0, 80.0), "{size}");
        // iperf prints and reports whole microseconds.
        assert!((value("server_jitter_ns") / 1e6 - jitter).abs() <= 0.001_001, "{size}: {text}");
        assert_eq!(result["packets"]["received"], 80);
        assert!(!text.contains("out-of-order"), "{size}: {text}");
        let passed =
            relay.map(|(relay, _)| json(&relay.stop())["values"]["relayed_forward"].clone());
        assert!(
            passed.is_none_or(|passed| passed.as_u64() >= Some(80)),
            "traffic passed through the relay"
        );
    }
}

#[test]
fn iperf_client_prints_sink_report() {
    const TEST: &str = "iperf_client_prints_sink_report";
    if !has_iperf(TEST) {
        return;
    }
    for (options, relayed) in [
        (&["-e", "-b", "500pps", "-l", "1000"][..], false),
        (&["-e", "-b", "500pps", "-l", "1000"], true),
        (&["-e", "-b", "500pps", "-l", "100"], false),
        (&["-e", "-b", "500pps", "-l", "60"], false),
        (&["-C", "-b", "500pps", "-l", "300"], false),
        (&["-e", "--trip-times", "-b", "500pps", "-l", "300"], false),
        (&["-e", "--isochronous=100:500k,0", "-l", "300"], false),
    ] {
        let (sink, url) = sink(&[]);
        let relay = relayed.then(|| relay(&url, &["translate"]));
        let url = relay.as_ref().map_or(url, |(_, listen)| listen.clone());
        let (_, port) = url.rsplit_once(':').unwrap();
        let client = ["-c", "127.0.0.1", "-u", "-p", port, "-t", "1"];
        let output = Command::new("iperf").args(client).args(options).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let result = json(&sink.stop());
        let (_, report) = text.split_once("Server Report").unwrap_or_else(|| panic!("{text}"));
        let [(jitter, lost, total), ..] = printed(report)[..] else { panic!("{text}") };
        let received = result["packets"]["received"].as_u64().unwrap();
        assert_eq!((lost, total), (0, received), "{options:?}: {text}\n{result}");
        assert!(received > 30, "{options:?}: {text}");
        let ours = result["values"]["jitter_rfc3550_ns"].as_f64().unwrap() / 1e6;
        assert!((jitter - ours).abs() < 0.001_1, "{options:?}: {jitter} and {ours} ms\n{text}");
        assert!(result["values"]["iperf_reports"].as_u64() >= Some(1), "{result}");
    }
}

#[test]
fn sink_never_amplifies() {
    let (sink, url) = sink(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(url.strip_prefix("udp://").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut fin = [0; 20];
    dwell_wire::iperf2::Datagram { id: -1, sec: 1_795_258_609, usec: 5 }.emit(&mut fin);
    let mut answer = [0; 256];
    // Seven of them exceed 128 bytes, the size of a report; before the seventh there is no reply.
    for _ in 0..6 {
        socket.send(&fin).unwrap();
    }
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut answer).is_err());
    socket.set_nonblocking(false).unwrap();
    socket.send(&fin).unwrap();
    assert_eq!(socket.recv(&mut answer).unwrap(), 128);
    let result = json(&sink.stop());
    assert_eq!(result["values"]["iperf_reports"], 1, "{result}");
    assert_eq!(result["values"]["packets"], 7);
}

#[test]
fn repeated_fin_is_not_another_packet() {
    let (sink, url) = sink(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(url.strip_prefix("udp://").unwrap()).unwrap();
    // Like iperf 2.1.8 without a report: repeated with the time of the first and increasing
    // numbers.
    for id in [1, 2, -3, -4, -5, -6] {
        let mut packet = [0; 200];
        dwell_wire::iperf2::Datagram { id, sec: 1_795_258_609, usec: 5 }.emit(&mut packet);
        socket.send(&packet).unwrap();
    }
    let mut report = [0; 256];
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for _ in 0..4 {
        assert_eq!(socket.recv(&mut report).unwrap(), 128);
        assert_eq!(report[44..48], 3_u32.to_be_bytes(), "datagrams");
    }
    let result = json(&sink.stop());
    assert_eq!(result["packets"]["received"], 3, "{result}");
    assert_eq!(result["values"]["packets"], 6, "all packets");
}

#[test]
fn restarted_flow_from_same_port_is_new() {
    let (sink, url) = sink(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(url.strip_prefix("udp://").unwrap()).unwrap();
    let mut packet = [0; 200];
    for id in [1, 2, 3, -4, 1, 2, -3] {
        dwell_wire::iperf2::Datagram { id, sec: 1_795_258_609, usec: 5 }.emit(&mut packet);
        socket.send(&packet).unwrap();
        if id < 0 {
            // The report shows that the sink has read everything before.
            assert_eq!(socket.recv(&mut [0; 256]).unwrap(), 128);
        }
    }
    let result = json(&sink.stop());
    assert_eq!(result["values"]["flows"], 2, "{result}");
    let packets = &result["packets"];
    assert_eq!((&packets["received"], &packets["duplicate"]), (&7.into(), &0.into()), "{result}");
}

/// Sends packets with these iperf ids and times from one port; waits for the report after a FIN.
fn send_iperf(socket: &UdpSocket, packets: &[(i64, u32)]) {
    let mut packet = [0; 200];
    for &(id, sec) in packets {
        dwell_wire::iperf2::Datagram { id, sec, usec: 5 }.emit(&mut packet);
        socket.send(&packet).unwrap();
        if id < 0 {
            assert_eq!(socket.recv(&mut [0; 256]).unwrap(), 128);
        }
    }
}

#[test]
fn flow_without_first_packet_is_still_new() {
    let (sink, url) = sink(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(url.strip_prefix("udp://").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let t = 1_795_258_609;
    send_iperf(&socket, &[(1, t), (2, t + 1), (3, t + 2), (-4, t + 3)]);
    // A packet of the first flow that arrives after its FIN, then the second flow without its first
    // packet.
    send_iperf(&socket, &[(2, t + 1), (2, t + 5), (3, t + 6), (-4, t + 7)]);
    let result = json(&sink.stop());
    assert_eq!(result["values"]["flows"], 2, "{result}");
    let packets = &result["packets"];
    let expected = (&7.into(), &1.into(), &1.into());
    assert_eq!((&packets["received"], &packets["lost"], &packets["duplicate"]), expected);
}

#[test]
fn sink_overflow_is_separate_from_loss() {
    let (sink, url) = sink(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(url.strip_prefix("udp://").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let pid = sink.child.id().to_string();
    let pause = |how: &str| {
        assert!(Command::new("kill").args([how, pid.as_str()]).status().unwrap().success())
    };
    pause("-STOP");
    let mut packet = [0; 1_400];
    let mut sent = 0;
    let mut send = |id| {
        dwell_wire::iperf2::Datagram { id, sec: 1_795_258_609, usec: 5 }.emit(&mut packet);
        socket.send(&packet).unwrap();
        sent += 1;
    };
    (1..=20_000).for_each(&mut send);
    pause("-CONT");
    // The report arrives once the receive buffer had room for the FIN.
    let ended = (0..100).any(|_| {
        send(-20_001);
        socket.recv(&mut [0; 256]).is_ok()
    });
    assert!(ended);
    let result = json(&sink.stop());
    let count = |name: &str| result["values"][name].as_u64().unwrap();
    assert!(count("overflowed") > 1_000, "{result}");
    assert_eq!(count("packets") + count("overflowed"), sent, "{result}");
    assert!(count("lost") <= count("overflowed") && count("lost") > 1_000, "{result}");
    assert!(result["trust"]["warnings"].to_string().contains("buffer was full"), "{result}");
}

#[test]
fn ids_survive_encryption_after_12_bytes() {
    let (sender, receiver) =
        (TemporaryFile::named("sender-12"), TemporaryFile::named("receiver-12"));
    let (sink, to) = sink(&["--samples", receiver.path()]);
    let (relay, listen) = relay(&to, &["encrypt", "--clear", "12"]);
    let traffic = ["load", "traffic", &listen, "--rate", "500pps", "--count", "100", "--json"];
    let more = ["--size", "400B", "--header", "iperf", "--samples", sender.path()];
    assert!(dwell(&[&traffic[..], &more].concat()).status.success());
    let _ = relay.stop();
    let result = json(&sink.stop());
    assert_eq!(result["values"]["unmarked"], 0, "{result}");
    let ids = |path: &str| {
        let mut ids: Vec<_> =
            observations(path).1.iter().map(|observation| observation.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(receiver.path()), ids(sender.path()));
    assert_eq!(ids(receiver.path()).len(), 99, "all but the FIN");
}

#[test]
fn payload_is_repeatable_by_seed() {
    let receive = |seed: &str| -> Vec<Vec<u8>> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let url = format!("udp://{}", socket.local_addr().unwrap());
        let traffic =
            ["load", "traffic", &url, "--rate", "1000pps", "--count", "3", "--seed", seed];
        let output = dwell(&[&traffic[..], &["--size", "300B", "--json"]].concat());
        assert_eq!(json(&output)["packets"], Value::Null, "arrivals are unknown");
        let mut buffer = [0; 2_000];
        (0..3)
            .map(|_| socket.recv(&mut buffer).map(|len| buffer[..len].to_vec()).unwrap())
            .collect()
    };
    let (first, again, other) = (receive("1"), receive("1"), receive("2"));
    assert_eq!(first, again);
    assert!(first.iter().all(|packet| packet[16..] == first[0][16..]));
    assert_ne!(first[0][16..], other[0][16..]);
    let different: std::collections::BTreeSet<u8> = first[0][16..].iter().copied().collect();
    assert!(different.len() > 100, "the payload is random");
}

#[test]
fn missing_server_is_reported_after_sending() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let traffic = ["load", "traffic", &url, "--rate", "1000pps", "--count", "20", "--json"];
    let result = json(&dwell(&[&traffic[..], &["--header", "iperf"]].concat()));
    assert_eq!(result["packets"], Value::Null);
    assert_eq!(result["values"]["packets"], 20);
    assert_eq!(result["values"]["server_lost"], Value::Null);
    assert!(result["trust"]["warnings"].to_string().contains("did not report: 1 of 1"), "{result}");
}

#[test]
fn unwritable_samples_fail_before_sending() {
    if !Path::new("/dev/full").exists() {
        println!("SKIP unwritable_samples_fail_before_sending: no /dev/full");
        return;
    }
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let traffic = ["load", "traffic", &url, "--rate", "1000pps", "--count", "20", "--json"];
    let output = dwell(&[&traffic[..], &["--samples", "/dev/full"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("cannot write /dev/full"), "{}", said(&output));
}

#[test]
fn invalid_traffic_options_are_explained() {
    let traffic = ["load", "traffic", "udp://127.0.0.1:9", "--rate", "10pps", "--header", "iperf"];
    for (flags, right) in [
        (&["--size", "19B"][..], "20B to 65507B"),
        (&["--count", "1"], "2 or more"),
        (&["--flows", "3", "--count", "5"], "6 or more"),
        (&["--header", "iperf3"], "possible values"),
        (&["--cpu", "4000"], "this process may run on"),
    ] {
        let last = if flags[0] == "--header" { &traffic[..5] } else { &traffic[..] };
        let output = dwell(&[last, flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
        assert!(said(&output).contains(right), "{flags:?}: {}", said(&output));
    }
    let output = dwell(&["load", "sink", "udp://127.0.0.1:0", "--clock-error=-1us"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("0s or more"), "{}", said(&output));
}

#[test]
fn stopped_sink_counts_queued_packets() {
    const COUNT: usize = 100;
    let (mut sink, url) = sink(&[]);
    let kill = |how: &str| {
        let pid = sink.child.id().to_string();
        assert!(Command::new("kill").args([how, &pid]).status().unwrap().success());
    };
    kill("-STOP");
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..COUNT {
        sender.send_to(&[0; 100], url.strip_prefix("udp://").unwrap()).unwrap();
    }
    // The stop takes effect as soon as the process continues.
    kill("-INT");
    kill("-CONT");
    let mut printed = String::new();
    sink.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(result["values"]["packets"], COUNT, "{result}");
}

#[test]
fn stopped_traffic_still_ends_its_flow() {
    let (sink, url) = sink(&[]);
    let mut traffic = Command::new(DWELL);
    traffic.args(["load", "traffic", &url, "--rate", "200pps", "--header", "iperf", "--json"]);
    let traffic = Server::ready(traffic, "sending 1 flows", 1);
    let sent = json(&traffic.stop());
    let received = json(&sink.stop());
    assert_eq!(sent["values"]["packets"], received["values"]["packets"]);
    assert_eq!(sent["values"]["server_packets"], sent["values"]["packets"]);
}

/// Starts `dwell load sink` for TCP on a free port; returns it with its URL.
fn tcp_sink(more: &[&str]) -> (Server, String) {
    // No connection leaves from this address, so none takes the port that was found free.
    let host = "127.0.0.2";
    let url = format!("tcp://{host}:{}", free_port(host));
    let mut command = Command::new(DWELL);
    command.args(["load", "sink", &url]).args(more);
    (Server::ready(command, "listening on", 1), url)
}

#[test]
fn tcp_load_and_sink_agree_on_bytes_and_rate() {
    let (sink, url) = tcp_sink(&["--json"]);
    let sent = dwell(&["load", "traffic", &url, "--bytes", "20MB", "--flows", "4", "--json"]);
    assert_eq!(sent.status.code(), Some(0), "{}", said(&sent));
    let sent = json(&sent);
    assert_eq!(sent["values"]["payload_bytes"], 20_000_000, "{sent:#}");
    assert_eq!(sent["values"]["unacknowledged_bytes"], 0);
    assert!(sent["values"]["payload_rate_bps"].as_f64().unwrap() > 0.0);
    assert!(sent["values"]["min_rtt_ns"].as_u64().unwrap() > 0, "{sent:#}");
    let of_flows = sent["parameters"]["flow_payload_bytes"].as_array().unwrap();
    assert_eq!(of_flows.iter().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), 20_000_000);
    // Writes of 100 kB at 8 Mbit/s: ten per second.
    let paced = ["--rate", "8Mbps", "--size", "100kB", "--count", "10", "--json"];
    let paced = json(&dwell(&[&["load", "traffic", &url], &paced[..]].concat()));
    assert_eq!(paced["values"]["payload_bytes"], 1_000_000, "{paced:#}");
    let took = paced["values"]["duration_ns"].as_f64().unwrap() / 1e9;
    assert!((0.85..3.0).contains(&took), "nine gaps of 0.1 s: {took} s");
    let received = json(&sink.stop());
    let values = &received["values"];
    assert_eq!(
        (&values["tcp_payload_bytes"], &values["tcp_connections"]),
        (&21_000_000.into(), &5.into())
    );
    assert_eq!(received["parameters"]["connection_payload_bytes"][4], 1_000_000, "{received:#}");
    assert_eq!(values["tcp_resets"], 0);
}

#[test]
fn interrupted_tcp_load_prints_its_result() {
    let (sink, url) = tcp_sink(&[]);
    let mut load = Command::new(DWELL);
    load.args(["load", "traffic", &url, "--rate", "80Mbit/s", "--json"]);
    let load = Server::ready(load, "sending to", 1);
    // The connection to the sink exists.
    let received = || {
        let port = url.rsplit(':').next().unwrap().parse::<u16>().unwrap();
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        table.contains(&format!(":{port:04X} 0100007F:"))
    };
    let since = Instant::now();
    while !received() {
        assert!(since.elapsed() < Duration::from_secs(10), "the load connects");
    }
    std::thread::sleep(Duration::from_millis(300));
    let output = load.stop();
    assert_eq!(output.status.code(), Some(0), "a load without a limit ends by a stop");
    assert!(json(&output)["values"]["payload_bytes"].as_u64().unwrap() > 0);
    let text = String::from_utf8(sink.stop().stdout).unwrap();
    assert!(text.contains("tcp payload rate") && text.contains("Mbit/s"), "{text}");
    assert!(text.contains("127.0.0.1:"), "a row per connection: {text}");
    assert!(!text.contains("tcp refused"), "zero rows are left out: {text}");
}

#[test]
fn tcp_load_fails_when_the_far_end_closes() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let closer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 100_000]).unwrap();
    });
    let output = dwell(&["load", "traffic", &url, "--json"]);
    closer.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("ended"), "{}", said(&output));
    assert_eq!(json(&output)["values"]["flows_failed"], 1);
}

#[test]
fn tcp_load_refuses_udp_only_options() {
    for (more, word) in [
        (&["--rate", "20pps"][..], "give bits"),
        (&["--header", "iperf"], "--header iperf is for udp://"),
        (&["--distribution", "poisson"], "--distribution is for udp://"),
        (&["--samples", "x.seg"], "--samples is for udp://"),
        (&["--size", "2MiB"], "1B to 1MiB"),
    ] {
        let output = dwell(&[&["load", "traffic", "tcp://127.0.0.1:9"], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{more:?}: {}", said(&output));
    }
    let output = dwell(&["load", "traffic", "udp://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("needs --rate"), "{}", said(&output));
}
