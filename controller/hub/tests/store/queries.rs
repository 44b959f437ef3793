//! Tests of the suite about answers to queries.

use std::collections::BTreeMap;

use dwell_hub::store::HubStore;
use dwell_hub::{Query, QueryError, Resolution, Retention, accept_clock, expire, query};
use dwell_rollup::{Level, Name, PauseInterval, RollupMetric, Status};

use crate::agent::{Agent, DAY, FIVE_MINUTES, HOUR, NOW, SECOND, deliver, message, name};
use crate::state::{Create, TestStore};

/// A store with an hour of a pair whose schedule had one probe per minute, and the sender.
pub(crate) fn measured_hour(create: Create<'_>) -> (TestStore, Agent) {
    let mut test = create();
    let mut transaction = test.begin().unwrap();
    let json = r#"{"version":1,"node":"a","entries":[{"name":"mesh+b","reflector":"b",
                   "target":"stamp://192.0.2.2","interval":"1min"}]}"#;
    let parts = |_| BTreeMap::from([(name("a"), json.to_owned())]);
    transaction.add_schedule(NOW - 2 * HOUR, "u@h", "", &parts).unwrap();
    transaction.commit().unwrap();
    let mut agent = Agent::new("a", 1, 1, NOW - 2 * HOUR);
    // Nine of the twelve intervals of the first hour, with five probes each.
    let records: Vec<_> =
        (1..=9).map(|n| agent.rollup(Level::FiveMinutes, &[n, 2 * n, 3 * n, 4 * n])).collect();
    deliver(&mut *test, &agent.node, &message(&records)).unwrap();
    (test, agent)
}

pub(crate) fn question() -> Query {
    Query {
        sender: name("a"),
        reflector: name("b"),
        measure: None,
        protocol: None,
        metric: RollupMetric::Rtt,
        from_ns: NOW - 2 * HOUR,
        to_ns: NOW,
        step_ns: Some(HOUR),
    }
}

pub(crate) fn ask(
    store: &mut dyn HubStore,
    question: &Query,
) -> Result<Vec<dwell_hub::Answer>, QueryError> {
    query(&mut *store.begin_to_read().unwrap(), question, NOW)
}

