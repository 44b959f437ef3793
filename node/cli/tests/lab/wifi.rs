//! A forced line of radios that mac80211_hwsim simulates. Without the module, which few test machines
//! have, only its absence is tested; `make test-guests` runs the rest in a guest.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use dwell_io::netns;
use dwell_io::wireless::Wireless;
use serde_json::{Value, json};

use crate::fixture::{
    DWELL, TestLab, as_root, assert_follows_the_schema, dwell, has, said, skip, until,
};
use crate::forced_line::ttl;

/// A Wi-Fi lab, or `None` if this kernel has no simulated radios, whose error is checked.
fn up(test: &str, arguments: &[&str]) -> Option<(TestLab, Value)> {
    if !as_root() {
        return None;
    }
    let lab = TestLab::reserve(test);
    let output = lab.try_up(&[&["wifi:3", "--json"], arguments].concat());
    if output.status.code() == Some(4) {
        let error = said(&output);
        for words in ["needs the kernel module mac80211_hwsim", "modprobe mac80211_hwsim radios=0"]
        {
            assert!(error.contains(words), "{error}");
        }
        lab.assert_nothing_is_left();
        skip("needs the kernel module mac80211_hwsim");
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    let described: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_follows_the_schema(&described);
    Some((lab, described))
}

/// Whether debugfs is mounted, which lists the radios of all namespaces. Without it the test is
/// skipped.
fn has_debugfs() -> bool {
    let found = fs::read_dir("/sys/kernel/debug").is_ok_and(|mut entries| entries.next().is_some());
    if !found {
        skip("needs debugfs");
    }
    found
}

/// Names of all radios of the machine, in whatever namespace they are.
fn radios() -> Vec<String> {
    let entries = fs::read_dir("/sys/kernel/debug/ieee80211").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Radios of the lab, by the names that it gives them.
fn radios_of(lab: &TestLab) -> Vec<String> {
    let prefix = format!("dwell-{}-", lab.name);
    radios().into_iter().filter(|name| name.starts_with(&prefix)).collect()
}

/// Addresses of the stations that the radio of a node receives, with their signals in dBm.
fn stations(lab: &TestLab, node: &str) -> Vec<([u8; 6], Option<f64>)> {
    let list = || {
        let wireless = Wireless::open().unwrap().unwrap();
        let interface = wireless.interfaces().unwrap().remove(0);
        wireless.stations(interface.index).unwrap()
    };
    let found = netns::within(&lab.netns(node), list).unwrap();
    found.into_iter().map(|station| (station.address, station.signal_dbm)).collect()
}

#[test]
fn radios_form_a_line_and_end_with_the_lab() {
    let Some((lab, described)) = up("wifi", &[]) else { return };
    if !has_debugfs() {
        return;
    }
    let medium = &described["medium"];
    assert_eq!(medium["mechanism"], "hwsim");
    assert_eq!(medium["radio"]["frequency_mhz"], 2_452);
    assert_eq!(medium["ports"][0]["hears"], json!(["n2"]));
    assert_eq!(ttl(&lab, "n1", "n2"), Some(64));
    assert_eq!(ttl(&lab, "n1", "n3"), Some(63), "one hop between");
    assert_eq!(lab.routes().1, Some(0));

    // Radios hear all others, with a signal; the filter hides the far end from the stack.
    until("the radio of n1 has heard both others", || {
        let mut found = stations(&lab, "n1");
        found.sort_by_key(|(address, _)| *address);
        let address = |place| [2, 0x64, 0x77, 0xff, 0, place];
        found == [(address(2), Some(-30.0)), (address(3), Some(-30.0))]
    });
    let route = lab.exec("n1", &["ip", "route", "del", "198.18.0.3"]);
    assert!(route.status.success(), "{route:?}");
    assert_eq!(ttl(&lab, "n1", "198.18.0.3"), None, "the far end does not hear address resolution");

    assert_eq!(radios_of(&lab).len(), 3, "{:?}", radios());
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
    // The kernel removes namespaces, and radios with them, after `ip netns del` returns.
    until("no radio is left", || radios_of(&lab).is_empty());
}

#[test]
fn scan_finds_the_network_on_its_channel_only() {
    let Some((lab, _)) = up("wifiscan", &[]) else { return };
    let scan = || {
        let wireless = Wireless::open().unwrap().unwrap();
        let interface = wireless.interfaces().unwrap().remove(0);
        assert_eq!(interface.frequency_mhz, Some(2_452));
        wireless.scan(interface.index, &[2_447, 2_452, 2_457]).unwrap()
    };
    let found = netns::within(&lab.netns("n1"), scan).unwrap();
    let found: Vec<_> = found.iter().map(|net| (net.frequency_mhz, net.signal_dbm)).collect();
    assert_eq!(found, [(2_452, Some(-30.0))], "one network, by the beacons of the others");

    // A measurement does not pretend to have scanned.
    let samples = tempfile::tempdir().unwrap();
    let file = samples.path().join("samples");
    let file = file.to_str().unwrap();
    let flow = ["load", "traffic", "udp://n2:9", "--rate", "100pps", "--count", "5", "--json"];
    let scanned = ["--samples", file, "--scan-channels"];
    let sent = lab.exec("n1", &[&[DWELL][..], &flow, &scanned].concat());
    let summary: Value = serde_json::from_slice(&sent.stdout).unwrap();
    let warnings = summary["trust"]["warnings"].as_array().unwrap();
    let warning = warnings.iter().find(|warning| warning["code"] == "channels-not-scanned");
    let text = warning.expect("a reason for no scan")["text"].as_str().unwrap();
    assert!(text.contains("simulated"), "{text}");
}

#[test]
fn labs_of_radios_do_not_hear_each_other() {
    let Some((one, _)) = up("wifi1", &[]) else { return };
    let Some((other, _)) = up("wifi2", &[]) else { return };
    if !has_debugfs() {
        return;
    }
    // Both have the same addresses and the same channel.
    assert_eq!((ttl(&one, "n1", "n3"), ttl(&other, "n3", "n1")), (Some(63), Some(63)));
    assert!(other.down().status.success());
    until("the other lab has no radio", || radios_of(&other).is_empty());
    assert_eq!(ttl(&one, "n3", "n1"), Some(63), "the first lab lives on");
    let (count, _) = (stations(&one, "n2").len(), other);
    assert_eq!(count, 2, "stations of its own lab only");
}

#[test]
fn babeld_finds_the_route_over_radios() {
    if !has("babeld") {
        return;
    }
    let Some((lab, _)) = up("wifibabel", &["--routing", "babel"]) else { return };
    let (table, code) = lab.routes();
    assert_eq!(code, Some(0), "{table}");
    assert_eq!(ttl(&lab, "n3", "n1"), Some(63));
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn radios_of_a_killed_creator_are_removed() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("wifikill");
    let mut creator =
        Command::new(DWELL).args(["lab", "up", "wifi:8", "--name", &lab.name]).spawn().unwrap();
    until("the first radio exists", || {
        !radios_of(&lab).is_empty() || creator.try_wait().unwrap().is_some()
    });
    let _ = creator.kill();
    let status = creator.wait().unwrap();
    if status.code() == Some(4) {
        skip("needs the kernel module mac80211_hwsim");
        return;
    }
    if !has_debugfs() {
        return;
    }
    assert_eq!(status.signal(), Some(9), "{status}: it ended before the kill");
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
    until("no radio is left", || radios_of(&lab).is_empty());
}

#[test]
fn link_options_of_radios_are_usage_errors() {
    for (arguments, words) in [
        (&["wifi:1"][..], "2 to 8 radios"),
        (&["wifi:3", "--rate", "65Mbit/s"], "--rate does not apply to simulated radios"),
        (&["wifi:3", "--loss", "1%"], "use forced:3"),
        (&["line:2", "--mechanism", "hwsim"], "netem, tbf and tap"),
    ] {
        let output = dwell(&[&["lab", "up", "--name", "wifi-refused"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}
