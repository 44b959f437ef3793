//! Errors of reading tables and descriptions of tables.

use std::io;

/// A table or description that cannot be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The file has no header with names, or another form that is no table.
    #[error("{path}: {reason}")]
    NoTable {
        /// The file.
        path: String,
        /// What is wrong and what is expected.
        reason: String,
    },
    /// A column that the user named does not exist, or its unit is unknown.
    #[error("{0}")]
    Columns(String),
    /// The description of a table is wrong.
    #[error("{path}, line {line}, column {column}: {reason}")]
    Description {
        /// The file.
        path: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong and what is expected.
        reason: String,
    },
}

impl AuditError {
    /// Whether the input is wrong, not the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Read { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput
            ),
            _ => true,
        }
    }
}
