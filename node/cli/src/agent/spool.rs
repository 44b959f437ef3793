//! The spool as its agent writes it: records on disk until a hub has committed them, within a bound.
//!
//! Records of one level are appended to a file until that is long or old enough. A file whose records all
//! have receipts is deleted. If the spool is full, its oldest files are deleted without receipts: first
//! of samples, then of 10 s, then of 5 min. Each lost record is counted and reported.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use dwell_io::plain_file;
use dwell_rollup::{
    Body, BootId, DroppedRecords, Identity, Incarnation, Level, Name, PAUSE_LOCK_FILE, Piece,
    RECEIPTS_DIR, RangeSet, Record, RecordFile, SPOOL_LEVELS, STATE_FILE, STATUS_FILE, SpoolState,
    Status, StatusFile, level_dir, pieces,
};

use super::spool_access::{
    open_lock, read_from, read_receipts, read_small, record_files, record_path, sync_dir_of,
    write_whole,
};

/// Maximum length of a file with records; a smaller spool has shorter files.
const MAX_FILE_LEN: u64 = 1 << 20;

/// Age at which a file is closed, so that it is deleted soon after its receipts arrive.
const MAX_FILE_AGE: Duration = Duration::from_secs(600);

/// Interval between reads of receipts.
const RECEIPT_INTERVAL: Duration = Duration::from_secs(2);

/// Name of the file that the agent locks.
const LOCK_FILE: &str = "agent.lock";

/// Maximum length of the state of a spool in bytes.
const MAX_STATE_LEN: usize = 16 << 20;

/// Maximum number of entries that name dropped records; older ones are only counted.
const MAX_UNREPORTED: usize = 256;

/// Where and how large a spool is.
#[derive(Clone, Debug)]
pub(super) struct SpoolOptions {
    pub(super) dir: PathBuf,
    /// Maximum size of the files with records in bytes.
    pub(super) max_len: u64,
    /// Time after which records are on the medium.
    pub(super) sync_interval: Duration,
}

/// The two incarnations of a start of an agent. Samples have one of their own, so that the sequence
/// numbers of roll-ups have no gaps while samples stay on the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incarnations {
    pub(super) rollups: Incarnation,
    pub(super) samples: Incarnation,
}

/// A spool opened for writing.
#[derive(Debug)]
pub(super) struct Spool {
    options: SpoolOptions,
    node: Name,
    boot_id: BootId,
    incarnations: Incarnations,
    /// Next sequence number of roll-ups and of samples.
    next: [u64; 2],
    state: SpoolState,
    levels: [Files; SPOOL_LEVELS.len()],
    /// Encoded record, to be written.
    encoded: Vec<u8>,
    last_sync: Instant,
    last_receipts: Instant,
    /// First error of writing since the last status.
    failure: Option<String>,
    _lock: File,
}

/// Files of one level.
#[derive(Debug)]
struct Files {
    level: Level,
    /// Files that are not written any more, oldest first.
    closed: VecDeque<ClosedFile>,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct ClosedFile {
    file: RecordFile,
    len: u64,
    sequences: RangeSet,
}

#[derive(Debug)]
struct OpenFile {
    handle: File,
    content: ClosedFile,
    since: Instant,
    is_synced: bool,
}

impl Spool {
    /// Opens a spool, creating it if needed. Cuts records that an agent did not finish writing.
    pub(super) fn open(
        options: SpoolOptions,
        node: Name,
        boot_id: BootId,
        incarnations: Incarnations,
    ) -> anyhow::Result<Self> {
        let dir = &options.dir;
        let cannot = || format!("cannot use spool {}", dir.display());
        let below = SPOOL_LEVELS.map(level_dir).into_iter().chain([RECEIPTS_DIR.to_owned()]);
        for below in below {
            let mut builder = DirBuilder::new();
            let below = dir.join(below);
            builder.recursive(true).mode(0o770).create(&below).with_context(cannot)?;
            sync_dir_of(&below).with_context(cannot)?;
        }
        // The directory above may belong to others.
        let _ = sync_dir_of(dir);
        let lock = lock(dir)?;
        // So that other members of the group can lock it.
        open_lock(&dir.join(PAUSE_LOCK_FILE)).with_context(cannot)?;
        let mut state = read_state(dir).with_context(cannot)?;
        state.starts = state.starts.checked_add(1).context("the spool is used up")?;
        let mut spool = Self {
            levels: SPOOL_LEVELS.map(|level| Files { level, closed: VecDeque::new(), open: None }),
            options,
            node,
            boot_id,
            incarnations,
            next: [1, 1],
            state,
            encoded: Vec::new(),
            last_sync: Instant::now(),
            last_receipts: Instant::now(),
            failure: None,
            _lock: lock,
        };
        for at in 0..spool.levels.len() {
            spool
                .recover(at)
                .with_context(|| format!("cannot use spool {}", spool.dir().display()))?;
        }
        while let Err(error) = spool.write_state() {
            let is_full = error.downcast_ref::<io::Error>().is_some_and(is_full);
            if !is_full || !spool.drop_oldest(Level::FiveMinutes) {
                return Err(error);
            }
        }
        spool.apply_receipts();
        Ok(spool)
    }

    fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Reads the files of a level that earlier agents left.
    fn recover(&mut self, at: usize) -> io::Result<()> {
        let level = self.levels[at].level;
        for file in record_files(&self.options.dir, level)? {
            // Names continue after those of a spool whose state was lost.
            self.state.starts = self.state.starts.max(file.start.saturating_add(1));
            let path = record_path(&self.options.dir, level, &file);
            if self.state.last_dropped == Some(file) {
                fs::remove_file(&path)?;
                continue;
            }
            let content = read_from(&path, 0)?;
            let mut sequences = RangeSet::new();
            let mut len = 0;
            let mut damaged = 0;
            for piece in pieces(&content) {
                match piece {
                    Piece::Damaged(bytes) => damaged = bytes.len() as u64,
                    Piece::Record(record) => {
                        len += damaged + record.len() as u64;
                        self.state.damaged_bytes += std::mem::take(&mut damaged);
                        if let Ok(identity) = Identity::of(record) {
                            sequences.insert(identity.sequence);
                        }
                    }
                }
            }
            self.state.damaged_bytes += damaged;
            if sequences.is_empty() {
                fs::remove_file(&path)?;
                continue;
            }
            if damaged > 0 {
                plain_file::open(OpenOptions::new().write(true), &path)?.set_len(len)?;
            }
            self.levels[at].closed.push_back(ClosedFile { file, len, sequences });
        }
        Ok(())
    }

