//! Reading the hub's database from requests.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use dwell_hub::store::{HubStore, HubTransaction};
use dwell_hub::{HubError, SqliteStore};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::app::App;
use crate::error::Error;

/// Number of requests that read the hub at the same time; the others wait.
const MAX_READERS: usize = 4;

/// Opens a database of a hub.
type Open = dyn Fn() -> Result<Box<dyn HubStore + Send>, HubError> + Send + Sync;

/// Where the hub's data is.
#[derive(Clone)]
pub struct HubSource {
    open: Arc<Open>,
    readers: Arc<Semaphore>,
}

impl fmt::Debug for HubSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubSource").finish_non_exhaustive()
    }
}

impl HubSource {
    /// Returns a database that this function opens for reading, once per request.
    pub fn new(
        open: impl Fn() -> Result<Box<dyn HubStore + Send>, HubError> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), readers: Arc::new(Semaphore::new(MAX_READERS)) }
    }

    /// Returns the SQLite database of a data directory, which need not exist yet.
    pub fn sqlite(dir: PathBuf) -> Self {
        Self::new(move || {
            let store = SqliteStore::open_to_read(&dir)?;
            Ok(Box::new(store))
        })
    }
}

/// CLOCK_REALTIME in nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

impl App {
    /// Reads one state of the hub's database on a thread that may block. Returns `None` without
    /// calling `read` if there is no hub.
    ///
    /// # Errors
    /// The database cannot be read, or `read` failed.
    pub(crate) async fn read_hub<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn HubTransaction) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let HubSource { open, readers } = self.config().hub.clone();
        let permit = readers.acquire_owned().await.map_err(|_| Error::Ending)?;
        let read = move || -> Result<Option<T>, Error> {
            // The thread goes on after its request was cancelled, and so does its permit.
            let _permit = permit;
            let mut store = match open() {
                Ok(store) => store,
                Err(HubError::Missing(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let mut transaction = store.begin_to_read()?;
            read(&mut *transaction).map(Some)
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| Error::Ending)?
    }
}
