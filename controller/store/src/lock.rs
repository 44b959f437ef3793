//! Locks of a data directory: one runner and one hub at a time, one importer for each imported run, and one
//! process for each place in the queue of runners.
//!
//! All are record locks of fcntl(2). A record lock belongs to the process that took it and ends
//! with that process. A child does not hold it, not even between fork and exec; flock(2) is
//! inherited across fork, so a child that outlives a killed runner would keep the next runner out.
//!
//! Record locks have two pitfalls, and a table of the locks of this process avoids both. The kernel
//! does not exclude a second lock by the same process. And closing any descriptor of the file
//! releases the lock, so a file whose lock this process holds is never opened again.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::error::StoreError;

/// A file, by device and inode.
type FileId = (u64, u64);

/// The files whose lock this process holds. The guard is held while such a file is opened or
/// closed.
static LOCKED_FILES: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

fn locked_files() -> MutexGuard<'static, BTreeSet<FileId>> {
    LOCKED_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn id(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
}

/// An exclusive record lock on a whole file.
#[derive(Debug)]
pub(crate) struct RecordLock {
    id: FileId,
    /// `None` after it was closed.
    file: Option<File>,
}

impl RecordLock {
    /// Takes the lock on the file at `path`, creating the file if it is missing. Returns `None` if
    /// this or another process holds the lock.
    pub(crate) fn take(path: &Path) -> Result<Option<Self>, StoreError> {
        let mut locked_files = locked_files();
        if fs::metadata(path).is_ok_and(|file| locked_files.contains(&id(&file))) {
            return Ok(None);
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.map_err(StoreError::file("create", path))?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(StoreError::file("lock", path)(error.into())),
        }
        let id = id(&file.metadata().map_err(StoreError::file("lock", path))?);
        locked_files.insert(id);
        Ok(Some(Self { id, file: Some(file) }))
    }

    /// Whether the lock is on the file with this device and inode.
    pub(crate) fn is_on(&self, file: (u64, u64)) -> bool {
        self.id == file
    }

    /// Returns the process that holds the lock. Takes no lock itself, so it never delays a runner,
    /// and needs no permission to write.
    pub(crate) fn holder(path: &Path) -> Option<Runner> {
        let locked_files = locked_files();
        let file = fs::metadata(path).ok()?;
        if locked_files.contains(&id(&file)) {
            return Some(Runner::Pid(std::process::id()));
        }
        let file = File::open(path).ok()?;
        let wanted = Flock::from(FlockType::WriteLock);
        let held = fcntl_getlk(&file, &wanted).ok()??;
        let pid = held.pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        Some(pid.map_or(Runner::Invisible, Runner::Pid))
    }
}

impl Drop for RecordLock {
    fn drop(&mut self) {
        let mut locked_files = locked_files();
        drop(self.file.take());
        locked_files.remove(&self.id);
    }
}

/// Held while a plan runs. The kernel releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct RunnerLock {
    _lock: RecordLock,
}

const RUNNER_LOCK_FILE: &str = "runner.lock";

/// A runner that was killed holds its lock until the kernel has ended it.
const KILLED_RUNNER_TIMEOUT: Duration = Duration::from_secs(1);

const RETRY_INTERVAL: Duration = Duration::from_millis(5);

impl RunnerLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(RUNNER_LOCK_FILE);
        let since = Instant::now();
        loop {
            if let Some(lock) = RecordLock::take(&path)? {
                return Ok(Self { _lock: lock });
            }
            if since.elapsed() >= KILLED_RUNNER_TIMEOUT {
                return Err(StoreError::Busy(dir.to_owned()));
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }
}

/// The process that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// Its number.
    Pid(u32),
    /// It has no number in the PID namespace of this process.
    Invisible,
}

/// Returns the process that runs a plan in `dir`. Writes nothing, and needs no permission to.
pub(crate) fn runner(dir: &Path) -> Option<Runner> {
    RecordLock::holder(&dir.join(RUNNER_LOCK_FILE))
}

/// Whether a process runs a plan in `dir`.
pub(crate) fn has_runner(dir: &Path) -> bool {
    runner(dir).is_some()
}

