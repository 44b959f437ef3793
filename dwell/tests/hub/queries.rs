//! `dwell query` and `dwell hub nodes` on a database with made-up records.

use dwell_hub::store::HubStore;
use dwell_hub::{Delivery, Rules, SqliteStore, ingest};
use dwell_rollup::{
    Body, BootId, ClockQuality, DelayRollup, Identity, Incarnation, Level, Name, ProbeCounts,
    Record, Rollup, RollupMetric, Stream,
};
use dwell_units::Nanos;
use serde_json::json;

use crate::fixture::{Sandbox, stderr, stdout};
use crate::schema::assert_matches_schema;

const SECOND: i64 = 1_000_000_000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A data directory with the records of [`fill`] of `a:b`.
fn sandbox() -> Sandbox {
    sandbox_of("a", "b")
}

/// The same of another pair.
pub(crate) fn sandbox_of(sender: &str, reflector: &str) -> Sandbox {
    let (sandbox, mut store) = empty();
    fill(&mut store, sender, reflector);
    sandbox
}

/// A data directory with one record of `a:b`, whose interval has this length and age.
fn with_record(level: Level, length: i64, age: i64) -> Sandbox {
    let (sandbox, mut store) = empty();
    add_record(&mut store, ("a", "b"), level, length, age);
    sandbox
}

fn empty() -> (Sandbox, SqliteStore) {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.data()).unwrap();
    let store = SqliteStore::open(&sandbox.data()).unwrap();
    (sandbox, store)
}

/// Stores five minutes of a pair, one second per probe, an hour ago.
pub(crate) fn fill(store: &mut dyn HubStore, sender: &str, reflector: &str) {
    add_record(store, (sender, reflector), Level::FiveMinutes, 300 * SECOND, 3_600 * SECOND);
}

/// Stores a record of a pair, whose interval has this length and age, and noise.
fn add_record(
    store: &mut dyn HubStore,
    (sender, reflector): (&str, &str),
    level: Level,
    length: i64,
    age: i64,
) {
    let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
    let start_wall_ns = (now - age).div_euclid(length) * length;
    let mut delays = DelayRollup::default();
    (0..290).for_each(|n| assert!(delays.record(Nanos::from_micros(1_000 + n))));
    let counts =
        ProbeCounts { sent: 300, received: 290, lost: 9, late: 1, ..ProbeCounts::default() };
    let record = Record {
        identity: Identity { node: name(sender), incarnation: Incarnation(1), sequence: 1 },
        wall_ns: start_wall_ns + length + SECOND,
        boot_ns: 301 * SECOND,
        boot_id: BootId([1; 16]),
        body: Body::Rollup(Rollup {
            level,
            stream: Stream {
                reflector: name(reflector),
                protocol: name("stamp"),
                entry: name(&format!("mesh+{reflector}")),
            },
            schedule_version: 1,
            start_wall_ns,
            start_boot_ns: 0,
            duration_ns: length as u64,
            counts,
            delays: vec![(RollupMetric::Rtt, delays)],
            clock: ClockQuality::default(),
        }),
    };
    let mut message = Vec::new();
    record.encode(&mut message).unwrap();
    message.extend_from_slice(b"noise");
    let delivery = Delivery { node: &name(sender), arrival_ns: now, message: &message };
    ingest(store, &[delivery], &Rules::default()).unwrap();
}

#[test]
fn answer_has_three_forms() {
    let sandbox = sandbox();
    let query = ["query", "a:b", "--last", "2h", "--step", "5m"];
    let output = sandbox.dwell(&[&query[..], &["--format", "json"]].concat());
    let answer = crate::fixture::object(&output);
    assert_matches_schema("dwell.query", &answer);
    let stream = &answer["streams"][0];
    let rows = stream["rows"].as_array().unwrap();
    assert!((24..=25).contains(&rows.len()), "{}", rows.len());
    let total = &stream["total"];
    assert_eq!((&total["packets"]["sent"], &total["n"]), (&json!(300), &json!(290)));
    assert_eq!((&stream["measure"], &total["coverage"]), (&json!("mesh"), &json!(null)));
    let percentiles = &total["delays"]["percentiles"];
    assert!(percentiles["p99"]["low_ns"].as_i64().unwrap() <= 1_287_000);
    assert_eq!(percentiles["p99_9"], json!(null), "290 values do not support it");
    let measured = rows.iter().filter(|row| row["n"] != json!(0)).count();
    assert_eq!(measured, 1);
    let csv = stdout(&sandbox.dwell(&[&query[..], &["--format", "csv"]].concat()));
    let widths: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{csv}");
    assert_eq!(csv.lines().count(), rows.len() + 1);
    assert!(csv.contains(",300,290,9,1,0,0,0,,290,1000000,"), "{csv}");
    let table = stdout(&sandbox.dwell(&query));
    assert!(table.starts_with("a:b  mesh  stamp  rtt_ns\n"), "{table}");
    let last = table.lines().last().unwrap();
    assert!(
        last.starts_with("total") && last.contains("3.0 %") && last.contains("1.000ms"),
        "{last}"
    );
    let pairs = stdout(&sandbox.dwell(&["query"]));
    assert_eq!(pairs, "pair  measure  protocol\na:b   mesh     stamp\n");
}

