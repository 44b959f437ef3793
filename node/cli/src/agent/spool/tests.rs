use dwell_rollup::{
    ClockQuality, ProbeCounts, Rollup, SCHEDULE_FILE, SampleBlock, SpoolCursor, Stream,
};
use tempfile::TempDir;

use super::super::spool_access::{hold_pause, read_records, read_status, write_receipts};
use super::*;

const ROLLUPS: Incarnation = Incarnation(1);
const SAMPLES: Incarnation = Incarnation(2);

fn options(dir: &TempDir, max_len: u64) -> SpoolOptions {
    let dir = dir.path().join("spool");
    SpoolOptions { dir, max_len, sync_interval: Duration::from_secs(3_600) }
}

fn open(options: &SpoolOptions, rollups: Incarnation, samples: Incarnation) -> Spool {
    let incarnations = Incarnations { rollups, samples };
    Spool::open(options.clone(), name("n1"), BootId::default(), incarnations).unwrap()
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn stream() -> Stream {
    Stream { reflector: name("n2"), protocol: name("stamp"), entry: name("mesh") }
}

fn rollup(level: Level) -> Body {
    Body::Rollup(Rollup {
        level,
        stream: stream(),
        schedule_version: 1,
        start_wall_ns: 0,
        start_boot_ns: 0,
        duration_ns: level.interval().unwrap().0 as u64,
        counts: ProbeCounts { sent: 1, lost: 1, ..ProbeCounts::default() },
        delays: Vec::new(),
        clock: ClockQuality::default(),
    })
}

fn samples(len: usize) -> Body {
    Body::Samples(SampleBlock {
        stream: stream(),
        schedule_version: 1,
        start_wall_ns: 0,
        start_boot_ns: 0,
        duration_ns: 0,
        samples: 1,
        segment: vec![7; len],
    })
}

/// Sequence numbers of the records that a carrier can read.
fn readable(options: &SpoolOptions, level: Level) -> RangeSet {
    let mut sequences = RangeSet::new();
    let mut from = None;
    loop {
        let batch = read_records(&options.dir, level, from, None).unwrap();
        for piece in pieces(&batch.records) {
            let Piece::Record(record) = piece else { panic!("{piece:?}") };
            assert!(sequences.insert(Identity::of(record).unwrap().sequence), "read twice");
        }
        from = batch.next;
        if !batch.has_more {
            return sequences;
        }
    }
}

/// The status that other processes see.
fn last_status(options: &SpoolOptions) -> Status {
    let value = read_status(&options.dir).unwrap().unwrap();
    serde_json::from_value::<StatusFile>(value).unwrap().status
}

fn set(text: &str) -> RangeSet {
    text.parse().unwrap()
}

#[test]
fn records_are_readable_until_they_have_receipts() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 8 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    for _ in 0..5 {
        spool.append(rollup(Level::TenSeconds), 0, 0);
        spool.append(samples(100), 0, 0);
    }
    spool.append(rollup(Level::FiveMinutes), 0, 0);
    assert_eq!(readable(&options, Level::TenSeconds), set("1-5"));
    assert_eq!(readable(&options, Level::FiveMinutes), set("6"));
    assert_eq!(readable(&options, Level::Samples), set("1-5"), "samples have their own numbers");
    write_receipts(&options.dir, ROLLUPS, &set("1-3,6")).unwrap();
    assert_eq!(readable(&options, Level::TenSeconds), set("4-5"));
    assert!(readable(&options, Level::FiveMinutes).is_empty());
    // The files are in use. After a restart, the one without missing receipts is deleted.
    drop(spool);
    let mut spool = open(&options, Incarnation(3), Incarnation(4));
    assert_eq!(record_files(&options.dir, Level::FiveMinutes).unwrap(), []);
    assert_eq!(readable(&options, Level::TenSeconds), set("4-5"));
    write_receipts(&options.dir, ROLLUPS, &set("1-6")).unwrap();
    spool.apply_receipts();
    assert_eq!(record_files(&options.dir, Level::TenSeconds).unwrap(), []);
    let receipts = fs::read_dir(options.dir.join(RECEIPTS_DIR)).unwrap().count();
    assert_eq!(receipts, 0, "receipts end with their records");
}

#[test]
fn half_written_record_is_cut_and_others_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 8 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    (0..3).for_each(|_| spool.append(samples(500), 0, 0));
    drop(spool);
    let [file] = record_files(&options.dir, Level::Samples).unwrap()[..] else { panic!() };
    let path = record_path(&options.dir, Level::Samples, &file);
    let whole = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(whole - 200).unwrap();
    assert_eq!(readable(&options, Level::Samples), set("1-2"), "also before the agent starts");
    let spool = open(&options, Incarnation(3), Incarnation(4));
    assert_eq!(readable(&options, Level::Samples), set("1-2"));
    assert_eq!(fs::metadata(&path).unwrap().len(), spool.len());
    assert_eq!(spool.state.damaged_bytes, whole - 200 - spool.len());
    assert_eq!(spool.state.starts, 2);
}