/// Held while a hub collects records in the directory.
#[derive(Debug)]
pub struct HubLock {
    _lock: RecordLock,
}

const HUB_LOCK_FILE: &str = "hub.lock";

impl HubLock {
    /// Makes this process the hub of a data directory, which must exist.
    ///
    /// # Errors
    /// [`StoreError::HubBusy`] if there is another hub.
    pub fn take(dir: &Path) -> Result<Self, StoreError> {
        match RecordLock::take(&dir.join(HUB_LOCK_FILE))? {
            Some(lock) => Ok(Self { _lock: lock }),
            None => Err(StoreError::HubBusy(dir.to_owned())),
        }
    }

    /// Whether a hub is active in a data directory. Writes nothing.
    pub fn is_held(dir: &Path) -> bool {
        RecordLock::holder(&dir.join(HUB_LOCK_FILE)).is_some()
    }
}

/// Held while a run is imported, by the process that imports it.
#[derive(Debug)]
pub struct ImportLock {
    path: PathBuf,
    _lock: RecordLock,
}

const IMPORT_LOCK_FILE: &str = "importing";

impl ImportLock {
    /// `samples` is the directory of the run's samples. The run is new, so no other importer uses
    /// it.
    pub(crate) fn take(samples: &Path) -> Result<Self, StoreError> {
        let path = samples.join(IMPORT_LOCK_FILE);
        fs::create_dir_all(samples).map_err(StoreError::file("create", samples))?;
        match RecordLock::take(&path)? {
            Some(lock) => Ok(Self { path, _lock: lock }),
            None => Err(StoreError::file("lock", &path)(Errno::AGAIN.into())),
        }
    }
}

impl Drop for ImportLock {
    fn drop(&mut self) {
        // The file no longer exists if an incomplete import was deleted.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a process imports the run whose samples are in `samples`. Writes nothing.
pub(crate) fn has_importer(samples: &Path) -> bool {
    RecordLock::holder(&samples.join(IMPORT_LOCK_FILE)).is_some()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for a child process of this test program.
    const TEST_DIR_VARIABLE: &str = "DWELL_TEST_LOCKED_DIR";

    /// Whether another process sees a runner at work in `dir`.
    fn is_seen_from_outside(dir: &Path) -> bool {
        let tests = std::env::current_exe().unwrap();
        let mut child = Command::new(tests);
        child.args(["--exact", "lock::tests::runner_lock_survives_a_check"]);
        let output = child.env(TEST_DIR_VARIABLE, dir).output().unwrap();
        match output.status.code() {
            Some(0) => true,
            Some(101) => false,
            _ => panic!("{output:?}"),
        }
    }

    #[test]
    fn runner_lock_excludes_a_second_runner_until_dropped() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_runner(dir.path()));
        let lock = RunnerLock::take(dir.path()).unwrap();
        assert!(has_runner(dir.path()));
        assert!(matches!(RunnerLock::take(dir.path()), Err(StoreError::Busy(_))));
        drop(lock);
        assert!(!has_runner(dir.path()));
        RunnerLock::take(dir.path()).unwrap();
    }

    #[test]
    fn hub_lock_excludes_a_second_hub_but_no_runner() {
        let dir = tempfile::tempdir().unwrap();
        let hub = HubLock::take(dir.path()).unwrap();
        assert!(matches!(HubLock::take(dir.path()), Err(StoreError::HubBusy(_))));
        RunnerLock::take(dir.path()).unwrap();
        drop(hub);
        HubLock::take(dir.path()).unwrap();
    }

    #[test]
    fn runner_lock_survives_a_check() {
        if let Some(dir) = std::env::var_os(TEST_DIR_VARIABLE) {
            let parent = std::os::unix::process::parent_id();
            assert_eq!(runner(dir.as_ref()), Some(Runner::Pid(parent)), "not locked");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let lock = RunnerLock::take(dir.path()).unwrap();
        assert!(is_seen_from_outside(dir.path()));
        // Opening and closing the file here would release the lock.
        assert!(has_runner(dir.path()));
        assert!(RunnerLock::take(dir.path()).is_err());
        assert!(is_seen_from_outside(dir.path()));
        drop(lock);
        assert!(!is_seen_from_outside(dir.path()));
    }
}
