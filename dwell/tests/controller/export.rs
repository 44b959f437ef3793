//! A run exported in every format is the same run.

use std::collections::BTreeMap;
use std::fs::{self, File};

use dwell_sample::State;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use crate::fixture::{Sandbox, as_root, repository, stdout};

/// Number of rows of a trial, and number, sum and maximum of its received round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TrialTotals {
    rows: u64,
    received: u64,
    sum: i64,
    max: i64,
}

impl TrialTotals {
    fn take(&mut self, state: &str, rtt: Option<i64>) {
        self.rows += 1;
        if let ("received", Some(rtt)) = (state, rtt) {
            self.received += 1;
            self.sum += rtt;
            self.max = self.max.max(rtt);
        }
    }
}

type Trials = BTreeMap<u64, TrialTotals>;

fn csv(text: &str) -> Trials {
    let mut trials = Trials::new();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let index = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let (trial, state, rtt) = (index("trial"), index("state"), index("rtt_ns"));
    for row in lines {
        assert_eq!(row.len(), head.len());
        let totals = trials.entry(row[trial].parse().unwrap()).or_default();
        totals.take(row[state], row[rtt].parse().ok());
    }
    trials
}

fn json_lines(text: &str) -> Trials {
    let mut trials = Trials::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let totals = trials.entry(row["trial"].as_u64().unwrap()).or_default();
        totals.take(row["state"].as_str().unwrap(), row["rtt_ns"].as_i64());
    }
    trials
}

fn parquet(dir: &std::path::Path) -> Trials {
    let table: Value = serde_json::from_slice(&fs::read(dir.join("trials.json")).unwrap()).unwrap();
    let mut trials = Trials::new();
    for trial in table["trials"].as_array().unwrap() {
        let totals = trials.entry(trial["trial"].as_u64().unwrap()).or_default();
        let file = File::open(dir.join(trial["file"].as_str().unwrap())).unwrap();
        for row in SerializedFileReader::new(file).unwrap().get_row_iter(None).unwrap() {
            let (mut state, mut rtt) = ("", None);
            for (name, field) in row.unwrap().get_column_iter() {
                match (name.as_str(), field) {
                    ("state", Field::Byte(code)) => state = State::ALL[*code as usize].name(),
                    ("rtt_ns", Field::Long(ns)) => rtt = Some(*ns),
                    _ => {}
                }
            }
            assert_ne!(state, "");
            totals.take(state, rtt);
        }
    }
    trials
}

/// Returns count and maximum by trial. The maximum has three significant digits.
fn hdr(text: &str) -> BTreeMap<u64, (u64, u64)> {
    let mut trials = BTreeMap::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let LogEntry::Interval(interval) = entry.unwrap() else { continue };
        let trial = interval.tag().unwrap().as_str().strip_prefix("trial-").unwrap();
        let bytes = base64(interval.encoded_histogram());
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        trials.insert(trial.parse().unwrap(), (histogram.len(), histogram.max()));
    }
    trials
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text
        .bytes()
        .filter_map(|byte| ALPHABET.iter().position(|known| *known == byte))
        .map(|digit| digit as u32)
        .collect();
    let mut bytes = Vec::new();
    for four in digits.chunks(4) {
        let word = four.iter().fold(0, |word, digit| word << 6 | digit) << (6 * (4 - four.len()));
        bytes.extend(&word.to_be_bytes()[1..four.len()]);
    }
    bytes
}

