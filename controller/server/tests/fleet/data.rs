//! Databases of hubs, filled by `ingest` with generated records.

use std::collections::BTreeMap;
use std::path::Path;

use dwell_hub::SqliteStore;
use dwell_hub::alert::{
    AlertEvaluator, AlertRound, AppliedRules, Maintenance, announce, apply_rules,
};
use dwell_hub::store::HubStore;
use dwell_rollup::{
    Body, DelayRollup, DroppedCounts, Level, Name, Pause, PauseInterval, ProbeCounts, Record,
    Refusal, RollupMetric, Status, Stream, StreamFault,
};
use dwell_units::Nanos;
use jiff::Timestamp;

use crate::agent::{Agent, DAY, FIVE_MINUTES, HOUR, SECOND, deliver_at, message, name};

/// Probes of an interval of 5 min.
const PROBES: u64 = 300;

fn now_ns() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap()
}

/// Returns the part of a node in a schedule: a probe per second to each of these reflectors.
fn part(version: u64, node: &Name, reflectors: &[Name]) -> String {
    let entries = reflectors.iter().map(|other| {
        format!(
            r#"{{"name":"mesh+{other}","reflector":"{other}","target":"stamp://192.0.2.1","interval":"1s"}}"#
        )
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    format!(r#"{{"version":{version},"node":"{node}","entries":[{entries}]}}"#)
}

fn apply(store: &mut dyn HubStore, at_ns: i64, parts: &[(&str, &[&str])]) {
    let mut transaction = store.begin().unwrap();
    let parts = |version: u64| {
        let parts = parts.iter().map(|(node, reflectors)| {
            let reflectors: Vec<Name> = reflectors.iter().map(|other| name(other)).collect();
            (name(node), part(version, &name(node), &reflectors))
        });
        parts.collect::<BTreeMap<Name, String>>()
    };
    transaction.add_schedule(at_ns, "u@h", "version = 1", &parts).unwrap();
    transaction.commit().unwrap();
}

/// Delays around a value, in ms.
fn delays(around_ms: i64, n: u64) -> DelayRollup {
    let mut delays = DelayRollup::default();
    for probe in 0..n as i64 {
        let spread_us = (probe % 21 - 10) * 100;
        assert!(delays.record(Nanos::from_micros(1_000 * around_ms + spread_us)));
    }
    delays
}

/// Measures an interval of 5 min with these delays in ms: round trip, forward, backward. One of the
/// probes is lost.
fn interval(
    agent: &mut Agent,
    reflector: &str,
    sent: u64,
    [rtt, forward, backward]: [i64; 3],
    bound_ns: Option<u64>,
) -> Record {
    let mut record = agent.rollup_to(reflector, Level::FiveMinutes, &[1]);
    let Body::Rollup(rollup) = &mut record.body else { unreachable!("a roll-up") };
    rollup.stream = Stream {
        reflector: name(reflector),
        protocol: name("stamp"),
        entry: name(&format!("mesh+{reflector}")),
    };
    rollup.counts = ProbeCounts { sent, received: sent - 1, lost: 1, ..ProbeCounts::default() };
    rollup.delays = [
        (RollupMetric::Rtt, rtt),
        (RollupMetric::OneWayForward, forward),
        (RollupMetric::OneWayBackward, backward),
    ]
    .map(|(metric, ms)| (metric, delays(ms, sent - 1)))
    .into();
    rollup.clock.bound_ns = bound_ns;
    record
}

/// Fills a data directory with a hub of three nodes. `a` measures `b` for two hours with a gap, has stale
/// results of `c`, and both clocks are bounded. `b` measures `a` with an unknown clock error, and nothing
/// of `c` arrived. `c` is paused, and has everything that a node can complain about.
pub(crate) fn fill(dir: &Path) {
    let mut store = SqliteStore::open(dir).unwrap();
    let now_ns = now_ns();
    // Intervals begin at multiples of 5 min; the last one has just arrived.
    let end_ns = now_ns / FIVE_MINUTES * FIVE_MINUTES;
    let start_ns = end_ns - 2 * HOUR;
    apply(&mut store, end_ns - 5 * HOUR, &[("a", &["b", "c"]), ("b", &["a", "c"])]);
    let status = |clock_bound_ns: Option<u64>| Status {
        dwell: "0.2.0+test".to_owned(),
        schedule_version: 1,
        spool_bytes: 1_000_000,
        spool_limit_bytes: 64_000_000,
        clock_synchronised: clock_bound_ns.is_some(),
        clock_bound_ns,
        ..Status::default()
    };
    let mut a = Agent::new("a", 1, 1, end_ns - 4 * HOUR);
    let mut records = vec![a.status_with(status(Some(100_000)))];
    // 48 delays support no p99.
    records.extend((0..12).map(|_| interval(&mut a, "c", 5, [5, 2, 3], Some(100_000))));
    a.wait(start_ns - a.wall_ns());
    for n in 0..24 {
        if (8..14).contains(&n) {
            a.wait(FIVE_MINUTES);
        } else {
            records.push(interval(&mut a, "b", PROBES, [20, 8, 12], Some(100_000)));
        }
        records.push(a.status_with(status(Some(100_000))));
    }
    deliver_at(&mut store, &a.node, &message(&records), now_ns).unwrap();

    let mut b = Agent::new("b", 1, 2, start_ns);
    let mut records = Vec::new();
    for n in 0..24 {
        records.push(interval(&mut b, "a", PROBES, [40, 20, 20], None));
        // Its reflector was paused for 5 s, which explains 5 lost probes of `a`.
        let pauses = if n == 20 {
            let to_wall_ns = b.wall_ns() - 60 * SECOND;
            vec![PauseInterval {
                reason: "an <experiment>".into(),
                from_wall_ns: to_wall_ns - 5 * SECOND,
                to_wall_ns,
            }]
        } else {
            Vec::new()
        };
        records.push(b.status_with(Status { pauses, ..status(Some(50_000)) }));
    }
    deliver_at(&mut store, &b.node, &message(&records), now_ns).unwrap();

    let mut c = Agent::new("c", 1, 3, end_ns - HOUR);
    c.wait(HOUR);
    let entry = |entry: &str| name(entry);
    let status = Status {
        refused: vec![Refusal { entry: entry("mesh+x"), limit: "packets: 9pps".into() }],
        faults: vec![StreamFault { entry: entry("mesh+y"), reason: "no route".into() }],
        dropped: DroppedCounts { samples: 7, ..DroppedCounts::default() },
        pause: Some(Pause { reason: "an <experiment>".into(), since_wall_ns: end_ns - HOUR }),
        ..status(None)
    };
    let mut bytes = message([&c.status_with(status)]);
    bytes.extend_from_slice(b"<noise>");
    deliver_at(&mut store, &c.node, &bytes, now_ns).unwrap();
    raise_alerts(&mut store, now_ns);
}

/// Applies alert rules and evaluates them once. `slow` fires for `a:b` and `b:a`, `loss` is pending for
/// both, `tail` cannot be evaluated, and `b` is in maintenance from now on.
fn raise_alerts(store: &mut dyn HubStore, now_ns: i64) {
    let rules = "version = 1\n\
                 [[alert]]\nname = \"slow\"\nwhen = \"p95 > 5ms for 30m\"\nsamples = true\n\
                 notify = [\"ops\"]\n\
                 [[alert]]\nname = \"loss\"\nwhen = \"loss > 0.1% for 3h\"\n\
                 [[alert]]\nname = \"tail\"\nwhen = \"p99_9 > 5ms for 5m\"\npairs = [\"a:b\"]\n\
                 [notify.ops]\nwebhook = \"http://127.0.0.1:9/hook\"\n";
    let (author, text) = ("u@h".to_owned(), rules.to_owned());
    apply_rules(store, &AppliedRules { applied_ns: now_ns, author, text }).unwrap();
    let mut evaluator = AlertEvaluator::new("u@h, process 1".to_owned());
    let round = evaluator.round(store, &|| now_ns).unwrap();
    assert!(matches!(round, AlertRound::Evaluated { .. }), "{round:?}");
    let (reason, author) = ("a <new> switch".to_owned(), "u@h".to_owned());
    let maintenance = Maintenance { from_ns: now_ns, to_ns: now_ns + HOUR, reason, author };
    announce(store, &name("b"), maintenance).unwrap();
}

/// Fills a data directory with a hub in which no probe of `a` to `b` was due in the last hour, by a daily
/// window, and `c` was paused in all of the last hour.
pub(crate) fn fill_quiet(dir: &Path) {
    let mut store = SqliteStore::open(dir).unwrap();
    let now_ns = now_ns();
    let end_ns = now_ns / FIVE_MINUTES * FIVE_MINUTES;
    let start_ns = end_ns - 2 * HOUR;
    let time = |at_ns: i64| {
        let minutes = at_ns % DAY / (60 * SECOND);
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    };
    let window = format!("{}-{}", time(start_ns), time(start_ns + HOUR));
    let json = format!(
        r#"{{"version":1,"node":"a","entries":[{{"name":"mesh+b","reflector":"b",
        "target":"stamp://192.0.2.1","interval":"1s","windows":["{window}"]}},{{"name":"mesh+c",
        "reflector":"c","target":"stamp://192.0.2.2","interval":"1s"}}]}}"#
    );
    let mut transaction = store.begin().unwrap();
    let parts = |_| BTreeMap::from([(name("a"), json.clone())]);
    transaction.add_schedule(end_ns - 5 * HOUR, "u@h", "version = 1", &parts).unwrap();
    transaction.commit().unwrap();
    let status = || Status { schedule_version: 1, clock_synchronised: true, ..Status::default() };
    let mut a = Agent::new("a", 1, 1, start_ns);
    let mut records: Vec<Record> =
        (0..12).map(|_| interval(&mut a, "b", PROBES, [20, 8, 12], None)).collect();
    records.push(a.status_with(status()));
    for _ in 0..12 {
        let mut record = interval(&mut a, "c", PROBES, [20, 8, 12], None);
        let Body::Rollup(rollup) = &mut record.body else { unreachable!("a roll-up") };
        rollup.counts = ProbeCounts { sent: PROBES, lost: PROBES, ..ProbeCounts::default() };
        rollup.delays.clear();
        records.push(record);
    }
    records.push(a.status_with(status()));
    deliver_at(&mut store, &a.node, &message(&records), now_ns).unwrap();

    let mut c = Agent::new("c", 1, 3, end_ns);
    let (reason, from_wall_ns) = ("an experiment".to_owned(), end_ns - HOUR);
    let pauses = vec![PauseInterval { reason, from_wall_ns, to_wall_ns: end_ns }];
    let records = [c.status_with(Status { pauses, ..status() })];
    deliver_at(&mut store, &c.node, &message(&records), now_ns).unwrap();
}

