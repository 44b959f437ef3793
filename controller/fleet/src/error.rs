//! Errors of fleets.

use std::io;

use thiserror::Error;

/// A failed fleet operation.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The dwell program could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The command.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A lab could not be created or removed.
    #[error("cannot {operation}: {message}")]
    Lab {
        /// The operation that failed.
        operation: &'static str,
        /// The error message of `dwell lab`.
        message: String,
        /// Its exit code.
        code: Option<i32>,
    },
    /// A routing daemon has ended or a route is missing, as `dwell lab routes` reports it.
    #[error("{0}")]
    Routes(String),
    /// A request could not be sent.
    #[error("node {node} is gone")]
    Gone {
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl FleetError {
    /// The `operation` of a [`FleetError::Lab`] whose lab could not be created.
    pub const CREATE_OPERATION: &str = "create the lab";

    /// Whether this topology could not be created. Another topology may still work.
    pub fn is_topology_failure(&self) -> bool {
        match self {
            Self::Lab { operation, .. } => *operation == Self::CREATE_OPERATION,
            Self::Routes(_) => true,
            Self::Start { .. } | Self::Gone { .. } => false,
        }
    }
}
