//! Reading the data directory from requests.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dwell_store::{Store, StoreError};
use tokio::sync::Semaphore;

use crate::app::App;
use crate::error::Error;

/// Number of requests that read at the same time; the others wait.
const MAX_READERS: usize = 4;

/// Open stores of one data directory.
#[derive(Debug)]
pub(crate) struct Stores {
    dir: PathBuf,
    readers: Arc<Semaphore>,
    idle: Mutex<Vec<OpenStore>>,
}

/// A store, with the device and inode of its catalogue: a catalogue that was deleted or replaced is
/// opened again.
#[derive(Debug)]
struct OpenStore {
    store: Store,
    file: (u64, u64),
}

impl Stores {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, readers: Arc::new(Semaphore::new(MAX_READERS)), idle: Mutex::default() }
    }

    /// Returns an open store; `None` if there is no data yet.
    fn take(&self) -> Result<Option<OpenStore>, StoreError> {
        if !Store::is_at(&self.dir) {
            return Ok(None);
        }
        let now = catalogue_file(&self.dir);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|open| Some(open.file) == now);
        if let Some(open) = idle.pop() {
            return Ok(Some(open));
        }
        drop(idle);
        let store = Store::open_to_read(&self.dir)?;
        // The file before the opening: if another one has replaced it since, the store is not used again.
        Ok(Some(OpenStore { store, file: now.unwrap_or_default() }))
    }

    fn give_back(&self, open: OpenStore) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(open);
    }
}

/// Device and inode of the catalogue.
fn catalogue_file(dir: &Path) -> Option<(u64, u64)> {
    let file = fs::metadata(dir.join("catalogue.sqlite")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Returns free and total bytes of the file system of a directory, or of the nearest one above it
/// that exists.
pub(crate) fn disk_space(dir: &Path) -> Option<(u64, u64)> {
    // A relative path has no parent that can be opened.
    let dir = std::path::absolute(dir).ok()?;
    let stat = dir.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok())?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Some((bytes(stat.f_bavail), bytes(stat.f_blocks)))
}

impl App {
    /// Reads from the store on a thread that may block. Returns `None` without calling `read` if
    /// there is no data yet.
    ///
    /// # Errors
    /// The data directory cannot be read, or `read` failed.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let readers = Arc::clone(&self.stores().readers);
        let permit = readers.acquire_owned().await.map_err(|_| Error::Ending)?;
        let app = self.clone();
        let read = move || -> Result<Option<T>, Error> {
            // The thread goes on after its request was cancelled, and so does its permit.
            let _permit = permit;
            let Some(open) = app.stores().take()? else { return Ok(None) };
            let result = read(&open.store);
            app.stores().give_back(open);
            result.map(Some)
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| Error::Ending)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_space_of_a_missing_directory_is_that_of_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let (free, all) = disk_space(&dir.path().join("a/b")).unwrap();
        assert!(free <= all && all > 0);
        assert!(disk_space(Path::new("missing")).is_some_and(|(_, all)| all > 0));
    }
}