#[test]
fn full_spool_drops_samples_then_short_rollups_and_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 1 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    for _ in 0..40 {
        spool.append(samples(20_000), 0, 0);
    }
    for _ in 0..800 {
        spool.append(rollup(Level::TenSeconds), 0, 0);
        spool.append(rollup(Level::FiveMinutes), 0, 0);
    }
    assert_eq!(spool.state.dropped, Default::default(), "{}", spool.len());
    // 32 KiB per file; all samples go before the first roll-up.
    let mut rollups = 0;
    while spool.state.dropped.ten_seconds == 0 {
        spool.append(rollup(Level::TenSeconds), 0, 0);
        rollups += 1;
        assert!(spool.len() <= options.max_len);
    }
    assert_eq!((spool.state.dropped.samples, spool.state.dropped.five_minutes), (40, 0));
    let dropped = spool.state.dropped.ten_seconds;
    let kept = readable(&options, Level::TenSeconds);
    assert_eq!(kept.len() + dropped, 800 + rollups);
    assert_eq!(readable(&options, Level::FiveMinutes).len(), 800);
    // The next status names them, once.
    spool.append_status(Status::default(), 0, 0);
    let status = last_status(&options);
    assert_eq!(status.dropped.samples, 40);
    let [of_samples, of_short] = &status.dropped_since[..] else { panic!("{status:?}") };
    assert_eq!((of_samples.incarnation, &of_samples.sequences), (SAMPLES, &set("1-40")));
    assert_eq!((of_short.incarnation, of_short.sequences.len()), (ROLLUPS, dropped));
    assert!(of_short.sequences.ranges().flatten().all(|sequence| !kept.contains(sequence)));
    spool.append_status(Status::default(), 0, 0);
    let status = last_status(&options);
    assert_eq!((status.dropped.samples, status.dropped_since), (40, vec![]));
    // The count survives a restart.
    drop(spool);
    assert_eq!(open(&options, Incarnation(3), Incarnation(4)).state.dropped.samples, 40);
}

/// A file system of 1 MiB in memory.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` without the right to mount.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn full_disk_drops_old_records_and_starts_again() {
    let Some(disk) = SmallDisk::new() else {
        return println!("SKIP full_disk_drops_old_records_and_starts_again: cannot mount tmpfs");
    };
    let options = options(&disk.0, 8 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    let written = 150;
    for _ in 0..written {
        spool.append(samples(20_000), 0, 0);
    }
    spool.append(rollup(Level::FiveMinutes), 0, 0);
    let kept = readable(&options, Level::Samples);
    assert!(kept.contains(written) && kept.len() > 10, "{kept}");
    assert_eq!(kept.len() + spool.state.dropped.samples, written);
    assert!(spool.len() < 1 << 20, "{}", spool.len());
    assert_eq!(readable(&options, Level::FiveMinutes).len(), 1);
    spool.append_status(Status::default(), 0, 0);
    let status = last_status(&options);
    assert_eq!(status.dropped.samples, spool.state.dropped.samples);
    drop(spool);
    // Something else takes what is left.
    let _ = fs::write(disk.0.path().join("other"), vec![7; 1 << 20]);
    let spool = open(&options, Incarnation(3), Incarnation(4));
    assert_eq!(readable(&options, Level::FiveMinutes), set("1-2"));
    assert_eq!(
        readable(&options, Level::Samples).len() + spool.state.dropped.samples,
        written,
        "what it dropped to start is counted, too"
    );
}

#[test]
fn losses_during_a_status_are_in_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 1 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    while spool.len() + 100 < options.max_len {
        let left = options.max_len - spool.len();
        spool.append(samples(left.min(20_000) as usize / 2), 0, 0);
    }
    assert_eq!(spool.state.dropped.samples, 0);
    spool.append_status(Status::default(), 0, 0);
    let dropped = spool.state.dropped.samples;
    assert!(dropped > 0 && last_status(&options).dropped_since.is_empty());
    spool.append_status(Status::default(), 0, 0);
    let since = last_status(&options).dropped_since;
    assert_eq!(since.iter().map(|entry| entry.sequences.len()).sum::<u64>(), dropped);
}

#[test]
fn carriers_replace_links_instead_of_following_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 1 << 20);
    let _spool = open(&options, ROLLUPS, SAMPLES);
    let target = dir.path().join("target");
    fs::write(&target, "kept").unwrap();
    let temporary = format!(".{ROLLUPS}.{}", std::process::id());
    let receipts = options.dir.join(RECEIPTS_DIR);
    std::os::unix::fs::symlink(&target, receipts.join(temporary)).unwrap();
    write_receipts(&options.dir, ROLLUPS, &set("1-2")).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    let file = fs::symlink_metadata(receipts.join(ROLLUPS.to_string())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
    assert_eq!((file.is_file(), mode & 0o777), (true, 0o660));
}

