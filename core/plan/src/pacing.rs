//! Plan tables of paced sending: `[pace]` for the packets, `[cross]` for cross traffic and
//! `[accurate]` for the tolerance (Mok 2015).

mod accurate;
mod cross;
mod size;

use dwell_engine::departures::{default_pause, mean_pause};
use dwell_units::{BitRate, Bytes, Nanos, Rate};
use dwell_wire::size::PacketSize;
use serde::{Deserialize, Deserializer, de};

use crate::error::PlanError;
use crate::plan::Plan;
use crate::source::Source;
use dwell_protocol::{PaceEngine, PaceKind, PacePattern, PaceSize, Scheduling, Stamps};

pub use accurate::{Accurate, AccurateError};
pub use cross::CrossPlan;
pub use size::{NamedSize, NamedSizeError};

/// Default port of the receiver.
const DEFAULT_PORT: u16 = 7_102;

/// Measurement of every trial: departures of packets sent on schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacePlan {
    /// Node that sends; its accuracy is judged.
    pub from: String,
    /// Node that receives.
    pub to: String,
    /// Send engine.
    #[serde(default, with = "dwell_protocol::engine_name")]
    pub engine: PaceEngine,
    /// Send schedule.
    #[serde(default)]
    pub pattern: PaceKind,
    /// Size of the IP packet, or of the layer named in the text, like `frame:1514B`.
    #[serde(default)]
    pub size: Option<NamedSize>,
    /// UDP payload, instead of `size`.
    #[serde(default)]
    pub payload_size: Option<Bytes>,
    /// Ethernet frame without frame check sequence, instead of `size`.
    #[serde(default)]
    pub frame_size: Option<Bytes>,
    /// Bits per second, counted over the size as given; pairs have no rate.
    #[serde(default, deserialize_with = "rate_or_none")]
    pub rate: Option<BitRate>,
    /// Packets per train.
    #[serde(default = "default_count")]
    pub count: u32,
    /// Trains per trial.
    #[serde(default = "default_repeat")]
    pub repeat: u32,
    /// Pairs per trial.
    #[serde(default = "default_pairs")]
    pub pairs: u32,
    /// Time from one pair to the next.
    #[serde(default = "default_gap")]
    pub gap: Nanos,
    /// Pause from the last packet of a train to the first of the next.
    #[serde(default)]
    pub pause: Option<Nanos>,
    /// Seed of Poisson gaps.
    #[serde(default = "first")]
    pub seed: u64,
    /// Bypass the queueing discipline (only with an engine that can).
    #[serde(default)]
    pub bypass: bool,
    /// Whether the receiver timestamps packets and reports losses; `None`: if the sender has no
    /// timestamps.
    #[serde(default)]
    pub sink: Option<bool>,
    /// Port of the receiver.
    #[serde(default = "port")]
    pub port: u16,
    /// Maximum lateness before a packet has missed its deadline.
    #[serde(default)]
    pub late: Option<Nanos>,
    /// Warm-up trains, not counted.
    #[serde(default = "one")]
    pub warm_up: u32,
    /// Timestamps to use.
    #[serde(default)]
    pub stamps: Stamps,
    /// Scheduling class of the timing thread.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Use IPv6.
    #[serde(default)]
    pub ipv6: bool,
    /// Cross traffic from the paced node.
    #[serde(skip)]
    pub cross: Option<CrossPlan>,
    /// Tolerance of the accuracy verdict.
    #[serde(skip)]
    pub accurate: Option<Accurate>,
}

/// Bits per second. `"none"` allows pairs on an axis of rates.
fn rate_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BitRate>, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) if text == "none" => Ok(None),
        rate => BitRate::deserialize(rate).map(Some).map_err(|e| de::Error::custom(e.message())),
    }
}

const fn one() -> u32 {
    1
}

const fn first() -> u64 {
    1
}

const fn default_count() -> u32 {
    50
}

const fn default_repeat() -> u32 {
    20
}

const fn default_pairs() -> u32 {
    25
}

const fn default_gap() -> Nanos {
    Nanos::from_millis(1)
}

const fn port() -> u16 {
    DEFAULT_PORT
}

impl PacePlan {
    /// The size, if exactly one is given.
    pub fn named_size(&self) -> Option<PaceSize> {
        let size = self.size.map(|NamedSize(size)| size);
        let payload = self.payload_size.map(PaceSize::Payload);
        let mut named = [size, payload, self.frame_size.map(PaceSize::Frame)].into_iter().flatten();
        named.next().filter(|_| named.next().is_none())
    }

