//! Jobs of D-ITG: traffic from the original programs, as in Mok 2015 (S2.5).

use dwell_units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

/// Traffic generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// dwell itself.
    #[default]
    Dwell,
    /// ITGSend, received by ITGRecv.
    Itg,
}

impl Generator {
    /// Minimum payload size. ITGSend extends shorter payloads.
    pub const fn min_payload(self) -> Bytes {
        match self {
            Self::Dwell => Bytes(16),
            Self::Itg => Bytes(20),
        }
    }
}

/// Traffic sent by ITGSend until stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItgJob {
    /// Node that runs ITGRecv: a name or an address.
    pub to: String,
    /// Number of flows, each with its own ports.
    pub flows: u32,
    /// Rate of all flows together; bits count IP packets.
    pub rate: Rate,
    /// Gaps between packets of a flow: `constant`, `poisson` or `pareto(SHAPE)`.
    pub distribution: String,
    /// Size of the UDP payload.
    pub size: Bytes,
    /// Seed of the gaps; each flow derives its own.
    pub seed: u64,
    /// Use IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

/// ITGRecv, until stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItgSinkJob {}
