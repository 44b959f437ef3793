//! Flows that packet observations in a segment refer to by number.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A flow as seen by this machine. If the machine rewrites addresses, the incoming and the outgoing
/// flow share one entry, which allows observations before and after it to be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEntry {
    /// Number in this segment.
    pub flow: u32,
    /// `udp` or `tcp`.
    pub protocol: String,
    /// Source address of incoming packets; at a sender, of outgoing ones.
    pub from: SocketAddr,
    /// Destination address of incoming packets; at a sender, of outgoing ones.
    pub to: SocketAddr,
    /// Source address of outgoing packets, if different.
    #[serde(default)]
    pub from_out: Option<SocketAddr>,
    /// Destination address of outgoing packets, if different.
    #[serde(default)]
    pub to_out: Option<SocketAddr>,
}

impl FlowEntry {
    /// Source and destination of outgoing packets.
    pub fn out(&self) -> (SocketAddr, SocketAddr) {
        (self.from_out.unwrap_or(self.from), self.to_out.unwrap_or(self.to))
    }
}
