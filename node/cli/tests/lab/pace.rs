//! Pacing over links that are not Ethernet's usual ones.

use serde_json::{Value, json};

use crate::fixture::{DWELL, TestLab, as_root};

fn pace(lab: &TestLab, more: &[&str]) -> Value {
    let command = ["pace", "udp://198.19.0.2:9", "--rate", "50Mbit/s", "--repeat", "2", "--json"];
    let output = lab.exec("n1", &[&[DWELL], &command[..], more].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn without_a_size_packets_are_as_large_as_the_way_takes() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("pacemtu", &["line:2"]);
    let how = ["--engine", "sleep-spin"];
    assert_eq!(pace(&lab, &how)["parameters"]["size_bytes"], json!(1_500));
    // A route of its own has learnt that no more passes further on.
    let way = ["198.19.0.2", "via", "198.18.0.2", "src", "198.19.0.1", "mtu", "1300"];
    let route = [&["ip", "route", "replace"][..], &way].concat();
    assert!(lab.exec("n1", &route).status.success());
    let found = pace(&lab, &how);
    assert_eq!(found["parameters"]["size_bytes"], json!(1_300), "{found:#}");
    assert_eq!(found["values"]["packets"], json!(100));
}

#[test]
fn over_a_tap_a_result_says_that_the_links_limit_is_not_seen() {
    if !as_root() {
        return;
    }
    let cases: [(&[&str], bool); 2] =
        [(&["line:2", "--rate", "20Mbit/s", "--mechanism", "tap"], true), (&["line:2"], false)];
    for (topology, is_told) in cases {
        let lab = TestLab::up("pacetap", topology);
        let found = pace(&lab, &["--engine", "sleep-spin", "--size", "576B"]);
        let said = found["trust"]["warnings"].to_string();
        assert_eq!(said.contains("tun or tap"), is_told, "{topology:?}: {said}");
    }
}