pub(crate) fn query_has_counts_coverage_and_supported_percentiles(create: Create<'_>) {
    let (mut test, mut agent) = measured_hour(create);
    let answer = ask(&mut *test, &question()).unwrap().remove(0);
    assert_eq!((answer.resolution, answer.rows.len()), (Resolution::Hour, 2));
    let [first, second] = &answer.rows[..] else { panic!() };
    assert_eq!((first.counts.sent, first.counts.lost, first.coverage), (45, 9, Some(0.75)));
    assert_eq!((second.counts.sent, second.coverage), (0, Some(0.0)));
    assert_eq!((&second.delays, second.clock), (&None, None));
    let delays = first.delays.as_ref().unwrap();
    assert_eq!((delays.n, delays.min_ns, delays.max_ns), (36, 1_000_000, 36_000_000));
    let [p50, p90, p95, p99, _] = &delays.percentiles;
    let mut ms: Vec<i64> = (1..=9).flat_map(|n| [n, 2 * n, 3 * n, 4 * n]).collect();
    ms.sort_unstable();
    let (median, bin) = (ms[17] * 1_000_000, p50.unwrap());
    assert!(bin.low.0 <= median && median <= bin.high.0, "{median} {bin:?}");
    assert!(p90.is_some() && p95.is_some(), "36 values support p95");
    assert_eq!(*p99, None, "36 values do not support p99");
    assert_eq!(answer.total.counts.sent, 45);
    // By 5 min, the gap is visible.
    let fine = Query { step_ns: Some(FIVE_MINUTES), ..question() };
    let fine = ask(&mut *test, &fine).unwrap().remove(0);
    let sent: Vec<_> = fine.rows.iter().map(|row| row.counts.sent).collect();
    assert_eq!((sent.len(), &sent[..9], &sent[9..12]), (24, &[5; 9][..], &[0; 3][..]));
    // A pause is not a gap.
    agent.wait(4 * FIVE_MINUTES);
    let pauses = vec![PauseInterval {
        reason: "run".into(),
        from_wall_ns: NOW - HOUR - 3 * FIVE_MINUTES,
        to_wall_ns: NOW - HOUR,
    }];
    let status = agent.status_with(Status { pauses, schedule_version: 1, ..Status::default() });
    deliver(&mut *test, &agent.node, &message([&status])).unwrap();
    let answer = ask(&mut *test, &question()).unwrap().remove(0);
    assert_eq!(answer.rows[0].coverage, Some(1.0));
    // Nor is the pause of the reflector loss: it explains 5 of the 9 lost probes.
    assert_eq!(answer.rows[0].lost_in_pause, 0);
    let mut reflector = Agent::new("b", 1, 1, NOW - HOUR);
    let pauses = vec![PauseInterval {
        reason: "run".into(),
        from_wall_ns: NOW - 2 * HOUR,
        to_wall_ns: NOW - 2 * HOUR + FIVE_MINUTES,
    }];
    let status = reflector.status_with(Status { pauses, ..Status::default() });
    deliver(&mut *test, &reflector.node, &message([&status])).unwrap();
    let answer = ask(&mut *test, &question()).unwrap().remove(0);
    assert_eq!((answer.rows[0].counts.lost, answer.rows[0].lost_in_pause), (9, 5));
    // Rows older than their retention say nothing about coverage.
    accept_clock(&mut *test, NOW + 90 * DAY).unwrap();
    expire(&mut *test, &Retention::default(), NOW + 92 * DAY).unwrap();
    let fine = Query { step_ns: Some(FIVE_MINUTES), ..question() };
    let answer = ask(&mut *test, &fine).unwrap().remove(0);
    assert!(answer.rows.iter().all(|row| row.coverage.is_none()));
}

pub(crate) fn query_names_what_exists(create: Create<'_>) {
    let mut empty = create();
    let error = ask(&mut *empty, &question()).unwrap_err().to_string();
    assert!(error.starts_with("the hub has no results yet"), "{error}");
    let (mut test, _) = measured_hour(create);
    let mut error = |change: &dyn Fn(&mut Query)| {
        let mut question = question();
        change(&mut question);
        ask(&mut *test, &question).unwrap_err().to_string()
    };
    let reflector = error(&|question| question.reflector = name("c"));
    assert!(reflector.ends_with("a measured a:b"), "{reflector}");
    assert!(error(&|question| question.sender = name("z")).contains("node z has sent no probes"));
    let measure = error(&|question| question.measure = Some("star".into()));
    assert!(measure.ends_with("it has mesh (stamp)"), "{measure}");
    let protocol: Name = name("icmp");
    assert!(error(&|question| question.protocol = Some(protocol.clone())).contains("mesh (stamp)"));
    assert!(error(&|question| question.to_ns = question.from_ns).contains("range is empty"));
    assert!(error(&|question| question.step_ns = Some(15 * SECOND)).contains("multiple of 10 s"));
    for (from_ns, to_ns) in [(i64::MIN, NOW), (-1, NOW), (NOW, i64::MAX)] {
        let range = error(&|question| (question.from_ns, question.to_ns) = (from_ns, to_ns));
        assert!(range.contains("between 1970 and 2200"), "{range}");
    }
    let steps = error(&|question| question.step_ns = Some(i64::MAX / SECOND / 10 * 10 * SECOND));
    assert!(steps.contains("multiple of 10 s"), "{steps}");
    let long = error(&|question| {
        (question.from_ns, question.step_ns) = (NOW - 30 * DAY, Some(10 * SECOND));
    });
    assert!(long.contains("more than 100000 rows"), "{long}");
}
