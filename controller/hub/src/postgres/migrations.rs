//! Migrations of a PostgreSQL database. Hubs that start at once migrate one after the other, and no
//! transaction of another hub is open while one does.

use super::connection::{Connection, SCHEMA};
use super::locks;
use crate::error::HubError;
use crate::migrations;

/// In order.
pub(super) const MIGRATIONS: &[&str] = &[include_str!("migrations/1.sql")];

/// Migrates a database by these scripts.
pub(super) fn migrate(scripts: &[&str], db: &mut Connection) -> Result<(), HubError> {
    loop {
        // A script may take long in a large database.
        let begin = "BEGIN; SET LOCAL statement_timeout = 0";
        db.begin(&format!("{begin}; {}", locks::exclusive(locks::MIGRATION)))?;
        let outcome = migrate_once(scripts, db);
        match outcome {
            Ok(true) => db.commit()?,
            Ok(false) => {
                db.rollback();
                return Ok(());
            }
            Err(error) => {
                db.rollback();
                return Err(error);
            }
        }
    }
}

/// Executes the next script in the open transaction. Returns false at the newest version.
fn migrate_once(scripts: &[&str], db: &mut Connection) -> Result<bool, HubError> {
    let found = version(db)?;
    let place = db.place().to_owned();
    let Some((number, script)) = migrations::pending(scripts, found.unwrap_or(0), &place)?.next()
    else {
        return Ok(false);
    };
    if found.is_none() {
        db.batch(&format!(
            "CREATE SCHEMA IF NOT EXISTS {SCHEMA};
             CREATE TABLE schema_version (version int NOT NULL);
             INSERT INTO schema_version VALUES (0)"
        ))?;
    }
    db.batch(script).map_err(|error| match error {
        error @ HubError::Unavailable { .. } => error,
        error => migrations::failed(&place, number)(error),
    })?;
    db.execute("UPDATE schema_version SET version = $1", &[&(number as i32)])?;
    Ok(true)
}

/// Returns the version of the schema; `None` in a database without a hub.
fn version(db: &mut Connection) -> Result<Option<u32>, HubError> {
    let exists = db.query("SELECT to_regclass('dwell_hub.schema_version') IS NOT NULL", &[])?;
    if !exists[0].try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let version = db.query("SELECT version FROM schema_version", &[])?;
    let version: i32 = version.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(Some(version as u32))
}
