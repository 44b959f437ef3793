//! Agents in the nodes of a lab, which probe each other over links with delay.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dwell_rollup::{Body, DelayRollup, Level, Piece, ProbeCounts, Record, RollupMetric, pieces};
use dwell_units::Nanos;

use crate::fixture::{Running, TestLab, as_root};

/// An agent that answers others and probes `peer` every 10 ms.
fn start(lab: &TestLab, dir: &Path, node: &str, peer: (&str, &str)) -> (Running, PathBuf) {
    let (spool, config) = (dir.join(node), dir.join(format!("{node}.toml")));
    let (name, address) = peer;
    let text = format!(
        "node = \"{node}\"\nspool = \"{}\"\n[reflect]\nurls = [\"stamp://0.0.0.0:862\"]\n\
         [[entries]]\nname = \"mesh\"\nreflector = \"{name}\"\ntarget = \"stamp://{address}\"\n\
         interval = \"10ms\"\n",
        spool.display()
    );
    fs::write(&config, text).unwrap();
    let arguments = ["agent", "--config", config.to_str().unwrap()];
    (Running::start(lab, node, "is running", &arguments), spool)
}

/// All records of a level.
fn records(spool: &Path, level: Level) -> Vec<Record> {
    let mut records = Vec::new();
    for entry in fs::read_dir(spool.join(dwell_rollup::level_dir(level))).unwrap() {
        let content = fs::read(entry.unwrap().path()).unwrap();
        records.extend(pieces(&content).map(|piece| match piece {
            Piece::Record(record) => Record::decode(record).unwrap(),
            Piece::Damaged(bytes) => panic!("{} damaged bytes", bytes.len()),
        }));
    }
    records
}

/// Sum of the roll-ups of a level.
fn sum(spool: &Path, level: Level, metric: RollupMetric) -> (ProbeCounts, DelayRollup) {
    let (mut counts, mut delays) = (ProbeCounts::default(), DelayRollup::default());
    for record in records(spool, level) {
        let Body::Rollup(rollup) = record.body else { continue };
        counts.add(&rollup.counts);
        if let Some(of_interval) = rollup.delays(metric) {
            delays.merge(of_interval);
        }
    }
    (counts, delays)
}

#[test]
fn agents_measure_both_directions_of_a_link() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("agents", &["line:2", "--delay", "5ms", "--mechanism", "tap"]);
    let dir = tempfile::tempdir().unwrap();
    let (second, second_spool) = start(&lab, dir.path(), "n2", ("n1", "198.19.0.1"));
    let (first, first_spool) = start(&lab, dir.path(), "n1", ("n2", "198.19.0.2"));
    std::thread::sleep(Duration::from_secs(3));
    first.end();
    second.end();
    for spool in [first_spool, second_spool] {
        let (counts, rtt) = sum(&spool, Level::TenSeconds, RollupMetric::Rtt);
        assert!(counts.received > 100 && counts.is_consistent(), "{counts:?}");
        let min = rtt.min().unwrap();
        assert!(min >= Nanos::from_millis(10) && min < Nanos::from_millis(30), "{min}");
        let (same, _) = sum(&spool, Level::FiveMinutes, RollupMetric::Rtt);
        assert_eq!(same, counts);
        for metric in [RollupMetric::OneWayForward, RollupMetric::OneWayBackward] {
            let (_, delays) = sum(&spool, Level::TenSeconds, metric);
            let min = delays.min().unwrap();
            assert!(min >= Nanos::from_millis(5) && min < Nanos::from_millis(15), "{min}");
        }
    }
}

#[test]
fn stopped_agent_leaves_a_gap_and_sends_no_burst() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("agentstop", &["line:2"]);
    let dir = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let (first, spool) = start(&lab, dir.path(), "n1", ("n2", "198.19.0.2"));
    std::thread::sleep(Duration::from_secs(1));
    let signal = |name: &str| {
        let pid = first.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    std::thread::sleep(Duration::from_secs(2));
    signal("-CONT");
    std::thread::sleep(Duration::from_secs(1));
    first.end();
    let ran = begun.elapsed();
    let (counts, _) = sum(&spool, Level::TenSeconds, RollupMetric::Rtt);
    // Without the two seconds, one probe per 10 ms at most.
    let most = (ran - Duration::from_secs(2)).as_millis() as u64 / 10 + 20;
    assert!(counts.due() > 50 && counts.due() <= most, "{counts:?} in {ran:?}");
}
