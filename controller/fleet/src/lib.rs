//! Connections to nodes: a fleet makes nodes reachable, sends them requests and returns their
//! events.
//!
//! [`FleetHandle`] selects the transport. The nodes of a lab on this machine are child processes
//! (`dwell lab up --json`, `dwell lab exec NODE -- dwell worker`). Devices are reached by the user's
//! ssh(1), which copies the node program there and runs it. This crate does not interpret requests and
//! events.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod connection;
mod deployment;
mod device;
mod device_check;
mod error;
mod handle;
mod keepalive;
mod lab;
mod lab_output;
mod local_clock;
mod node_binaries;
mod node_clock;
mod node_process;
mod nodes;
mod parallel;
mod routes;
mod spool_link;
mod ssh;
mod ssh_fleet;

use std::collections::BTreeMap;
use std::time::Duration;

use dwell_plan::Topology;
use dwell_protocol::{Event, JobId, Request};
use serde::Deserialize;

pub use device::{Device, DeviceError};
pub use device_check::{DeviceAnswer, check_devices, remove_deployment};
pub use error::FleetError;
pub use handle::{DeviceBindings, FleetHandle, Opener};
pub use node_binaries::{NODES_DIR, NodeBinaries, NodeBinary};
pub use node_clock::{ClockReadings, TrialEdge};
pub use nodes::{ClockDomain, Nodes};
pub use routes::Routes;
pub use spool_link::{MAX_REQUEST_INTERVAL, SpoolLink, SpoolRecords};
pub use ssh::SSH_COMMAND;

/// Nodes that can be reached.
pub trait Fleet {
    /// Removes what a dead runner left. Does nothing if nothing is left.
    ///
    /// # Errors
    /// Something could not be removed.
    fn clear(&mut self) -> Result<(), FleetError> {
        Ok(())
    }

    /// Makes the nodes of this topology reachable. Does nothing if they already are. Nodes of
    /// another topology are released.
    ///
    /// # Errors
    /// The nodes cannot be created. The error quotes the program that tried.
    fn prepare(&mut self, topology: &Topology) -> Result<(), FleetError>;

    /// Returns the links as they were created; empty if unknown.
    fn links(&self) -> Vec<CreatedLink> {
        Vec::new()
    }

    /// Returns the addresses and clocks of the nodes. Nodes without an address are reached by name.
    fn nodes(&self) -> Nodes {
        Nodes::default()
    }

    /// Returns the device that a node is bound to; `None` for a node of a lab.
    fn device(&self, node: &str) -> Option<NodeDevice> {
        let _ = node;
        None
    }

    /// Returns the current routes between the nodes, or `None` if no routing daemon runs.
    ///
    /// # Errors
    /// A daemon has ended or a route is missing ([`FleetError::Routes`]), or the routes cannot be
    /// read.
    fn routes(&mut self) -> Result<Option<Routes>, FleetError> {
        Ok(None)
    }

    /// Returns the CPU time used so far by each node with a CPU quota, by node.
    ///
    /// # Errors
    /// The CPU time cannot be read.
    fn quotas(&mut self) -> Result<BTreeMap<String, QuotaUse>, FleetError> {
        Ok(BTreeMap::new())
    }

    /// Exchanges requests with the clocks of all connected nodes, and returns the exchanges by node.
    /// A fleet whose nodes all have the controller's clock returns none.
    fn measure_clocks(&mut self, edge: TrialEdge) -> BTreeMap<String, ClockReadings> {
        let _ = edge;
        BTreeMap::new()
    }

    /// Sends a request to a node, connecting to it first if necessary.
    ///
    /// # Errors
    /// The node cannot be reached.
    fn request(&mut self, node: &str, request: &Request) -> Result<(), FleetError>;

    /// Returns the next message of any node, waiting at most `wait`.
    fn next(&mut self, wait: Duration) -> Option<(String, FromNode)>;

    /// Closes the connection to a node, which stops all its jobs.
    fn release(&mut self, node: &str);

    /// Closes all connections and removes what [`Fleet::prepare`] created.
    ///
    /// # Errors
    /// Something could not be removed.
    fn dissolve(&mut self) -> Result<(), FleetError>;
}

/// A message from a node.
#[derive(Debug)]
pub enum FromNode {
    /// An event.
    Event(Event),
    /// Part of a segment.
    Data(JobId, Vec<u8>),
    /// The node has ended, with the reason. All its jobs have ended too.
    Gone(String),
}

/// The device of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDevice {
    /// Name of the device.
    pub name: String,
    /// Where ssh(1) connects.
    pub destination: String,
    /// SHA-256 of the node program, as 64 hexadecimal digits.
    pub program_sha256: String,
    /// Machine type, such as `aarch64`.
    pub arch: String,
}

/// A link as it was created, or a medium shared by several nodes. A plan or a lab file states what
/// links should do; how they are emulated is decided when they are created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedLink {
    /// The nodes it connects.
    pub nodes: Vec<String>,
    /// Bits per second; `None` if not limited.
    pub rate_bps: Option<u64>,
    /// `veth`, `netem`, `tbf` or `tap`.
    pub mechanism: String,
}

/// A node's CPU quota and its use since the node was created.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct QuotaUse {
    /// The quota, as a share of one CPU.
    pub share_ratio: f64,
    /// CPU time used, in nanoseconds.
    #[serde(rename = "usage_ns")]
    pub used_ns: Option<i64>,
    /// Time in which runnable processes were throttled, in nanoseconds.
    pub throttled_ns: Option<i64>,
}
