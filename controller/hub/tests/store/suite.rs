//! The suite. Each test takes a function that creates an empty store.

use std::collections::BTreeMap;

use dwell_hub::store::{HubStore, StoredBadRecord, TextKind};
use dwell_hub::{
    Delivery, HubError, Query, QueryError, Resolution, Retention, Row, Rules, SimultaneousAgents,
    WINDOW_QUANTILES, Window, WindowFigures, accept_clock, expire, ingest, query,
    simultaneous_agents, store_unknown_versions,
};
use dwell_rollup::{
    Body, CodecError, DroppedRecords, Identity, Incarnation, Level, Name, Pause, PauseInterval,
    Record, RollupMetric, SampleBlock, Status,
};

use crate::agent::{
    Agent, DAY, FIVE_MINUTES, HOUR, NOW, SECOND, deliver, deliver_at, message, name, stream,
};
use crate::state::{TestStore, rows, state};

pub(crate) use crate::alerts::{
    alert_fires_and_clears_on_stored_records, daily_window_completes_a_longer_condition,
    late_data_sends_no_message, message_is_given_up_after_a_day,
    message_is_kept_until_it_is_delivered, node_of_a_new_schedule_is_not_silent_at_once,
    paused_reflector_and_maintenance_suppress, second_hub_takes_over_when_the_lease_ends,
    silence_counts_from_the_end_of_maintenance, silent_site_makes_one_message,
};

type Create<'a> = &'a dyn Fn() -> TestStore;

/// Number of rows of each resolution.
fn row_counts(store: &mut dyn HubStore) -> [usize; 4] {
    Resolution::ALL.map(|resolution| rows(store, resolution).len())
}

fn undated(store: &mut dyn HubStore) -> u64 {
    store.begin_to_read().unwrap().nodes().unwrap().iter().map(|node| node.undated).sum()
}

pub(crate) fn computed_rows_equal_the_merge_of_their_records(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - 26 * HOUR);
    let records: Vec<_> =
        (0..300).map(|n| agent.rollup(Level::FiveMinutes, &[1 + n % 7, 50])).collect();
    for chunk in records.chunks(7) {
        deliver(&mut *store, &agent.node, &message(chunk)).unwrap();
    }
    let fine = rows(&mut *store, Resolution::FiveMinutes);
    assert_eq!(fine.len(), 300);
    for coarse in [Resolution::Hour, Resolution::Day] {
        let mut expected: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
        for row in &fine {
            expected.entry(coarse.floor(row.start_ns)).or_default().push(row);
        }
        let merged = expected.into_iter().map(|(start, rows)| Row::merge(rows, start).unwrap());
        assert_eq!(rows(&mut *store, coarse), merged.collect::<Vec<_>>(), "{coarse}");
    }
}

pub(crate) fn day_and_hour_are_recomputed_when_a_late_record_arrives(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - 14 * DAY);
    let late = agent.rollup(Level::FiveMinutes, &[900]);
    let early = agent.rollup(Level::FiveMinutes, &[1]);
    deliver(&mut *store, &agent.node, &message([&early])).unwrap();
    let max = |store: &mut dyn HubStore, resolution| {
        let row = rows(store, resolution).remove(0);
        (row.counts.sent, row.delays[0].1.max().unwrap().0 / 1_000_000)
    };
    assert_eq!(max(&mut *store, Resolution::Day), (2, 1));
    deliver(&mut *store, &agent.node, &message([&late])).unwrap();
    assert_eq!(max(&mut *store, Resolution::Hour), (4, 900));
    assert_eq!(max(&mut *store, Resolution::Day), (4, 900));
}

pub(crate) fn start_just_before_a_boundary_belongs_to_the_interval(create: Create<'_>) {
    let day = NOW - 12 * HOUR;
    // The hour from midnight, by a clock mapping that is off by some nanoseconds.
    for jitter in [-10, 0, 10] {
        let mut store = create();
        let mut agent = Agent::new("a", 1, 1, day + jitter);
        let records: Vec<_> = (1..=12).map(|ms| agent.rollup(Level::FiveMinutes, &[ms])).collect();
        deliver(&mut *store, &agent.node, &message(&records)).unwrap();
        let starts = |store: &mut dyn HubStore, resolution| {
            rows(store, resolution).iter().map(|row| row.start_ns).collect::<Vec<_>>()
        };
        assert_eq!(starts(&mut *store, Resolution::Hour), [day], "{jitter}");
        assert_eq!(starts(&mut *store, Resolution::Day), [day], "{jitter}");
        assert_eq!(rows(&mut *store, Resolution::Day)[0].counts.sent, 24);
        let (from_ns, to_ns) = (day - HOUR, day + 2 * HOUR);
        let fine = Query { from_ns, to_ns, step_ns: Some(FIVE_MINUTES), ..question() };
        let fine = ask(&mut *store, &fine).unwrap().remove(0);
        let sent: Vec<_> = fine.rows.iter().map(|row| row.counts.sent).collect();
        assert_eq!(sent, [[0_u64; 12], [2; 12], [0; 12]].concat(), "{jitter}");
    }
}

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

