//! Traffic over lossy links: the link, iperf and dwell count the same losses, and their jitter
//! agrees with a capture.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::capture::{Capture, Captured};
use crate::fixture::{DWELL, TestLab, as_root, has, kill, said, skip, until};

/// Sequence numbers of iperf datagrams that the link dropped, without FINs, which are repeated.
fn dropped(lab: &TestLab) -> BTreeSet<u32> {
    let word = |event: &Value, at: usize| {
        let head = event["payload_head"].as_str().unwrap();
        u32::from_str_radix(&head[2 * at..2 * at + 8], 16).unwrap()
    };
    let events = lab.events();
    let ours = events.iter().filter(|event| event["action"] == "drop" && event["dport"] == 5_001);
    ours.map(|event| word(event, 0)).filter(|id| *id >> 31 == 0).collect()
}

/// A command in a node, killed when its test ends.
struct InNode(Child);

impl InNode {
    fn start(lab: &TestLab, node: &str, command: &[&str]) -> Self {
        let child = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, node, "--"])
            .args(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits until it listens on UDP port 5001.
    fn listening(self) -> Self {
        let table = format!("/proc/{}/net/udp", self.0.id());
        until("the command listens", || {
            fs::read_to_string(&table).is_ok_and(|text| text.contains(":1389 "))
        });
        self
    }

    fn stop(mut self, with: Signal) -> String {
        Handle::open(self.0.id()).unwrap().signal(with).unwrap();
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for InNode {
    fn drop(&mut self) {
        kill(&mut self.0);
    }
}

/// One-way delays in nanoseconds of captured iperf packets in order of arrival, by the timestamps
/// that they carry. FINs are repeated; the first one is appended if `fin` is set.
fn one_way(captured: &[Captured], fin: bool) -> Vec<i64> {
    let field = |packet: &Captured, at: usize| {
        i64::from(i32::from_be_bytes(packet.payload[at..at + 4].try_into().unwrap()))
    };
    let is_fin = |packet: &&Captured| field(packet, 0) < 0;
    let first_fin = captured.iter().find(is_fin).filter(|_| fin);
    let others = captured.iter().filter(|packet| !is_fin(packet));
    let sent = |packet| 1_000_000_000 * field(packet, 4) + 1_000 * field(packet, 8);
    others.chain(first_fin).map(|packet| packet.at - sent(packet)).collect()
}

/// Median by nearest rank.
fn middle(delays: &[i64]) -> i64 {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) / 2]
}

/// Jitter as in RFC 3550 section 6.4.1.
fn jitter_of(delays: &[i64]) -> f64 {
    let distances = delays.windows(2).map(|pair| (pair[1] - pair[0]).abs() as f64);
    distances.fold(0.0, |jitter, distance| jitter + (distance - jitter) / 16.0)
}

/// The first figures of an iperf server report in `text`: jitter in ms, lost, total.
fn printed(text: &str) -> (f64, u64, u64) {
    let line = BufReader::new(text.as_bytes())
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains(" ms ") && line.contains('%'))
        .unwrap_or_else(|| panic!("no report: {text}"));
    let (before, after) = line.split_once(" ms ").unwrap();
    let (lost, total) = after.split_whitespace().next().unwrap().split_once('/').unwrap();
    let jitter = before.split_whitespace().next_back().unwrap();
    (jitter.parse().unwrap(), lost.parse().unwrap(), total.parse().unwrap())
}

fn ready(test: &str, delay: &[&str]) -> Option<TestLab> {
    if !as_root() {
        return None;
    }
    if Command::new("iperf").arg("--version").output().is_err() {
        skip("iperf is not installed (make setup)");
        return None;
    }
    let link = ["line:2", "--loss", "5%", "--seed", "11", "--mechanism", "tap"];
    Some(TestLab::up(test, &[&link[..], delay].concat()))
}

