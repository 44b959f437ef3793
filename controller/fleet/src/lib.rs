//! Reaching nodes: a fleet makes them reachable, carries requests to them and events back.
//!
//! [`LabFleet`] reaches the nodes of a lab on this machine, as child processes and by formats only
//! (`dwell lab up --json`, `dwell lab exec NODE -- dwell serve --stdio`); devices over SSH are
//! another fleet behind the same trait. What is said on the way is not known here.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod connection;
mod error;
mod hosts;
mod lab;
mod links;
mod quota;
mod routes;

use std::collections::BTreeMap;
use std::time::Duration;

use dwell_plan::Topology;
use dwell_protocol::{Event, JobId, Request};

pub use error::FleetError;
pub use hosts::Hosts;
pub use lab::LabFleet;
pub use links::LinkMade;
pub use quota::QuotaUse;
pub use routes::Routes;

/// Nodes that can be reached.
pub trait Fleet {
    /// Makes the nodes of this topology reachable. Nothing happens when they are already; nodes of
    /// another topology are let go of.
    ///
    /// # Errors
    /// They cannot be made, in the words of whoever tried.
    fn prepare(&mut self, topology: &Topology) -> Result<(), FleetError>;

    /// The links between the nodes as they were made; empty where nobody knows.
    fn links(&self) -> Vec<LinkMade> {
        Vec::new()
    }

    /// The addresses of the nodes; empty where names of nodes resolve by other means.
    fn hosts(&self) -> Hosts {
        Hosts::default()
    }

    /// The routes between the nodes as they are now, where daemons keep them; `None` where nobody
    /// does.
    ///
    /// # Errors
    /// A daemon has ended or a route is missing ([`FleetError::Routes`]), or they cannot be told.
    fn routes(&mut self) -> Result<Option<Routes>, FleetError> {
        Ok(None)
    }

    /// What nodes that are held to a share of a processor used of it so far, by node.
    ///
    /// # Errors
    /// It cannot be told.
    fn quotas(&mut self) -> Result<BTreeMap<String, QuotaUse>, FleetError> {
        Ok(BTreeMap::new())
    }

    /// Sends a request to a node, and reaches it first if it is not connected.
    ///
    /// # Errors
    /// It cannot be reached.
    fn request(&mut self, node: &str, request: &Request) -> Result<(), FleetError>;

    /// What came from any node, waiting for it at most so long.
    fn next(&mut self, wait: Duration) -> Option<(String, FromNode)>;

    /// Ends the connection to a node, and with it everything that it does for us.
    fn release(&mut self, node: &str);

    /// Ends all connections and takes down what [`Fleet::prepare`] made.
    ///
    /// # Errors
    /// Something is left behind.
    fn dissolve(&mut self) -> Result<(), FleetError>;
}

/// What comes from a node.
#[derive(Debug)]
pub enum FromNode {
    /// It tells something.
    Event(Event),
    /// A piece of a segment.
    Data(JobId, Vec<u8>),
    /// It is gone, for this reason. Everything it did for us has ended.
    Gone(String),
}
