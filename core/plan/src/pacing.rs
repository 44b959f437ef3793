//! What a plan says of packets that leave on time: `[pace]`, the traffic beside them, `[cross]`, and
//! when a sender is accurate, `[accurate]` (S2).

mod accurate;
mod cross;
mod size;

use dwell_engine::departures::{default_pause, mean_pause};
use dwell_units::{BitRate, Bytes, Nanos, Rate};
use dwell_wire::size::PacketSize;
use serde::{Deserialize, Deserializer, de};

use crate::error::PlanError;
use crate::job::{PaceEngine, PacePattern, PaceSize, Scheduling, Stamps};
use crate::plan::Plan;
use crate::source::Source;

pub use accurate::{Accurate, AccurateError};
pub use cross::CrossPlan;
pub use size::{NamedSize, NamedSizeError};

/// Where the far end listens if the plan does not say.
const PORT: u16 = 7_102;

/// What every trial measures: departures of packets, as near to their schedule as can be.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacePlan {
    /// The node that sends, and is judged.
    pub from: String,
    /// The node that they are sent to.
    pub to: String,
    /// What sends them.
    #[serde(default)]
    pub engine: PaceEngine,
    /// When they leave.
    #[serde(default)]
    pub pattern: PaceKind,
    /// How large they are: the IP packet, or what its text names, like `frame:1514B`.
    #[serde(default)]
    pub size: Option<NamedSize>,
    /// The UDP payload instead.
    #[serde(default)]
    pub payload_size: Option<Bytes>,
    /// The Ethernet frame without its check sequence instead.
    #[serde(default)]
    pub frame_size: Option<Bytes>,
    /// Bits per second over the size as named; pairs have none.
    #[serde(default, deserialize_with = "rate_or_none")]
    pub rate: Option<BitRate>,
    /// Packets of a train.
    #[serde(default = "fifty")]
    pub count: u32,
    /// Trains of a trial.
    #[serde(default = "twenty")]
    pub repeat: u32,
    /// Pairs of a trial.
    #[serde(default = "twenty_five")]
    pub pairs: u32,
    /// From one pair to the next.
    #[serde(default = "millisecond")]
    pub gap: Nanos,
    /// From the last packet of a train to the first of the next.
    #[serde(default)]
    pub pause: Option<Nanos>,
    /// What Poisson gaps are drawn by.
    #[serde(default = "first")]
    pub seed: u64,
    /// The engine, which must be the packet ring, goes past the queueing discipline.
    #[serde(default)]
    pub bypass: bool,
    /// The far end stamps the packets, and tells what was lost; `None`: where the sender has no stamps.
    #[serde(default)]
    pub sink: Option<bool>,
    /// Port of the far end.
    #[serde(default = "port")]
    pub port: u16,
    /// A packet that leaves later than this after it was due has missed its deadline.
    #[serde(default)]
    pub late: Option<Nanos>,
    /// Trains to send first, not counted.
    #[serde(default = "one")]
    pub warm_up: u32,
    /// Which stamps to use.
    #[serde(default)]
    pub stamps: Stamps,
    /// Scheduling class of the timing thread.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Use IPv6.
    #[serde(default)]
    pub ipv6: bool,
}

/// When packets leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaceKind {
    /// Two back to back, and again (S2.4).
    Pair,
    /// At a constant rate (S2.5).
    #[default]
    Train,
    /// As by a Poisson process.
    Poisson,
}

/// Bits per second; `"none"`, as a value of an axis, is what pairs have.
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

const fn fifty() -> u32 {
    50
}

const fn twenty() -> u32 {
    20
}

const fn twenty_five() -> u32 {
    25
}

const fn millisecond() -> Nanos {
    Nanos::from_millis(1)
}

const fn port() -> u16 {
    PORT
}

impl PaceKind {
    /// The name, as a plan writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Train => "train",
            Self::Poisson => "poisson",
        }
    }
}

impl PacePlan {
    /// The size, where exactly one is named.
    pub fn named_size(&self) -> Option<PaceSize> {
        let size = self.size.map(|NamedSize(size)| size);
        let payload = self.payload_size.map(PaceSize::Payload);
        let mut named = [size, payload, self.frame_size.map(PaceSize::Frame)].into_iter().flatten();
        named.next().filter(|_| named.next().is_none())
    }

    /// The size under all its names, where one is named that packets can have.
    pub fn packet_size(&self) -> Option<PacketSize> {
        size::packet_size(self.named_size()?, self.ipv6, size::MOST).ok()
    }

    /// When packets leave, as a node is told; `None` for a train without a rate.
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

    /// The time between packets of a train; `None` of pairs, and where size or rate is not given.
    pub(crate) fn gap_ns(&self) -> Option<f64> {
        let trains = self.pattern != PaceKind::Pair;
        let rate = self.rate.filter(|_| trains)?;
        self.packet_size()?.gap_ns(Rate::Bits(rate))
    }

