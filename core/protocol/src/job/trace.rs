//! Jobs of traces: which packets to timestamp, and where.

use dwell_units::Nanos;
use serde::{Deserialize, Serialize};

use super::IdFormat;

/// Passing packets to timestamp, and the hooks to use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceJob {
    /// Packet filter: `udp port 5001`, `tcp port 80`, `udp host 10.0.0.2 port 5001` ...
    pub flow: String,
    /// Location of the packet id.
    #[serde(default)]
    pub id: IdFormat,
    /// Hooks; empty means all.
    #[serde(default)]
    pub hooks: Vec<TraceHook>,
    /// Interfaces for XDP and tcx; empty means all except loopback.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// Stop after this time.
    #[serde(default)]
    pub duration: Option<Nanos>,
}

/// Hooks that timestamp packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TraceHook {
    /// pre_routing and post_routing.
    Netfilter,
    /// rx_tcx and tx_tcx.
    Tcx,
    /// rx_driver.
    Xdp,
}
