//! Why nodes are out of reach.

use std::io;

use thiserror::Error;

/// A failed operation of a fleet.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A program of ours could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The command.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A lab could not be made or taken down.
    #[error("{what}: {said}")]
    Lab {
        /// What was tried.
        what: &'static str,
        /// What `dwell lab` said.
        said: String,
        /// Its exit code.
        code: Option<i32>,
    },
    /// The routes between nodes are not what they should be, in the words of `dwell lab routes`.
    #[error("{0}")]
    Routes(String),
    /// There is no such node.
    #[error("there is no node '{0}'")]
    NoNode(String),
    /// A request could not be sent.
    #[error("node {node} is gone")]
    Gone {
        /// The node.
        node: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl FleetError {
    /// What [`FleetError::Lab`] says was tried when a lab was to be made.
    pub const MAKING: &str = "make the lab";

    /// Whether this very topology could not be made; another may be possible.
    pub fn is_of_topology(&self) -> bool {
        match self {
            Self::Lab { what, .. } => *what == Self::MAKING,
            Self::Routes(_) => true,
            Self::Start { .. } | Self::NoNode(_) | Self::Gone { .. } => false,
        }
    }
}