pub(crate) fn duplicate_is_receipted_and_not_doubled(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 7, 1, NOW - HOUR);
    let records: Vec<_> = (0..3).map(|_| agent.rollup(Level::FiveMinutes, &[5])).collect();
    let first = deliver(&mut *store, &agent.node, &message(&records[..2])).unwrap();
    let key = (agent.node.clone(), Incarnation(7));
    assert_eq!(first.receipts[&key].to_string(), "1-2");
    let before = state(&mut *store);
    let again = deliver(&mut *store, &agent.node, &message(&records[..2])).unwrap();
    assert_eq!(again.receipts[&key].to_string(), "1-2", "a lost receipt comes again");
    assert_eq!(again.counts[&agent.node].duplicates, 2);
    assert_eq!(state(&mut *store), before);
    // Within one message, too.
    let twice = message([&records[2], &records[2]]);
    let third = deliver(&mut *store, &agent.node, &twice).unwrap();
    let counts = third.counts[&agent.node];
    assert_eq!((counts.stored, counts.duplicates), (1, 1));
    assert_eq!(rows(&mut *store, Resolution::Day)[0].counts.sent, 6);
}

pub(crate) fn corrupt_record_among_a_thousand_is_kept_raw(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - 4 * HOUR);
    let records: Vec<_> =
        (0..1_000).map(|n| agent.rollup(Level::TenSeconds, &[n % 90 + 1])).collect();
    let mut bytes = message(&records);
    let start = message(&records[..500]).len();
    let len = message(&records[500..501]).len();
    bytes[start + len - 3] ^= 0x40;
    let committed = deliver(&mut *store, &agent.node, &bytes).unwrap();
    let counts = committed.counts[&agent.node];
    assert_eq!((counts.stored, counts.bad), (999, 1));
    let receipts = committed.receipts.values().next().unwrap();
    assert_eq!(receipts.to_string(), "1-500,502-1000", "the node still has the bad one");
    assert_eq!(rows(&mut *store, Resolution::TenSeconds).len(), 999);
    let bad = store.begin_to_read().unwrap().bad(None, 10).unwrap();
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].raw, bytes[start..start + len]);
    assert!(bad[0].reason.contains("checksum"), "{}", bad[0].reason);
    // The same damage again is the same bad record; the intact one is stored.
    deliver(&mut *store, &agent.node, &bytes).unwrap();
    let whole = deliver(&mut *store, &agent.node, &message(&records[500..501])).unwrap();
    assert_eq!(whole.receipts.values().next().unwrap().to_string(), "1-1000");
    let bad = store.begin_to_read().unwrap().bad(None, 10).unwrap();
    assert_eq!((bad.len(), bad[0].arrivals), (1, 2));
}

pub(crate) fn forged_node_name_is_kept_raw_without_a_receipt(create: Create<'_>) {
    let mut store = create();
    let mut victim = Agent::new("victim", 1, 1, NOW - HOUR);
    let forged = message([&victim.rollup(Level::FiveMinutes, &[5])]);
    let committed = deliver(&mut *store, &name("thief"), &forged).unwrap();
    assert_eq!(committed.receipts, BTreeMap::new());
    let (node, reason) = &committed.bad[0];
    assert_eq!(node.as_str(), "thief");
    assert!(reason.contains("names node victim, but came from thief"), "{reason}");
    assert_eq!(row_counts(&mut *store), [0; 4]);
    // The true node is not affected.
    let committed = deliver(&mut *store, &victim.node, &forged).unwrap();
    assert_eq!(committed.counts[&victim.node].stored, 1);
}

/// Decodes records of the next version, which has the same content.
fn decode_next_version(raw: &[u8]) -> Result<Record, CodecError> {
    let version = raw[0];
    if version != dwell_rollup::VERSION + 1 {
        return Record::decode(raw);
    }
    Identity::of(raw)?;
    Record::decode(&with_version(raw, dwell_rollup::VERSION))
}

/// Changes the version of a record, and its checksum with it.
fn with_version(raw: &[u8], version: u8) -> Vec<u8> {
    let mut changed = raw.to_vec();
    changed[0] = version;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&changed[..28]);
    crc.update(&changed[dwell_rollup::HEAD_LEN..]);
    changed[28..32].copy_from_slice(&crc.finalize().to_le_bytes());
    changed
}

pub(crate) fn unknown_version_is_stored_after_the_upgrade(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let [first, second, third] = [5, 6, 7].map(|ms| agent.rollup(Level::FiveMinutes, &[ms]));
    let newer = with_version(&message([&second]), dwell_rollup::VERSION + 1);
    let bytes = [message([&first]), newer.clone(), message([&third])].concat();
    let committed = deliver(&mut *store, &agent.node, &bytes).unwrap();
    let receipts = committed.receipts.values().next().unwrap();
    assert_eq!(receipts.to_string(), "1-3", "the hub has the raw record");
    assert_eq!(rows(&mut *store, Resolution::FiveMinutes).len(), 2);
    let bad = store.begin_to_read().unwrap().bad(None, 10).unwrap();
    assert_eq!((bad[0].version, &bad[0].raw), (Some(dwell_rollup::VERSION + 1), &newer));
    // A node that lost the receipt delivers it again.
    let again = deliver(&mut *store, &agent.node, &newer).unwrap();
    assert_eq!(again.counts[&agent.node].duplicates, 1);
    assert_eq!(store_unknown_versions(&mut *store, &Rules::default()).unwrap(), 0);
    assert_eq!(store.begin_to_read().unwrap().bad(None, 10).unwrap().len(), 1);
    let upgraded = Rules { decode: decode_next_version, ..Rules::default() };
    assert_eq!(store_unknown_versions(&mut *store, &upgraded).unwrap(), 1);
    assert_eq!(store_unknown_versions(&mut *store, &upgraded).unwrap(), 0);
    assert_eq!(rows(&mut *store, Resolution::FiveMinutes).len(), 3);
    assert_eq!(rows(&mut *store, Resolution::Day)[0].counts.sent, 6);
    assert_eq!(store.begin_to_read().unwrap().bad(None, 10).unwrap(), []);
}