#[test]
fn iperf_server_and_sink_count_the_same_losses() {
    let traffic =
        ["--rate", "250pps", "--count", "600", "--size", "200B", "--header", "iperf", "--json"];
    if !has("tcpdump") {
        return;
    }
    let mut lost = Vec::new();
    for (name, real, relayed) in
        [("iperf-s", true, false), ("sink", false, false), ("iperf-r", true, true)]
    {
        let delay = ["--delay", "4ms", "--jitter", "2ms"];
        let Some(lab) = ready(name, &delay) else { return };
        let sink = [DWELL, "load", "sink", "udp://0.0.0.0:5001", "--clock-error", "0s", "--json"];
        let server: &[&str] = if real { &["iperf", "-s", "-u", "-e"] } else { &sink };
        let server = InNode::start(&lab, "n2", server).listening();
        let capture = Capture::start(&lab.netns("n2"), "n1", "udp and dst port 5001");
        // On the sender's node, before the link.
        let relay = [DWELL, "relay", "--listen", "udp://127.0.0.1:5001", "--to"];
        let relay = [&relay[..], &["udp://198.19.0.2:5001"]].concat();
        let relay = relayed.then(|| InNode::start(&lab, "n1", &relay).listening());
        let to = if relayed { "udp://127.0.0.1:5001" } else { "udp://198.19.0.2:5001" };
        let output = lab.exec("n1", &[&[DWELL, "load", "traffic", to][..], &traffic].concat());
        let sent: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
        drop(relay);
        let dropped = dropped(&lab);
        assert!((12..60).contains(&dropped.len()), "5 % of 600: {}", dropped.len());
        let text = server.stop(if real { Signal::Terminate } else { Signal::Interrupt });
        // The last packet is the first FIN, which counts.
        let arrived = 600 - dropped.len();
        let captured = capture.end(|packets| one_way(packets, true).len() >= arrived);
        let delays = one_way(&captured, true);
        assert_eq!(delays.len(), arrived, "{name}");
        let (jitter, server_lost) = if real {
            let (jitter, lost, total) = printed(&text);
            assert_eq!(total, 600, "{text}");
            (jitter * 1e6, lost)
        } else {
            let result: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(result["packets"]["sent"], 600, "{result}");
            let one_way_delay = &result["metrics"]["one_way_forward_ns"];
            let median = one_way_delay["p50"].as_f64().unwrap();
            // The FIN does not enter the one-way delays.
            let captured = middle(&one_way(&captured, false));
            assert!(
                (median - captured as f64).abs() < 1_001.0,
                "{captured} ns, and {one_way_delay}"
            );
            let jitter = result["values"]["jitter_rfc3550_ns"].as_f64().unwrap();
            (jitter, result["packets"]["lost"].as_u64().unwrap())
        };
        assert_eq!(server_lost, dropped.len() as u64, "{text}");
        assert_eq!(sent["packets"]["lost"], server_lost, "{sent}");
        assert_eq!(sent["values"]["server_packets"], 600);
        // Reported and printed in whole microseconds.
        let reported = sent["values"]["server_jitter_ns"].as_f64().unwrap();
        assert!((reported - jitter).abs() <= 1_001.0, "{reported} and {jitter} ns");
        println!("{name}: jitter {jitter} ns, {} of the capture", jitter_of(&delays));
        // iperf's timestamps and output have microsecond resolution.
        assert!((jitter - jitter_of(&delays)).abs() < 1_001.0, "{text}");
        // The link adds 4 ms plus or minus 2 ms; this machine only lengthens delays.
        assert!(delays.iter().all(|delay| *delay >= 2_000_000), "{delays:?}");
        assert!(delays.iter().min().is_some_and(|least| *least < 3_000_000), "{delays:?}");
        lost.push(dropped);
    }
    assert!(
        lost.iter().all(|other| *other == lost[0]),
        "the same seed loses the same packets: {lost:?}"
    );
}

#[test]
fn iperf_client_reports_losses_counted_by_the_sink() {
    let Some(lab) = ready("iperf-c", &["--delay", "2ms"]) else { return };
    let sink = [DWELL, "load", "sink", "udp://0.0.0.0:5001", "--json"];
    let sink = InNode::start(&lab, "n2", &sink).listening();
    let client =
        ["iperf", "-c", "198.19.0.2", "-u", "-e", "-b", "1000pps", "-l", "200", "-t", "1.5"];
    let output = lab.exec("n1", &client);
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, report) = text.split_once("Server Report").unwrap_or_else(|| panic!("{text}"));
    let (jitter, lost, total) = printed(report);
    let dropped = dropped(&lab);
    let result: Value = serde_json::from_str(&sink.stop(Signal::Interrupt)).unwrap();
    assert!(dropped.len() > 30, "5 % of 1,500: {}", dropped.len());
    assert_eq!(lost, dropped.len() as u64, "{text}");
    assert_eq!(
        (&result["packets"]["lost"], &result["packets"]["sent"]),
        (&lost.into(), &total.into())
    );
    let ours = result["values"]["jitter_rfc3550_ns"].as_f64().unwrap() / 1e6;
    assert!((jitter - ours).abs() < 0.001_1, "{jitter} and {ours} ms");
    assert_eq!(result["metrics"]["one_way_forward_ns"], Value::Null, "no common clock was stated");
}
