//! Cross traffic from the paced node (Mok 2015, S2.5).

use dwell_engine::schedule::Gaps;
use dwell_units::{BitRate, Bytes, PacketRate, Rate};
use serde::Deserialize;

use super::PacePlan;
use crate::error::PlanError;
use crate::plan::{Plan, TrafficLoad, Transport};
use crate::source::Source;
use dwell_protocol::Generator;

/// Maximum UDP payload.
const MAX_UDP_PAYLOAD: u64 = 65_507;

/// Maximum number of flows.
const MAX_FLOWS: u32 = 1_000;

/// Flows of traffic from the sender's node. Mok 2015 states the number of flows and Pareto gaps;
/// the other values are dwell's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossPlan {
    /// Number of flows; 0 disables cross traffic.
    #[serde(default)]
    pub flows: u32,
    /// Rate per flow; bits count IP packets.
    #[serde(default = "default_rate")]
    pub rate: Rate,
    /// Gaps: `constant`, `poisson` or `pareto(SHAPE)`.
    #[serde(default = "pareto")]
    pub distribution: String,
    /// UDP payload size.
    #[serde(default = "itg")]
    pub size: Bytes,
    /// Seed of the gaps.
    #[serde(default = "first")]
    pub seed: u64,
    /// Traffic generator: dwell, or D-ITG as in Mok 2015.
    #[serde(default)]
    pub generator: Generator,
    /// Node that receives and counts; `None`: the receiver of the paced packets.
    pub to: Option<String>,
}

/// UDP and IPv4 headers.
const IPV4_UDP_HEADER_LEN: u64 = 28;

const fn default_rate() -> Rate {
    Rate::Bits(BitRate(1_000_000))
}

fn pareto() -> String {
    "pareto(1.5)".into()
}

/// Default payload of D-ITG.
const fn itg() -> Bytes {
    Bytes(512)
}

const fn first() -> u64 {
    1
}

impl CrossPlan {
    /// Rate of all flows together.
    pub fn total(&self) -> Rate {
        let flows = u64::from(self.flows);
        match self.rate {
            Rate::Bits(rate) => Rate::Bits(BitRate(rate.0.saturating_mul(flows))),
            Rate::Packets(rate) => {
                let millipps = (rate.as_f64() * 1e3).round() as u64;
                Rate::Packets(PacketRate::from_millipps(millipps.saturating_mul(flows)))
            }
        }
    }

    /// Shape and scale of each flow's gaps in nanoseconds, if they are Pareto distributed. Rates in
    /// bits assume IPv4.
    pub fn pareto(&self) -> Option<(f64, f64)> {
        let mean = match self.rate {
            Rate::Bits(rate) => (self.size.0 + IPV4_UDP_HEADER_LEN) as f64 * 8e9 / rate.0 as f64,
            Rate::Packets(rate) => 1e9 / rate.as_f64(),
        };
        self.distribution.parse::<Gaps>().ok()?.pareto(mean)
    }

    pub(super) fn check(
        &self,
        pace: &PacePlan,
        plan: &Plan,
        source: &Source,
    ) -> Result<(), PlanError> {
        let wrong =
            |field: &str, message: String| Err(source.error(&format!("cross.{field}"), message));
        if self.flows > MAX_FLOWS {
            return wrong("flows", format!("{} flows; must be 0 to {MAX_FLOWS}", self.flows));
        }
        let still = match self.rate {
            Rate::Bits(rate) => rate.0 == 0,
            Rate::Packets(rate) => rate.gap().is_none(),
        };
        if still {
            return wrong("rate", "must be above 0, like \"1Mbit/s\" for each flow".into());
        }
        if let Err(error) = self.distribution.parse::<Gaps>() {
            return wrong("distribution", error.to_string());
        }
        let min = self.generator.min_payload().0;
        if !(min..=MAX_UDP_PAYLOAD).contains(&self.size.0) {
            return wrong("size", format!("must be {min}B to {MAX_UDP_PAYLOAD}B"));
        }
        let Some(to) = &self.to else { return Ok(()) };
        plan.check_node(source, "cross.to", to)?;
        if *to == pace.from {
            return wrong("to", format!("'{to}' would send to itself"));
        }
        Ok(())
    }
}

impl Plan {
    /// Traffic of this cell: its load and the cross traffic.
    pub fn traffic(&self) -> Vec<TrafficLoad> {
        let mut all = self.load().traffic;
        if let Some(pace) = self.measurement.pace()
            && let Some(cross) = pace.cross.as_ref().filter(|cross| cross.flows > 0)
        {
            all.push(TrafficLoad {
                from: pace.from.clone(),
                to: cross.to.as_ref().unwrap_or(&pace.to).clone(),
                protocol: Transport::Udp,
                rate: Some(cross.total()),
                flows: cross.flows,
                distribution: cross.distribution.clone(),
                size: Some(cross.size),
                seed: cross.seed,
                generator: cross.generator,
            });
        }
        all
    }
}
