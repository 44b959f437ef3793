//! Tests of the suite about the figures of the last hour and day.

use std::collections::BTreeMap;

use dwell_hub::store::HubStore;
use dwell_hub::{Resolution, Row, WINDOW_QUANTILES, Window, WindowFigures};
use dwell_rollup::{Level, Pause, RollupMetric, Status};

use crate::agent::{Agent, DAY, FIVE_MINUTES, HOUR, NOW, deliver, message, name};
use crate::queries::measured_hour;
use crate::state::{Create, rows};

fn windows(store: &mut dyn HubStore, window: Window) -> Vec<WindowFigures> {
    let windows = store.begin_to_read().unwrap().windows(window, None).unwrap();
    windows.into_iter().map(|(_, figures)| figures).collect()
}

pub(crate) fn windows_are_the_merge_of_the_last_rows(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - 50 * HOUR);
    let records: Vec<_> =
        (0..500).map(|n| agent.rollup(Level::FiveMinutes, &[1 + n % 50, 60])).collect();
    for chunk in records.chunks(40) {
        deliver(&mut *store, &agent.node, &message(chunk)).unwrap();
    }
    let newest_end = agent.wall_ns();
    let fine = rows(&mut *store, Resolution::FiveMinutes);
    // The end is 20 min before a full hour.
    for (window, rows) in [(Window::Hour, 12), (Window::Day, 23 * 12 + 8)] {
        let figures = windows(&mut *store, window).remove(0);
        let expected = Row::merge(&fine[500 - rows..], 0).unwrap();
        assert_eq!(figures.to_ns, newest_end, "{window:?}");
        assert_eq!(figures.counts, expected.counts, "{window:?}");
        assert_eq!(figures.covered_ns, rows as u64 * FIVE_MINUTES as u64);
        let delays = expected.delays(RollupMetric::Rtt).unwrap();
        let found = figures.delays(RollupMetric::Rtt).unwrap();
        assert_eq!((found.n, found.max_ns), (delays.count(), delays.max().unwrap().0));
        for (at, (_, quantile)) in WINDOW_QUANTILES.into_iter().enumerate() {
            let bin = delays.quantile(quantile).map(|bin| (bin.low.0, bin.high.0));
            assert_eq!(found.percentiles[at], bin, "{window:?}");
        }
    }
    // A late record of another day changes neither; a late one of this hour does.
    let before = [Window::Hour, Window::Day].map(|window| windows(&mut *store, window));
    let mut late = Agent::new("a", 2, 2, NOW - 60 * HOUR);
    let record = late.rollup(Level::FiveMinutes, &[900]);
    deliver(&mut *store, &late.node, &message([&record])).unwrap();
    assert_eq!([Window::Hour, Window::Day].map(|window| windows(&mut *store, window)), before);
    late.wait(newest_end - FIVE_MINUTES - late.wall_ns());
    let record = late.rollup(Level::FiveMinutes, &[900]);
    deliver(&mut *store, &late.node, &message([&record])).unwrap();
    let hour = windows(&mut *store, Window::Hour).remove(0);
    assert_eq!(hour.counts.sent, before[0][0].counts.sent + 2);
    assert_eq!(hour.delays(RollupMetric::Rtt).unwrap().max_ns, 900_000_000);
}

pub(crate) fn mesh_has_missing_stale_and_paused_streams(create: Create<'_>) {
    let (mut test, mut agent) = measured_hour(create);
    let mesh = |store: &mut dyn HubStore, now_ns: i64| {
        dwell_hub::mesh(&mut *store.begin_to_read().unwrap(), Window::Hour, now_ns).unwrap()
    };
    let now = agent.wall_ns() + FIVE_MINUTES;
    let found = mesh(&mut *test, now);
    let figures = found.streams[0].figures.clone().unwrap();
    assert!(figures.is_current(now) && !figures.is_current(now + HOUR));
    // One probe per minute since the schedule was applied, 45 min before.
    assert_eq!((found.streams.len(), figures.due), (1, Some(45.0)));
    assert_eq!((figures.coverage(), figures.loss()), (Some(1.0), Some(0.2)));
    assert_eq!(found.paused.len(), 0);
    let status = Status { pause: Some(Pause::default()), ..Status::default() };
    let status = agent.status_with(status);
    deliver(&mut *test, &agent.node, &message([&status])).unwrap();
    // A second stream is in the schedule, and has no records yet.
    let mut transaction = test.begin().unwrap();
    let json = r#"{"version":2,"node":"a","entries":[{"name":"mesh+c","reflector":"c",
                   "target":"icmp://192.0.2.3","interval":"1min"}]}"#;
    let parts = |_| BTreeMap::from([(name("a"), json.to_owned())]);
    transaction.add_schedule(now, "u@h", "", &parts).unwrap();
    transaction.commit().unwrap();
    let found = mesh(&mut *test, now);
    let reflectors: Vec<_> = found
        .streams
        .iter()
        .map(|of| (of.stream.reflector.as_str(), of.figures.is_some()))
        .collect();
    assert_eq!(reflectors, [("b", true), ("c", false)]);
    assert!(found.paused.contains(&name("a")));
    let later = mesh(&mut *test, now + 8 * DAY);
    assert_eq!((later.streams.len(), later.hidden), (1, 1));
}
