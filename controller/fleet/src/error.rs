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
    #[error("{what}: {said}")]
    Lab {
        /// The operation that failed.
        what: &'static str,
        /// The error message of `dwell lab`.
        said: String,
        /// Its exit code.
        code: Option<i32>,
    },
    /// A routing daemon has ended or a route is missing, as `dwell lab routes` reports it.
    #[error("{0}")]
    Routes(String),
    /// The node does not exist.
    #[error("there is no node '{0}'")]
    NoNode(String),
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
    /// The `what` of a [`FleetError::Lab`] that could not be created.
    pub const CREATE_OPERATION: &str = "make the lab";

    /// Whether this topology could not be created. Another topology may still work.
    pub fn is_of_topology(&self) -> bool {
        match self {
            Self::Lab { what, .. } => *what == Self::CREATE_OPERATION,
            Self::Routes(_) => true,
            Self::Start { .. } | Self::NoNode(_) | Self::Gone { .. } => false,
        }
    }
}