pub(crate) fn kept_record_without_a_place_stays_kept(create: Create<'_>) {
    let mut store = create();
    let mut transaction = store.begin().unwrap();
    let node = transaction.add_nodes(&[name("a")]).unwrap()[0];
    let streams: Vec<_> = (0..10_000).map(|n| (node, stream(&format!("r{n}")))).collect();
    transaction.add_streams(&streams, 10_000).unwrap();
    transaction.commit().unwrap();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let record = message([&agent.rollup(Level::FiveMinutes, &[1])]);
    let newer = with_version(&record, dwell_rollup::VERSION + 1);
    deliver(&mut *store, &agent.node, &newer).unwrap();
    let upgraded = Rules { decode: decode_next_version, ..Rules::default() };
    assert_eq!(store_unknown_versions(&mut *store, &upgraded).unwrap(), 0);
    let bad = store.begin_to_read().unwrap().bad(None, 10).unwrap();
    assert_eq!(bad.len(), 1, "the node has freed it");
    // When the streams are gone, it is stored.
    let mut transaction = store.begin().unwrap();
    transaction.remove_streams(NOW).unwrap();
    transaction.commit().unwrap();
    assert_eq!(store_unknown_versions(&mut *store, &upgraded).unwrap(), 1);
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1]);
    assert_eq!(store.begin_to_read().unwrap().bad(None, 10).unwrap(), []);
}

pub(crate) fn clock_at_1970_is_dated_by_a_later_status(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, 0);
    let early = [agent.rollup(Level::TenSeconds, &[1]), agent.rollup(Level::FiveMinutes, &[2])];
    let status_of_1970 = agent.status();
    deliver(&mut *store, &agent.node, &message(early.iter().chain([&status_of_1970]))).unwrap();
    assert_eq!((row_counts(&mut *store), undated(&mut *store)), ([0; 4], 3));
    let right = NOW - HOUR;
    agent.step_clock(right - agent.wall_ns());
    let status = agent.status();
    let committed = deliver(&mut *store, &agent.node, &message([&status])).unwrap();
    assert_eq!(committed.receipts.values().next().unwrap().to_string(), "1-4");
    assert_eq!((row_counts(&mut *store), undated(&mut *store)), ([1, 1, 1, 1], 0));
    let starts: Vec<_> = [Resolution::TenSeconds, Resolution::FiveMinutes]
        .map(|resolution| rows(&mut *store, resolution)[0].start_ns)
        .to_vec();
    assert_eq!(starts, [right - FIVE_MINUTES - 10 * SECOND, right - FIVE_MINUTES]);
    // Another boot is not dated by it.
    let mut rebooted = Agent::new("a", 2, 2, 0);
    let record = rebooted.rollup(Level::FiveMinutes, &[3]);
    deliver(&mut *store, &rebooted.node, &message([&record])).unwrap();
    assert_eq!(undated(&mut *store), 1);
}

pub(crate) fn clock_years_ahead_is_undated_until_a_pairing(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW + 3_650 * DAY);
    let ahead = agent.rollup(Level::FiveMinutes, &[2]);
    let status = agent.status();
    deliver(&mut *store, &agent.node, &message([&ahead, &status])).unwrap();
    assert_eq!((row_counts(&mut *store), undated(&mut *store)), ([0; 4], 2));
    agent.step_clock(NOW - HOUR - agent.wall_ns());
    let status = agent.status();
    deliver(&mut *store, &agent.node, &message([&status])).unwrap();
    assert_eq!((row_counts(&mut *store), undated(&mut *store)), ([0, 1, 1, 1], 0));
}

/// The record, written while the clock was not synchronised.
fn unsynchronised(mut record: Record) -> Record {
    if let Body::Rollup(rollup) = &mut record.body {
        rollup.clock.is_synchronised = false;
    }
    record
}

