use dwell_rollup::{Body, BootId, Identity, Piece, Record, SampleBlock, Stream, pieces};
use tempfile::TempDir;

use super::*;

fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for level in SHIPPED_LEVELS {
        fs::create_dir_all(dir.path().join(level_dir(level))).unwrap();
    }
    fs::create_dir(dir.path().join(RECEIPTS_DIR)).unwrap();
    dir
}

/// A record with about `len` bytes.
fn record(incarnation: u64, sequence: u64, len: usize) -> Vec<u8> {
    let node: Name = "n1".parse().unwrap();
    let stream = Stream { reflector: node.clone(), protocol: node.clone(), entry: node.clone() };
    let samples = SampleBlock {
        stream,
        schedule_version: 1,
        start_wall_ns: 0,
        start_boot_ns: 0,
        duration_ns: 0,
        samples: 0,
        segment: vec![b'D'; len],
    };
    let record = Record {
        identity: Identity { node, incarnation: Incarnation(incarnation), sequence },
        wall_ns: 0,
        boot_ns: 0,
        boot_id: BootId::default(),
        body: Body::Samples(samples),
    };
    let mut out = Vec::new();
    record.encode(&mut out).unwrap();
    out
}

fn write(dir: &TempDir, level: Level, start: u32, first: u64, content: &[u8]) -> RecordFile {
    let file = RecordFile { start, incarnation: Incarnation(start.into()), first };
    fs::write(dir.path().join(level_dir(level)).join(file.to_string()), content).unwrap();
    file
}

/// Reads everything of a level. Returns the sequence numbers of each message.
fn read_all(spool: &mut Spool, level: Level) -> Vec<Vec<u64>> {
    let mut messages = Vec::new();
    let mut next = None;
    loop {
        let mut message = Vec::new();
        let reached = spool.read(level, next, None, &mut message).unwrap();
        let records = pieces(&message).map(|piece| match piece {
            Piece::Record(record) => Identity::of(record).unwrap().sequence,
            Piece::Damaged(bytes) => panic!("{} damaged bytes", bytes.len()),
        });
        let records: Vec<_> = records.collect();
        if !records.is_empty() {
            messages.push(records);
        }
        next = reached.next;
        if !reached.has_more {
            return messages;
        }
    }
}

#[test]
fn messages_hold_all_records_in_order() {
    let dir = directory();
    let mut spool = Spool::open(dir.path()).unwrap();
    assert!(read_all(&mut spool, Level::FiveMinutes).is_empty());
    let level = Level::FiveMinutes;
    let records = |range: std::ops::RangeInclusive<u64>, len| -> Vec<u8> {
        range.flat_map(|sequence| record(1, sequence, len)).collect()
    };
    write(&dir, level, 1, 1, &records(1..=300, 1_000));
    write(&dir, level, 1, 301, &records(301..=310, 200_000));
    write(&dir, level, 1, 311, &records(311..=320, 10));
    let messages = read_all(&mut spool, level);
    assert_eq!(messages.concat(), (1..=320).collect::<Vec<_>>());
    // 300 KB, ten messages of one record each, and the rest.
    assert_eq!(messages.len(), 3 + 10 + 1, "{messages:?}");
    assert!(read_all(&mut spool, Level::TenSeconds).is_empty());
}

#[test]
fn damage_hides_no_record() {
    let dir = directory();
    let mut spool = Spool::open(dir.path()).unwrap();
    let level = Level::TenSeconds;
    let long = record(1, 2, 500_000);
    let damage = [vec![b'D'; 1_500_000], b"DWR".repeat(100)].concat();
    let content = [&record(1, 1, 10)[..], &damage, &long, &record(1, 3, 10)].concat();
    write(&dir, level, 1, 1, &content);
    assert_eq!(read_all(&mut spool, level), [vec![1], vec![2], vec![3]]);
}

#[test]
fn record_that_the_agent_is_writing_follows_later() {
    let dir = directory();
    let mut spool = Spool::open(dir.path()).unwrap();
    let level = Level::TenSeconds;
    let records = [record(1, 1, 100), record(1, 2, 100)].concat();
    write(&dir, level, 1, 1, &records[..records.len() - 5]);
    let mut message = Vec::new();
    let reached = spool.read(level, None, None, &mut message).unwrap();
    assert_eq!(message, record(1, 1, 100));
    write(&dir, level, 1, 1, &records);
    message.clear();
    let reached = spool.read(level, reached.next, None, &mut message).unwrap();
    assert_eq!(message, record(1, 2, 100));
    // The next file, and one that disappears.
    let next = write(&dir, level, 2, 1, &record(2, 1, 100));
    message.clear();
    let until = Some(SpoolCursor { file: next, offset: 0 });
    spool.read(level, reached.next, until, &mut message).unwrap();
    assert!(message.is_empty(), "the limit is before the record");
    fs::remove_file(dir.path().join(level_dir(level)).join(next.to_string())).unwrap();
    // Only older files are left, as in a spool that was created anew: they are read again.
    let again = spool.read(level, Some(SpoolCursor { file: next, offset: 7 }), None, &mut message);
    assert_eq!(again.unwrap().next.map(|next| next.offset), Some(records.len() as u64));
    assert_eq!(message, records);
}

