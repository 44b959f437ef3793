//! Who is at work: one runner at a time, and whoever imports a run.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::StoreError;

/// Held while a plan runs. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct RunnerLock {
    _file: File,
}

const NAME: &str = "runner.lock";

impl RunnerLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        const MOMENT: Duration = Duration::from_millis(5);
        // Ten seconds: whoever looks may have been stopped while it does.
        const LOOKS: u32 = 2_000;
        let path = dir.join(NAME);
        let file = File::create(&path).map_err(StoreError::file("make", &path))?;
        for _ in 0..LOOKS {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                // Whoever only looks for a runner shares it for a moment; a runner shares it with nobody.
                Err(TryLockError::WouldBlock) if !has_runner(dir) => thread::sleep(MOMENT),
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(source)) => {
                    return Err(StoreError::file("lock", &path)(source));
                }
            }
        }
        Err(StoreError::Busy(dir.to_owned()))
    }
}

/// Whether a process runs a plan in `dir`. Writes nothing, and needs no permission to.
pub(crate) fn has_runner(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join(NAME)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Held while a run is imported, by the process that imports it.
#[derive(Debug)]
pub struct ImportLock {
    path: PathBuf,
    _file: File,
}

const IMPORTING: &str = "importing";

impl ImportLock {
    /// `samples` is the directory of the run's samples.
    pub(crate) fn take(samples: &Path) -> Result<Self, StoreError> {
        let path = samples.join(IMPORTING);
        fs::create_dir_all(samples).map_err(StoreError::file("make", samples))?;
        let file = File::create(&path).map_err(StoreError::file("make", &path))?;
        file.lock().map_err(StoreError::file("lock", &path))?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for ImportLock {
    fn drop(&mut self) {
        // Gone already where half an import was deleted.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a process imports the run whose samples are in `samples`. Writes nothing.
pub(crate) fn has_importer(samples: &Path) -> bool {
    let Ok(file) = File::open(samples.join(IMPORTING)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_is_there_as_long_as_it_holds_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_runner(dir.path()));
        let lock = RunnerLock::take(dir.path()).unwrap();
        assert!(has_runner(dir.path()));
        assert!(matches!(RunnerLock::take(dir.path()), Err(StoreError::Busy(_))));
        drop(lock);
        assert!(!has_runner(dir.path()));
    }

    #[test]
    fn who_looks_for_a_runner_keeps_none_from_beginning() {
        let dir = tempfile::tempdir().unwrap();
        drop(RunnerLock::take(dir.path()).unwrap());
        let looking = File::open(dir.path().join(NAME)).unwrap();
        looking.try_lock_shared().unwrap();
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(looking);
        });
        RunnerLock::take(dir.path()).unwrap();
        later.join().unwrap();
    }
}
