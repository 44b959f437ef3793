//! Tests of the suite about wrong clocks and the dates of records.

use dwell_hub::store::HubStore;
use dwell_hub::{HubError, Resolution, Retention, accept_clock, expire};
use dwell_rollup::{Body, Level, Record, Status};

use crate::agent::{
    Agent, DAY, FIVE_MINUTES, HOUR, NOW, SECOND, deliver, deliver_at, message, name,
};
use crate::state::{Create, row_counts, rows, state, undated};

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
