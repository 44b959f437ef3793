//! Plan tables of paced sending: `[pace]` for the packets, `[cross]` for cross traffic and
//! `[accurate]` for the tolerance (Mok 2015).

mod accurate;
mod cross;
mod size;

use dwell_engine::departures::{default_pause, mean_pause};
use dwell_units::{Nanos, Rate};
use dwell_wire::size::PacketSize;
use serde::Deserialize;

use crate::error::PlanError;
use crate::plan::Plan;
use crate::source::Source;
use dwell_protocol::{PaceEngine, PaceKind, PaceParameters, Scheduling};

pub use accurate::{Accurate, AccurateError};
pub use cross::CrossPlan;

/// Default port of the receiver.
const DEFAULT_PORT: u16 = 7_102;

/// Measurement of every trial: departures of packets sent on schedule. The fields that only plans
/// have, and the shared options.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacePlan {
    /// Node that sends; its accuracy is judged.
    pub from: String,
    /// Node that receives.
    pub to: String,
    /// Whether the receiver timestamps packets and reports losses; `None`: if the sender has no
    /// timestamps.
    pub sink: Option<bool>,
    /// Port of the receiver.
    #[serde(default = "port")]
    pub port: u16,
    /// Scheduling class of the timing thread.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Use IPv6.
    #[serde(default)]
    pub ipv6: bool,
    /// Options of the packets; their fields are in the same table.
    #[serde(skip)]
    pub parameters: PaceParameters,
    /// Cross traffic from the paced node.
    #[serde(skip)]
    pub cross: Option<CrossPlan>,
    /// Tolerance of the accuracy verdict.
    #[serde(skip)]
    pub accurate: Option<Accurate>,
}

const fn port() -> u16 {
    DEFAULT_PORT
}

impl PacePlan {
    /// The size at every layer, if one valid size is given.
    pub fn packet_size(&self) -> Option<PacketSize> {
        size::packet_size(self.parameters.named_size()?, self.ipv6, size::UNKNOWN_MTU).ok()
    }

    /// Gap between packets of a train; `None` for pairs and without a size or rate.
    pub(crate) fn gap_ns(&self) -> Option<f64> {
        let trains = self.parameters.pattern != PaceKind::Pair;
        let rate = self.parameters.rate.filter(|_| trains)?;
        self.packet_size()?.gap_ns(Rate::Bits(rate))
    }

    pub(crate) fn check(&self, plan: &Plan, source: &Source) -> Result<(), PlanError> {
        if let Some(accurate) = &self.accurate {
            accurate.check().map_err(|error| {
                source.error(&format!("accurate.{}", error.field()), error.to_string())
            })?;
        }
        let wrong =
            |field: &str, message: String| Err(source.error(&format!("pace.{field}"), message));
        plan.check_node(source, "pace.from", &self.from)?;
        plan.check_node(source, "pace.to", &self.to)?;
        if self.from == self.to {
            return wrong("to", format!("'{}' would send to itself", self.to));
        }
        self.parameters
            .check()
            .or_else(|error| wrong(error.field, format!("must be {}", error.right)))?;
        if self.port == 0 {
            return wrong("port", "must be 1 to 65535".into());
        }
        let mtu = if plan.topology.has_ethernet_mtu() { size::MTU } else { size::UNKNOWN_MTU };
        for (field, size) in self.parameters.sizes() {
            if let Err(error) = size::packet_size(size, self.ipv6, mtu) {
                return wrong(field, size::plan_message(error));
            }
        }
        self.cross.iter().try_for_each(|cross| cross.check(self, plan, source))
    }

    /// Checks that apply only to the complete values of a cell.
    pub(crate) fn check_together(&self, source: &Source) -> Result<(), PlanError> {
        let wrong =
            |field: &str, message: String| Err(source.error(&format!("pace.{field}"), message));
        let PaceParameters { pattern, rate, engine, bypass, .. } = self.parameters;
        let given: Vec<_> = self.parameters.sizes().map(|(field, _)| field).collect();
        match given.as_slice() {
            [_] => {}
            [] => return wrong("size", "give size, payload_size or frame_size".into()),
            [first, ..] => {
                let field = if *first == "size" { "size" } else { "frame_size" };
                let message = "give one of size, payload_size and frame_size, not several";
                return wrong(field, message.into());
            }
        }
        if rate.is_none() && pattern != PaceKind::Pair {
            let message = "a train needs a rate, like \"10Mbit/s\"; only pairs work without one";
            return wrong("rate", message.into());
        }
        if bypass && !engine.has_optional_bypass() {
            let message = format!(
                "pace.bypass needs pace.engine = \"{}\", not \"{}\"",
                PaceEngine::names_with_bypass().join("\" or \""),
                engine.name()
            );
            return wrong("bypass", message);
        }
        use dwell_engine::departures::{MAX_DURATION, MAX_PACKETS};
        let (packets, time) = self.extent();
        if packets > MAX_PACKETS as u64 {
            let message = format!("{packets} packets; a trial has at most {MAX_PACKETS}");
            return wrong(if pattern == PaceKind::Pair { "pairs" } else { "repeat" }, message);
        }
        if time > MAX_DURATION {
            return wrong("repeat", format!("a trial would take {time}; at most {MAX_DURATION}"));
        }
        Ok(())
    }

    /// Number of packets of a trial without warm-up, and their duration.
    pub(crate) fn extent(&self) -> (u64, Nanos) {
        let PaceParameters { pattern, pairs, repeat, count, .. } = self.parameters;
        let (trains, packets, gap) = match pattern {
            PaceKind::Pair => (pairs, 2, 0.0),
            PaceKind::Train | PaceKind::Poisson => (repeat, count, self.gap_ns().unwrap_or(0.0)),
        };
        let train = gap * f64::from(packets.saturating_sub(1)) + self.mean_pause().0 as f64;
        let all = u64::from(trains) * u64::from(packets);
        (all, Nanos((train * f64::from(trains)) as i64))
    }

    /// Mean pause from the last packet of a train to the first of the next.
    pub(crate) fn mean_pause(&self) -> Nanos {
        match self.parameters.pattern {
            PaceKind::Pair => self.parameters.gap,
            PaceKind::Train | PaceKind::Poisson => {
                let default = || default_pause(self.gap_ns().unwrap_or(0.0));
                mean_pause(self.parameters.pause.unwrap_or_else(default))
            }
        }
    }
}

#[cfg(test)]
mod tests;
