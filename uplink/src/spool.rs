//! The spool of the agent, as the uplink uses it: it reads records, and leaves receipts and schedules.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dwell_rollup::{
    Incarnation, Level, MAX_MESSAGE_LEN, MAX_RECEIPTS_LEN, MAX_SCHEDULE_LEN, Name, NodeSchedule,
    RECEIPTS_DIR, RangeSet, RecordFile, SCHEDULE_FILE, STATUS_FILE, SpoolCursor, UPLINK_LOCK_FILE,
    level_dir, select_records,
};
use rustix::fs::OFlags;
use serde::Deserialize;

/// Levels that are shipped, the most important first. Samples stay on the node.
pub(crate) const SHIPPED_LEVELS: [Level; 2] = [Level::FiveMinutes, Level::TenSeconds];

/// Length of a message in bytes, unless a single record is longer. It bounds the memory of messages in
/// flight.
pub(crate) const MESSAGE_LEN: usize = 128 << 10;

/// Flags of open(2) for files in the spool, which members of the agent's group may replace: follow no
/// symbolic link, and do not wait for the other end of a FIFO.
const OPEN_FLAGS: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()) as i32;

/// Maximum length of the status of an agent in bytes.
const MAX_STATUS_LEN: usize = 1 << 20;

/// The spool, locked against other uplinks.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    /// Part of a file with records.
    buffer: Vec<u8>,
    _lock: File,
}

/// What [`Spool::read`] reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Position after the records that were read; `None` if there is no file.
    pub(crate) next: Option<SpoolCursor>,
    /// Whether the message is full and more can be read now.
    pub(crate) has_more: bool,
}

/// Start of the status of an agent; the rest may be of another version.
#[derive(Deserialize)]
struct StatusNode {
    node: Name,
}

