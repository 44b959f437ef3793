//! Why a request failed, for pages and for the API alike.

use axum::http::StatusCode;
use dwell_results::chain;
use dwell_results::device::DeviceError;
use dwell_store::StoreError;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The data directory cannot be read.
    #[error("{}", chain(.0))]
    Store(StoreError),
    /// There is nothing of this name.
    #[error("{0}")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A command of dwell failed, with what it printed.
    #[error("{0}")]
    Command(String),
    /// The server is ending.
    #[error("the web controller is ending")]
    Ending,
}

impl Error {
    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Command(_) => StatusCode::CONFLICT,
            Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// A short name of the reason, which programs may compare.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Store(_) => "data-unreadable",
            Self::NotFound(_) => "not-found",
            Self::Invalid(_) => "invalid",
            Self::Command(_) => "command-failed",
            Self::Ending => "ending",
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoRun(_) => Self::NotFound(error.to_string()),
            error => Self::Store(error),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Store(error) => error.into(),
            DeviceError::Unknown(text) => Self::NotFound(text),
            DeviceError::Unreadable(text) => Self::Invalid(text),
        }
    }
}
