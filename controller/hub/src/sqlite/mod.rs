//! The hub's database in one SQLite file, for up to 100 nodes.

mod migrations;
mod rows;
mod transaction;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::HubError;
use crate::store::{HubStore, HubTransaction};
use migrations::{MIGRATIONS, migrate, refuse_newer, refuse_older, unusable};
use transaction::SqliteTransaction;

/// Time to wait for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Statements that a connection keeps prepared. Each partition in use has several.
const STATEMENT_CACHE: usize = 128;

/// A hub's database.
#[derive(Debug)]
pub struct SqliteStore {
    db: Connection,
}

impl SqliteStore {
    /// Returns the path of the database in a data directory.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("hub.sqlite")
    }

    /// Opens the database of a data directory, creating or migrating it.
    ///
    /// # Errors
    /// The database belongs to a newer dwell, is damaged or cannot be used.
    pub fn open(dir: &Path) -> Result<Self, HubError> {
        let path = Self::path(dir);
        refuse_newer(&path)?;
        fs::create_dir_all(dir).map_err(HubError::file("create", dir))?;
        // Serialises processes that create or migrate the database. No child process is started while
        // the lock is held, so none can inherit it (flock(2)).
        let dir_lock = fs::File::open(dir).map_err(HubError::file("open", dir))?;
        dir_lock.lock().map_err(HubError::file("lock", dir))?;
        let mut db = Connection::open(&path).map_err(unusable(&path))?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        migrate(MIGRATIONS, &mut db, &path)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A node frees a record when it has the receipt, so a commit survives a power failure.
        db.pragma_update(None, "synchronous", "FULL")?;
        Self::of(db)
    }

    /// Opens an existing database for reading.
    ///
    /// # Errors
    /// There is no database, it belongs to another version of dwell, or it cannot be read.
    pub fn open_to_read(dir: &Path) -> Result<Self, HubError> {
        let path = Self::path(dir);
        if !path.exists() {
            return Err(HubError::Missing(dir.display().to_string()));
        }
        refuse_newer(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = match Connection::open_with_flags(&path, flags) {
            Ok(db) => db,
            Err(error) => return Err(unusable(&path)(error)),
        };
        db.busy_timeout(BUSY_TIMEOUT)?;
        refuse_older(&db, &path)?;
        Self::of(db)
    }

    fn of(db: Connection) -> Result<Self, HubError> {
        db.pragma_update(None, "foreign_keys", true)?;
        db.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        Ok(Self { db })
    }

    /// Limits the size of the database, as a full disk does.
    ///
    /// # Errors
    /// The limit cannot be set.
    pub fn limit_pages(&mut self, pages: u32) -> Result<(), HubError> {
        Ok(self.db.pragma_update(None, "max_page_count", pages)?)
    }
}

impl HubStore for SqliteStore {
    fn begin(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        Ok(Box::new(SqliteTransaction::of(transaction)))
    }

    fn begin_to_read(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Deferred)?;
        Ok(Box::new(SqliteTransaction::of(transaction)))
    }
}
