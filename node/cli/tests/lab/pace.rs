//! Pacing over links: engines compared with a capture at the far end, and unusual links.

use std::fs;
use std::process::{Command, Output, Stdio};

use dwell_io::{interface, netns};
use dwell_record::segment::{self, Record};
use dwell_wire::traffic::Mark;
use serde_json::{Value, json};

use crate::capture::{Capture, Captured};
use crate::fixture::{DWELL, Running, TestLab, as_root, has, said, skip, until};

fn sent(lab: &TestLab, host: &str, more: &[&str]) -> Output {
    let url = format!("udp://{host}:9");
    lab.exec("n1", &[&[DWELL, "pace", &url][..], more].concat())
}

/// The summary of two trains.
fn summary_of(lab: &TestLab, host: &str, more: &[&str]) -> Value {
    let two = ["--rate", "50Mbit/s", "--repeat", "2", "--json"];
    let output = sent(lab, host, &[&two[..], more].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn pace(lab: &TestLab, more: &[&str]) -> Value {
    summary_of(lab, "198.19.0.2", more)
}

/// Sequence numbers from here on belong to lead-in and warm-up packets.
const UNCOUNTED: u64 = 1 << 63;

/// The counted packets of a capture: sequence number, arrival time, payload length.
fn counted(captured: &[Captured]) -> Vec<(u64, i64, usize)> {
    let of = |packet: &Captured| {
        let mark = Mark::parse(&packet.payload).expect("a mark");
        (mark.seq < UNCOUNTED).then_some((mark.seq, packet.at, packet.payload.len()))
    };
    captured.iter().filter_map(of).collect()
}

/// The packets of a segment: sequence number, arrival time at the sink.
fn recorded(file: &str) -> Vec<(u64, i64)> {
    let mut packets = Vec::new();
    segment::read(&mut fs::File::open(file).unwrap(), &mut |record| {
        if let Record::Sample(sample, ..) = record {
            packets.push((sample.id, sample.remote.expect("the packet arrived").rx.as_nanos()));
        }
    })
    .unwrap();
    packets
}

/// Capture and sink timestamp the same packets, so times and gaps agree to the nanosecond.
#[test]
fn pace_samples_match_a_capture_at_the_sink() {
    if !as_root() || !has("tcpdump") {
        return;
    }
    let lab = TestLab::up("pacecap", &["line:2"]);
    let sink = Running::start(&lab, "n2", "stamping", &["pace", "sink", "udp://0.0.0.0:5001"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pace.segment");
    let file = file.to_str().unwrap();
    // All except txtime, which needs a queueing discipline that labs do not have.
    let engines: [&[&str]; 9] = [
        &["sleep"],
        &["spin"],
        &["sleep-spin"],
        &["sendmmsg"],
        &["gso", "--switch-offloads"],
        &["packet-ring"],
        &["packet-ring", "--bypass"],
        &["xsk"],
        &["uring"],
    ];
    let train = ["--rate", "20Mbit/s", "--count", "20", "--repeat", "4"];
    let pairs = ["--pattern", "pair", "--pairs", "40", "--gap", "300us"];
    for (engine, pattern) in engines.iter().flat_map(|e| [(e, &train[..]), (e, &pairs[..])]) {
        let capture = Capture::start(&lab.netns("n2"), "n1", "udp and dst port 5001");
        let how = ["pace", "udp://198.19.0.2:5001", "--size", "300B", "--sink", "--stamps", "user"];
        let options = ["--json", "-q", "--samples", file, "--engine"];
        let output = lab.exec("n1", &[&[DWELL], &how[..], &options, engine, pattern].concat());
        if engine[0] == "uring" && output.status.code() == Some(4) {
            skip(&said(&output));
            continue;
        }
        assert!(output.status.success(), "{engine:?}: {output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let captured = counted(&capture.end(|packets| counted(packets).len() >= 80));
        assert!(captured.iter().all(|(_, _, len)| *len == 300 - 28), "{engine:?}: bytes");
        assert!(captured.is_sorted_by_key(|(number, ..)| *number), "{engine:?}: order");
        let seen: Vec<_> = captured.iter().map(|(number, at, _)| (*number, *at)).collect();
        assert_eq!(seen, recorded(file), "{engine:?} {pattern:?}: count and stamps");
        let neighbours = seen.windows(2).filter(|pair| pair[1].0 == pair[0].0 + 1);
        let gaps: Vec<i64> = neighbours.map(|pair| pair[1].1 - pair[0].1).collect();
        let summary_of = &found["metrics"]["gap_ns"];
        assert_eq!(summary_of["count"], json!(gaps.len()), "{engine:?}: {found:#}");
        assert_eq!(summary_of["min"], json!(gaps.iter().min()), "{engine:?}: {found:#}");
        assert_eq!(summary_of["max"], json!(gaps.iter().max()), "{engine:?}: {found:#}");
    }
    sink.end();
}

#[test]
fn pace_without_size_uses_the_path_mtu() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("pacemtu", &["line:2"]);
    let how = ["--engine", "sleep-spin"];
    assert_eq!(pace(&lab, &how)["parameters"]["size_bytes"], json!(1_500));
    // A route with a smaller path MTU.
    let path = ["198.19.0.2", "via", "198.18.0.2", "src", "198.19.0.1", "mtu", "1300"];
    let route = [&["ip", "route", "replace"][..], &path].concat();
    assert!(lab.exec("n1", &route).status.success());
    let found = pace(&lab, &how);
    assert_eq!(found["parameters"]["size_bytes"], json!(1_300), "{found:#}");
    assert_eq!(found["values"]["packets"], json!(100));
}

#[test]
fn pace_over_tap_reports_an_unseen_limit() {
    if !as_root() {
        return;
    }
    let cases: [(&[&str], bool); 2] =
        [(&["line:2", "--rate", "20Mbit/s", "--mechanism", "tap"], true), (&["line:2"], false)];
    for (topology, is_reported) in cases {
        let lab = TestLab::up("pacetap", topology);
        let found = pace(&lab, &["--engine", "sleep-spin", "--size", "576B"]);
        let said = found["trust"]["warnings"].to_string();
        assert_eq!(said.contains("tun or tap"), is_reported, "{topology:?}: {said}");
        // Such a result gets no verdict.
        assert_eq!(found["parameters"]["limit_unseen"], json!(is_reported), "{topology:?}");
    }
}

#[test]
fn stopped_pace_restores_the_offloads() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("pacestop", &["line:2"]);
    let cuts = || {
        let all = netns::within(&lab.netns("n1"), interface::all).unwrap().unwrap();
        let link = all.into_iter().find(|found| found.name == "n2").expect("the interface to n2");
        link.send_merging_offloads().is_some_and(|offloads| !offloads.is_empty())
    };
    assert!(cuts(), "a veth leaves segmentation to the receiver");
    for signals in [&["-HUP"][..], &["-INT", "-INT"], &["-TERM"]] {
        let sending = || {
            // The tests may run with SIGHUP ignored.
            let mut pace = Command::new("env");
            pace.args(["--default-signal=HUP", DWELL]);
            pace.args(["pace", "udp://198.19.0.2:9", "--rate", "10Mbit/s", "--repeat", "2000"]);
            pace.args(["--engine", "gso", "--switch-offloads", "--json", "-q"]);
            pace.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        };
        let sending = netns::within(&lab.netns("n1"), sending).unwrap();
        until("the offload is off", || !cuts());
        for signal in signals {
            let pid = sending.id().to_string();
            // The process may have ended before the second signal.
            Command::new("kill")
                .args([signal, pid.as_str()])
                .stderr(Stdio::null())
                .status()
                .unwrap();
        }
        let output = sending.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{signals:?}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("the partial result");
        assert_eq!(found["kind"], "pace");
        assert!(cuts(), "{signals:?}: the offload stayed off");
    }
}

/// Creates a link with two queues and both ends in the first node.
fn of_two_queues(lab: &TestLab, name: &str) {
    let ip = |arguments: &str| {
        let words: Vec<&str> = arguments.split(' ').collect();
        assert!(lab.exec("n1", &words).status.success(), "{arguments}");
    };
    ip(&format!("ip link add {name} numtxqueues 2 type veth peer name {name}far"));
    ip(&format!("ip addr add 10.99.0.1/24 dev {name}"));
    ip(&format!("ip link set {name} up"));
    ip(&format!("ip link set {name}far up"));
    ip(&format!("ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev {name} nud permanent"));
}

#[test]
fn bypassed_limit_of_one_tx_queue_is_reported() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("pacequeues", &["line:2"]);
    of_two_queues(&lab, "wide");
    let send = || summary_of(&lab, "10.99.0.2", &["--engine", "packet-ring", "--bypass"]);
    let tc = |rest: &str| {
        let words: Vec<&str> = "tc qdisc replace dev wide ".split_terminator(' ').collect();
        let command = [&words[..], &rest.split(' ').collect::<Vec<_>>()].concat();
        assert!(lab.exec("n1", &command).status.success(), "{rest}");
    };
    tc("root handle 1: mq");
    assert_eq!(send()["parameters"]["limit_unseen"], json!(false));
    tc("parent 1:2 tbf rate 10mbit burst 1540 limit 200000");
    let found = send();
    assert_eq!(found["environment"]["qdisc"], "mq");
    assert_eq!(found["parameters"]["limit_unseen"], json!(true), "{found:#}");
    assert!(found["trust"]["warnings"].to_string().contains("tbf limits the rate"), "{found:#}");
}

#[test]
fn pace_to_an_unresolved_neighbour_fails() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("pacedead", &["line:2"]);
    of_two_queues(&lab, "wide");
    for (stamps, code) in [("auto", 1), ("kernel", 4)] {
        let how = ["--rate", "10Mbit/s", "--repeat", "1", "--engine", "spin", "--stamps", stamps];
        let output = sent(&lab, "10.99.0.77", &how);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(said(&output).contains("no departure was timestamped"), "{output:?}");
    }
}