    /// Appends a record written at these times. If that is impossible even after deleting old records,
    /// the record is counted as dropped.
    pub(super) fn append(&mut self, body: Body, wall_ns: i64, boot_ns: i64) {
        let level = body.level();
        let is_samples = level == Level::Samples;
        let Incarnations { rollups, samples } = self.incarnations;
        let (incarnation, next) =
            if is_samples { (samples, self.next[1]) } else { (rollups, self.next[0]) };
        let identity = Identity { node: self.node.clone(), incarnation, sequence: next };
        let record = Record { identity, wall_ns, boot_ns, boot_id: self.boot_id, body };
        self.encoded.clear();
        let encoded = record.encode(&mut self.encoded);
        let written = match encoded {
            Ok(()) => self.write(level, incarnation, next).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match written {
            Ok(()) => self.next[usize::from(is_samples)] += 1,
            Err(reason) => {
                *self.state.dropped.of_mut(level) += 1;
                self.failure.get_or_insert(reason);
            }
        }
        self.enforce_limit();
    }

    /// Completes a status, appends it and shows it to other processes.
    pub(super) fn append_status(&mut self, mut status: Status, wall_ns: i64, boot_ns: i64) {
        self.sync();
        self.apply_receipts();
        status.samples_incarnation = Some(self.incarnations.samples);
        status.spool_bytes = self.len();
        status.spool_limit_bytes = self.options.max_len;
        status.spool_error = self.failure.take();
        status.dropped = self.state.dropped;
        // Appending may drop more records, which the next status names.
        let reported = std::mem::take(&mut self.state.unreported);
        status.dropped_since = reported.clone();
        status.damaged_bytes = self.state.damaged_bytes;
        let before = self.next[0];
        self.append(Body::Status(Box::new(status.clone())), wall_ns, boot_ns);
        if self.next[0] == before {
            for DroppedRecords { incarnation, level, sequences } in reported {
                self.note_dropped(level, incarnation, &sequences);
            }
        } else if !reported.is_empty() {
            // The record names them. If it is dropped itself, they remain counted.
            self.sync();
            self.note_failure(|spool| spool.write_state());
        }
        let file = StatusFile {
            node: self.node.clone(),
            incarnation: self.incarnations.rollups,
            pid: std::process::id(),
            wall_ns,
            status,
        };
        self.note_failure(|spool| {
            let json = serde_json::to_vec(&file)?;
            Ok(write_whole(&spool.dir().join(STATUS_FILE), &json)?)
        });
    }

    /// Does what is due: syncs, reads receipts, closes old files.
    pub(super) fn tend(&mut self) {
        if self.last_sync.elapsed() >= self.options.sync_interval {
            self.sync();
        }
        if self.last_receipts.elapsed() >= RECEIPT_INTERVAL {
            self.apply_receipts();
        }
        for files in &mut self.levels {
            if files.open.as_ref().is_some_and(|open| open.since.elapsed() >= MAX_FILE_AGE) {
                files.close();
            }
        }
    }

    /// Writes all records to the medium.
    pub(super) fn sync(&mut self) {
        self.last_sync = Instant::now();
        for files in &mut self.levels {
            let Some(open) = files.open.as_mut().filter(|open| !open.is_synced) else { continue };
            match open.handle.sync_data() {
                Ok(()) => open.is_synced = true,
                Err(error) => drop(self.failure.get_or_insert(error.to_string())),
            }
        }
    }

    /// Total length of the files with records in bytes.
    pub(super) fn len(&self) -> u64 {
        self.levels.iter().map(Files::len).sum()
    }

    /// Appends the encoded record, and deletes old files as long as the disk is full.
    fn write(&mut self, level: Level, incarnation: Incarnation, sequence: u64) -> io::Result<()> {
        loop {
            let error = match self.try_write(level, incarnation, sequence) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // What remains is kept for the other levels: a record makes room only by older ones of
            // its own importance or less.
            if !is_full(&error) || !self.drop_oldest(level) {
                return Err(error);
            }
        }
    }

    fn try_write(
        &mut self,
        level: Level,
        incarnation: Incarnation,
        sequence: u64,
    ) -> io::Result<()> {
        let max_len = self.max_file_len();
        let Self { options, state, levels, encoded, .. } = self;
        let files = levels.iter_mut().find(|files| files.level == level).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a node writes no such level")
        })?;
        if files.open.as_ref().is_some_and(|open| open.content.len >= max_len) {
            files.close();
        }
        let open = match &mut files.open {
            Some(open) => open,
            None => {
                let file = RecordFile { start: state.starts, incarnation, first: sequence };
                let mut new = OpenOptions::new();
                let path = record_path(&options.dir, level, &file);
                let handle = new.write(true).create_new(true).mode(0o660).open(&path)?;
                sync_dir_of(&path)?;
                files.open.insert(OpenFile {
                    handle,
                    content: ClosedFile { file, len: 0, sequences: RangeSet::new() },
                    since: Instant::now(),
                    is_synced: true,
                })
            }
        };
        let len = open.content.len;
        if let Err(error) = open.handle.write_all_at(encoded, len) {
            // A part of the record may be there.
            open.handle.set_len(len)?;
            return Err(error);
        }
        open.content.len += encoded.len() as u64;
        open.content.sequences.insert(sequence);
        open.is_synced = false;
        Ok(())
    }

    fn max_file_len(&self) -> u64 {
        MAX_FILE_LEN.min(self.options.max_len / 32)
    }

    /// Deletes the oldest files until the spool is within its limit.
    fn enforce_limit(&mut self) {
        while self.len() > self.options.max_len {
            if !self.drop_oldest(Level::FiveMinutes) {
                return;
            }
        }
    }

    /// Deletes the oldest file of the first level that has one, up to `last` in the order of dropping.
    /// Returns whether there was one.
    fn drop_oldest(&mut self, last: Level) -> bool {
        for at in 0..self.levels.len() {
            let files = &mut self.levels[at];
            if files.closed.is_empty() {
                files.close();
            }
            if let Some(oldest) = files.closed.pop_front() {
                self.drop_file(at, &oldest);
                return true;
            }
            if files.level == last {
                break;
            }
        }
        false
    }

