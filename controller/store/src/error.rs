//! Why the store could not do something.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// A failed operation of the store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file or directory could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Written by a newer dwell. Nothing was touched.
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
        /// The newest this knows.
        known: u32,
    },
    /// Written by an older dwell, and cannot be brought up to date by who may not write.
    #[error(
        "{} was written by an older dwell (catalogue version {found}, this one uses {newest}); \
         somebody who may write there has to use it once",
        path.display()
    )]
    Older {
        /// The catalogue.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is needed.
        newest: u32,
    },
    /// It says it is of a version whose tables it does not have. Nothing was touched.
    #[error(
        "{} was made by another build of dwell: it says it is of catalogue version {version}, and has no \
         {missing}; nothing was changed; move the directory away (or use another --data directory), or \
         use the dwell that made it",
        path.display()
    )]
    Strange {
        /// The catalogue.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The first table or column that it lacks.
        missing: String,
    },
    /// It could not be brought up to date; it is as it was, with a copy beside it.
    #[error("cannot bring {} to version {to}", path.display())]
    Migration {
        /// The catalogue.
        path: PathBuf,
        /// The version it was to have.
        to: u32,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// There are samples, and no catalogue that knows of them.
    #[error(
        "{} is lost or empty, but there are samples of {samples} runs beside it, {first} among them; \
         put a copy of the catalogue there, or use another --data directory",
        path.display()
    )]
    Lost {
        /// The catalogue.
        path: PathBuf,
        /// How many runs have samples.
        samples: usize,
        /// One of them.
        first: String,
    },
    /// The file is no catalogue of dwell, or damaged.
    #[error("{} is damaged, or no catalogue of dwell; samples beside it are not", path.display())]
    Damaged {
        /// The catalogue.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// A query failed.
    #[error("the catalogue failed")]
    Catalogue(#[from] rusqlite::Error),
    /// Samples could not be written or read.
    #[error("cannot {what} samples in {}", path.display())]
    Samples {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// Something in the catalogue is not what was once written there.
    #[error("the catalogue's {what} of {of} cannot be read")]
    Json {
        /// Which column.
        what: &'static str,
        /// Of which run or trial.
        of: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// There is no such run.
    #[error("there is no run '{0}'; `dwell runs` lists those there are")]
    NoRun(String),
    /// Another process runs a plan here.
    #[error("another runner works in {}; wait for it, or use another --data directory", .0.display())]
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

    /// Of a catalogue that cannot be opened: damaged, or only out of reach.
    pub(crate) fn unusable(path: &Path) -> impl Fn(rusqlite::Error) -> Self {
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path: path.to_owned(), source }
            }
            _ => Self::Catalogue(source),
        }
    }

    /// Whether somebody who may not write would have to.
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

    /// Whether there is no room left on the disk.
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