pub(crate) fn time_before_synchronisation_is_corrected(create: Create<'_>) {
    let mut store = create();
    // The board started with the time of its last shutdown, which is plausible.
    let wrong = NOW - 2 * DAY;
    let mut agent = Agent::new("a", 1, 1, wrong);
    let record = unsynchronised(agent.rollup(Level::FiveMinutes, &[1]));
    let status = agent.status_with(Status::default());
    deliver(&mut *store, &agent.node, &message([&record, &status])).unwrap();
    let start = |store: &mut dyn HubStore| rows(store, Resolution::FiveMinutes)[0].start_ns;
    assert_eq!((start(&mut *store), undated(&mut *store)), (wrong, 0));
    // It synchronises 20 minutes later.
    agent.wait(4 * FIVE_MINUTES);
    agent.step_clock(NOW - HOUR - agent.wall_ns());
    let unchanged = agent.status_with(Status::default());
    deliver(&mut *store, &agent.node, &message([&unchanged])).unwrap();
    assert_eq!(start(&mut *store), wrong, "that clock may be as wrong");
    let status = agent.status();
    deliver(&mut *store, &agent.node, &message([&status])).unwrap();
    assert_eq!(start(&mut *store), NOW - HOUR - 5 * FIVE_MINUTES);
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1], "nothing is left at the earlier time");
    let mut transaction = store.begin_to_read().unwrap();
    let node = transaction.nodes().unwrap().remove(0).id;
    let times: Vec<_> =
        transaction.statuses(node, 0, NOW).unwrap().iter().map(|it| it.wall_ns).collect();
    assert_eq!(times, [NOW - HOUR - 4 * FIVE_MINUTES, NOW - HOUR, NOW - HOUR]);
}

pub(crate) fn flood_of_undated_records_is_bounded(create: Create<'_>) {
    let mut store = create();
    let mut transaction = store.begin().unwrap();
    let node = transaction.add_nodes(&[name("z")]).unwrap()[0];
    let admitted = [60, 50, 40].map(|len| transaction.admit_undated(node, len, 100).unwrap());
    assert_eq!(admitted, [true, false, true]);
    drop(transaction);
    // More records than are read at once, and all are dated.
    let mut agent = Agent::new("a", 1, 1, 0);
    let records: Vec<_> = (0..450).map(|_| agent.rollup(Level::TenSeconds, &[1])).collect();
    deliver(&mut *store, &agent.node, &message(&records)).unwrap();
    assert_eq!(undated(&mut *store), 450);
    agent.step_clock(NOW - HOUR - agent.wall_ns());
    let status = agent.status();
    deliver(&mut *store, &agent.node, &message([&status])).unwrap();
    assert_eq!((row_counts(&mut *store)[0], undated(&mut *store)), (450, 0));
}

pub(crate) fn nearer_pairing_moves_a_dated_record(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, 0);
    let undated = agent.rollup(Level::FiveMinutes, &[2]);
    agent.wait(FIVE_MINUTES);
    agent.step_clock(NOW - 5 * HOUR - agent.wall_ns());
    let near = agent.status();
    agent.wait(HOUR);
    agent.step_clock(2 * HOUR);
    let far = agent.status();
    deliver(&mut *store, &agent.node, &message([&undated, &far])).unwrap();
    assert_eq!(
        rows(&mut *store, Resolution::FiveMinutes)[0].start_ns,
        NOW - 3 * HOUR - 2 * FIVE_MINUTES
    );
    deliver(&mut *store, &agent.node, &message([&near])).unwrap();
    let moved = NOW - 5 * HOUR - 2 * FIVE_MINUTES;
    assert_eq!(rows(&mut *store, Resolution::FiveMinutes)[0].start_ns, moved);
    // Nothing is left at the earlier time.
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1]);
    assert_eq!(rows(&mut *store, Resolution::Hour)[0].start_ns, Resolution::Hour.floor(moved));
}

pub(crate) fn stepped_clock_keeps_its_own_times(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - 3 * HOUR);
    let before = agent.rollup(Level::FiveMinutes, &[2]);
    agent.step_clock(-20 * 60 * SECOND);
    let after = agent.rollup(Level::FiveMinutes, &[3]);
    deliver(&mut *store, &agent.node, &message([&before, &after])).unwrap();
    let starts: Vec<_> =
        rows(&mut *store, Resolution::FiveMinutes).iter().map(|row| row.start_ns).collect();
    assert_eq!(starts, [NOW - 3 * HOUR - 15 * 60 * SECOND, NOW - 3 * HOUR]);
    assert_eq!(undated(&mut *store), 0);
}

pub(crate) fn late_record_of_14_days_is_stored_and_of_16_is_undated(create: Create<'_>) {
    let mut store = create();
    let mut old = Agent::new("a", 1, 1, NOW - 16 * DAY);
    let mut young = Agent::new("a", 2, 2, NOW - 14 * DAY);
    let records = [old.rollup(Level::FiveMinutes, &[1]), young.rollup(Level::FiveMinutes, &[2])];
    let committed = deliver(&mut *store, &old.node, &message(&records)).unwrap();
    assert_eq!(committed.counts[&old.node].stored, 2);
    assert_eq!(committed.receipts.len(), 2, "both have receipts");
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1]);
    assert_eq!(rows(&mut *store, Resolution::FiveMinutes)[0].start_ns, NOW - 14 * DAY);
    assert_eq!(undated(&mut *store), 1);
}

