//! Thresholds of ping over a path whose replies exceed the time-out.

use std::process::Output;

use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, said};

/// A path with 5 ms of delay each way and 1 ms of jitter.
fn slow_path(test: &str) -> TestLab {
    let link = ["line:2", "--delay", "5ms", "--jitter", "1ms", "--mechanism", "tap"];
    TestLab::up(test, &link)
}

/// Pings the far kernel; returns the output and the summary.
fn ping(lab: &TestLab, arguments: &[&str]) -> (Output, Value) {
    let base = [DWELL, "ping", "icmp://198.19.0.2", "-c", "600", "-i", "3ms", "--json", "-q"];
    let output = lab.exec("n1", &[&base[..], arguments].concat());
    let summary = serde_json::from_slice(&output.stdout);
    let summary = summary.unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    (output, summary)
}

#[test]
fn late_replies_fail_a_percentile_and_the_loss_limit() {
    if !as_root() {
        return;
    }
    let lab = slow_path("late");
    // The round trip is 10 ms plus or minus the jitter. About half of the replies are late by this
    // limit (more on a busy machine), and all received ones are within it.
    let (failed, half) = ping(&lab, &["-W", "10ms", "--fail-if", "p99 > 10ms"]);
    let ratio = |name: &str| half["values"][name].as_f64().unwrap();
    assert!(ratio("late_ratio") > 0.1, "{half:#}");
    // A stall of the machine can lose some replies: they are unknown after two time-outs.
    assert!(ratio("loss_ratio") < ratio("late_ratio"), "{half:#}");
    assert_eq!(failed.status.code(), Some(3), "{}", said(&failed));
    assert!(said(&failed).contains("(time-out)"), "{}", said(&failed));

    let (failed, all) = ping(&lab, &["-W", "8ms", "--fail-if", "loss > 5%"]);
    assert!(all["values"]["late_ratio"].as_f64().unwrap() > 0.5, "{all:#}");
    assert_eq!(failed.status.code(), Some(3), "{}", said(&failed));
    let (failed, _) = ping(&lab, &["-W", "8ms", "--fail-if", "p99 > 8ms"]);
    assert_eq!(failed.status.code(), Some(3), "{}", said(&failed));
    let (passed, _) = ping(&lab, &["-W", "8ms", "--fail-if", "lost > 50%"]);
    assert_eq!(passed.status.code(), Some(0), "{}", said(&passed));
}
