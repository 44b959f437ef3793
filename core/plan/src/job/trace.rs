//! Jobs of traces: which passing packets to stamp, and where.

use dwell_units::Nanos;
use serde::{Deserialize, Serialize};

use super::IdFormat;

/// Which passing packets to stamp, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceJob {
    /// Which packets: `udp port 5001`, `tcp port 80`, `udp host 10.0.0.2 port 5001` ...
    pub flow: String,
    /// Where they carry their id.
    #[serde(default)]
    pub id: IdFormat,
    /// Where to stamp them; none is everywhere.
    #[serde(default)]
    pub hooks: Vec<TraceHook>,
    /// Interfaces for XDP and tcx; none is all but loopback.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// Stop after this time.
    #[serde(default)]
    pub duration: Option<Nanos>,
}

/// Where a trace stamps packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceHook {
    /// `pre_routing` and `post_routing`.
    Netfilter,
    /// `rx_tcx` and `tx_tcx`.
    Tcx,
    /// `rx_driver`.
    Xdp,
}