    fn check(&self, plan: &Plan, source: &Source) -> Result<(), PlanError> {
        let wrong =
            |field: &str, message: String| Err(source.error(&format!("pace.{field}"), message));
        plan.check_node(source, "pace.from", &self.from)?;
        plan.check_node(source, "pace.to", &self.to)?;
        if self.from == self.to {
            return wrong("to", format!("'{}' would send to itself", self.to));
        }
        if self.rate == Some(BitRate(0)) {
            return wrong("rate", "a rate is above 0".into());
        }
        if self.count < 2 {
            let what = format!("a train of {} packet has no gap; 2 or more", self.count);
            return wrong("count", what);
        }
        for (field, number) in [("repeat", self.repeat), ("pairs", self.pairs)] {
            if number == 0 {
                return wrong(field, "0 measure nothing; 1 or more".into());
            }
        }
        let times = [("gap", Some(self.gap)), ("pause", self.pause), ("late", self.late)];
        for (field, time) in times {
            if time.is_some_and(|time| time < Nanos::ZERO) {
                return wrong(field, "a time is 0 or more".into());
            }
        }
        if self.port == 0 {
            return wrong("port", "a port is a number from 1 to 65535".into());
        }
        let given = [
            ("size", self.size.map(|NamedSize(size)| size)),
            ("payload_size", self.payload_size.map(PaceSize::Payload)),
            ("frame_size", self.frame_size.map(PaceSize::Frame)),
        ];
        // The links of a lab of a file may be wider than Ethernet's.
        let mtu = if plan.node_names().is_some() { size::MTU } else { size::MOST };
        for (field, size) in given {
            let Some(size) = size else { continue };
            if let Err(error) = size::packet_size(size, self.ipv6, mtu) {
                return wrong(field, size::in_a_plan(error));
            }
        }
        Ok(())
    }

    /// What only shows when all values of a cell are put in.
    fn check_together(&self, source: &Source) -> Result<(), PlanError> {
        let wrong =
            |field: &str, message: String| Err(source.error(&format!("pace.{field}"), message));
        let sizes = [self.size.is_some(), self.payload_size.is_some(), self.frame_size.is_some()];
        match sizes.into_iter().filter(|given| *given).count() {
            1 => {}
            0 => return wrong("size", "give size, payload_size or frame_size".into()),
            _ => {
                let what = "give one of size, payload_size and frame_size";
                return wrong(if self.size.is_some() { "size" } else { "frame_size" }, what.into());
            }
        }
        if self.job_pattern().is_none() {
            let what = "a train needs a rate, like \"10Mbit/s\"; only pairs have none";
            return wrong("rate", what.into());
        }
        if self.bypass && self.engine != PaceEngine::PacketRing {
            let what = format!(
                "pace.bypass needs pace.engine = \"packet-ring\", not \"{}\"",
                self.engine.name()
            );
            return wrong("bypass", what);
        }
        use dwell_engine::departures::{LONGEST, MOST_PACKETS};
        let (packets, time) = self.extent();
        if packets > MOST_PACKETS as u64 {
            let what = format!("{packets} packets; a trial has at most {MOST_PACKETS}");
            return wrong(if self.pattern == PaceKind::Pair { "pairs" } else { "repeat" }, what);
        }
        if time > LONGEST {
            return wrong("repeat", format!("a trial would take {time}; at most {LONGEST}"));
        }
        Ok(())
    }

    /// Packets of a trial without its warm-up, and how long they take.
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

    /// From the last packet of a train to the first of the next, on average.
    pub(crate) fn mean_pause(&self) -> Nanos {
        match self.pattern {
            PaceKind::Pair => self.gap,
            PaceKind::Train | PaceKind::Poisson => {
                let usual = || default_pause(self.gap_ns().unwrap_or(0.0));
                mean_pause(self.pause.unwrap_or_else(usual))
            }
        }
    }
}

impl Plan {
    pub(crate) fn check_pace(&self, source: &Source) -> Result<(), PlanError> {
        if let Some(accurate) = &self.accurate {
            accurate.check().map_err(|error| {
                source.error(&format!("accurate.{}", error.field()), error.to_string())
            })?;
        }
        let Some(pace) = &self.pace else {
            for (field, there) in
                [("cross", self.cross.is_some()), ("accurate", self.accurate.is_some())]
            {
                if there {
                    return Err(source.error(field, format!("[{field}] needs a [pace]")));
                }
            }
            return Ok(());
        };
        pace.check(self, source)?;
        self.cross.iter().try_for_each(|cross| cross.check(pace, self, source))
    }

    pub(crate) fn check_pace_together(&self, source: &Source) -> Result<(), PlanError> {
        self.pace.iter().try_for_each(|pace| pace.check_together(source))
    }
}

#[cfg(test)]
mod tests;
