//! Jobs of traces: which packets to timestamp, and where.

use dwell_units::Nanos;
use serde::{Deserialize, Serialize};

use super::IdFormat;

/// Passing packets to timestamp, and the hooks to use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct TraceJob {
    /// Packets to trace: udp, tcp or icmp, then 'host ADDRESS', 'port NUMBER' or both, for either
    /// side.
    #[cfg_attr(feature = "clap", arg(long, value_name = "EXPRESSION"))]
    pub flow: String,
    /// Format of the packet id in UDP payloads; TCP and ICMP have sequence numbers.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = IdFormat::Auto))]
    #[serde(default)]
    pub id: IdFormat,
    /// Hooks to use [default: all].
    #[cfg_attr(
        feature = "clap",
        arg(long, value_enum, value_delimiter = ',', value_name = "HOOK,...")
    )]
    #[serde(default)]
    pub hooks: Vec<TraceHook>,
    /// Interface for tcx and xdp; repeatable [default: all but loopback].
    #[cfg_attr(feature = "clap", arg(long = "interface", value_name = "INTERFACE"))]
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// Stop after this time [default: until stopped].
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
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
