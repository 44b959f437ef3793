//! Migrations of an SQLite file, with a copy of the older one. The caller holds the lock of the directory.

use std::path::{Path, PathBuf};

use dwell_store::stored_version;
use rusqlite::{Connection, ErrorCode};

use crate::error::HubError;
use crate::migrations::{self, pending};

/// `dwhb`; lets `file` and other tools identify the database.
const APPLICATION_ID: i64 = 0x6477_6862;

/// In order.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
];

/// Refuses the database of a newer dwell before SQLite opens it for writing.
pub(super) fn refuse_newer(path: &Path) -> Result<(), HubError> {
    let refuse = |found| migrations::refuse_newer(found, MIGRATIONS.len() as u32, &place(path));
    stored_version(path).map_or(Ok(()), refuse)
}

fn place(path: &Path) -> String {
    path.display().to_string()
}

/// Refuses a database that needs a migration.
pub(super) fn refuse_older(db: &Connection, path: &Path) -> Result<(), HubError> {
    let found = version(db).map_err(unusable(path))?;
    migrations::refuse_older(found, MIGRATIONS.len() as u32, &place(path))
}

/// Migrates a database by these scripts, with a copy of the older one beside it.
pub(super) fn migrate(scripts: &[&str], db: &mut Connection, path: &Path) -> Result<(), HubError> {
    let found = version(db).map_err(unusable(path))?;
    let place = place(path);
    let mut scripts = pending(scripts, found, &place)?.peekable();
    let application: i64 =
        db.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(unusable(path))?;
    if found > 0 && application != APPLICATION_ID {
        let source = "it belongs to another program".into();
        return Err(HubError::Damaged { place, source });
    }
    if scripts.peek().is_none() {
        return Ok(());
    }
    if found > 0 {
        let backup = backup_path(path, found);
        db.execute("VACUUM INTO ?1", [backup.to_string_lossy().as_ref()])?;
    }
    for (number, script) in scripts {
        let transaction = db.transaction()?;
        transaction.execute_batch(script).map_err(migrations::failed(&place, number))?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.commit()?;
    }
    Ok(())
}

fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Converts the error of a database that cannot be opened: damaged or inaccessible.
pub(super) fn unusable(path: &Path) -> impl Fn(rusqlite::Error) -> HubError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            HubError::Damaged { place: place(path), source: Box::new(error) }
        }
        _ => error.into(),
    }
}