pub(crate) fn expired_record_is_receipted_and_counted(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - 5 * DAY);
    let records = [agent.rollup(Level::TenSeconds, &[1]), agent.rollup(Level::FiveMinutes, &[1])];
    let committed = deliver(&mut *store, &agent.node, &message(&records)).unwrap();
    let counts = committed.counts[&agent.node];
    assert_eq!((counts.stored, counts.expired), (1, 1));
    assert_eq!(committed.receipts.values().next().unwrap().to_string(), "1-2");
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1]);
}

pub(crate) fn resent_record_after_its_partition_is_gone_is_a_duplicate(create: Create<'_>) {
    let mut store = create();
    let retention = Retention::default();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let [first, late] =
        [agent.rollup(Level::TenSeconds, &[1]), agent.rollup(Level::TenSeconds, &[2])];
    let five = agent.rollup(Level::FiveMinutes, &[3]);
    deliver(&mut *store, &agent.node, &message([&first, &five])).unwrap();
    assert_eq!(expire(&mut *store, &retention, NOW).unwrap(), []);
    let later = NOW + 4 * DAY;
    accept_clock(&mut *store, later).unwrap();
    let dropped = expire(&mut *store, &retention, later).unwrap();
    assert_eq!(dropped, [Resolution::TenSeconds.partition(NOW)]);
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1]);
    let again = deliver_at(&mut *store, &agent.node, &message([&first, &late]), later).unwrap();
    let counts = again.counts[&agent.node];
    assert_eq!((counts.duplicates, counts.expired, counts.stored), (1, 1, 0));
    assert_eq!(again.receipts.values().next().unwrap().to_string(), "1-3");
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1]);
    // Nor does the partition come back when the clock of the hub is set back.
    let third = agent.rollup(Level::TenSeconds, &[2]);
    accept_clock(&mut *store, NOW).unwrap();
    deliver(&mut *store, &agent.node, &message([&third])).unwrap();
    assert_eq!(row_counts(&mut *store)[0], 0);
    accept_clock(&mut *store, NOW + 100 * DAY).unwrap();
    let dropped = expire(&mut *store, &retention, NOW + 100 * DAY).unwrap();
    assert_eq!(dropped, [Resolution::FiveMinutes.partition(NOW)]);
    assert_eq!(row_counts(&mut *store), [0, 0, 1, 1], "the hour outlives its records");
}

pub(crate) fn wrong_clock_of_the_hub_changes_nothing(create: Create<'_>) {
    let mut store = create();
    let retention = Retention::default();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let first = message([&agent.rollup(Level::FiveMinutes, &[1])]);
    let second = message([&agent.rollup(Level::FiveMinutes, &[2])]);
    // Even the first time of a new database is not in 1970.
    let error = deliver_at(&mut *store, &agent.node, &first, HOUR).unwrap_err();
    assert!(matches!(error, HubError::Clock { .. }), "{error:?}");
    assert!(accept_clock(&mut *store, HOUR).is_err());
    deliver(&mut *store, &agent.node, &first).unwrap();
    let before = state(&mut *store);
    for wrong in [HOUR, NOW - 3 * DAY, NOW + 3 * DAY, NOW + 3_650 * DAY] {
        let error = deliver_at(&mut *store, &agent.node, &second, wrong).unwrap_err();
        assert!(matches!(error, HubError::Clock { .. }), "{error:?}");
        assert!(expire(&mut *store, &retention, wrong).is_err(), "{wrong}");
    }
    assert_eq!(state(&mut *store), before);
    // The hub was off for three days.
    accept_clock(&mut *store, NOW + 3 * DAY).unwrap();
    let committed = deliver_at(&mut *store, &agent.node, &second, NOW + 3 * DAY).unwrap();
    assert_eq!(committed.counts[&agent.node].stored, 1);
}

pub(crate) fn stream_without_rows_is_removed(create: Create<'_>) {
    let mut store = create();
    let retention = Retention::default();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let old = agent.rollup_to("old", Level::FiveMinutes, &[1]);
    deliver(&mut *store, &agent.node, &message([&old])).unwrap();
    let reflectors = |store: &mut dyn HubStore| {
        let streams = store.begin_to_read().unwrap().streams(None).unwrap();
        streams.iter().map(|sent| sent.stream.reflector.to_string()).collect::<Vec<_>>()
    };
    // Rows of a day are kept for 3,660 days and whole partitions of 360.
    for (days, expected) in [(3_600, vec!["new", "old"]), (4_100, vec!["new"])] {
        let at = NOW + days * DAY;
        accept_clock(&mut *store, at).unwrap();
        let mut agent = Agent::new("a", days as u64, 2, at - HOUR);
        let new = agent.rollup_to("new", Level::FiveMinutes, &[1]);
        deliver_at(&mut *store, &agent.node, &message([&new]), at).unwrap();
        expire(&mut *store, &retention, at).unwrap();
        assert_eq!(reflectors(&mut *store), expected, "{days}");
    }
}

pub(crate) fn failed_transaction_changes_nothing(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let hour = agent.messages_of_an_hour();
    deliver(&mut *store, &agent.node, &hour).unwrap();
    let before = state(&mut *store);
    let mut transaction = store.begin().unwrap();
    let node = transaction.add_nodes(&[name("z")]).unwrap()[0];
    transaction.add_streams(&[(node, stream("b"))], 10).unwrap();
    drop(transaction);
    assert_eq!(state(&mut *store), before);
}

