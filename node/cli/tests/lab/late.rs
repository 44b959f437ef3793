//! Thresholds of ping over a path on which replies come after the time-out.

use std::process::Output;

use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, said};

/// 5 ms each way, with 1 ms of jitter.
fn slow_path(test: &str) -> TestLab {
    let link = ["line:2", "--delay", "5ms", "--jitter", "1ms", "--mechanism", "tap"];
    TestLab::up(test, &link)
}

/// Pings the far kernel; returns what was said, and the summary.
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
    let (_, unhurried) = ping(&lab, &[]);
    let median = unhurried["metrics"]["rtt_ns"]["p50"].as_i64().unwrap();
    assert!(median > 8_000_000, "{median}");
    // Half of the replies are late by this, so that each received one lies within the limit.
    let timeout = format!("{median}ns");
    let p99 = format!("p99 > {median}ns");
    let (failed, half) = ping(&lab, &["-W", &timeout, "--fail-if", &p99]);
    let late = half["values"]["late_ratio"].as_f64().unwrap();
    assert!((0.1..0.95).contains(&late), "{half:#}");
    assert_eq!(half["values"]["loss_ratio"], 0.0, "{half:#}");
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
