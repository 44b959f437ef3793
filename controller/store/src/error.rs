//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// A failed store operation.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file or directory could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The catalogue was written by a newer dwell. Nothing was changed.
    #[error(
        "{} was written by a newer dwell (catalogue version {found}, this one knows {known}); \
         nothing was changed",
        path.display()
    )]
    Newer {
        /// The catalogue.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest supported version.
        known: u32,
    },
    /// The catalogue was written by an older dwell and cannot be migrated without write permission.
    #[error(
        "{} was written by an older dwell (catalogue version {found}, this one uses {newest}); \
         a user with write permission must open it once",
        path.display()
    )]
    Older {
        /// The catalogue.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The required version.
        newest: u32,
    },
    /// The catalogue claims a version whose tables it lacks. Nothing was changed.
    #[error(
        "{} was made by another build of dwell: it claims catalogue version {version} but has no \
         {missing}; nothing was changed; move the directory away (or use another --data directory), or \
         use the dwell that made it",
        path.display()
    )]
    IncompleteSchema {
        /// The catalogue.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The first table or column that it lacks.
        missing: String,
    },
    /// The catalogue could not be migrated. It is unchanged, with a copy beside it.
    #[error("cannot migrate {} to version {to}", path.display())]
    Migration {
        /// The catalogue.
        path: PathBuf,
        /// The target version.
        to: u32,
        /// The error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
    /// There are samples but no catalogue.
    #[error(
        "{} is lost or empty, but samples of {samples} runs exist beside it, including {first}; \
         restore a copy of the catalogue, or use another --data directory",
        path.display()
    )]
    Lost {
        /// The catalogue.
        path: PathBuf,
        /// Number of runs with samples.
        samples: usize,
        /// The first of these runs.
        first: String,
    },
    /// The file is not a catalogue of dwell, or is damaged.
    #[error("{} is damaged or not a dwell catalogue; the samples beside it are not affected", path.display())]
    Damaged {
        /// The catalogue.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
    /// A query failed.
    #[error("catalogue error")]
    Catalogue(#[from] rusqlite::Error),
    /// Samples could not be written or read.
    #[error("cannot {what} samples in {}", path.display())]
    Samples {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// A value in the catalogue is damaged.
    #[error("the catalogue's {what} of {of} cannot be read")]
    Json {
        /// The column.
        what: &'static str,
        /// The run or trial.
        of: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The run does not exist.
    #[error("there is no run '{0}'; `dwell runs` lists all runs")]
    NoRun(String),
    /// Another process runs a plan in this directory.
    #[error("another runner is active in {}; wait for it, or use another --data directory", .0.display())]
    Busy(PathBuf),
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