#[test]
fn receipted_records_of_a_dropped_file_are_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 1 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    spool.append(samples(20_000), 0, 0);
    spool.append(samples(20_000), 0, 0);
    write_receipts(&options.dir, SAMPLES, &set("1")).unwrap();
    assert!(spool.drop_oldest(Level::Samples));
    assert_eq!(spool.state.dropped.samples, 1);
    assert_eq!(spool.state.unreported[0].sequences, set("2"));
}

#[test]
fn interrupted_drop_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 1 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    spool.append(samples(100), 0, 0);
    let [file] = record_files(&options.dir, Level::Samples).unwrap()[..] else { panic!() };
    let path = record_path(&options.dir, Level::Samples, &file);
    let content = fs::read(&path).unwrap();
    assert!(spool.drop_oldest(Level::Samples));
    drop(spool);
    // As if the process had ended before it deleted the file.
    fs::write(&path, content).unwrap();
    let spool = open(&options, Incarnation(3), Incarnation(4));
    assert_eq!((spool.state.dropped.samples, spool.len()), (1, 0));
    assert!(!path.exists());
}

#[test]
fn reading_continues_at_a_cursor_and_passes_deleted_files() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 32 << 20);
    let mut spool = open(&options, ROLLUPS, SAMPLES);
    // Files of 1 MiB, messages of 512 KiB.
    for _ in 0..30 {
        spool.append(samples(100_000), 0, 0);
    }
    let first = read_records(&options.dir, Level::Samples, None, None).unwrap();
    assert!(first.has_more && first.records.len() > 400_000);
    assert_eq!(readable(&options, Level::Samples), set("1-30"));
    let oldest = record_files(&options.dir, Level::Samples).unwrap()[0];
    assert_eq!(first.next.unwrap().file, oldest);
    assert!(spool.drop_oldest(Level::Samples));
    let next = read_records(&options.dir, Level::Samples, first.next, None).unwrap();
    let Some(Piece::Record(record)) = pieces(&next.records).next() else { panic!() };
    assert_eq!(Identity::of(record).unwrap().sequence, 12);
    // Records that are written later are found after the last cursor.
    let mut end: Option<SpoolCursor> = first.next;
    while let batch = read_records(&options.dir, Level::Samples, end, None).unwrap()
        && !batch.records.is_empty()
    {
        end = batch.next;
    }
    spool.append(samples(10), 0, 0);
    let last = read_records(&options.dir, Level::Samples, end, None).unwrap();
    assert_eq!(pieces(&last.records).count(), 1);
}

#[test]
fn two_agents_cannot_share_a_spool() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 1 << 20);
    let _spool = open(&options, ROLLUPS, SAMPLES);
    let incarnations = Incarnations { rollups: Incarnation(3), samples: Incarnation(4) };
    let error = Spool::open(options, name("n1"), BootId::default(), incarnations).unwrap_err();
    assert!(format!("{error:#}").contains("another agent uses spool"), "{error:#}");
}

#[test]
fn what_others_put_in_place_of_files_is_not_followed() {
    let dir = TempDir::new().unwrap();
    let options = options(&dir, 1 << 20);
    drop(open(&options, ROLLUPS, SAMPLES));
    let spool = |file: &str| options.dir.join(file);
    let secret = dir.path().join("secret");
    fs::write(&secret, "1-9").unwrap();
    let link = |file: &str| {
        let _ = fs::remove_file(spool(file));
        std::os::unix::fs::symlink(&secret, spool(file)).unwrap();
    };
    link(SCHEDULE_FILE);
    link(&format!("{RECEIPTS_DIR}/{ROLLUPS}"));
    link(PAUSE_LOCK_FILE);
    let is_refused = |outcome: io::Result<()>| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    };
    is_refused(read_small(&spool(SCHEDULE_FILE), 100).map(drop));
    is_refused(read_receipts(&options.dir, ROLLUPS).map(drop));
    is_refused(hold_pause(&options.dir, "a reason").map(drop));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "1-9");
    // A FIFO without a writer delays nothing.
    fs::remove_file(spool(SCHEDULE_FILE)).unwrap();
    let made = std::process::Command::new("mkfifo").arg(spool(SCHEDULE_FILE)).status();
    assert!(made.unwrap().success());
    assert_eq!(read_small(&spool(SCHEDULE_FILE), 100).unwrap().as_deref(), Some(""));
    let record = RecordFile { start: 1, incarnation: SAMPLES, first: 9 };
    link(&format!("{}/{record}", level_dir(Level::Samples)));
    fs::remove_file(spool(PAUSE_LOCK_FILE)).unwrap();
    assert_eq!(open(&options, ROLLUPS, SAMPLES).len(), 0);
    assert!(readable(&options, Level::Samples).is_empty());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "1-9");
}