#[test]
fn new_pair_is_answered_from_rows_of_10_s() {
    let sandbox = with_record(Level::TenSeconds, 10 * SECOND, 60 * SECOND);
    let output = sandbox.dwell(&["query", "a:b"]);
    assert!(stderr(&output).contains("these are the last 10 min"), "{output:?}");
    let table = stdout(&output);
    let rows: Vec<_> = table.lines().skip(2).collect();
    assert!(rows[0].contains(" 300 ") && rows.len() < 12, "no rows before the first: {table}");
    // An explicit range is kept, and an empty answer explains itself.
    let output = sandbox.dwell(&["query", "a:b", "--last", "24h"]);
    assert!(stderr(&output).contains("`--step 10s` reads the rows of 10 s"), "{output:?}");
    let output = sandbox.dwell(&["query", "a:b", "--last", "10s"]);
    assert!(stderr(&output).contains("`dwell hub nodes` lists nodes"), "{output:?}");
}

#[test]
fn wrong_question_is_a_usage_error() {
    let empty = Sandbox::new();
    let refused = empty.dwell(&["query", "a:b"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("start one with `dwell hub --embedded`"), "{refused:?}");
    assert!(!empty.data().exists(), "a query creates nothing");
    let sandbox = sandbox();
    for (arguments, wrong) in [
        (&["a"][..], "SENDER:REFLECTOR"),
        (&["a:c"], "a measured a:b"),
        (&["a:b", "--metric", "speed"], "rtt_kernel_ns"),
        (&["a:b", "--step", "15s"], "multiple of 10 s"),
        (&["a:b", "--last", "0h"], "not above 0"),
        (&["a:b", "--from", "2026-11-02", "--to", "2026-11-01"], "range is empty"),
        (&["a:b", "--from", "2026-11-01", "--to", "2261-01-01"], "between 1970 and 2200"),
        (&["a:b", "--from", "yesterday"], "2026-11-26"),
        (&["a:b", "--measure", "star"], "it has mesh (stamp)"),
    ] {
        let refused = sandbox.dwell(&[&["query"], arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {refused:?}");
        assert!(stderr(&refused).contains(wrong), "{arguments:?}: {}", stderr(&refused));
    }
}

#[test]
fn node_list_names_what_is_wrong() {
    let sandbox = sandbox();
    let nodes = sandbox.json(&["hub", "nodes"]);
    assert_matches_schema("dwell.hub-nodes", &nodes);
    let node = &nodes["nodes"][0];
    assert_eq!(
        (&node["stored"], &node["bad"], &node["missing"]),
        (&json!(1), &json!(1), &json!(0))
    );
    let table = stdout(&sandbox.dwell(&["hub", "nodes"]));
    assert!(table.contains("note: a: 1 bad records, kept raw"), "{table}");
}

#[test]
fn samples_are_requested_for_known_pairs_and_listed() {
    let sandbox = sandbox();
    let samples = |arguments: &[&str]| sandbox.dwell(&[&["hub", "samples"], arguments].concat());
    for (arguments, wrong) in [
        (&["request", "a:b"][..], "--last"),
        (&["request", "a:c", "--last", "1h"], "no roll-ups of a:c"),
        (&["request", "a:b", "--from", "2026-11-02", "--to", "2026-11-01"], "span is empty"),
        (&["request", "a:b", "--from", "2026-11-02"], "--to"),
        (&["request", "a:b", "--last", "1h", "--to", "2026-11-01"], "--to"),
    ] {
        let refused = samples(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {refused:?}");
        assert!(stderr(&refused).contains(wrong), "{arguments:?}: {}", stderr(&refused));
    }
    // A node behind an uplink is no device.
    let span = ["--from", "2026-11-01", "--to", "2026-11-01T01:00:00Z"];
    let request = [&["request", "a:b"][..], &span].concat();
    let refused = samples(&request);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        stderr(&refused).contains("no samples of a can arrive: they are collected by SSH only")
    );
    let added = sandbox.dwell(&["device", "add", "a", "root@192.0.2.7", "--address", "192.0.2.7"]);
    assert!(added.status.success(), "{added:?}");
    let requested = samples(&request);
    assert!(stderr(&requested).contains("request 1: "), "{requested:?}");
    assert!(stderr(&requested).contains("no hub collects from a yet"), "{requested:?}");
    assert!(stderr(&samples(&["request", "a:b", "--last", "2h"])).contains("request 2: "));
    let listed = crate::fixture::object(&samples(&["list", "--format", "json"]));
    assert_matches_schema("dwell.hub-samples", &listed);
    let first = &listed["requests"][0];
    assert_eq!(
        (&first["from"], &first["to"], &first["state"], &first["files"]),
        (
            &json!("2026-11-01T00:00:00Z"),
            &json!("2026-11-01T01:00:00Z"),
            &json!("pending"),
            &json!(0)
        )
    );
    assert_eq!((listed["requests"].as_array().unwrap().len(), &listed["files"]), (2, &json!([])));
    let table = stdout(&samples(&["list"]));
    assert!(table.starts_with("request  pair  from"), "{table}");
    let missing = Sandbox::new();
    let refused = missing.dwell(&["hub", "samples", "request", "a:b", "--last", "1h"]);
    assert_eq!((refused.status.code(), missing.data().exists()), (Some(2), false), "{refused:?}");
}
