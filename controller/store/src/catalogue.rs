//! The catalogue: what there is, and how far it is.

mod ending;
mod host;
mod runs;
mod samples;
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
use crate::names;
use crate::run::Role;

/// A data directory.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    dir: PathBuf,
}

/// A row of summaries.
type Told = (Role, String, Summary);

impl Store {
    /// Opens the data directory `dir`, and makes it if it is not there. A catalogue of an older
    /// dwell is brought up to date, and kept as it was beside it.
    ///
    /// # Errors
    /// It belongs to a newer dwell, is damaged, or cannot be used.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("catalogue.sqlite");
        refuse_newer(&path)?;
        for dir in [dir.to_owned(), dir.join("samples"), dir.join("incoming")] {
            fs::create_dir_all(&dir).map_err(StoreError::file("make", &dir))?;
        }
        // Of two that come to a new or an old catalogue, one waits for the other to have it ready.
        // No child is started while this is locked, so flock(2) is safe: none can inherit it.
        let alone = fs::File::open(dir).map_err(StoreError::file("open", dir))?;
        alone.lock().map_err(StoreError::file("lock", dir))?;
        refuse_lost(&path, &dir.join("samples"))?;
        let mut db = Connection::open(&path).map_err(StoreError::unusable(&path))?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        migrate(&mut db, &path)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A trial that is said to be finished survives a power cut.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        Ok(Self { db, dir: dir.to_owned() })
    }

    /// Opens the data directory `dir` to read it. Where one may not write, nothing is.
    ///
    /// # Errors
    /// Those of [`Self::open`]; or it belongs to an older dwell, and one may not write there.
    pub fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        match Self::open(dir) {
            Err(error) if error.is_forbidden() => Self::open_read_only(dir),
            opened => opened,
        }
    }

    pub(crate) fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("catalogue.sqlite");
        refuse_lost(&path, &dir.join("samples"))?;
        // https://sqlite.org/wal.html#read_only_databases: without the files of its writers beside
        // it, a database in WAL mode can be read by who may not make them only if nobody writes.
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

    /// Whether a data directory is at `dir`: a catalogue, or samples that have lost theirs.
    pub fn is_at(dir: &Path) -> bool {
        dir.join("catalogue.sqlite").exists()
            || names::with_samples(&dir.join("samples")).next().is_some()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where segments are kept on their way from nodes.
    pub fn incoming(&self) -> PathBuf {
        self.dir.join("incoming")
    }

    /// Makes this process the one that runs plans here. What was on its way to a runner that died
    /// is removed.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when there is another.
    pub fn lock(&self) -> Result<RunnerLock, StoreError> {
        let lock = RunnerLock::take(&self.dir)?;
        for left in fs::read_dir(self.incoming()).into_iter().flatten().flatten() {
            let _ = fs::remove_file(left.path());
        }
        Ok(lock)
    }
}

/// Refuses to begin a catalogue where one must have been: its samples would be taken for nobody's.
fn refuse_lost(path: &Path, samples: &Path) -> Result<(), StoreError> {
    if fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        return Ok(());
    }
    let mut runs: Vec<String> = names::with_samples(samples).collect();
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

/// A file's address with an option for SQLite (https://sqlite.org/uri.html).
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
