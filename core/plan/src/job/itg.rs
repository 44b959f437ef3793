//! Jobs of D-ITG: its real programs as the generator of traffic, for who wants S2's own (S2.5).

use dwell_units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

/// What sends traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// dwell itself.
    #[default]
    Dwell,
    /// The real ITGSend, to the real ITGRecv.
    Itg,
}

impl Generator {
    /// The least payload it sends: ITGSend lengthens what is shorter.
    pub const fn least_payload(self) -> Bytes {
        match self {
            Self::Dwell => Bytes(16),
            Self::Itg => Bytes(20),
        }
    }
}

/// Traffic of ITGSend, until stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItgJob {
    /// The node where ITGRecv runs, a name or an address.
    pub to: String,
    /// Number of flows, each with ports of its own.
    pub flows: u32,
    /// Rate of all flows together; bits are counted over IP packets.
    pub rate: Rate,
    /// Gaps between packets of a flow: `constant`, `poisson` or `pareto(SHAPE)`.
    pub distribution: String,
    /// Size of the UDP payload.
    pub size: Bytes,
    /// Seed of the gaps; every flow has one of its own that follows from it.
    pub seed: u64,
    /// Use IPv6, else IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

/// ITGRecv, until stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItgSinkJob {}
