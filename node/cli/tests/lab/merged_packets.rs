//! Merged packets of a relay on a real link.

use crate::fixture::{Running, TestLab, as_root};

#[test]
fn merged_packets_above_the_mtu_arrive_fragmented() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("merged", &["line:2"]);
    let far = lab.socket("n2", "0.0.0.0:7001");
    let ends = ["--listen", "udp://127.0.0.1:7001", "--to", "udp://198.19.0.2:7001"];
    let how = ["relay", "--json", "--engine", "batch", "--merge"];
    let relay = Running::start(&lab, "n1", "relaying", &[&how[..], &ends].concat());
    let client = lab.socket("n1", "127.0.0.1:0");
    // As many as the receiver's socket holds, in alternating runs of long and short packets.
    let packet = |n: usize| vec![n as u8; if (n / 10).is_multiple_of(2) { 2_000 } else { 700 }];
    (0..40).for_each(|n| {
        client.send_to(&packet(n), "127.0.0.1:7001").unwrap();
    });
    let mut buffer = [0; 4_096];
    for n in 0..40 {
        let len = far.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], packet(n), "{n}");
    }
    let summary = relay.end();
    assert_eq!(summary["values"]["relayed_forward"], 40, "{summary}");
    assert_eq!(summary["values"]["send_failed"], 0, "{summary}");
}
