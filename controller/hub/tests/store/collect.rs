//! Collection from a spool, which is simulated here.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use dwell_hub::store::HubStore;
use dwell_hub::{CollectError, Collector, NodeSpool, Resolution, Rules, SqliteStore};
use dwell_rollup::{
    Incarnation, Level, NodeSchedule, RangeSet, Record, RecordFile, SpoolCursor, Status, StatusFile,
};

use crate::agent::{Agent, HOUR, NOW, message, name};
use crate::state;

/// Records that are read at once.
const READ_BATCH: usize = 5;

/// A spool in memory.
pub(crate) struct Spool {
    pub(crate) status: Option<StatusFile>,
    pub(crate) records: BTreeMap<Level, Vec<Record>>,
    pub(crate) receipts: BTreeMap<Incarnation, RangeSet>,
    schedules: Vec<NodeSchedule>,
    /// Number of answers until the connection breaks.
    pub(crate) answers_left: usize,
}

#[derive(Debug)]
pub(crate) struct Broken;

impl Spool {
    pub(crate) fn new(node: &str) -> Self {
        let status = StatusFile {
            node: name(node),
            incarnation: Incarnation(1),
            pid: 1,
            wall_ns: NOW,
            status: Status::default(),
        };
        Self {
            status: Some(status),
            records: BTreeMap::new(),
            receipts: BTreeMap::new(),
            schedules: Vec::new(),
            answers_left: usize::MAX,
        }
    }

    fn answer(&mut self) -> Result<(), Broken> {
        self.answers_left = self.answers_left.checked_sub(1).ok_or(Broken)?;
        Ok(())
    }

    /// Records without a receipt.
    pub(crate) fn kept(&self) -> BTreeSet<u64> {
        let sequences = self.records.values().flatten().map(|record| record.identity.sequence);
        let receipts = self.receipts.get(&Incarnation(1)).cloned().unwrap_or_default();
        sequences.filter(|sequence| !receipts.contains(*sequence)).collect()
    }
}

impl NodeSpool for Spool {
    type Error = Broken;

    fn status(&mut self) -> Result<Option<StatusFile>, Broken> {
        self.answer()?;
        Ok(self.status.clone())
    }

    fn read(
        &mut self,
        level: Level,
        from: Option<SpoolCursor>,
    ) -> Result<(Vec<u8>, Option<SpoolCursor>, bool), Broken> {
        self.answer()?;
        let records = self.records.get(&level).map(Vec::as_slice).unwrap_or_default();
        let start = from.map_or(0, |cursor| cursor.offset as usize);
        let end = records.len().min(start + READ_BATCH);
        let kept = self.kept();
        let unread = records[start..end].iter();
        let unread = unread.filter(|record| kept.contains(&record.identity.sequence));
        let file = RecordFile { start: 1, incarnation: Incarnation(1), first: 1 };
        let next = SpoolCursor { file, offset: end as u64 };
        Ok((message(unread), Some(next), end < records.len()))
    }

    fn put_receipts(&mut self, receipts: BTreeMap<Incarnation, RangeSet>) -> Result<(), Broken> {
        self.answer()?;
        self.receipts.extend(receipts);
        Ok(())
    }

    fn put_schedule(&mut self, schedule: NodeSchedule) -> Result<(), Broken> {
        self.answer()?;
        self.schedules.push(schedule);
        Ok(())
    }
}

/// A spool with records of both levels.
fn filled() -> (Spool, usize) {
    let mut agent = Agent::new("a", 1, 1, NOW - 2 * HOUR);
    let mut spool = Spool::new("a");
    let mut add = |level: Level, count: i64| {
        let records = (0..count).map(|n| agent.rollup(level, &[n + 1, 50])).collect();
        spool.records.insert(level, records);
    };
    add(Level::TenSeconds, 23);
    add(Level::FiveMinutes, 12);
    (spool, 35)
}

pub(crate) fn store() -> (Mutex<SqliteStore>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Mutex::new(SqliteStore::open(dir.path()).unwrap()), dir)
}

fn collector() -> Collector {
    Collector::new(name("a"), Rules::default())
}

#[test]
fn round_collects_all_records_and_leaves_receipts() {
    let ((mut spool, count), (store, _dir)) = (filled(), store());
    let mut collector = collector();
    let round = collector.round(&mut spool, &store, || NOW).unwrap();
    assert_eq!((round.has_agent, round.counts.stored), (true, count as u64));
    assert_eq!(spool.kept(), BTreeSet::new());
    let again = collector.round(&mut spool, &store, || NOW).unwrap();
    assert_eq!((again.bytes, again.counts.duplicates), (0, 0));
    // A node without an agent, and one whose agent has another name.
    spool.status = None;
    assert!(!collector.round(&mut spool, &store, || NOW).unwrap().has_agent);
    let error = collector.round(&mut Spool::new("b"), &store, || NOW).unwrap_err();
    assert!(matches!(error, CollectError::OtherName { .. }), "{error:?}");
}

