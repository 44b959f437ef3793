//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::device::Lease;

/// A failed store operation.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum StoreError {
    #[error("cannot {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{} was written by a newer dwell (catalogue version {found}, this one knows {known}); \
         nothing was changed",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error(
        "{} was written by an older dwell (catalogue version {found}, this one uses {newest}); \
         a user with write permission must open it once",
        path.display()
    )]
    Older { path: PathBuf, found: u32, newest: u32 },
    #[error(
        "{} was made by another build of dwell: it claims catalogue version {version} but has no \
         {missing}; nothing was changed; move the directory away (or use another --data directory), or \
         use the dwell that made it",
        path.display()
    )]
    IncompleteSchema {
        path: PathBuf,
        version: u32,
        /// The first table or column that it lacks.
        missing: String,
    },
    /// The catalogue could not be migrated. It is unchanged, with a copy beside it.
    #[error("cannot migrate {} to version {to}", path.display())]
    Migration {
        path: PathBuf,
        to: u32,
        #[source]
        source: rusqlite::Error,
    },
    #[error(
        "{} is lost or empty, but samples of {samples} runs exist beside it, including {first}; \
         restore a copy of the catalogue, or use another --data directory",
        path.display()
    )]
    Lost {
        path: PathBuf,
        /// Number of runs with samples.
        samples: usize,
        first: String,
    },
    #[error("{} is damaged or not a dwell catalogue; the samples beside it are not affected", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("catalogue error")]
    Catalogue(#[from] rusqlite::Error),
    #[error("cannot {what} samples in {}", path.display())]
    Samples {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: parquet::errors::ParquetError,
    },
    #[error("the catalogue's {what} of {of} cannot be read")]
    Json {
        what: &'static str,
        /// The run or trial.
        of: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("there is no run '{0}'; `dwell runs` lists all runs")]
    NoRun(String),
    #[error("there is no device '{0}'; `dwell device list` lists all devices")]
    NoDevice(String),
    #[error("there is already a device '{0}'")]
    DeviceExists(String),
    #[error(
        "device {} is in use by {}, run {}, since {}; wait until the run ends",
        .0.device, .0.owner, .0.run, .0.since
    )]
    Leased(Box<Lease>),
    #[error("another runner is active in {}; wait for it, or use another --data directory", .0.display())]
    Busy(PathBuf),
    #[error("another hub is active in {}; stop it, or use another --data directory", .0.display())]
    HubBusy(PathBuf),
}

impl StoreError {
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }

    /// Converts the error of a catalogue that cannot be opened: damaged or inaccessible.
    pub(crate) fn unusable(path: &Path) -> impl Fn(rusqlite::Error) -> Self {
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path: path.to_owned(), source }
            }
            _ => Self::Catalogue(source),
        }
    }

    /// Whether write permission is missing.
    pub(crate) fn is_forbidden(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match self {
            Self::File { source, .. } => {
                matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem)
            }
            Self::Catalogue(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
            ),
            _ => false,
        }
    }

    /// Whether the catalogue's file is damaged.
    pub fn is_damaged_catalogue(&self) -> bool {
        let Self::Catalogue(error) = self else { return false };
        matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        )
    }

    /// Whether the disk is full.
    pub fn is_full_disk(&self) -> bool {
        match self {
            Self::File { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Self::Catalogue(rusqlite::Error::SqliteFailure(error, _)) => {
                error.code == ErrorCode::DiskFull
            }
            Self::Samples { source: parquet::errors::ParquetError::External(error), .. } => error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::StorageFull),
            Self::Samples { source, .. } => source.to_string().contains("No space left"),
            _ => false,
        }
    }
}