/// Returns an unused path for the copy of a database of version `found`.
fn backup_path(path: &Path, found: u32) -> PathBuf {
    let names = std::iter::once(format!("v{found}.backup.sqlite"))
        .chain((2..).map(|n| format!("v{found}.backup-{n}.sqlite")));
    let mut paths = names.map(|name| path.with_extension(name));
    paths.find(|path| !path.exists()).unwrap_or_else(|| path.with_extension("backup.sqlite"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FIRST: &str = "CREATE TABLE things (name TEXT NOT NULL) STRICT;";
    const SECOND: &str = "ALTER TABLE things ADD COLUMN size INTEGER;";
    const WRONG: &str = "CREATE TABLE more (x TEXT) STRICT; ALTER TABLE nothing ADD COLUMN x TEXT;";

    fn old(dir: &Path) -> PathBuf {
        let path = dir.join("hub.sqlite");
        let mut db = Connection::open(&path).unwrap();
        migrate(&[FIRST], &mut db, &path).unwrap();
        db.execute("INSERT INTO things (name) VALUES ('one')", []).unwrap();
        path
    }

    #[test]
    fn older_database_is_migrated_with_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        let mut db = Connection::open(&path).unwrap();
        for _ in 0..2 {
            migrate(&[FIRST, SECOND], &mut db, &path).unwrap();
        }
        assert_eq!(db.query_row("SELECT count(size) FROM things", [], |r| r.get(0)), Ok(0));
        let copy = Connection::open(dir.path().join("hub.v1.backup.sqlite")).unwrap();
        assert_eq!(version(&copy), Ok(1));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "one copy");
    }

    #[test]
    fn second_version_counts_what_the_first_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.sqlite");
        let mut db = Connection::open(&path).unwrap();
        migrate(&MIGRATIONS[..1], &mut db, &path).unwrap();
        db.execute_batch(
            "INSERT INTO nodes (name, last_arrival_ns) VALUES ('a', 7), ('b', NULL);
             INSERT INTO streams (node_id, reflector, protocol, entry) VALUES (1, 'b', 'udp', 'm');
             INSERT INTO bad_records
             (node_id, digest, first_arrival_ns, last_arrival_ns, arrivals, reason, raw)
             VALUES (1, x'00', 1, 1, 1, 'noise', x'0102');
             INSERT INTO undated (node_id, incarnation, sequence, boot_id, arrival_ns, record)
             VALUES (1, 1, 1, x'00', 1, x'010203');",
        )
        .unwrap();
        migrate(&MIGRATIONS[..2], &mut db, &path).unwrap();
        let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("SELECT now_ns FROM clock"), 7);
        assert_eq!(number("SELECT last_ns FROM streams"), 7);
        assert_eq!(number("SELECT bad_bytes FROM nodes WHERE name = 'a'"), 256);
        assert_eq!(number("SELECT undated_bytes FROM nodes WHERE name = 'a'"), 3);
        assert_eq!(number("SELECT bad_bytes + undated_bytes FROM nodes WHERE name = 'b'"), 0);
    }

    #[test]
    fn fourth_version_has_the_history_of_old_statuses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.sqlite");
        let mut db = Connection::open(&path).unwrap();
        migrate(&MIGRATIONS[..3], &mut db, &path).unwrap();
        db.execute_batch(
            r#"INSERT INTO nodes (name) VALUES ('a');
             INSERT INTO statuses (node_id, incarnation, sequence, wall_ns, arrival_ns, body) VALUES
             (1, 1, 1, 70, 0, '{"schedule_version":3,"clock_bound_ns":9,"pause":null,"pauses":[]}'),
             (1, 1, 2, 80, 0, '{"pause":{"reason":"","since_wall_ns":75},
              "pauses":[{"reason":"","from_wall_ns":71,"to_wall_ns":72}]}');"#,
        )
        .unwrap();
        migrate(&MIGRATIONS[..4], &mut db, &path).unwrap();
        let text = |sequence: i64| {
            let sql = "SELECT format('%d %s %s', schedule_version, coalesce(clock_bound_ns, '-'),
                       coalesce(pauses, '-')) FROM statuses WHERE sequence = ?1";
            db.query_row(sql, [sequence], |row| row.get::<_, String>(0)).unwrap()
        };
        assert_eq!([text(1), text(2)], ["3 9 -", "0 - [[71,72],[75,80]]"]);
    }

    #[test]
    fn failed_migration_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        let mut db = Connection::open(&path).unwrap();
        let error = migrate(&[FIRST, WRONG], &mut db, &path).unwrap_err();
        assert!(matches!(error, HubError::Migration { to: 2, .. }), "{error}");
        assert_eq!(version(&db), Ok(1));
        assert_eq!(db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)), Ok(1));
    }

    #[test]
    fn newer_or_foreign_database_is_refused_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        let set = |pragma: &str, value: i64| {
            Connection::open(&path).unwrap().pragma_update(None, pragma, value).unwrap();
        };
        set("user_version", 7);
        let before = fs::read(&path).unwrap();
        let mut db = Connection::open(&path).unwrap();
        for refused in [refuse_newer(&path), migrate(&[FIRST], &mut db, &path)] {
            let error = refused.unwrap_err();
            assert!(matches!(error, HubError::Newer { found: 7, .. }), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), before);
        set("user_version", 1);
        set("application_id", 5);
        let error = migrate(&[FIRST], &mut db, &path).unwrap_err();
        assert!(matches!(error, HubError::Damaged { .. }), "{error}");
    }
}