/// Fills a data directory with a hub of a full mesh of `nodes` nodes, with one interval per pair.
pub(crate) fn fill_mesh(dir: &Path, nodes: usize) {
    let mut store = SqliteStore::open(dir).unwrap();
    let now_ns = now_ns();
    let end_ns = now_ns / FIVE_MINUTES * FIVE_MINUTES;
    let names: Vec<String> = (0..nodes).map(|n| format!("node-{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let others: Vec<Vec<&str>> = names
        .iter()
        .map(|node| names.iter().copied().filter(|other| other != node).collect())
        .collect();
    let parts: Vec<(&str, &[&str])> =
        names.iter().zip(&others).map(|(node, others)| (*node, &others[..])).collect();
    apply(&mut store, end_ns - DAY, &parts);
    for (n, (node, others)) in parts.iter().enumerate() {
        let mut agent = Agent::new(node, 1, n as u8 + 1, end_ns - FIVE_MINUTES);
        let mut records = Vec::new();
        for (m, other) in others.iter().enumerate() {
            let ms = 2 + ((n * 7 + m * 13) % 90) as i64;
            records.push(interval(&mut agent, other, 101, [2 * ms, ms, ms], Some(100_000)));
            agent.wait(-FIVE_MINUTES);
        }
        agent.wait(FIVE_MINUTES);
        records.push(agent.status_with(Status {
            schedule_version: 1,
            clock_synchronised: true,
            clock_bound_ns: Some(50_000),
            ..Status::default()
        }));
        deliver_at(&mut store, &agent.node, &message(&records), now_ns).unwrap();
    }
}