pub(crate) fn flood_of_streams_and_bad_bytes_is_bounded(create: Create<'_>) {
    let mut store = create();
    let mut transaction = store.begin().unwrap();
    let node = transaction.add_nodes(&[name("a")]).unwrap()[0];
    let streams = ["b", "c", "d"].map(|reflector| (node, stream(reflector)));
    let numbers = transaction.add_streams(&streams, 2).unwrap();
    assert!(numbers[0].is_some() && numbers[1].is_some() && numbers[2].is_none());
    assert_eq!(transaction.add_streams(&streams, 2).unwrap(), numbers);
    transaction.commit().unwrap();
    // 20 MB of noise in pieces of 500 kB: at most 16 MiB are kept.
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    for n in 0..40_u32 {
        let mut noise = vec![n as u8; 500_000];
        noise[..4].copy_from_slice(&n.to_le_bytes());
        deliver(&mut *store, &agent.node, &noise).unwrap();
    }
    let bad = store.begin_to_read().unwrap().bad(None, 1_000).unwrap();
    let kept: usize = bad.iter().map(|bad| bad.raw.len()).sum();
    assert!((16_000_000..=16 << 20).contains(&kept), "{kept}");
    // The node's records, and those of others, are still stored.
    let record = agent.rollup(Level::FiveMinutes, &[1]);
    let committed = deliver(&mut *store, &agent.node, &message([&record])).unwrap();
    assert_eq!(committed.counts[&agent.node].stored, 1);
    // A bad record that is not kept has no receipt.
    let bytes = message([&agent.rollup(Level::FiveMinutes, &[1])]);
    let newer = with_version(&bytes, dwell_rollup::VERSION + 1);
    let fill = vec![1; (16 << 20) - kept];
    deliver(&mut *store, &agent.node, &fill).unwrap();
    let refused = deliver(&mut *store, &agent.node, &newer).unwrap();
    assert_eq!(refused.receipts.values().next().unwrap().to_string(), "1");
}

pub(crate) fn flood_of_small_bad_records_is_bounded(create: Create<'_>) {
    let mut store = create();
    let mut transaction = store.begin().unwrap();
    let node = transaction.add_nodes(&[name("a")]).unwrap()[0];
    let bad = |byte: u8| StoredBadRecord {
        id: 0,
        node,
        arrival_ns: NOW,
        arrivals: 1,
        version: None,
        reason: "noise".to_owned(),
        raw: vec![byte],
    };
    let kept = [0, 1, 2, 3].map(|byte| transaction.keep_bad(&bad(byte), 1_000).unwrap());
    assert_eq!(kept, [true, true, true, false], "each counts as 256 bytes");
    assert!(transaction.keep_bad(&bad(0), 1_000).unwrap(), "it is kept already");
    let oldest = transaction.bad(Some(node), 10).unwrap().pop().unwrap();
    transaction.remove_bad(oldest.id).unwrap();
    assert!(transaction.keep_bad(&bad(4), 1_000).unwrap(), "one was removed");
    transaction.remove_old(0, 0, NOW + 1).unwrap();
    let again = [5, 6, 7].map(|byte| transaction.keep_bad(&bad(byte), 1_000).unwrap());
    assert_eq!(again, [true; 3], "all were removed");
    transaction.commit().unwrap();
    // One message with 300 records of another node.
    let mut other = Agent::new("other", 1, 1, NOW - 2 * HOUR);
    let records: Vec<_> = (0..300).map(|_| other.rollup(Level::TenSeconds, &[1])).collect();
    let committed = deliver(&mut *store, &name("b"), &message(&records)).unwrap();
    assert_eq!((committed.counts[&name("b")].bad, committed.bad.len()), (300, 100));
    let nodes = store.begin_to_read().unwrap().nodes().unwrap();
    let of = nodes.iter().find(|node| node.name == name("b")).unwrap().id;
    assert_eq!(store.begin_to_read().unwrap().bad(Some(of), 1_000).unwrap().len(), 100);
}

pub(crate) fn flood_of_incarnations_is_bounded(create: Create<'_>) {
    let mut store = create();
    let records: Vec<_> = (1..=1_100)
        .map(|incarnation| {
            Agent::new("a", incarnation, 1, NOW - HOUR).rollup(Level::FiveMinutes, &[1])
        })
        .collect();
    let committed = deliver(&mut *store, &name("a"), &message(&records)).unwrap();
    let counts = committed.counts[&name("a")];
    assert_eq!((counts.stored, counts.deferred, committed.receipts.len()), (1_000, 100, 1_000));
    // A status cannot name more, either.
    let dropped = DroppedRecords {
        incarnation: Incarnation(5_000),
        level: Level::TenSeconds.name().to_owned(),
        sequences: "1-9".parse().unwrap(),
    };
    let mut known = Agent::new("a", 1, 1, NOW - HOUR);
    known.rollup(Level::FiveMinutes, &[1]);
    let status = Status { dropped_since: vec![dropped], ..Status::default() };
    let status = known.status_with(status);
    deliver(&mut *store, &name("a"), &message([&status])).unwrap();
    let mut transaction = store.begin_to_read().unwrap();
    let node = transaction.nodes().unwrap().remove(0).id;
    assert_eq!(transaction.incarnations_of(node).unwrap().len(), 1_000);
    drop(transaction);
    // The others arrive on the next day.
    let committed = deliver_at(&mut *store, &name("a"), &message(&records), NOW + DAY).unwrap();
    let counts = committed.counts[&name("a")];
    assert_eq!((counts.stored, counts.duplicates, counts.deferred), (100, 1_000, 0));
}