impl Spool {
    /// Opens the spool of an agent and locks it.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot use spool {}", dir.display());
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o660);
        let lock = options.custom_flags(OPEN_FLAGS);
        let lock = lock.open(dir.join(UPLINK_LOCK_FILE)).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("spool {} is in use by another uplink; stop it", dir.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let spool = Self { dir: dir.to_owned(), buffer: Vec::new(), _lock: lock };
        for level in SHIPPED_LEVELS {
            spool.record_files(level).with_context(cannot)?;
        }
        Ok(spool)
    }

    /// The node of the agent that writes the spool; `None` if it did not write a status yet.
    pub(crate) fn node(&self) -> io::Result<Option<Name>> {
        let status = read_small(&self.dir.join(STATUS_FILE), MAX_STATUS_LEN)?;
        let node = status.map(|status| serde_json::from_slice::<StatusNode>(&status));
        Ok(node.transpose()?.map(|status| status.node))
    }

    /// The files of a level, oldest first.
    fn record_files(&self, level: Level) -> io::Result<Vec<RecordFile>> {
        let entries = match fs::read_dir(self.dir.join(level_dir(level))) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            files.extend(name.to_str().and_then(|name| name.parse::<RecordFile>().ok()));
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Incarnations with records that can be shipped.
    pub(crate) fn incarnations(&self) -> io::Result<BTreeSet<Incarnation>> {
        let mut incarnations = BTreeSet::new();
        for level in SHIPPED_LEVELS {
            incarnations.extend(self.record_files(level)?.iter().map(|file| file.incarnation));
        }
        Ok(incarnations)
    }

    /// Appends records without a receipt to a message of about [`MESSAGE_LEN`] bytes: those of a level
    /// between two positions, without limits those of the whole level. A file that the agent deletes at
    /// the same time is skipped. A position beyond all files is of a spool that was deleted: then reading
    /// starts anew.
    pub(crate) fn read(
        &mut self,
        level: Level,
        from: Option<SpoolCursor>,
        until: Option<SpoolCursor>,
        message: &mut Vec<u8>,
    ) -> io::Result<Reached> {
        let files = self.record_files(level)?;
        let is_reachable =
            |from: &SpoolCursor| files.last().is_none_or(|newest| *newest >= from.file);
        let from = from.filter(|from| until.is_some() || is_reachable(from));
        let mut reached = Reached { next: from, has_more: false };
        let mut receipts: Option<(Incarnation, RangeSet)> = None;
        for file in files {
            let mut offset = match from {
                Some(from) if file < from.file => continue,
                Some(from) if file == from.file => from.offset,
                _ => 0,
            };
            let end = match until {
                Some(until) if file > until.file => break,
                Some(until) if file == until.file => until.offset,
                _ => u64::MAX,
            };
            let path = self.dir.join(level_dir(level)).join(file.to_string());
            let mut handle = match open_plain(&path) {
                Ok(handle) => handle,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            handle.seek(SeekFrom::Start(offset))?;
            let receipted = match receipts.take_if(|known| known.0 == file.incarnation) {
                Some((_, known)) => known,
                None => self.receipts(file.incarnation)?,
            };
            self.buffer.clear();
            loop {
                let max_len = MESSAGE_LEN.max(self.buffer.len() * 2);
                let part = (max_len - self.buffer.len()) as u64;
                let left = end.saturating_sub(offset + self.buffer.len() as u64);
                (&mut handle).take(part.min(left)).read_to_end(&mut self.buffer)?;
                let is_end = self.buffer.len() < max_len;
                let selection =
                    select_records(&self.buffer, &receipted, None, MESSAGE_LEN, message);
                let mut used = selection.used;
                if used == 0 && !selection.is_full && self.buffer.len() >= 2 * MAX_MESSAGE_LEN {
                    // No record begins in the first half, or it would be whole.
                    used = MAX_MESSAGE_LEN;
                }
                self.buffer.drain(..used);
                offset += used as u64;
                reached.next = Some(SpoolCursor { file, offset });
                if selection.is_full {
                    reached.has_more = true;
                    return Ok(reached);
                }
                if is_end {
                    break;
                }
            }
            receipts = Some((file.incarnation, receipted));
        }
        Ok(reached)
    }

    /// The receipts of an incarnation; empty without a file, or if it is invalid.
    pub(crate) fn receipts(&self, incarnation: Incarnation) -> io::Result<RangeSet> {
        let path = self.dir.join(RECEIPTS_DIR).join(incarnation.to_string());
        let text = read_small(&path, MAX_RECEIPTS_LEN)?;
        let text = text.and_then(|text| String::from_utf8(text).ok());
        Ok(text.and_then(|text| text.trim_end().parse().ok()).unwrap_or_default())
    }

    /// Adds receipts to those of an incarnation. Returns all of them.
    pub(crate) fn add_receipts(
        &self,
        incarnation: Incarnation,
        sequences: &RangeSet,
    ) -> io::Result<RangeSet> {
        let mut receipts = self.receipts(incarnation)?;
        let before = receipts.len();
        receipts.merge(sequences);
        if receipts.len() != before {
            let path = self.dir.join(RECEIPTS_DIR).join(incarnation.to_string());
            // After a power failure without them, the records are sent again.
            write_whole(&path, format!("{receipts}\n").as_bytes(), false)?;
        }
        Ok(receipts)
    }

    /// Version of the schedule that the agent has; `None` without a valid one.
    pub(crate) fn schedule_version(&self) -> io::Result<Option<u64>> {
        let schedule = read_small(&self.dir.join(SCHEDULE_FILE), MAX_SCHEDULE_LEN)?;
        let schedule = schedule.and_then(|json| NodeSchedule::from_json(&json).ok());
        Ok(schedule.map(|schedule| schedule.version))
    }

    /// Leaves a schedule, as JSON. Returns whether it differs from the one before.
    pub(crate) fn store_schedule(&self, schedule: &[u8]) -> io::Result<bool> {
        let path = self.dir.join(SCHEDULE_FILE);
        if read_small(&path, MAX_SCHEDULE_LEN).is_ok_and(|held| held.as_deref() == Some(schedule)) {
            return Ok(false);
        }
        write_whole(&path, schedule, true)?;
        Ok(true)
    }
}

/// Opens a regular file to read it.
fn open_plain(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path)?;
    if !file.metadata()?.is_file() {
        let reason = format!("{} is not a regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(file)
}

/// Reads a small file; `None` if it does not exist.
fn read_small(path: &Path, max_len: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match open_plain(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    let len = file.take(max_len as u64 + 1).read_to_end(&mut content)?;
    if len > max_len {
        let reason = format!("{} is longer than {max_len} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(Some(content))
}

/// Replaces a file, so that a reader sees the old or the new content, if synced also after a power
/// failure.
fn write_whole(path: &Path, content: &[u8], is_synced: bool) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // One name for all uplinks: a killed one leaves at most one file.
    let temporary = path.with_file_name(format!(".{name}.uplink"));
    let write = || {
        if let Err(error) = fs::remove_file(&temporary)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        // Whatever the umask, the agent and its carriers may be different users of one group.
        file.set_permissions(Permissions::from_mode(0o660))?;
        file.write_all(content)?;
        if is_synced {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))
}

#[cfg(test)]
mod tests;
