//! The suite. Each test takes a function that creates an empty store.

use std::collections::BTreeMap;

use dwell_hub::store::{HubStore, StoredBadRecord, TextKind};
use dwell_hub::{
    Delivery, Query, Resolution, Retention, Row, Rules, SimultaneousAgents, accept_clock, expire,
    ingest, simultaneous_agents, store_unknown_versions,
};
use dwell_rollup::{
    Body, CodecError, DroppedRecords, Identity, Incarnation, Level, PauseInterval, Record,
    SampleBlock, Status,
};

use crate::agent::{
    Agent, DAY, FIVE_MINUTES, HOUR, NOW, SECOND, deliver, deliver_at, message, name, stream,
};
use crate::queries::{ask, question};
use crate::state::{Create, row_counts, rows, state};

pub(crate) use crate::alerts::{
    alert_fires_and_clears_on_stored_records, daily_window_completes_a_longer_condition,
    late_data_sends_no_message, message_is_given_up_after_a_day,
    message_is_kept_until_it_is_delivered, node_of_a_new_schedule_is_not_silent_at_once,
    paused_reflector_and_maintenance_suppress, second_hub_takes_over_when_the_lease_ends,
    silence_counts_from_the_end_of_maintenance, silent_site_makes_one_message,
};
pub(crate) use crate::clocks::{
    clock_at_1970_is_dated_by_a_later_status, clock_years_ahead_is_undated_until_a_pairing,
    flood_of_undated_records_is_bounded, late_record_of_14_days_is_stored_and_of_16_is_undated,
    nearer_pairing_moves_a_dated_record, stepped_clock_keeps_its_own_times,
    time_before_synchronisation_is_corrected, wrong_clock_of_the_hub_changes_nothing,
};
pub(crate) use crate::queries::{
    query_has_counts_coverage_and_supported_percentiles, query_names_what_exists,
};
pub(crate) use crate::windows::{
    mesh_has_missing_stale_and_paused_streams, windows_are_the_merge_of_the_last_rows,
};

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

pub(crate) fn second_kept_record_of_an_identity_stays_kept(create: Create<'_>) {
    let mut store = create();
    let mut transaction = store.begin().unwrap();
    let node = transaction.add_nodes(&[name("a")]).unwrap()[0];
    // Two agents on copied disks. Their incarnation had no space for receipts.
    for hours in [1, 2] {
        let mut agent = Agent::new("a", 1, 1, NOW - hours * HOUR);
        let record = message([&agent.rollup(Level::FiveMinutes, &[hours])]);
        let bad = StoredBadRecord {
            id: 0,
            node,
            arrival_ns: NOW,
            arrivals: 1,
            version: Some(dwell_rollup::VERSION + 1),
            reason: "unknown version".to_owned(),
            raw: with_version(&record, dwell_rollup::VERSION + 1),
        };
        assert!(transaction.keep_bad(&bad, 1 << 20).unwrap());
    }
    transaction.commit().unwrap();
    let upgraded = Rules { decode: decode_next_version, ..Rules::default() };
    assert_eq!(store_unknown_versions(&mut *store, &upgraded).unwrap(), 1);
    assert_eq!(rows(&mut *store, Resolution::FiveMinutes).len(), 1);
    assert_eq!(store.begin_to_read().unwrap().bad(None, 10).unwrap().len(), 1);
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