fn assert_formats_agree(sandbox: &Sandbox, run: &str, rows: u64) {
    let export = |format: &str| {
        let output = sandbox.dwell(&["export", run, "--format", format]);
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    };
    let expected = csv(&export("csv"));
    assert_eq!(expected.values().map(|totals| totals.rows).sum::<u64>(), rows);
    assert_eq!(json_lines(&export("jsonl")), expected);
    let dash = sandbox.dwell(&["export", run, "--format", "csv", "-o", "-"]);
    assert_eq!(csv(&stdout(&dash)), expected, "a dash is standard output");
    let dir = sandbox.path("handed-on");
    let output =
        sandbox.dwell(&["export", run, "--format", "parquet", "-o", dir.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(parquet(&dir), expected);
    let histograms = hdr(&export("hdr"));
    assert_eq!(histograms.len(), expected.len());
    for (trial, totals) in &expected {
        let (count, max) = histograms[trial];
        assert_eq!(count, totals.received, "trial {trial}");
        assert!(
            max as i64 >= totals.max && max as f64 <= totals.max as f64 * 1.001,
            "{max} {totals:?}"
        );
    }
    // The catalogue must agree too.
    let shown = sandbox.json(&["show", run]);
    for trial in shown["trials"].as_array().unwrap() {
        let totals = expected[&trial["trial"].as_u64().unwrap()];
        let rtt = &trial["metrics"]["rtt_ns"];
        assert_eq!(
            (rtt["count"].as_u64(), rtt["max"].as_i64()),
            (Some(totals.received), Some(totals.max))
        );
        let mean = totals.sum as f64 / totals.received as f64;
        assert!((rtt["mean"].as_f64().unwrap() - mean).abs() < 0.01, "{mean} {rtt}");
    }
}

#[test]
fn hdr_interval_spans_the_stamps_of_its_trial() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let more = ["--quiet", "--set", "ping.count=500"];
    let output = sandbox.dwell(&[&["run", &sandbox.plan(3)][..], &more].concat());
    assert!(output.status.success(), "{output:?}");
    let rows = stdout(&sandbox.dwell(&["export", "last", "--format", "jsonl"]));
    let mut expected: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        for stamp in ["tx_app_ns", "rx_app_ns"].iter().filter_map(|name| row[name].as_i64()) {
            let span = expected.entry(row["trial"].as_u64().unwrap()).or_insert((stamp, stamp));
            *span = (span.0.min(stamp), span.1.max(stamp));
        }
    }
    assert_eq!(expected.len(), 3);
    let log = stdout(&sandbox.dwell(&["export", "last", "--format", "hdr"]));
    let mut began = Vec::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        let LogEntry::Interval(interval) = entry.unwrap() else { continue };
        let trial = interval.tag().unwrap().as_str().strip_prefix("trial-").unwrap();
        let (first, last) = expected.remove(&trial.parse().unwrap()).unwrap();
        // The log has millisecond resolution.
        let ms = |time: std::time::Duration| time.as_millis() as i64;
        let (start, took) = (ms(interval.start_timestamp()), ms(interval.duration()));
        assert!((start - first / 1_000_000).abs() <= 1, "{start} {first}");
        assert!((took - (last - first) / 1_000_000).abs() <= 1, "{took} {first} {last}");
        // The duration is shorter if a busy machine sent the first probe late.
        assert!(took >= 100, "500 probes, one a millisecond, took {took} ms");
        began.push(start);
    }
    assert!(expected.is_empty());
    assert!(began.is_sorted(), "{began:?}");
}

#[test]
fn import_exports_alike_in_every_format() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let run = sandbox.json(&["import", file.to_str().unwrap()]);
    assert_formats_agree(&sandbox, run["run"].as_str().unwrap(), 200);
}

#[test]
fn run_with_losses_exports_alike_in_every_format() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    let run = sandbox.json(&[
        "run",
        &plan,
        "--quiet",
        "--set",
        "topology.link.loss=10%",
        "--set",
        "ping.timeout=20ms",
        "--set",
        "ping.count=200",
    ]);
    let run = run["run"].as_str().unwrap().to_owned();
    let shown = sandbox.json(&["show", &run]);
    let packets = shown["trials"].as_array().unwrap().iter().map(|trial| &trial["packets"]);
    let sum = |which: &str| packets.clone().map(|all| all[which].as_u64().unwrap()).sum::<u64>();
    assert!(sum("lost") > 0, "{shown}");
    assert_eq!(sum("sent"), 600);
    // A late reply has its own row in addition to that of its loss.
    assert_formats_agree(&sandbox, &run, 600 + sum("late") + sum("duplicate"));
}
