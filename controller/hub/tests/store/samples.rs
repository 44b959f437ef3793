//! Collection of requested samples from a spool, which is simulated here.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use dwell_hub::store::HubStore;
use dwell_hub::{
    Collector, Rules, SampleRequest, SampleRequestState, SqliteStore, add_request, expire_samples,
    requests,
};
use dwell_record::segment::{Header, SegmentWriter};
use dwell_rollup::{Body, BootId, Identity, Incarnation, Level, RangeSet, Record, SampleBlock};
use dwell_sample::{Sample, State, TimestampSource, TxStamps};
use dwell_store::{FleetSampleFile, fleet_samples};
use dwell_units::{Instant, Nanos, Pairing};

use crate::agent::{DAY, NOW, SECOND, name, stream};
use crate::collect::{Spool, store};

const MINUTE: i64 = 60 * SECOND;

/// Samples of a block: one per minute.
const BLOCK_SAMPLES: u64 = 5;

fn block(sequence: u64, reflector: &str, start_ns: i64) -> Record {
    let pairing = Pairing {
        real: Instant::from_nanos(start_ns),
        mono: Instant::from_nanos(7),
        width: Nanos(30),
    };
    let header = Header::of_ping("stamp://192.0.2.1".to_owned());
    let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
    for id in 0..BLOCK_SAMPLES {
        let at = id as i64 * MINUTE;
        let sample = Sample {
            id,
            state: State::Lost,
            reordered: false,
            intended: Instant::from_nanos(7 + at),
            tx: TxStamps {
                app: Instant::from_nanos(start_ns + at),
                sched: None,
                tcx: None,
                kernel: None,
                hw: None,
            },
            rx: None,
            remote: None,
        };
        writer.push(&sample, Some(&pairing), TimestampSource::User);
    }
    Record {
        identity: Identity { node: name("a"), incarnation: Incarnation(1), sequence },
        wall_ns: start_ns + 5 * MINUTE,
        boot_ns: 0,
        boot_id: BootId([1; 16]),
        body: Body::Samples(SampleBlock {
            stream: stream(reflector),
            schedule_version: 1,
            start_wall_ns: start_ns,
            start_boot_ns: 0,
            duration_ns: (4 * MINUTE) as u64,
            samples: BLOCK_SAMPLES,
            segment: writer.finish(0).unwrap(),
        }),
    }
}

/// A spool with an hour of samples to `b` (odd sequence numbers) and `c`, in blocks of 5 min.
fn spool() -> Spool {
    let mut spool = Spool::new("a");
    let blocks = (0..12).flat_map(|n| {
        let start_ns = NOW - (60 - 5 * n) * MINUTE;
        let first = 2 * n as u64 + 1;
        [block(first, "b", start_ns), block(first + 1, "c", start_ns)]
    });
    spool.records.insert(Level::Samples, blocks.collect());
    spool
}

/// A request for samples of `a:b`, without a number.
pub(crate) fn request_of(from_ns: i64, to_ns: i64) -> SampleRequest {
    SampleRequest {
        number: 0,
        sender: name("a"),
        reflector: name("b"),
        from_ns,
        to_ns,
        requested_ns: NOW,
        author: "me@here".to_owned(),
        state: SampleRequestState::Pending,
        ended_ns: None,
        gone_before_ns: None,
    }
}

/// Requests samples of `a:b` in a span of minutes before [`NOW`].
fn request(store: &Mutex<SqliteStore>, from: i64, to: i64) -> u64 {
    let mut store = store.lock().unwrap();
    let mut transaction = store.begin().unwrap();
    let request = request_of(NOW - from * MINUTE, NOW - to * MINUTE);
    let number = add_request(&mut *transaction, request).unwrap();
    transaction.commit().unwrap();
    number
}

fn listed(store: &Mutex<SqliteStore>) -> Vec<SampleRequest> {
    requests(&mut *store.lock().unwrap().begin_to_read().unwrap()).unwrap()
}