#[test]
fn records_of_a_new_spool_are_collected_without_reconnecting() {
    let ((mut spool, _), (store, _dir)) = (filled(), store());
    let mut collector = collector();
    collector.round(&mut spool, &store, || NOW).unwrap();
    // After the spool was deleted, the agent's next start begins with the same names of files.
    let (mut anew, count) = filled();
    anew.records.values_mut().flatten().for_each(|record| {
        record.identity.incarnation = Incarnation(2);
    });
    anew.status.as_mut().unwrap().incarnation = Incarnation(2);
    let round = collector.round(&mut anew, &store, || NOW).unwrap();
    assert_eq!(round.counts.stored, count as u64);
}

#[test]
fn round_over_a_poor_line_ends_in_time_for_a_new_schedule() {
    let ((mut spool, count), (store, _dir)) = (filled(), store());
    let mut collector = collector();
    // Each look at the clock is a second later than the one before.
    let seconds = Cell::new(0);
    let now = || {
        seconds.set(seconds.get() + 1);
        NOW + seconds.get() * HOUR / 3_600
    };
    let (mut stored, mut rounds) = (0, 0);
    loop {
        let before = seconds.get();
        let round = collector.round(&mut spool, &store, now).unwrap();
        assert!(seconds.get() - before < 15, "{} s", seconds.get() - before);
        stored += round.counts.stored;
        rounds += 1;
        if !round.is_cut {
            break;
        }
    }
    assert_eq!(stored, count as u64);
    assert!(rounds > 2, "{rounds}");
}

#[test]
fn connection_may_break_after_any_answer() {
    let (mut whole, _) = filled();
    let (expected, _dir) = store();
    collector().round(&mut whole, &expected, || NOW).unwrap();
    let expected = state::state(&mut *expected.lock().unwrap());
    for answers in 0..40 {
        let ((mut spool, _), (store, _dir)) = (filled(), store());
        spool.answers_left = answers;
        let first = collector().round(&mut spool, &store, || NOW);
        assert!(first.is_err() || answers > 10);
        // Whatever the node freed, the hub has.
        let freed = spool.receipts.values().map(RangeSet::len).sum::<u64>();
        let stored: usize = [Resolution::TenSeconds, Resolution::FiveMinutes]
            .map(|resolution| state::rows(&mut *store.lock().unwrap(), resolution).len())
            .iter()
            .sum();
        assert!(freed <= stored as u64, "{answers}");
        spool.answers_left = usize::MAX;
        collector().round(&mut spool, &store, || NOW).unwrap();
        assert_eq!(spool.kept(), BTreeSet::new());
        assert_eq!(state::state(&mut *store.lock().unwrap()), expected, "{answers}");
    }
}

#[test]
fn failed_database_leaves_the_records_on_the_node() {
    let ((mut spool, count), (store, _dir)) = (filled(), store());
    store.lock().unwrap().limit_pages(20).unwrap();
    let error = collector().round(&mut spool, &store, || NOW).unwrap_err();
    assert!(matches!(&error, CollectError::Hub(error) if error.is_full()), "{error:?}");
    assert_eq!((spool.kept().len(), spool.receipts.len()), (count, 0));
}

#[test]
fn new_schedule_is_left_once() {
    let ((mut spool, _), (store, _dir)) = (filled(), store());
    let apply = |text: &str| {
        let parts = |version: u64| {
            let entry =
                r#"{"name":"m+b","reflector":"b","target":"stamp://192.0.2.2","interval":"1s"}"#;
            let json = format!("{{\"version\":{version},\"node\":\"a\",\"entries\":[{entry}]}}");
            BTreeMap::from([(name("a"), json)])
        };
        let mut store = store.lock().unwrap();
        let mut transaction = store.begin().unwrap();
        transaction.add_schedule(NOW, "u@h", text, &parts).unwrap();
        transaction.commit().unwrap();
    };
    let mut collector = collector();
    assert_eq!(collector.round(&mut spool, &store, || NOW).unwrap().schedule, None);
    apply("one");
    assert_eq!(collector.round(&mut spool, &store, || NOW).unwrap().schedule, Some(1));
    assert_eq!(collector.round(&mut spool, &store, || NOW).unwrap().schedule, None);
    apply("two");
    assert_eq!(collector.round(&mut spool, &store, || NOW).unwrap().schedule, Some(2));
    let versions: Vec<_> = spool.schedules.iter().map(|schedule| schedule.version).collect();
    assert_eq!((versions, spool.schedules[0].entries.len()), (vec![1, 2], 1));
    // A later connection leaves it again: the node may have version 2 of another hub.
    spool.status.as_mut().unwrap().status.schedule_version = 2;
    let mut later = Collector::new(name("a"), Rules::default());
    assert_eq!(later.round(&mut spool, &store, || NOW).unwrap().schedule, Some(2));
    assert_eq!(later.round(&mut spool, &store, || NOW).unwrap().schedule, None);
    // A node that no schedule names receives an empty one.
    let mut other = Spool::new("z");
    let mut of_other = Collector::new(name("z"), Rules::default());
    of_other.round(&mut other, &store, || NOW).unwrap();
    assert_eq!(other.schedules[0].entries, []);
}
