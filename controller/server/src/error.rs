//! Why a request failed, for pages and for the API alike.

use axum::http::StatusCode;
use dwell_hub::{HubError, QueryError};
use dwell_results::chain;
use dwell_results::device::DeviceError;
use dwell_store::StoreError;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The data directory cannot be read.
    #[error("{}", chain(.0))]
    Store(StoreError),
    /// The hub's database cannot be read.
    #[error("{}", chain(.0))]
    Hub(HubError),
    /// There is nothing of this name.
    #[error("{0}")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The plan has a mistake, or cannot be started from the web.
    #[error("{0}")]
    Plan(String),
    /// The plan may flood, and was not confirmed.
    #[error("{0}")]
    Unconfirmed(String),
    /// The request does not fit to the state of what it changes.
    #[error("{0}")]
    Conflict(String),
    /// A file of the data directory cannot be read or written.
    #[error("{0}")]
    File(String),
    /// The request is refused before it is read, with this status and code.
    #[error("{2}")]
    Request(StatusCode, &'static str, String),
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
            Self::Store(_) | Self::Hub(_) | Self::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Invalid(_) | Self::Plan(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Command(_) | Self::Conflict(_) | Self::Unconfirmed(_) => StatusCode::CONFLICT,
            Self::Request(status, _, _) => *status,
            Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// A short name of the reason, which programs may compare.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Store(_) | Self::Hub(_) | Self::File(_) => "data-unreadable",
            Self::Plan(_) => "invalid-plan",
            Self::Unconfirmed(_) => "needs-confirmation",
            Self::Conflict(_) => "conflict",
            Self::Request(_, code, _) => code,
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

impl From<HubError> for Error {
    fn from(error: HubError) -> Self {
        Self::Hub(error)
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Invalid(text) => Self::Invalid(text),
            QueryError::Hub(error) => Self::Hub(error),
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
