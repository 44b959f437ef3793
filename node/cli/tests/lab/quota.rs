//! Nodes limited to a share of a processor.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, said, skip};

#[test]
fn quota_limits_the_node_and_reports_its_usage() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("quota");
    let output = lab.try_up(&["line:2", "--quota", "n2=20%"]);
    if output.status.code() == Some(4) {
        return skip(&said(&output));
    }
    assert!(output.status.success(), "{output:?}");
    let quota = |node: usize| lab.describe()["nodes"][node]["quota"].clone();
    assert_eq!(quota(0), Value::Null, "n1 has no quota");
    assert_eq!(quota(1)["share_ratio"], 0.2);
    let since = Instant::now();
    let before = quota(1)["usage_ns"].as_i64().unwrap();
    const SECONDS: i64 = 2;
    let busy = format!("timeout {SECONDS} sh -c 'while :; do :; done'; times");
    let ran = lab.exec("n2", &["bash", "-c", &busy]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let used = quota(1)["usage_ns"].as_i64().unwrap() - before;
    let took = since.elapsed().as_nanos() as i64;
    // May be less on a busy machine, but at most the share of the time between the two readings,
    // plus that of one period.
    assert!(used >= SECONDS * 100_000_000, "requested 20 %, burnt {used} ns");
    assert!(used <= took / 5 * 11 / 10 + 20_000_000, "requested 20 %, burnt {used} of {took} ns");
    assert!(quota(1)["throttled_ns"].as_i64().unwrap() > 0, "the node was throttled");

    let groups: Vec<String> = serde_json::from_value(quota(1)["groups"].clone()).unwrap();
    assert!(groups.iter().all(|group| Path::new(group).is_dir()), "{groups:?}");
    assert!(lab.down().status.success());
    assert!(groups.iter().all(|group| !Path::new(group).exists()), "{groups:?}");
    lab.assert_nothing_is_left();
}

#[test]
fn unsupported_quota_is_refused_and_leaves_nothing() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("noquota");
    // As on a kernel without cgroup controllers: none is mounted.
    let script = format!(
        "umount -l -R /sys/fs/cgroup && exec {DWELL} lab up line:2 --quota n1=50% --name {}",
        lab.name
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(said(&output).contains("node n1 cannot be held to a quota"), "{}", said(&output));
    lab.assert_nothing_is_left();
}

#[test]
fn wrong_quota_error_names_flag_and_correction() {
    let lab = TestLab::reserve("badquota");
    for (quota, right) in
        [("n2=0.1%", "the minimum is 1%"), ("n9=20%", "n1, n2"), ("20%", "n2=20%")]
    {
        let output = lab.try_up(&["line:2", "--quota", quota]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = said(&output);
        assert!(said.contains("--quota") && said.contains(right), "{said}");
    }
}