fn collector(dir: &Path) -> Collector {
    Collector::new(name("a"), Rules::default()).with_samples(dir)
}

fn files(dir: &Path) -> Vec<FleetSampleFile> {
    let (files, failed) = fleet_samples(dir, &|_| true).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    files
}

/// Sequence numbers of the blocks in all files, none of which is in two.
fn stored(dir: &Path) -> RangeSet {
    let mut all = RangeSet::new();
    for file in files(dir) {
        let sequences: RangeSet = file.about.sequences.parse().unwrap();
        sequences.ranges().flatten().for_each(|sequence| assert!(all.insert(sequence), "twice"));
    }
    all
}

fn set(text: &str) -> RangeSet {
    text.parse().unwrap()
}

#[test]
fn requested_samples_are_stored_and_others_stay() {
    let ((store, dir), mut spool) = (store(), spool());
    let mut collector = collector(dir.path());
    let before = collector.round(&mut spool, &store, || NOW).unwrap();
    assert_eq!((before.bytes, spool.kept().len()), (0, 24), "nothing is read without a request");
    assert_eq!(request(&store, 41, 25), 1);
    collector.round(&mut spool, &store, || NOW).unwrap();
    // Blocks from 45, 40, 35 and 30 min ago. The last minute of the first one is in the span.
    assert_eq!(stored(dir.path()), set("7,9,11,13"));
    assert_eq!(spool.receipts[&Incarnation(1)], set("7,9,11,13"));
    let [file] = &files(dir.path())[..] else { panic!("one day, one stream") };
    let about = &file.about;
    assert_eq!((about.sender.as_str(), about.reflector.as_str(), about.samples), ("a", "b", 20));
    assert_eq!((about.from_ns, about.to_ns), (NOW - 45 * MINUTE, NOW - 26 * MINUTE));
    assert!(file.path.ends_with("a-0000000000000001-7.parquet"), "{}", file.path.display());
    let done = &listed(&store)[0];
    assert_eq!((done.state, done.gone_before_ns), (SampleRequestState::Complete, None));
    assert!(done.is_answered_by(about));
    // The numbers of samples that stay on the node are not missing.
    let mut store = store.into_inner().unwrap();
    let mut transaction = store.begin_to_read().unwrap();
    let node = transaction.nodes().unwrap()[0].id;
    let states = transaction.incarnations_of(node).unwrap();
    assert_eq!(states.iter().map(|(_, state)| state.missing()).sum::<u64>(), 0);
}

#[test]
fn request_is_complete_after_the_last_block_could_be_read() {
    let ((store, dir), mut spool) = (store(), spool());
    let mut blocks = spool.records.remove(&Level::Samples).unwrap();
    let late = blocks.split_off(22);
    spool.records.insert(Level::Samples, blocks);
    request(&store, 20, 0);
    let mut collector = collector(dir.path());
    collector.round(&mut spool, &store, || NOW).unwrap();
    assert_eq!(listed(&store)[0].state, SampleRequestState::Pending);
    assert_eq!(stored(dir.path()), set("17,19,21"));
    spool.records.get_mut(&Level::Samples).unwrap().extend(late);
    collector.round(&mut spool, &store, || NOW + 400 * SECOND).unwrap();
    assert_eq!(listed(&store)[0].state, SampleRequestState::Pending);
    collector.round(&mut spool, &store, || NOW + 401 * SECOND).unwrap();
    assert_eq!(listed(&store)[0].state, SampleRequestState::Complete);
    assert_eq!(stored(dir.path()), set("17,19,21,23"));
    // Age ends a request whose span has not ended.
    request(&store, 20, -30 * 1_440);
    let mut state_at = |now: i64| {
        dwell_hub::accept_clock(&mut *store.lock().unwrap(), now).unwrap();
        collector.round(&mut spool, &store, || now).unwrap();
        listed(&store)[1].state
    };
    assert_eq!(state_at(NOW + 15 * DAY - 1), SampleRequestState::Pending);
    assert_eq!(state_at(NOW + 15 * DAY), SampleRequestState::Expired);
}

