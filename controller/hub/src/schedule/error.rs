//! Mistakes in schedules.

use thiserror::Error;

/// A schedule that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// The text is not TOML, or has an unknown field or a value of the wrong type. The message shows
    /// the line.
    #[error("the schedule cannot be read: {0}")]
    Syntax(String),
    /// The file is for another dwell.
    #[error("the schedule has version = {0}; this dwell reads version = 1")]
    Version(u32),
    /// A value is invalid.
    #[error("{of}: {message}")]
    Value {
        /// The table, such as `measure 'mesh'`.
        of: String,
        /// The mistake, and what would be right.
        message: String,
    },
}

impl ScheduleError {
    pub(super) fn value(of: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Value { of: of.into(), message: message.into() }
    }
}
