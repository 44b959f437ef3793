//! Observes the spools of agents: keeps each file with records by a hard link, so that all records that a
//! node ever wrote can be read at the end, also those that it has freed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dwell_rollup::{
    Identity, Incarnation, Level, Name, Piece, RECEIPTS_DIR, RangeSet, Record, RecordFile,
    level_dir, pieces,
};

use crate::comparison::{Entry, Sequences, is_subset};

/// Interval between looks at the spools. A file exists for seconds at least: it is deleted when the agent
/// reads its receipts, every 2 s.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Levels of records that a hub stores.
const LEVELS: [Level; 2] = [Level::FiveMinutes, Level::TenSeconds];

/// A running observation. Dropping it ends the observation.
pub(crate) struct Observer {
    dir: PathBuf,
    spools: Vec<(Name, PathBuf)>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// All records of an observation.
pub(crate) struct Written {
    pub(crate) entries: Vec<Entry>,
    /// Files and records that nodes have freed.
    pub(crate) freed_files: usize,
    pub(crate) freed_records: usize,
}

impl Observer {
    /// Starts to observe the spools of nodes. `dir` is a directory of the same file system.
    pub(crate) fn start(dir: &Path, spools: Vec<(Name, PathBuf)>) -> Self {
        for (node, _) in &spools {
            for level in LEVELS {
                fs::create_dir_all(dir.join(node.as_str()).join(level_dir(level))).unwrap();
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (observed, copies, is_over) = (spools.clone(), dir.to_owned(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut known = BTreeSet::new();
            loop {
                // The last look is after the request to stop.
                let is_last = is_over.load(Ordering::Relaxed);
                observed.iter().for_each(|(node, spool)| {
                    link_new(spool, &copies.join(node.as_str()), &mut known);
                });
                if is_last {
                    return;
                }
                thread::sleep(POLL_INTERVAL);
            }
        });
        Self { dir: dir.to_owned(), spools, stop, thread: Some(thread) }
    }

    /// Ends the observation after the agents, and reads all records. Panics if the numbers of an
    /// incarnation have a gap.
    pub(crate) fn finish(mut self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let mut written = Written { entries: Vec::new(), freed_files: 0, freed_records: 0 };
        for (node, spool) in &self.spools {
            for level in LEVELS {
                let copies = self.dir.join(node.as_str()).join(level_dir(level));
                for (file, path) in record_files(&copies) {
                    let records = read_records(&path);
                    assert!(records.iter().all(|record| record.identity.node == *node));
                    if !spool.join(level_dir(level)).join(file.to_string()).exists() {
                        written.freed_files += 1;
                        written.freed_records += records.len();
                    }
                    written.entries.extend(records.iter().map(Entry::of));
                }
            }
        }
        let mut numbers: BTreeMap<(&Name, Incarnation), RangeSet> = BTreeMap::new();
        for Entry { identity: Identity { node, incarnation, sequence }, .. } in &written.entries {
            let is_new = numbers.entry((node, *incarnation)).or_default().insert(*sequence);
            assert!(is_new, "{node} wrote record {incarnation}/{sequence} twice");
        }
        for ((node, incarnation), set) in numbers {
            assert_eq!(set.range_count(), 1, "records of {node}/{incarnation} observed: {set}");
            assert!(set.contains(1), "records of {node}/{incarnation} observed: {set}");
        }
        written
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Links the files of a spool that are new.
fn link_new(spool: &Path, copies: &Path, known: &mut BTreeSet<PathBuf>) {
    for level in LEVELS {
        for (file, path) in record_files(&spool.join(level_dir(level))) {
            if known.contains(&path) {
                continue;
            }
            match fs::hard_link(&path, copies.join(level_dir(level)).join(file.to_string())) {
                Ok(()) => drop(known.insert(path)),
                // Its records will be a gap.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => panic!("cannot link {}: {error}", path.display()),
            }
        }
    }
}

/// Files with records in a directory, oldest first.
fn record_files(dir: &Path) -> BTreeMap<RecordFile, PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeMap::new() };
    let files = entries.flatten().filter_map(|entry| {
        let file = entry.file_name().to_str()?.parse().ok()?;
        Some((file, entry.path()))
    });
    files.collect()
}

fn read_records(path: &Path) -> Vec<Record> {
    let content = fs::read(path).unwrap();
    let record = |piece| match piece {
        Piece::Record(record) => Record::decode(record).unwrap(),
        Piece::Damaged(bytes) => panic!("{} bytes in {} are damaged", bytes.len(), path.display()),
    };
    pieces(&content).map(record).collect()
}

/// Receipts in the spool of a node.
pub(crate) fn receipts(node: &Name, spool: &Path) -> Sequences {
    let Ok(entries) = fs::read_dir(spool.join(RECEIPTS_DIR)) else { return Sequences::new() };
    let receipts = entries.flatten().filter_map(|entry| {
        let incarnation = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path()).ok()?;
        Some(((node.clone(), incarnation), text.trim_end().parse().unwrap()))
    });
    receipts.collect()
}

/// Returns the sets of numbers that are not subsets of others, a line for each.
pub(crate) fn beyond(sets: &Sequences, others: &Sequences) -> Vec<String> {
    let empty = RangeSet::new();
    let beyond = sets.iter().filter_map(|(key, set)| {
        let other = others.get(key).unwrap_or(&empty);
        (!is_subset(set, other)).then(|| format!("{}/{}: {set} beyond {other}", key.0, key.1))
    });
    beyond.collect()
}