pub(crate) fn two_machines_of_one_name_are_both_kept(create: Create<'_>) {
    let mut store = create();
    let mut first = Agent::new("a", 1, 1, NOW - 2 * HOUR);
    let mut copy = Agent::new("a", 2, 2, NOW - 2 * HOUR + 90 * SECOND);
    for _ in 0..3 {
        let records =
            [first.rollup(Level::FiveMinutes, &[1]), copy.rollup(Level::FiveMinutes, &[2])];
        deliver(&mut *store, &first.node, &message(&records)).unwrap();
    }
    assert_eq!(rows(&mut *store, Resolution::FiveMinutes).len(), 6, "both are kept");
    let mut transaction = store.begin_to_read().unwrap();
    let node = transaction.nodes().unwrap().remove(0);
    let incarnations = transaction.incarnations_of(node.id).unwrap();
    assert_eq!(
        simultaneous_agents(&incarnations),
        Some(SimultaneousAgents {
            incarnations: [Incarnation(1), Incarnation(2)],
            on_one_kernel: false
        })
    );
}

pub(crate) fn dropped_records_are_not_missing(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let records: Vec<_> = (0..6).map(|_| agent.rollup(Level::TenSeconds, &[1])).collect();
    let dropped = |level: Level, sequences: &str| DroppedRecords {
        incarnation: Incarnation(1),
        level: level.name().to_owned(),
        sequences: sequences.parse().unwrap(),
    };
    let dropped_since = vec![dropped(Level::TenSeconds, "2"), dropped(Level::Samples, "4")];
    let status = agent.status_with(Status { dropped_since, ..Status::default() });
    let delivered = [&records[0], &records[4], &status];
    let committed = deliver(&mut *store, &agent.node, &message(delivered)).unwrap();
    // Numbers 3 and 6 are still on their way, 2 and 4 will never come.
    assert_eq!(committed.receipts.values().next().unwrap().to_string(), "1,4-5,7");
    let missing = |store: &mut dyn HubStore| {
        let mut transaction = store.begin_to_read().unwrap();
        let node = transaction.nodes().unwrap().remove(0);
        transaction.incarnations_of(node.id).unwrap()[0].1.missing()
    };
    assert_eq!(missing(&mut *store), 2);
    // A record that the node believed lost arrives after all.
    let committed = deliver(&mut *store, &agent.node, &message(&records[1..3])).unwrap();
    assert_eq!(committed.counts[&agent.node].stored, 2);
    assert_eq!(missing(&mut *store), 1);
}

pub(crate) fn unrequested_samples_have_no_receipt(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let mut record = agent.rollup(Level::TenSeconds, &[1]);
    record.body = Body::Samples(SampleBlock {
        stream: stream("b"),
        schedule_version: 1,
        start_wall_ns: agent.wall_ns(),
        start_boot_ns: agent.boot_ns,
        duration_ns: 1,
        samples: 1,
        segment: vec![1, 2, 3],
    });
    let committed = deliver(&mut *store, &agent.node, &message([&record])).unwrap();
    assert_eq!(committed.counts[&agent.node].unrequested, 1);
    assert!(committed.receipts.values().all(|receipts| receipts.is_empty()));
}

pub(crate) fn schedule_versions_are_kept(create: Create<'_>) {
    let mut store = create();
    let apply = |store: &mut dyn HubStore, at: i64, text: &str| {
        let mut transaction = store.begin().unwrap();
        let parts = |version: u64| {
            BTreeMap::from([(name("a"), format!("{{\"version\":{version},\"node\":\"a\"}}"))])
        };
        let version = transaction.add_schedule(at, "u@h", text, &parts).unwrap();
        transaction.commit().unwrap();
        version
    };
    assert_eq!(apply(&mut *store, NOW, "one"), 1);
    assert_eq!(apply(&mut *store, NOW + 1, "two"), 2);
    let mut transaction = store.begin_to_read().unwrap();
    assert_eq!(transaction.newest_version().unwrap(), Some(2));
    let schedules = transaction.schedules().unwrap();
    let texts: Vec<_> = schedules.iter().map(|it| (it.version, it.text.as_str())).collect();
    assert_eq!(texts, [(1, "one"), (2, "two")]);
    assert_eq!((schedules[1].applied_ns, schedules[1].author.as_str()), (NOW + 1, "u@h"));
    let part = transaction.node_schedule(2, &name("a")).unwrap();
    assert_eq!(part.as_deref(), Some("{\"version\":2,\"node\":\"a\"}"));
    assert_eq!(transaction.node_schedule(2, &name("b")).unwrap(), None);
}