#[test]
fn receipts_are_added_and_records_left_out() {
    let dir = directory();
    let mut spool = Spool::open(dir.path()).unwrap();
    let level = Level::TenSeconds;
    let records: Vec<_> = (1..=6).flat_map(|sequence| record(3, sequence, 10)).collect();
    write(&dir, level, 3, 1, &records);
    let incarnation = Incarnation(3);
    assert_eq!(spool.incarnations().unwrap(), BTreeSet::from([incarnation]));
    spool.add_receipts(incarnation, &"1-2".parse().unwrap()).unwrap();
    let all = spool.add_receipts(incarnation, &"5".parse().unwrap()).unwrap();
    assert_eq!(all.to_string(), "1-2,5");
    let path = dir.path().join("receipts/0000000000000003");
    assert_eq!(fs::read_to_string(&path).unwrap(), "1-2,5\n");
    assert_eq!(read_all(&mut spool, level), [vec![3, 4, 6]]);
    // Damaged receipts cost a repetition, nothing else.
    fs::write(&path, [0xff, 0, 1]).unwrap();
    assert_eq!(read_all(&mut spool, level), [vec![1, 2, 3, 4, 5, 6]]);
}

#[test]
fn spool_that_was_created_anew_is_read_from_its_start() {
    let dir = directory();
    let level = Level::TenSeconds;
    write(&dir, level, 5, 1, &record(5, 1, 10));
    let mut spool = Spool::open(dir.path()).unwrap();
    let mut message = Vec::new();
    let reached = spool.read(level, None, None, &mut message).unwrap();
    fs::remove_dir_all(dir.path().join(level_dir(level))).unwrap();
    fs::create_dir_all(dir.path().join(level_dir(level))).unwrap();
    let kept = spool.read(level, reached.next, None, &mut Vec::new()).unwrap();
    assert_eq!(kept.next, reached.next, "its files may still come");
    let anew = record(1, 1, 10);
    write(&dir, level, 1, 1, &anew);
    message.clear();
    let reached = spool.read(level, kept.next, None, &mut message).unwrap();
    assert_eq!(message, anew);
    message.clear();
    spool.read(level, reached.next, None, &mut message).unwrap();
    assert!(message.is_empty(), "it was read");
}

#[test]
fn links_and_fifos_in_the_spool_are_refused() {
    let dir = directory();
    let secret = dir.path().join("secret");
    fs::write(&secret, "{\"node\":\"n1\"}").unwrap();
    let spool = Spool::open(dir.path()).unwrap();
    let status = dir.path().join(STATUS_FILE);
    std::os::unix::fs::symlink(&secret, &status).unwrap();
    assert!(spool.node().is_err());
    fs::remove_file(&status).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&status).status().unwrap();
    assert!(made.success());
    assert!(spool.node().unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn spool_has_one_uplink() {
    let dir = directory();
    let first = Spool::open(dir.path()).unwrap();
    let second = Spool::open(dir.path()).unwrap_err().to_string();
    assert!(second.contains("another uplink"), "{second}");
    drop(first);
    Spool::open(dir.path()).unwrap();
    let missing = Spool::open(&dir.path().join("missing")).unwrap_err();
    assert!(format!("{missing:#}").contains("cannot use spool"), "{missing:#}");
}

#[test]
fn node_of_the_agent_is_read_from_any_status() {
    let dir = directory();
    let spool = Spool::open(dir.path()).unwrap();
    assert_eq!(spool.node().unwrap(), None);
    let path = dir.path().join(STATUS_FILE);
    fs::write(&path, r#"{"node":"n1","status":{"new":1}}"#).unwrap();
    assert_eq!(spool.node().unwrap(), Some("n1".parse().unwrap()));
    fs::write(&path, "{}").unwrap();
    assert!(spool.node().is_err());
}

#[test]
fn schedule_is_replaced_only_by_another_one() {
    let dir = directory();
    let spool = Spool::open(dir.path()).unwrap();
    assert_eq!(spool.schedule_version().unwrap(), None);
    let schedule = br#"{"version":3,"node":"n1"}"#;
    assert!(spool.store_schedule(schedule).unwrap());
    assert!(!spool.store_schedule(schedule).unwrap());
    assert_eq!(spool.schedule_version().unwrap(), Some(3));
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{names:?}");
}
