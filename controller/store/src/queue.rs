//! The order in which runners of a data directory start: that in which their processes were started.
//!
//! Each runner that waits has a file in `DIR/waiting`, whose name sorts by the start of its process,
//! and a record lock on it. The kernel releases the lock of a process that dies, so its file no longer
//! delays the runners behind it; the next runner that looks removes it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::lock::RecordLock;

const QUEUE_DIR: &str = "waiting";

/// Number of names that are tried for a place.
const MAX_PLACES: u32 = 1_000;

/// A place in the queue of runners. It ends with the process, or when it is dropped.
#[derive(Debug)]
pub struct QueuePlace {
    dir: PathBuf,
    name: String,
    _lock: RecordLock,
}

impl QueuePlace {
    /// Joins the queue of `dir` with a runner that was started at `start`, in clock ticks since boot.
    pub(crate) fn take(dir: &Path, start: u64) -> Result<Self, StoreError> {
        let dir = dir.join(QUEUE_DIR);
        fs::create_dir_all(&dir).map_err(StoreError::file("create", &dir))?;
        let pid = std::process::id();
        for place in 0..MAX_PLACES {
            let name = format!("{start:020}-{pid:010}-{place:03}");
            let path = dir.join(&name);
            let Some(lock) = RecordLock::take(&path)? else { continue };
            // Another runner may have removed the file before it was locked.
            if fs::metadata(&path).is_ok_and(|file| lock.is_on((file.dev(), file.ino()))) {
                return Ok(Self { dir, name, _lock: lock });
            }
        }
        Err(StoreError::Busy(dir))
    }

    /// Whether no runner is before this one. Removes the places of runners that died.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub fn is_first(&self) -> Result<bool, StoreError> {
        let unreadable = |error| StoreError::file("read", &self.dir)(error);
        for entry in fs::read_dir(&self.dir).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.file_name().to_str().is_none_or(|name| name >= &*self.name) {
                continue;
            }
            let path = entry.path();
            if RecordLock::holder(&path).is_some() {
                return Ok(false);
            }
            // Removed under its lock, so that no runner takes it at the same time. An error leaves it to
            // the next look.
            if let Ok(Some(_lock)) = RecordLock::take(&path) {
                let _ = fs::remove_file(&path);
            }
        }
        Ok(true)
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        // A file that stays is removed by the next runner.
        let _ = fs::remove_file(self.dir.join(&self.name));
    }
}

/// Start of this process in clock ticks since boot; 0 if `/proc` is not readable.
pub(crate) fn process_start() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Field 22 of proc_pid_stat(5). The name in parentheses may contain anything; field 3 follows it.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split(' ').nth(19).and_then(|start| start.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_in_the_order_of_their_starts() {
        let dir = tempfile::tempdir().unwrap();
        let take = |start| QueuePlace::take(dir.path(), start).unwrap();
        let late = take(9_000);
        assert!(late.is_first().unwrap());
        // Its process was started before, but took longer to read its plan.
        let early = take(800);
        let last = take(9_000);
        let first = |all: [&QueuePlace; 3]| all.map(|place| place.is_first().unwrap());
        assert_eq!(first([&early, &late, &last]), [true, false, false]);
        drop(early);
        assert!(late.is_first().unwrap() && !last.is_first().unwrap());
        drop(late);
        assert!(last.is_first().unwrap());
        drop(last);
        assert_eq!(fs::read_dir(dir.path().join(QUEUE_DIR)).unwrap().count(), 0);
    }

    #[test]
    fn place_of_a_dead_runner_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let place = QueuePlace::take(dir.path(), 7).unwrap();
        // The file of a process that was killed has no lock.
        let left = dir.path().join(QUEUE_DIR).join(format!("{:020}-0000000001-000", 6));
        fs::write(&left, "").unwrap();
        assert!(place.is_first().unwrap());
        assert!(!left.exists());
    }

    #[test]
    fn start_of_this_process_is_known() {
        let start = process_start();
        assert!(start > 0 && start == process_start());
    }
}
