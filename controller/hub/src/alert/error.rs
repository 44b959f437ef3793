//! Mistakes in alert rules.

use thiserror::Error;

/// Alert rules that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AlertError {
    /// The text is not TOML, or has an unknown field or an invalid value. The message shows the line.
    #[error("the alert rules cannot be read: {0}")]
    Syntax(String),
    /// The file is for another dwell.
    #[error("the alert rules have version = {0}; this dwell reads version = 1")]
    Version(u32),
    /// A value is invalid.
    #[error("{of}: {message}")]
    Value {
        /// The table, such as `alert 'slow'`.
        of: String,
        /// The mistake, and what would be right.
        message: String,
    },
}

impl AlertError {
    pub(super) fn value(of: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Value { of: of.into(), message: message.into() }
    }
}