/// A store with an hour of a pair whose schedule had one probe per minute, and the sender.
fn measured_hour(create: Create<'_>) -> (TestStore, Agent) {
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

fn question() -> Query {
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

fn ask(store: &mut dyn HubStore, question: &Query) -> Result<Vec<dwell_hub::Answer>, QueryError> {
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

pub(crate) fn batch_of_several_nodes_is_one_transaction(create: Create<'_>) {
    let mut test = create();
    let mut agents = ["a", "b", "c"].map(|node| Agent::new(node, 1, 1, NOW - HOUR));
    let messages = agents.each_mut().map(Agent::messages_of_an_hour);
    let deliveries: Vec<_> = agents
        .iter()
        .zip(&messages)
        .map(|(agent, message)| Delivery { node: &agent.node, arrival_ns: NOW, message })
        .collect();
    let committed = ingest(&mut *test, &deliveries, &Rules::default()).unwrap();
    assert_eq!(committed.receipts.len(), 3);
    assert!(committed.counts.values().all(|counts| counts.stored == 12));
}

pub(crate) fn texts_are_kept_by_kind_and_key(create: Create<'_>) {
    let mut store = create();
    let mut transaction = store.begin().unwrap();
    for (kind, key, text) in [
        (TextKind::AlertState, "b", Some("1")),
        (TextKind::AlertState, "a", Some("2")),
        (TextKind::AlertState, "a", Some("3")),
        (TextKind::AlertRules, "", Some("rules")),
        (TextKind::AlertState, "b", None),
        (TextKind::SampleRequest, "none", None),
    ] {
        transaction.set_text(kind, key, text).unwrap();
    }
    transaction.commit().unwrap();
    let mut transaction = store.begin_to_read().unwrap();
    let map = |key: &str, text: &str| BTreeMap::from([(key.to_owned(), text.to_owned())]);
    assert_eq!(transaction.texts(TextKind::AlertState).unwrap(), map("a", "3"));
    assert_eq!(transaction.texts(TextKind::AlertRules).unwrap(), map("", "rules"));
    assert_eq!(transaction.texts(TextKind::SampleRequest).unwrap(), BTreeMap::new());
}

pub(crate) fn two_hubs_store_the_same_records_at_once(create: Create<'_>) {
    let mut messages = Vec::new();
    for node in ["a", "b", "c"] {
        let mut agent = Agent::new(node, 1, 1, NOW - HOUR);
        for ms in 1..=12 {
            let record = agent.rollup(Level::FiveMinutes, &[ms]);
            messages.push((agent.node.clone(), message([&record])));
        }
    }
    let mut test = create();
    let hubs = [false, true].map(|is_reversed| {
        let (mut store, mut messages) = (test.open(), messages.clone());
        if is_reversed {
            messages.reverse();
        }
        std::thread::spawn(move || {
            for (node, message) in &messages {
                deliver(&mut *store, node, message).unwrap();
            }
        })
    });
    for hub in hubs {
        hub.join().unwrap();
    }
    let mut expected = create();
    for (node, message) in &messages {
        deliver(&mut *expected, node, message).unwrap();
    }
    assert_eq!(state(&mut *test), state(&mut *expected));
}

pub(crate) fn largest_sequence_number_has_a_receipt(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", u64::MAX, 1, NOW - HOUR);
    let mut record = agent.rollup(Level::FiveMinutes, &[1]);
    record.identity.sequence = i64::MAX as u64;
    // A status may name any numbers as dropped.
    let dropped = DroppedRecords {
        incarnation: Incarnation(u64::MAX),
        level: Level::TenSeconds.name().to_owned(),
        sequences: format!("{}-{}", u64::MAX - 1, u64::MAX).parse().unwrap(),
    };
    let status = agent.status_with(Status { dropped_since: vec![dropped], ..Status::default() });
    for _ in 0..2 {
        let committed = deliver(&mut *store, &agent.node, &message([&record, &status])).unwrap();
        let receipts = committed.receipts.values().next().unwrap();
        assert_eq!(receipts.to_string(), format!("2,{}", i64::MAX));
    }
    assert_eq!(row_counts(&mut *store), [0, 1, 1, 1]);
}

pub(crate) fn text_with_a_nul_character_is_kept(create: Create<'_>) {
    let mut store = create();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let pauses =
        vec![PauseInterval { reason: "run\0".into(), from_wall_ns: NOW - HOUR, to_wall_ns: NOW }];
    let status = agent.status_with(Status { pauses: pauses.clone(), ..Status::default() });
    deliver(&mut *store, &agent.node, &message([&status])).unwrap();
    let mut transaction = store.begin().unwrap();
    let node = transaction.nodes().unwrap().remove(0).id;
    assert_eq!(transaction.last_status(node).unwrap().unwrap().status.pauses, pauses);
    let bad = StoredBadRecord {
        id: 0,
        node,
        arrival_ns: NOW,
        arrivals: 1,
        version: Some(9),
        reason: "unknown \0".into(),
        raw: vec![0, 1, 2],
    };
    assert!(transaction.keep_bad(&bad, 1_000).unwrap());
    assert_eq!(transaction.bad(None, 10).unwrap()[0].raw, [0, 1, 2]);
}