#[test]
fn interrupted_collection_stores_no_block_twice() {
    let (store, dir) = store();
    request(&store, 60, 0);
    // The connection breaks at every possible place.
    for answers in 1..12 {
        let mut spool = spool();
        spool.answers_left = answers;
        let _ = collector(dir.path()).round(&mut spool, &store, || NOW + 500 * SECOND);
        stored(dir.path());
    }
    let mut spool = spool();
    request(&store, 60, 0);
    collector(dir.path()).round(&mut spool, &store, || NOW + 500 * SECOND).unwrap();
    let odd: RangeSet = (0..12).map(|n| 2 * n + 1).collect();
    assert_eq!((stored(dir.path()), &spool.receipts[&Incarnation(1)]), (odd.clone(), &odd));
    // The database is lost after the files were written: they stay as they are.
    let before = files(dir.path());
    let anew = tempfile::tempdir().unwrap();
    let store = Mutex::new(SqliteStore::open(anew.path()).unwrap());
    request(&store, 60, 0);
    let mut spool = crate::samples::spool();
    collector(dir.path()).round(&mut spool, &store, || NOW + 500 * SECOND).unwrap();
    assert_eq!((files(dir.path()), &spool.receipts[&Incarnation(1)]), (before, &odd));
}

#[test]
fn samples_that_the_node_dropped_are_reported() {
    let ((store, dir), mut spool) = (store(), spool());
    spool.records.get_mut(&Level::Samples).unwrap().drain(..12);
    spool.status.as_mut().unwrap().status.dropped.samples = 12;
    request(&store, 60, 10);
    request(&store, 60, 40);
    request(&store, 20, 10);
    collector(dir.path()).round(&mut spool, &store, || NOW).unwrap();
    let gone = listed(&store).into_iter().map(|it| it.gone_before_ns.map(|at| (NOW - at) / MINUTE));
    assert_eq!(gone.collect::<Vec<_>>(), [Some(30), Some(40), None]);
    assert!(listed(&store).iter().all(|it| it.state == SampleRequestState::Complete));
    // The same span once more: what is stored is not gone.
    request(&store, 30, 10);
    collector(dir.path()).round(&mut spool, &store, || NOW).unwrap();
    assert_eq!(listed(&store)[3].gone_before_ns, None);
}

#[test]
fn damaged_samples_have_no_receipt_and_block_no_others() {
    let ((store, dir), mut spool) = (store(), spool());
    let blocks = spool.records.get_mut(&Level::Samples).unwrap();
    let Body::Samples(cut) = &mut blocks[2].body else { panic!() };
    cut.segment.truncate(cut.segment.len() - 5);
    blocks[4].identity.node = name("z");
    request(&store, 60, 30);
    let round = collector(dir.path()).round(&mut spool, &store, || NOW).unwrap();
    assert_eq!(stored(dir.path()), set("1,7,9,11"));
    assert_eq!(spool.receipts[&Incarnation(1)], set("1,7,9,11"));
    let reasons: BTreeSet<_> = round.bad.iter().map(|it| it.contains("damaged")).collect();
    assert_eq!((round.bad.len(), reasons), (2, BTreeSet::from([false, true])), "{:?}", round.bad);
}

#[test]
fn old_samples_and_requests_are_removed() {
    let ((store, dir), mut spool) = (store(), spool());
    request(&store, 60, 10);
    request(&store, 60, 10);
    collector(dir.path()).round(&mut spool, &store, || NOW).unwrap();
    let expire = |now_ns| {
        let mut locked = store.lock().unwrap();
        dwell_hub::accept_clock(&mut *locked, now_ns).unwrap();
        expire_samples(&mut *locked, dir.path(), 30, now_ns).unwrap();
        drop(locked);
        (files(dir.path()).len(), listed(&store).len())
    };
    assert_eq!(expire(NOW + 30 * DAY), (1, 2));
    assert_eq!(expire(NOW + 31 * DAY), (0, 1));
}
