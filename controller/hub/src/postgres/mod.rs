//! The hub's database on a PostgreSQL server, which several hubs may share.
//!
//! Every transaction that stores records first locks the rows of their nodes, in the order of their names.
//! All that it reads and changes then belongs to these nodes: incarnations, streams, and the hours and
//! days that are computed again. So two hubs with records of one node work one after the other, and each
//! sees what the other committed (READ COMMITTED); hubs with records of different nodes do not wait.

mod columns;
mod connection;
mod locks;
mod migrations;
mod nodes;
mod rows;
mod transaction;

use std::collections::BTreeSet;

use crate::error::HubError;
use crate::migrations::{refuse_newer, refuse_older};
use crate::period::Partition;
use crate::store::{HubStore, HubTransaction};
use connection::{Address, Connection};
use migrations::{MIGRATIONS, migrate};
use transaction::PostgresTransaction;

/// A hub's database. It must not be used on a thread that runs an async runtime, because its client has
/// its own.
#[derive(Debug)]
pub struct PostgresStore {
    db: Connection,
    /// Partitions that exist.
    partitions: BTreeSet<Partition>,
}

impl PostgresStore {
    /// Opens the database with this URL, creating its tables or migrating them. The password is used
    /// if the URL has none.
    ///
    /// # Errors
    /// The URL is invalid, the database belongs to a newer dwell, or it cannot be used.
    pub fn open(url: &str, password: Option<&str>) -> Result<Self, HubError> {
        let mut db = Connection::open(Address::parse(url, password)?)?;
        migrate(MIGRATIONS, &mut db)?;
        Ok(Self { db, partitions: BTreeSet::new() })
    }

    /// Opens an existing database for reading.
    ///
    /// # Errors
    /// The URL is invalid, there is no hub in the database, it belongs to another version of dwell, or it
    /// cannot be read.
    pub fn open_to_read(url: &str, password: Option<&str>) -> Result<Self, HubError> {
        let db = Connection::open(Address::parse(url, password)?)?;
        let mut store = Self { db, partitions: BTreeSet::new() };
        drop(store.begin_to_read()?);
        Ok(store)
    }

    /// Whether a URL contains a password, which the arguments of a process show to all users.
    pub fn has_password(url: &str) -> bool {
        connection::has_password(url)
    }

    fn begin_by(
        &mut self,
        sql: &str,
        is_reader: bool,
    ) -> Result<PostgresTransaction<'_>, HubError> {
        // Another hub may have migrated the database, also while this one is running.
        let version = self.db.begin(&format!("{sql}; SELECT version FROM schema_version"))?;
        let place = self.db.place().to_owned();
        // From here on, the transaction is rolled back when it is dropped.
        let transaction = PostgresTransaction::new(&mut self.db, &mut self.partitions, is_reader);
        let found = version.ok_or_else(|| HubError::Missing(place.clone()))? as u32;
        refuse_newer(found, MIGRATIONS.len() as u32, &place)?;
        refuse_older(found, MIGRATIONS.len() as u32, &place)?;
        Ok(transaction)
    }
}

impl HubStore for PostgresStore {
    fn begin(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError> {
        let lock = locks::shared(locks::MIGRATION);
        let sql = format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {lock}");
        Ok(Box::new(self.begin_by(&sql, false)?))
    }

    fn begin_to_read(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError> {
        let sql = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {}",
            rows::lock_tables("ACCESS SHARE")
        );
        Ok(Box::new(self.begin_by(&sql, true)?))
    }
}
