//! A spool as an agent leaves it, with records of the tests.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dwell_rollup::{
    Body, BootId, Identity, Incarnation, Level, RECEIPTS_DIR, RangeSet, Record, RecordFile,
    SCHEDULE_FILE, STATUS_FILE, SampleBlock, Stream, level_dir,
};
use tempfile::TempDir;

/// Number of records in a file.
const RECORDS_PER_FILE: u64 = 500;

pub(crate) struct TestSpool {
    dir: TempDir,
    sequences: BTreeMap<Incarnation, u64>,
}

impl TestSpool {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for below in [level_dir(Level::FiveMinutes), level_dir(Level::TenSeconds)] {
            fs::create_dir_all(dir.path().join(below)).unwrap();
        }
        fs::create_dir(dir.path().join(RECEIPTS_DIR)).unwrap();
        let spool = Self { dir, sequences: BTreeMap::new() };
        spool.write_status("n1");
        spool
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write_status(&self, node: &str) {
        fs::write(self.path().join(STATUS_FILE), format!("{{\"node\":\"{node}\"}}")).unwrap();
    }

    /// Appends records of about `len` bytes to a level.
    pub(crate) fn append(&mut self, level: Level, incarnation: u64, records: u64, len: usize) {
        let incarnation = Incarnation(incarnation);
        let sequence = self.sequences.entry(incarnation).or_default();
        for _ in 0..records {
            *sequence += 1;
            let first = *sequence - (*sequence - 1) % RECORDS_PER_FILE;
            let file = RecordFile { start: incarnation.0 as u32, incarnation, first };
            let path = self.dir.path().join(level_dir(level)).join(file.to_string());
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(&record(incarnation, *sequence, len)).unwrap();
        }
    }

    /// All records.
    pub(crate) fn records(&self) -> BTreeMap<Incarnation, RangeSet> {
        let all = |(incarnation, last): (&Incarnation, &u64)| {
            let mut set = RangeSet::new();
            set.insert_range(1..=*last);
            (*incarnation, set)
        };
        self.sequences.iter().map(all).collect()
    }

    /// Receipts in the spool.
    pub(crate) fn receipts(&self) -> BTreeMap<Incarnation, RangeSet> {
        let entries = fs::read_dir(self.path().join(RECEIPTS_DIR)).unwrap();
        let receipts = entries.filter_map(|entry| {
            let path: PathBuf = entry.unwrap().path();
            let name = path.file_name()?.to_str()?;
            let text = fs::read_to_string(&path).ok()?;
            Some((name.parse().ok()?, text.trim_end().parse().unwrap()))
        });
        receipts.collect()
    }

    pub(crate) fn schedule(&self) -> Option<String> {
        fs::read_to_string(self.path().join(SCHEDULE_FILE)).ok()
    }
}

/// A record of any body: only its identity matters to a carrier.
fn record(incarnation: Incarnation, sequence: u64, len: usize) -> Vec<u8> {
    let node: dwell_rollup::Name = "n1".parse().unwrap();
    let stream = Stream { reflector: node.clone(), protocol: node.clone(), entry: node.clone() };
    let samples = SampleBlock {
        stream,
        schedule_version: 1,
        start_wall_ns: 0,
        start_boot_ns: 0,
        duration_ns: 0,
        samples: 0,
        segment: vec![0; len],
    };
    let record = Record {
        identity: Identity { node, incarnation, sequence },
        wall_ns: 0,
        boot_ns: 0,
        boot_id: BootId::default(),
        body: Body::Samples(samples),
    };
    let mut out = Vec::new();
    record.encode(&mut out).unwrap();
    out
}
