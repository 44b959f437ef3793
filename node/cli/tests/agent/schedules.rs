//! Schedules, local limits and pauses.

use std::time::{Duration, Instant};

use dwell_protocol::SpoolRequest;
use dwell_rollup::Body;

use crate::carrier::Carrier;
use crate::fixture::{TestNode, sent};
use crate::support::free_port;

fn schedule(version: u64, node: &str, entries: &[(&str, &str, &str)]) -> String {
    let entries = entries.iter().map(|(name, target, interval)| {
        format!(
            r#"{{"name":"{name}","reflector":"n2","target":"{target}","interval":"{interval}"}}"#
        )
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    format!(r#"{{"version":{version},"node":"{node}","entries":[{entries}]}}"#)
}

fn reflecting() -> (String, TestNode) {
    let url = format!("stamp://127.0.0.1:{}", free_port("127.0.0.1"));
    let node = TestNode::new(&format!(
        "[limits]\npackets = \"150pps\"\ntargets = [\"127.0.0.0/8\"]\n[reflect]\nurls = [\"{url}\"]\n"
    ));
    (url, node)
}

#[test]
fn schedule_takes_effect_and_records_name_its_version() {
    let (url, node) = reflecting();
    let agent = node.start();
    let mut carrier = node.carrier();
    assert_eq!(node.await_status(|status| !status.dwell.is_empty()).schedule_version, 0);
    let begun = Instant::now();
    carrier.schedule(&schedule(4, "n1", &[("a", &url, "10ms")]));
    node.await_status(|status| (status.schedule_version, status.streams) == (4, 1));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    std::thread::sleep(Duration::from_millis(500));
    // The stream goes on under the next version.
    carrier.schedule(&schedule(5, "n1", &[("a", &url, "10ms")]));
    node.await_status(|status| (status.schedule_version, status.streams) == (5, 1));
    std::thread::sleep(Duration::from_millis(500));
    carrier.schedule(&schedule(6, "n1", &[]));
    node.await_status(|status| (status.schedule_version, status.streams) == (6, 0));
    agent.stop();
    let records = carrier.records("10s");
    let of_version = |version: u64| {
        let is_of = |body: &Body| match body {
            Body::Rollup(rollup) => rollup.schedule_version == version,
            _ => false,
        };
        sent(&records.iter().filter(|r| is_of(&r.body)).cloned().collect::<Vec<_>>())
    };
    assert!(of_version(4) > 20 && of_version(5) > 20, "{} {}", of_version(4), of_version(5));
    // The schedule is still there after a restart.
    let agent = node.start();
    node.await_status(|status| status.schedule_version == 6);
    agent.stop();
}

#[test]
fn schedule_beyond_local_limits_is_refused_with_the_limit() {
    let (url, node) = reflecting();
    let _agent = node.start();
    let mut carrier = node.carrier();
    let entries =
        [("fast", &*url, "10ms"), ("faster", &url, "10ms"), ("far", "stamp://192.0.2.1", "1s")];
    carrier.schedule(&schedule(1, "n1", &entries));
    let status = node.await_status(|status| status.schedule_version == 1 && status.streams == 1);
    let refused: Vec<_> = status
        .refused
        .iter()
        .map(|refused| format!("{} {}", refused.entry, refused.limit))
        .collect();
    assert_eq!(
        refused,
        [
            "faster packets: 200pps with this entry, at most 150pps",
            "far targets: 192.0.2.1 is in none of the allowed networks"
        ]
    );
    // A name that resolves to an address outside the networks.
    node.configure("[limits]\ntargets = [\"192.0.2.0/24\"]\n");
    drop(_agent);
    carrier.schedule(&schedule(2, "n1", &[("local", "udp://localhost:7", "1s")]));
    let _agent = node.start();
    let status = node.await_status(|status| !status.faults.is_empty());
    assert!(status.faults[0].reason.contains("local limits"), "{status:?}");
}

#[test]
fn schedule_of_another_node_leaves_the_last_one_in_effect() {
    let (url, node) = reflecting();
    let _agent = node.start();
    let mut carrier = node.carrier();
    carrier.schedule(&schedule(1, "n1", &[("a", &url, "100ms")]));
    node.await_status(|status| status.streams == 1);
    carrier.schedule(&schedule(2, "n7", &[]));
    let status = node.await_status(|status| status.schedule_error.is_some());
    assert_eq!((status.schedule_version, status.streams), (1, 1));
    assert!(status.schedule_error.unwrap().contains("node n7, this is n1"));
}

#[test]
fn agent_pauses_for_a_request_and_for_a_lease() {
    let (url, node) = reflecting();
    let _agent = node.start();
    let mut carrier = node.carrier();
    carrier.schedule(&schedule(1, "n1", &[("a", &url, "10ms")]));
    node.await_status(|status| status.streams == 1);
    carrier.done(SpoolRequest::Pause { reason: Some("cabling".into()) });
    let status = node.await_status(|status| status.pause.is_some());
    assert_eq!((status.pause.unwrap().reason.as_str(), status.streams), ("cabling", 0));
    carrier.done(SpoolRequest::Pause { reason: None });
    let status = node.await_status(|status| status.pause.is_none() && status.streams == 1);
    let [pause] = &status.pauses[..] else { panic!("{status:?}") };
    assert!(pause.reason == "cabling" && pause.from_wall_ns < pause.to_wall_ns);
    let lease = r#"{"owner":"a@b","run":"r1","since":"today"}"#;
    let worker = Carrier::start(&node.spool(), &["--lease", lease]);
    let status = node.await_status(|status| status.pause.is_some());
    assert_eq!(status.pause.unwrap().reason, "run r1 of a@b since today");
    // A killed worker leaves no pause behind.
    drop(worker);
    node.await_status(|status| status.pause.is_none() && status.streams == 1);
    Carrier::start(&node.spool(), &["--lease", lease]).end();
}

#[test]
fn wrong_requests_of_a_carrier_are_refused() {
    let (_, node) = reflecting();
    let mut carrier = node.carrier();
    assert_eq!(carrier.status(), None, "no agent ever ran");
    assert!(carrier.records("10s").is_empty());
    let read = SpoolRequest::Read { level: "1h".into(), from: None, written: None };
    let reason = carrier.ask(read).unwrap_err();
    assert!(reason.contains("levels are samples, 10s, 5m"), "{reason}");
    let missing = SpoolRequest::Pause { reason: Some("x".into()) };
    assert!(carrier.ask(missing).unwrap_err().contains("No such file"));
}
