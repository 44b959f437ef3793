//! Errors of fleets.

use std::io;

use dwell_protocol::Lease;
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
    /// The nodes of a topology could not be made available.
    #[error("{message}")]
    Nodes {
        /// The failed operation and the reason.
        message: String,
        /// Whether this machine lacks support or a privilege.
        unsupported: bool,
    },
    /// A command about the nodes failed.
    #[error("cannot {operation}: {message}")]
    Command {
        /// The operation that failed.
        operation: &'static str,
        /// The error message of the command.
        message: String,
    },
    /// A routing daemon has ended or a route is missing, as `dwell lab routes` reports it.
    #[error("{0}")]
    Routes(String),
    /// A device is unreachable or refused a step.
    #[error("device {device}: {message}")]
    Device {
        /// Name of the device.
        device: String,
        /// The failed step, the reason and the remedy.
        message: String,
    },
    /// A device is in use by another run.
    #[error("device {device} is in use by {lease}")]
    Leased {
        /// Name of the device.
        device: String,
        /// The other run.
        lease: Lease,
    },
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
    /// Whether the nodes of this topology could not be made available. Another topology may still
    /// work.
    pub const fn is_topology_failure(&self) -> bool {
        matches!(self, Self::Nodes { .. } | Self::Routes(_))
    }

    /// Whether the nodes will be available when another run ends.
    pub const fn is_leased(&self) -> bool {
        matches!(self, Self::Leased { .. })
    }

    /// Whether this machine lacks support or a privilege for the topology.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::Nodes { unsupported: true, .. })
    }
}
