//! Targets that leave a choice: hosts without a scheme, and names with addresses of both families.

use std::process::Output;

use serde_json::Value;

use crate::fixture::{DWELL, Running, TestLab, as_root, said};

/// The addresses of n2, to which its name resolves.
const ADDRESSES: [&str; 2] = ["198.19.0.2", "fd64:7765:6c6c:ffff::2"];

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

fn reflect(lab: &TestLab, urls: &[&str]) -> Running {
    Running::start(lab, "n2", "listening on", &[&["reflect"], urls].concat())
}

fn ping(lab: &TestLab, target: &str, more: &[&str]) -> Output {
    let base = [DWELL, "ping", target, "-c", "3", "-i", "0.01", "--json"];
    lab.exec("n1", &[&base[..], more].concat())
}

/// The result of a ping without loss.
fn measured(output: &Output, what: &str) -> Value {
    assert_eq!(output.status.code(), Some(0), "{what}: {}", said(output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packets = &result["packets"];
    let counts = (&packets["sent"], &packets["received"], &packets["duplicate"]);
    assert_eq!(counts, (&3.into(), &3.into(), &0.into()), "{what}: the attempt is not counted");
    result
}

#[test]
fn bare_host_is_measured_with_stamp_if_a_reflector_answers() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("bare-stamp", &["line:2"]);
    let reflector = reflect(&lab, &["stamp://0.0.0.0:862", "stamp://[::]:862"]);
    for host in ADDRESSES.into_iter().chain(["n2"]) {
        let output = ping(&lab, host, &[]);
        let result = measured(&output, host);
        assert_eq!(result["target"], format!("stamp://{}:862", bracketed(host)));
        assert!(said(&output).contains("measuring with STAMP"), "{}", said(&output));
        assert_eq!(said(&ping(&lab, host, &["-q"])), "", "quiet");
    }
    let path = measured(&ping(&lab, "n2", &["--path"]), "--path");
    assert_eq!(path["target"], "stamp://n2:862");
    reflector.end();
}

#[test]
fn bare_host_without_reflector_is_measured_with_icmp() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("bare-icmp", &["line:2"]);
    for host in ADDRESSES.into_iter().chain(["n2"]) {
        let output = ping(&lab, host, &[]);
        let result = measured(&output, host);
        assert_eq!(result["target"], format!("icmp://{}", bracketed(host)));
        let said = said(&output);
        assert!(said.contains("measuring with ICMP echo"), "{said}");
        assert!(said.contains("port unreachable"), "{said}");
    }
    // A port that accepts packets and never answers: one time-out.
    let _silent = ADDRESSES.map(|address| lab.socket("n2", &format!("{}:862", bracketed(address))));
    let output = ping(&lab, "n2", &[]);
    assert_eq!(measured(&output, "silent")["target"], "icmp://n2");
    assert!(said(&output).contains("no answer"), "{}", said(&output));
}

#[test]
fn stamp_options_exclude_the_icmp_fallback() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("bare-path", &["line:2"]);
    for (target, options) in [("n2", &["--path"][..]), ("n2:8620", &[])] {
        let output = ping(&lab, target, &[options, &["-W", "0.3"]].concat());
        assert_eq!(output.status.code(), Some(1), "{target} {}", said(&output));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(result["target"].as_str().unwrap().starts_with("stamp://n2:"), "{result}");
        assert!(said(&output).contains("no fallback to ICMP"), "{}", said(&output));
    }
}

#[test]
fn name_is_measured_by_the_family_that_answers() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("families", &["line:2"]);
    for scheme in ["udp", "stamp", "roundtrip", "text+udp", "tcp", "text+tcp"] {
        for address in ADDRESSES {
            let end = format!("{}:7001", bracketed(address));
            let reflector = reflect(&lab, &[&format!("{scheme}://{end}")]);
            let url = format!("{scheme}://n2:7001");
            let result = measured(&ping(&lab, &url, &[]), &format!("{scheme} at {end}"));
            assert_eq!(result["parameters"]["address"], end, "{scheme}");
            let other = if address.contains(':') { "-4" } else { "-6" };
            let output = ping(&lab, &url, &[other, "-W", "0.2"]);
            assert_eq!(output.status.code(), Some(1), "{scheme} {other} {}", said(&output));
            reflector.end();
        }
    }
    // Also for a bare host.
    for address in ADDRESSES {
        let end = format!("{}:862", bracketed(address));
        let reflector = reflect(&lab, &[&format!("stamp://{end}")]);
        let result = measured(&ping(&lab, "n2", &[]), &end);
        assert_eq!(result["parameters"]["address"], end);
        reflector.end();
    }
}

#[test]
fn name_without_a_server_reports_a_failed_connection() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("refused", &["line:2"]);
    let output = ping(&lab, "text+tcp://n2:7001", &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("failed to connect to server\n"), "{}", said(&output));
}

#[test]
fn name_with_a_silent_family_is_measured_by_the_other() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("silent", &["line:2"]);
    for (answering, silent) in [(ADDRESSES[0], ADDRESSES[1]), (ADDRESSES[1], ADDRESSES[0])] {
        let _silent = lab.socket("n2", &format!("{}:7001", bracketed(silent)));
        let end = format!("{}:7001", bracketed(answering));
        let reflector = reflect(&lab, &[&format!("stamp://{end}")]);
        let result = measured(&ping(&lab, "stamp://n2:7001", &[]), &end);
        assert_eq!(result["parameters"]["address"], end);
        reflector.end();
    }
}
