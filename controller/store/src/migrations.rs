//! Versions of the catalogue. Each migration leads from the version before to its own; a catalogue
//! of an older version is copied before it is migrated.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::StoreError;

/// `dwll`, so that `file` and others know whose database it is.
const APPLICATION_ID: i64 = 0x6477_6c6c;

/// In order; the version is the number of the last one, from 1.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/1.sql")];

/// The version that this dwell writes.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Brings a catalogue up to date.
pub(crate) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let damaged = |source| StoreError::Damaged { path: path.to_owned(), source };
    let found: u32 = db.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(damaged)?;
    let application: i64 =
        db.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(damaged)?;
    if found > VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: VERSION });
    }
    if found > 0 && application != APPLICATION_ID {
        let source = rusqlite::Error::InvalidQuery;
        return Err(StoreError::Damaged { path: path.to_owned(), source });
    }
    if found == VERSION {
        return Ok(());
    }
    if found > 0 {
        let backup = backup_path(path, found);
        db.execute("VACUUM INTO ?1", [backup.to_string_lossy().as_ref()])?;
    }
    for (number, script) in (1..).zip(MIGRATIONS).skip(found as usize) {
        let transaction = db.transaction()?;
        transaction.execute_batch(script)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Where a catalogue of version `found` is kept before it is migrated.
fn backup_path(path: &Path, found: u32) -> PathBuf {
    path.with_extension(format!("v{found}.backup.sqlite"))
}
