//! A forced line: one bridge on which only neighbours hear each other.

use std::fs;
use std::process::Command;

use dwell_io::netns;

use crate::fixture::{TestLab, as_root, has, said, skip};

/// A forced line of three nodes, or `None` if the kernel cannot filter.
fn up(test: &str, arguments: &[&str]) -> Option<TestLab> {
    if !as_root() {
        return None;
    }
    let lab = TestLab::reserve(test);
    let output = lab.try_up(&[&["forced:3"], arguments].concat());
    if output.status.code() == Some(4) {
        skip(&said(&output));
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(lab)
}

/// TTL of the reply to a ping; `None` without a reply.
pub(crate) fn ttl(lab: &TestLab, from: &str, to: &str) -> Option<u8> {
    let ping = lab.exec(from, &["ping", "-4", "-c", "1", "-W", "3", to]);
    let text = String::from_utf8_lossy(&ping.stdout).into_owned();
    let (_, rest) = text.split_once("ttl=")?;
    rest.split(' ').next()?.parse().ok()
}

fn knows(lab: &TestLab, node: &str, address: &str) -> bool {
    let shown = lab.exec(node, &["ip", "neigh", "show", address]);
    String::from_utf8_lossy(&shown.stdout).contains("lladdr")
}

#[test]
fn forced_line_ends_communicate_only_through_the_middle() {
    let Some(lab) = up("forced", &[]) else { return };
    let described = lab.describe();
    assert_eq!(described["medium"]["ports"][1]["hears"], serde_json::json!(["n1", "n3"]));
    assert_eq!(ttl(&lab, "n1", "n2"), Some(64));
    assert_eq!(ttl(&lab, "n1", "n3"), Some(63), "one hop between");
    assert_eq!(lab.routes().1, Some(0));

    // Without the middle node, no other node forwards.
    netns::within(&lab.netns("n2"), || fs::write("/proc/sys/net/ipv4/ip_forward", "0"))
        .unwrap()
        .unwrap();
    assert_eq!(ttl(&lab, "n1", "n3"), None);

    // Directly to the far end's address on the bridge: the ARP request is not heard.
    for (node, far) in [("n1", "198.18.0.3"), ("n3", "198.18.0.1")] {
        assert!(lab.exec(node, &["ip", "route", "del", far]).status.success());
    }
    assert_eq!(ttl(&lab, "n1", "198.18.0.3"), None);
    assert!(!knows(&lab, "n3", "198.18.0.1"), "n3 has not heard n1");

    // Without the filters the ends hear each other.
    for port in ["n1", "n3"] {
        let gone = netns::within(&lab.netns("air"), || {
            Command::new("tc").args(["filter", "del", "dev", port, "egress"]).status()
        });
        assert!(gone.unwrap().unwrap().success());
    }
    let flushed = lab.exec("n1", &["ip", "neigh", "flush", "198.18.0.3"]);
    assert!(flushed.status.success(), "{flushed:?}");
    assert_eq!(ttl(&lab, "n1", "198.18.0.3"), Some(64), "without the filter they are neighbours");
    assert!(knows(&lab, "n3", "198.18.0.1"));
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn babeld_finds_the_route_in_a_forced_line() {
    if !has("babeld") {
        return;
    }
    let Some(lab) = up("forcedbabel", &["--routing", "babel", "--rate", "50Mbit/s"]) else {
        return;
    };
    let (table, code) = lab.routes();
    assert_eq!(code, Some(0), "{table}");
    assert_eq!(ttl(&lab, "n3", "n1"), Some(63));
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}
