//! Errors of the hub.

use std::io;
use std::path::{Path, PathBuf};

use dwell_store::StoreError;
use thiserror::Error;

/// A failed operation of the hub's database.
#[derive(Debug, Error)]
pub enum HubError {
    /// A file could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The database was written by a newer dwell. Nothing was changed.
    #[error(
        "{place} was written by a newer dwell (hub schema {found}, this one knows {known}); nothing was \
         changed; upgrade this dwell"
    )]
    Newer {
        /// The database.
        place: String,
        /// Its schema version.
        found: u32,
        /// The newest version that this dwell knows.
        known: u32,
    },
    /// The database was written by an older dwell and is only read here.
    #[error(
        "{place} was written by an older dwell (hub schema {found}, this one uses {newest}); start \
         `dwell hub` once, which migrates it"
    )]
    Older {
        /// The database.
        place: String,
        /// Its schema version.
        found: u32,
        /// The version of this dwell.
        newest: u32,
    },
    /// A migration failed. The database has the version before it.
    #[error("cannot migrate {place} to hub schema {to}")]
    Migration {
        /// The database.
        place: String,
        /// The version that was not reached.
        to: u32,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The file is no database of a hub.
    #[error("{place} is damaged, or not the database of a hub; restore a copy, or move it away")]
    Damaged {
        /// The database.
        place: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// A statement failed. Its transaction has no effect.
    #[error("the hub's database failed{}", remedy(*is_full))]
    Database {
        /// Whether the database has no space left.
        is_full: bool,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The database cannot be used now: it does not run, it ended a connection, or another hub held a
    /// lock for too long. The transaction has no effect, or its commit was not confirmed. The next one
    /// connects again.
    #[error(
        "the hub's database is unavailable; nothing is lost, and the next attempt connects again"
    )]
    Unavailable {
        /// The cause.
        #[source]
        source: Cause,
    },
    /// There is no connection to the database.
    #[error("cannot connect to the hub's database, {place}")]
    Connect {
        /// The database, without its password.
        place: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The URL of the database is invalid. It is not shown, because it may contain a password.
    #[error("invalid URL of the hub's database: {0}")]
    Url(String),
    /// A stored value cannot be read.
    #[error("the hub's database holds an unreadable {what}: {message}")]
    Stored {
        /// The value.
        what: &'static str,
        /// The reason.
        message: String,
    },
    /// Samples could not be stored or read. The node keeps those that are not stored.
    #[error("requested samples cannot be stored")]
    Samples(#[source] StoreError),
    /// The clock of the hub is implausible. Nothing was stored or removed.
    #[error(
        "the clock of this machine shows {now}, the hub's last time is {last}: nothing is stored or \
         removed; correct the clock, or restart `dwell hub` with --accept-clock if it is right"
    )]
    Clock {
        /// CLOCK_REALTIME in UTC.
        now: String,
        /// Its last value in the database.
        last: String,
    },
    /// There is no database.
    #[error("there is no hub in {0}; start one with `dwell hub --embedded`")]
    Missing(String),
}

const fn remedy(is_full: bool) -> &'static str {
    if is_full { "; free space on its disk, or keep rows for fewer days (--keep)" } else { "" }
}

/// The error of a database client.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

impl HubError {
    pub(crate) fn file(
        what: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::File { what, path, source }
    }

    pub(crate) fn stored(what: &'static str, message: impl ToString) -> Self {
        Self::Stored { what, message: message.to_string() }
    }

    /// Whether the database or its disk is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::File { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Self::Database { is_full, .. } => *is_full,
            _ => false,
        }
    }

    /// Whether the database is expected to work again without a change to it. Full ones are not.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Connect { .. })
    }
}

impl From<rusqlite::Error> for HubError {
    fn from(error: rusqlite::Error) -> Self {
        let is_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
        Self::Database { is_full, source: Box::new(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_has_a_remedy() {
        let error = |is_full| HubError::Database { is_full, source: "locked".into() }.to_string();
        assert!(
            error(true).ends_with("free space on its disk, or keep rows for fewer days (--keep)")
        );
        assert_eq!(error(false), "the hub's database failed");
    }
}
