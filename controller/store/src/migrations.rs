//! Migrations of the catalogue. Each leads from the previous version to its own. An older catalogue
//! is copied before it is migrated.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::StoreError;
use crate::stored_version::stored_version;

/// `dwll`; lets `file` and other tools identify the database.
const APPLICATION_ID: i64 = 0x6477_6c6c;

/// In order. The version of a catalogue is the number of its last migration, from 1.
const MIGRATIONS: [&str; 5] = [
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
];

/// Refuses a catalogue of a newer dwell before SQLite opens it for writing.
pub(crate) fn refuse_newer(path: &Path) -> Result<(), StoreError> {
    stored_version(path).map_or(Ok(()), |found| check_version(found, MIGRATIONS.len() as u32, path))
}

/// Refuses a catalogue that needs a migration.
pub(crate) fn refuse_older(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let (found, newest) = (version(db)?, MIGRATIONS.len() as u32);
    if found < newest {
        return Err(StoreError::Older { path: path.to_owned(), found, newest });
    }
    refuse_incomplete(&MIGRATIONS, found, db, path)
}

/// Migrates a catalogue to the newest version. The caller must exclude other processes.
pub(crate) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    migrate_by(&MIGRATIONS, db, path)
}

fn check_version(found: u32, known: u32, path: &Path) -> Result<(), StoreError> {
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    Ok(())
}

