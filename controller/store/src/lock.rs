//! One runner at a time.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::StoreError;

/// Held while a plan runs. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct RunnerLock {
    _file: File,
}

impl RunnerLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("runner.lock");
        let file = File::create(&path).map_err(StoreError::file("make", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy(dir.to_owned())),
            Err(TryLockError::Error(source)) => Err(StoreError::file("lock", &path)(source)),
        }
    }
}
