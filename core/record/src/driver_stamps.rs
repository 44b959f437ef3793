//! Section `driver` of a summary: timestamps of replies in the network driver.

use serde::{Deserialize, Serialize};

use crate::summary::Figures;

/// Timestamps of replies in the network driver (`rx_driver`), or the reason for their absence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverStamps {
    /// Interfaces with the XDP program.
    pub interfaces: Vec<String>,
    /// Send timestamp that `rtt_driver_ns` begins at; null without `rtt_driver_ns`.
    pub tx: Option<DriverTx>,
    /// Why no reply has a timestamp of the driver; null if replies have one.
    pub absent: Option<String>,
    /// The round trips of the driver, the kernel and the program, in this order, of the probes that
    /// have all three; empty without such probes.
    pub layers: Vec<LayerDelay>,
    /// Received probes whose reply was seen in the driver.
    pub stamped: u64,
    /// Received probes whose reply was not seen there.
    pub unseen: u64,
    /// Replies seen in the driver that belong to no received probe.
    pub unmatched: u64,
    /// Timestamps lost because the buffer between the kernel and this program was full.
    pub lost: u64,
}

/// Round trip between the timestamps of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerDelay {
    /// Layer.
    pub layer: Layer,
    /// Round trip.
    pub rtt_ns: Figures,
    /// Its difference from the round trip of the layer below, probe by probe; null for the lowest.
    pub added_ns: Option<Figures>,
}

/// Layer that takes timestamps, from the wire up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// `rtt_driver_ns`
    Driver,
    /// `rtt_kernel_ns`
    Kernel,
    /// `rtt_ns`
    Program,
}

/// Send timestamp from which a round trip by driver timestamps is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverTx {
    /// The kernel's software timestamp, taken by the transmitting driver.
    #[serde(rename = "tx_kernel")]
    Kernel,
    /// An eBPF program at tcx egress, before the queueing discipline.
    #[serde(rename = "tx_tcx")]
    Tcx,
}

impl DriverTx {
    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "tx_kernel",
            Self::Tcx => "tx_tcx",
        }
    }
}
