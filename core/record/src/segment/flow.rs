//! Flows: what the number of a flow in a segment's passages stands for.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A flow as this machine saw it. Where the machine changes addresses, the flow that came in and
/// the one that left are one flow here, which is how passages before and after it can be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEntry {
    /// Its number in this segment.
    pub flow: u32,
    /// `udp` or `tcp`.
    pub protocol: String,
    /// Source of its packets as they came in; as they left, at a sender.
    pub from: SocketAddr,
    /// Destination of its packets as they came in; as they left, at a sender.
    pub to: SocketAddr,
    /// Source of its packets as they left, if that is another.
    #[serde(default)]
    pub from_out: Option<SocketAddr>,
    /// Destination of its packets as they left, if that is another.
    #[serde(default)]
    pub to_out: Option<SocketAddr>,
}

impl FlowEntry {
    /// Source and destination of its packets as they left.
    pub fn out(&self) -> (SocketAddr, SocketAddr) {
        (self.from_out.unwrap_or(self.from), self.to_out.unwrap_or(self.to))
    }
}