    /// Deletes a file and counts its records without receipts. The state names the file first, so that
    /// an interruption neither hides nor repeats the loss; on a full disk only the deletion makes room for
    /// the state.
    fn drop_file(&mut self, at: usize, dropped: &ClosedFile) {
        let level = self.levels[at].level;
        let ClosedFile { file, sequences, .. } = dropped;
        let receipts = read_receipts(self.dir(), file.incarnation).unwrap_or_default();
        let mut lost = RangeSet::new();
        for sequence in sequences.ranges().flatten() {
            if !receipts.contains(sequence) {
                lost.insert(sequence);
            }
        }
        if !lost.is_empty() {
            *self.state.dropped.of_mut(level) += lost.len();
            self.note_dropped(level.name().to_owned(), file.incarnation, &lost);
        }
        self.state.last_dropped = Some(*file);
        let is_noted = self.write_state().is_ok();
        self.note_failure(|spool| {
            let path = record_path(spool.dir(), level, file);
            fs::remove_file(&path)?;
            sync_dir_of(&path)?;
            if is_noted { Ok(()) } else { spool.write_state() }
        });
    }

    fn note_dropped(&mut self, level: String, incarnation: Incarnation, lost: &RangeSet) {
        let unreported = &mut self.state.unreported;
        let is_of =
            |entry: &&mut DroppedRecords| entry.incarnation == incarnation && entry.level == level;
        if let Some(known) = unreported.iter_mut().find(is_of) {
            known.sequences.merge(lost);
        } else if unreported.len() < MAX_UNREPORTED {
            unreported.push(DroppedRecords { incarnation, level, sequences: lost.clone() });
        }
    }

    /// Deletes the files whose records all have receipts, and receipts of incarnations without files.
    fn apply_receipts(&mut self) {
        self.last_receipts = Instant::now();
        // Files of one incarnation follow each other.
        let mut receipts: Option<(Incarnation, RangeSet)> = None;
        let Self { options, levels, failure, incarnations, .. } = self;
        let mut used = vec![incarnations.rollups, incarnations.samples];
        for files in levels {
            let level = files.level;
            let mut is_done = |content: &ClosedFile| {
                let incarnation = content.file.incarnation;
                let known = match receipts.take_if(|known| known.0 == incarnation) {
                    Some((_, known)) => known,
                    None => read_receipts(&options.dir, incarnation).unwrap_or_else(|error| {
                        failure.get_or_insert(error.to_string());
                        RangeSet::new()
                    }),
                };
                let is_done = content.sequences.ranges().all(|range| known.contains_range(range));
                receipts = Some((incarnation, known));
                is_done
            };
            files.closed.retain(|closed| {
                let is_deleted = is_done(closed)
                    && fs::remove_file(record_path(&options.dir, level, &closed.file)).is_ok();
                if !is_deleted && used.last() != Some(&closed.file.incarnation) {
                    used.push(closed.file.incarnation);
                }
                !is_deleted
            });
            // A file in use is closed when it can be deleted, not before: most receipts arrive while
            // it grows.
            let is_large = |open: &OpenFile| open.content.len >= MAX_FILE_LEN / 16;
            if files.open.as_ref().is_some_and(|open| is_large(open) && is_done(&open.content)) {
                files.close();
            }
        }
        let Ok(entries) = fs::read_dir(options.dir.join(RECEIPTS_DIR)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let incarnation = name.to_str().and_then(|name| name.parse::<Incarnation>().ok());
            if incarnation.is_some_and(|incarnation| !used.contains(&incarnation)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn write_state(&self) -> anyhow::Result<()> {
        let json = serde_json::to_vec(&self.state)?;
        let path = self.dir().join(STATE_FILE);
        write_whole(&path, &json).with_context(|| format!("cannot write {}", path.display()))
    }

    fn note_failure(&mut self, act: impl FnOnce(&Self) -> anyhow::Result<()>) {
        if let Err(error) = act(self) {
            self.failure.get_or_insert(format!("{error:#}"));
        }
    }
}

impl Files {
    fn len(&self) -> u64 {
        let open = self.open.iter().map(|open| open.content.len);
        self.closed.iter().map(|closed| closed.len).chain(open).sum()
    }

    /// Closes the file in use, after writing it to the medium.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        // If it fails, a power failure may cut the file; the next start then repairs it.
        let _ = open.handle.sync_data();
        self.closed.push_back(open.content);
    }
}

/// Whether there is no room, which deleting files may change.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Locks the spool for this process.
fn lock(dir: &Path) -> anyhow::Result<File> {
    let path = dir.join(LOCK_FILE);
    let file = open_lock(&path).with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another agent uses spool {}; give each agent its own", dir.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// The state of a spool. An unreadable one is replaced: it holds counts, not records.
fn read_state(dir: &Path) -> io::Result<SpoolState> {
    let text = read_small(&dir.join(STATE_FILE), MAX_STATE_LEN)?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