    /// The size at every layer, if one valid size is given.
    pub fn packet_size(&self) -> Option<PacketSize> {
        size::packet_size(self.named_size()?, self.ipv6, size::UNKNOWN_MTU).ok()
    }

    /// Send schedule of the job; `None` for a train without a rate.
    pub fn job_pattern(&self) -> Option<PacePattern> {
        let (count, repeat) = (self.count, self.repeat);
        Some(match self.pattern {
            PaceKind::Pair => PacePattern::Pair { pairs: self.pairs, gap: self.gap },
            PaceKind::Train => PacePattern::Train { rate: self.rate?, count, repeat },
            PaceKind::Poisson => {
                PacePattern::Poisson { rate: self.rate?, count, repeat, seed: self.seed }
            }
        })
    }

    /// Gap between packets of a train; `None` for pairs and without a size or rate.
    pub(crate) fn gap_ns(&self) -> Option<f64> {
        let trains = self.pattern != PaceKind::Pair;
        let rate = self.rate.filter(|_| trains)?;
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
        if self.rate == Some(BitRate(0)) {
            return wrong("rate", "must be above 0".into());
        }
        if self.count < 2 {
            let message = format!("a train of {} has no gap; use 2 or more packets", self.count);
            return wrong("count", message);
        }
        for (field, number) in [("repeat", self.repeat), ("pairs", self.pairs)] {
            if number == 0 {
                return wrong(field, "must be 1 or more".into());
            }
        }
        let times = [("gap", Some(self.gap)), ("pause", self.pause), ("late", self.late)];
        for (field, time) in times {
            if time.is_some_and(|time| time < Nanos::ZERO) {
                return wrong(field, "must be 0 or more".into());
            }
        }
        if self.port == 0 {
            return wrong("port", "must be 1 to 65535".into());
        }
        let given = [
            ("size", self.size.map(|NamedSize(size)| size)),
            ("payload_size", self.payload_size.map(PaceSize::Payload)),
            ("frame_size", self.frame_size.map(PaceSize::Frame)),
        ];
        let mtu = if plan.topology.has_ethernet_mtu() { size::MTU } else { size::UNKNOWN_MTU };
        for (field, size) in given {
            let Some(size) = size else { continue };
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
        let sizes = [self.size.is_some(), self.payload_size.is_some(), self.frame_size.is_some()];
        match sizes.into_iter().filter(|given| *given).count() {
            1 => {}
            0 => return wrong("size", "give size, payload_size or frame_size".into()),
            _ => {
                let message = "give one of size, payload_size and frame_size, not several";
                return wrong(
                    if self.size.is_some() { "size" } else { "frame_size" },
                    message.into(),
                );
            }
        }
        if self.job_pattern().is_none() {
            let message = "a train needs a rate, like \"10Mbit/s\"; only pairs work without one";
            return wrong("rate", message.into());
        }
        if self.bypass && !self.engine.has_optional_bypass() {
            let message = format!(
                "pace.bypass needs pace.engine = \"{}\", not \"{}\"",
                PaceEngine::names_with_bypass().join("\" or \""),
                self.engine.name()
            );
            return wrong("bypass", message);
        }
        use dwell_engine::departures::{MAX_DURATION, MAX_PACKETS};
        let (packets, time) = self.extent();
        if packets > MAX_PACKETS as u64 {
            let message = format!("{packets} packets; a trial has at most {MAX_PACKETS}");
            return wrong(if self.pattern == PaceKind::Pair { "pairs" } else { "repeat" }, message);
        }
        if time > MAX_DURATION {
            return wrong("repeat", format!("a trial would take {time}; at most {MAX_DURATION}"));
        }
        Ok(())
    }

    /// Number of packets of a trial without warm-up, and their duration.
    pub(crate) fn extent(&self) -> (u64, Nanos) {
        let (trains, packets, gap) = match self.pattern {
            PaceKind::Pair => (self.pairs, 2, 0.0),
            PaceKind::Train | PaceKind::Poisson => {
                (self.repeat, self.count, self.gap_ns().unwrap_or(0.0))
            }
        };
        let train = gap * f64::from(packets.saturating_sub(1)) + self.mean_pause().0 as f64;
        let all = u64::from(trains) * u64::from(packets);
        (all, Nanos((train * f64::from(trains)) as i64))
    }

    /// Mean pause from the last packet of a train to the first of the next.
    pub(crate) fn mean_pause(&self) -> Nanos {
        match self.pattern {
            PaceKind::Pair => self.gap,
            PaceKind::Train | PaceKind::Poisson => {
                let default = || default_pause(self.gap_ns().unwrap_or(0.0));
                mean_pause(self.pause.unwrap_or_else(default))
            }
        }
    }
}

#[cfg(test)]
mod tests;
