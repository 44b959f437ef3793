//! The catalogue of runs, trials and their summaries.

mod devices;
mod host;
mod leases;
mod runs;
mod samples;
mod summaries;
mod trials;

use std::fs;
use std::path::{Path, PathBuf};

use dwell_record::Summary;
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::lock::RunnerLock;
use crate::migrations::{migrate, refuse_newer, refuse_older};
use crate::queue::{QueuePlace, process_start};
use crate::run::Role;
use crate::run_names;

/// A data directory. Every method that returns a [`StoreError`] fails if the catalogue or the file
/// that it names cannot be read or written; `# Errors` lists other reasons.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    dir: PathBuf,
}

/// A row of the table `summaries`.
type SummaryRow = (Role, String, Summary);

impl Store {
    /// Opens the data directory `dir`, creating it if it does not exist. A catalogue of an older
    /// dwell is migrated, with a backup beside it.
    ///
    /// # Errors
    /// The catalogue belongs to a newer dwell, is damaged or cannot be used.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("catalogue.sqlite");
        refuse_newer(&path)?;
        for dir in [dir.to_owned(), dir.join("samples"), dir.join("incoming")] {
            fs::create_dir_all(&dir).map_err(StoreError::file("create", &dir))?;
        }
        // Serialises processes that create or migrate the catalogue at the same time. No child
        // process is started while the lock is held, so none can inherit it (flock(2)).
        let dir_lock = fs::File::open(dir).map_err(StoreError::file("open", dir))?;
        dir_lock.lock().map_err(StoreError::file("lock", dir))?;
        refuse_lost(&path, &dir.join("samples"))?;
        let mut db = Connection::open(&path).map_err(StoreError::unusable(&path))?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        migrate(&mut db, &path)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A trial reported as finished survives a power failure.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        Ok(Self { db, dir: dir.to_owned() })
    }

    /// Opens the data directory `dir` for reading. Writes nothing if the user may not write there.
    ///
    /// # Errors
    /// As [`Self::open`]. Also fails if the catalogue belongs to an older dwell and the user may
    /// not write.
    pub fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        match Self::open(dir) {
            Err(error) if error.is_forbidden() => Self::open_read_only(dir),
            opened => opened,
        }
    }

    pub(crate) fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("catalogue.sqlite");
        refuse_lost(&path, &dir.join("samples"))?;
        // https://sqlite.org/wal.html#read_only_databases: a WAL database without its -wal and -shm
        // files can only be opened read-only as immutable, which requires that no process writes.
        let log = fs::metadata(dir.join("catalogue.sqlite-wal"));
        let at_rest = log.is_err();
        let uri = uri(&path, if at_rest { "immutable=1" } else { "mode=ro" });
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let unusable = StoreError::unusable(&path);
        let db = Connection::open_with_flags(uri, flags).map_err(&unusable)?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        refuse_older(&db, &path)?;
        Ok(Self { db, dir: dir.to_owned() })
    }

    /// Whether `dir` is a data directory: has a catalogue, or samples whose catalogue is lost.
    pub fn is_at(dir: &Path) -> bool {
        dir.join("catalogue.sqlite").exists()
            || run_names::with_samples(&dir.join("samples")).next().is_some()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory for segments being received from nodes.
    pub fn incoming(&self) -> PathBuf {
        self.dir.join("incoming")
    }

    /// Joins the queue of the processes that wait to become the runner of the directory. Their order is
    /// that in which they were started.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn queue(&self) -> Result<QueuePlace, StoreError> {
        QueuePlace::take(&self.dir, process_start())
    }

    /// Makes this process the runner of the directory. Removes files that a dead runner was
    /// receiving.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if there is another runner.
    pub fn lock(&self) -> Result<RunnerLock, StoreError> {
        let lock = RunnerLock::take(&self.dir)?;
        for left in fs::read_dir(self.incoming()).into_iter().flatten().flatten() {
            let _ = fs::remove_file(left.path());
        }
        Ok(lock)
    }
}

/// Refuses to create a catalogue if one was lost: its samples would be orphaned.
fn refuse_lost(path: &Path, samples: &Path) -> Result<(), StoreError> {
    if fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        return Ok(());
    }
    let mut runs: Vec<String> = run_names::with_samples(samples).collect();
    runs.sort();
    match runs.first() {
        None => Ok(()),
        Some(first) => Err(StoreError::Lost {
            path: path.to_owned(),
            samples: runs.len(),
            first: first.clone(),
        }),
    }
}

/// Returns the URI of a file with an option for SQLite (https://sqlite.org/uri.html).
fn uri(path: &Path, option: &str) -> String {
    let path = path.to_string_lossy();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?{option}")
}

fn time_text(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("string keys and plain values serialise")
}

fn json<T: DeserializeOwned>(
    text: &str,
    what: &'static str,
    of: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Json { what, of: of(), source })
}