fn migrate_by(migrations: &[&str], db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let unusable = StoreError::unusable(path);
    let newest = migrations.len() as u32;
    let found = version(db).map_err(&unusable)?;
    check_version(found, newest, path)?;
    let application: i64 =
        db.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(&unusable)?;
    if found > 0 && application != APPLICATION_ID {
        let source = rusqlite::Error::InvalidQuery;
        return Err(StoreError::Damaged { path: path.to_owned(), source });
    }
    refuse_incomplete(migrations, found, db, path)?;
    if found == newest {
        return Ok(());
    }
    if found > 0 {
        let backup = backup_path(path, found);
        db.execute("VACUUM INTO ?1", [backup.to_string_lossy().as_ref()])?;
    }
    for (number, script) in (1..).zip(migrations).skip(found as usize) {
        let transaction = db.transaction()?;
        transaction.execute_batch(script).map_err(|error| StoreError::Migration {
            path: path.to_owned(),
            to: number,
            source: without_script(error),
        })?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Refuses a catalogue that claims version `found` but lacks tables or columns of it: it was made
/// by a build between two releases.
fn refuse_incomplete(
    migrations: &[&str],
    found: u32,
    db: &Connection,
    path: &Path,
) -> Result<(), StoreError> {
    let unusable = StoreError::unusable(path);
    let expected = Connection::open_in_memory()?;
    for script in &migrations[..found as usize] {
        expected.execute_batch(script)?;
    }
    let actual = columns(db).map_err(unusable)?;
    let Some((table, column)) = columns(&expected)?.into_iter().find(|name| !actual.contains(name))
    else {
        return Ok(());
    };
    let has_table = actual.iter().any(|(other, _)| *other == table);
    let missing = if has_table {
        format!("column {column} of table {table}")
    } else {
        format!("table {table}")
    };
    Err(StoreError::IncompleteSchema { path: path.to_owned(), version: found, missing })
}

/// Returns all columns, with their tables.
fn columns(db: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut select = db.prepare(
        "SELECT tables.name, columns.name
         FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns
         WHERE tables.type = 'table' ORDER BY 1, columns.cid",
    )?;
    select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Removes the text of the statements from the error.
fn without_script(error: rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqlInputError { error, msg, .. } => {
            rusqlite::Error::SqliteFailure(error, Some(msg))
        }
        other => other,
    }
}

fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Returns an unused path for the backup of a catalogue of version `found`.
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

    /// Creates a catalogue of the first version with one row.
    fn old(dir: &Path) -> PathBuf {
        let path = dir.join("catalogue.sqlite");
        let mut db = Connection::open(&path).unwrap();
        migrate_by(&[FIRST], &mut db, &path).unwrap();
        db.execute("INSERT INTO things (name) VALUES ('one')", []).unwrap();
        path
    }

    fn things(path: &Path) -> (u32, String) {
        let db = Connection::open(path).unwrap();
        let names = "SELECT group_concat(name) FROM things";
        (version(&db).unwrap(), db.query_row(names, [], |row| row.get(0)).unwrap())
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn older_catalogue_is_migrated_with_a_backup() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        let mut db = Connection::open(&path).unwrap();
        migrate_by(&[FIRST, SECOND], &mut db, &path).unwrap();
        assert_eq!(db.query_row("SELECT count(size) FROM things", [], |r| r.get(0)), Ok(0));
        assert_eq!(things(&path), (2, "one".into()));
        let backup = dir.path().join("catalogue.v1.backup.sqlite");
        assert_eq!(things(&backup), (1, "one".into()));
        migrate_by(&[FIRST, SECOND], &mut db, &path).unwrap();
        assert_eq!(names(dir.path()).len(), 2, "only one backup");
    }

    #[test]
    fn migrated_version_1_keeps_runs_and_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalogue.sqlite");
        let mut db = Connection::open(&path).unwrap();
        migrate_by(&MIGRATIONS[..1], &mut db, &path).unwrap();
        for (run, plan, lab) in [
            ("20261121-3", "NULL", "NULL"),
            ("20261121-10", "NULL", "'run-1f2e3d4c'"),
            ("20261122-1", "1", "'run-00000001'"),
        ] {
            db.execute_batch(&format!(
                "INSERT OR IGNORE INTO plans (id, name, text) VALUES (1, 'p', 'version = 1');
                 INSERT INTO runs (run, kind, plan_id, name, state, started, settings, seed, axes,
                 lab, dwell)
                 VALUES ('{run}', 'run', {plan}, 'p', 'finished', '', '[]', 0, '[]', {lab}, '0');"
            ))
            .unwrap();
        }
        let node = "INSERT INTO nodes (run_id, node, dwell) SELECT id, 'n1', '0' FROM runs";
        db.execute_batch(node).unwrap();
        drop(db);
        let store = crate::Store::open(dir.path()).unwrap();
        let runs = store.runs().unwrap();
        assert_eq!(store.nodes(&runs[0]).unwrap()[0].clock.as_deref(), Some("controller"));
        assert_eq!(runs.len(), 3);
        assert_eq!((runs[0].plan.as_deref(), &runs[0].lab_files), (Some("version = 1"), &None));
        assert_eq!(runs[1].fleet.as_deref(), Some("{\"lab\":\"run-1f2e3d4c\"}"));
        let drawn = runs[2].fleet.as_deref().unwrap();
        assert!(drawn.starts_with("{\"lab\":\"run-") && drawn.len() == 22, "{drawn}");
        let db = Connection::open(&path).unwrap();
        let days =
            "SELECT group_concat(day || ' ' || last, ', ') FROM (SELECT * FROM days ORDER BY 1)";
        let days: String = db.query_row(days, [], |row| row.get(0)).unwrap();
        assert_eq!(days, "20261121 10, 20261122 1");
        let backup = Connection::open(dir.path().join("catalogue.v1.backup.sqlite")).unwrap();
        assert_eq!(version(&backup), Ok(1));
        assert_eq!(backup.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)), Ok(3));
    }

    #[test]
    fn migrated_version_4_has_no_owners_and_no_devices() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalogue.sqlite");
        let mut db = Connection::open(&path).unwrap();
        migrate_by(&MIGRATIONS[..4], &mut db, &path).unwrap();
        db.execute_batch(
            "INSERT INTO runs (run, kind, name, state, started, settings, seed, axes, fleet, dwell)
             VALUES ('20261121-3', 'run', 'p', 'finished', '', '[]', 0, '[]', '{}', '0');
             INSERT INTO nodes (run_id, node, dwell, clock) VALUES (1, 'n1', '0', 'controller');",
        )
        .unwrap();
        drop(db);
        let mut store = crate::Store::open(dir.path()).unwrap();
        let run = store.run("20261121-3").unwrap();
        assert_eq!((run.owner.as_deref(), run.dwell.as_str()), (None, "0"));
        assert_eq!(store.nodes(&run).unwrap()[0].device, None);
        store.add_device("pi4", "{}").unwrap();
        let backup = Connection::open(dir.path().join("catalogue.v4.backup.sqlite")).unwrap();
        assert_eq!(version(&backup), Ok(4));
    }

    #[test]
    fn failed_migration_changes_nothing_and_can_be_retried() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        let mut db = Connection::open(&path).unwrap();
        let error = migrate_by(&[FIRST, WRONG], &mut db, &path).unwrap_err();
        let said = format!("{error}: {}", std::error::Error::source(&error).unwrap());
        assert!(said.contains("catalogue.sqlite") && said.contains("near \"nothing\""), "{said}");
        assert!(!said.contains("CREATE"), "{said}");
        assert_eq!(things(&path), (1, "one".into()));
        assert_eq!(db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)), Ok(1));
        migrate_by(&[FIRST, SECOND], &mut db, &path).unwrap();
        assert_eq!(things(&path), (2, "one".into()));
        assert_eq!(
            names(dir.path()),
            ["catalogue.sqlite", "catalogue.v1.backup-2.sqlite", "catalogue.v1.backup.sqlite"]
        );
    }

    #[test]
    fn newer_catalogue_is_refused_by_header_and_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
        let before = fs::read(&path).unwrap();
        for refused in [refuse_newer(&path), migrate(&mut Connection::open(&path).unwrap(), &path)]
        {
            let error = refused.unwrap_err();
            assert!(matches!(error, StoreError::Newer { found: 7, known: 5, .. }), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn catalogue_with_missing_tables_is_refused() {
        for (change, missing) in [
            (
                "ALTER TABLE trials DROP COLUMN samples_crc32",
                "column samples_crc32 of table trials",
            ),
            ("DROP TABLE days", "table days"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("catalogue.sqlite");
            drop(crate::Store::open(dir.path()).unwrap());
            Connection::open(&path).unwrap().execute_batch(change).unwrap();
            let before = (fs::read(&path).unwrap(), names(dir.path()));
            for opened in [
                crate::Store::open(dir.path()),
                crate::Store::open_to_read(dir.path()),
                crate::Store::open_read_only(dir.path()),
            ] {
                let said = opened.unwrap_err().to_string();
                assert!(said.contains("catalogue.sqlite was made by another build"), "{said}");
                assert!(said.contains(missing), "{said}");
                assert!(said.contains("move the directory away"), "{said}");
                assert_eq!((fs::read(&path).unwrap(), names(dir.path())), before, "{change}");
            }
        }
    }

    #[test]
    fn incomplete_older_catalogue_is_not_migrated() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        let mut db = Connection::open(&path).unwrap();
        db.execute_batch("ALTER TABLE things RENAME COLUMN name TO title").unwrap();
        let error = migrate_by(&[FIRST, SECOND], &mut db, &path).unwrap_err();
        assert!(error.to_string().contains("column name of table things"), "{error}");
        assert_eq!((version(&db).unwrap(), names(dir.path()).len()), (1, 1));
    }

    #[test]
    fn catalogue_with_additional_columns_opens() {
        let dir = tempfile::tempdir().unwrap();
        drop(crate::Store::open(dir.path()).unwrap());
        let db = Connection::open(dir.path().join("catalogue.sqlite")).unwrap();
        db.execute_batch("ALTER TABLE runs ADD COLUMN mood TEXT").unwrap();
        crate::Store::open(dir.path()).unwrap();
    }

    #[test]
    fn foreign_database_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = old(dir.path());
        let mut db = Connection::open(&path).unwrap();
        db.pragma_update(None, "application_id", 5).unwrap();
        let error = migrate_by(&[FIRST, SECOND], &mut db, &path).unwrap_err();
        assert!(error.to_string().contains("not a dwell catalogue"), "{error}");
        assert_eq!(things(&path), (1, "one".into()));
    }
}
