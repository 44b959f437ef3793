//! Jobs that send packets on schedule and record their departures (Mok 2015, S2.3 to S2.6).

use dwell_sample::PaceEngine;
use dwell_units::{BitRate, Bytes, Nanos};
use dwell_wire::size::SizeMeasure;
use serde::{Deserialize, Serialize};

use super::{NamedSize, ParameterError, Stamps, ThreadPlacement, named_size};

/// Default number of pairs.
const DEFAULT_PAIRS: u32 = 25;
/// Default time from one pair to the next.
const DEFAULT_GAP: Nanos = Nanos::from_millis(1);
/// Default packets per train.
const DEFAULT_COUNT: u32 = 50;
/// Default number of trains.
const DEFAULT_REPEAT: u32 = 20;

/// Options of paced packets that plans, jobs and the command line share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct PaceParameters {
    /// Pattern of departures.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = PaceKind::Train))]
    pub pattern: PaceKind,
    /// Size of the IP packet, or of the part named before it, like frame:1514B [default: 1500B, or
    /// the path MTU if that is less].
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub size: Option<NamedSize>,
    /// Size of the UDP payload, instead of --size.
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", conflicts_with = "size"))]
    pub payload_size: Option<Bytes>,
    /// Size of the Ethernet frame without its check sequence, instead of --size.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "BYTES", conflicts_with_all = ["size", "payload_size"])
    )]
    pub frame_size: Option<Bytes>,
    /// Number of pairs.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT_PAIRS))]
    pub pairs: u32,
    /// Interval between pairs.
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", default_value_t = DEFAULT_GAP))]
    pub gap: Nanos,
    /// Rate within a train, like 10Mbit/s.
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATE"))]
    #[serde(deserialize_with = "named_size::rate_or_none")]
    pub rate: Option<BitRate>,
    /// Packets per train.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT_COUNT))]
    pub count: u32,
    /// Number of trains.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT_REPEAT))]
    pub repeat: u32,
    /// Minimum pause between trains; a random part of up to the same length is added [default:
    /// 10ms, or a gap if that is longer].
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub pause: Option<Nanos>,
    /// Seed of Poisson gaps.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 1))]
    pub seed: u64,
    /// Sending engine, such as spin or gso (docs/pace.md has the list). auto measures all that work
    /// here and takes the most accurate.
    #[cfg_attr(feature = "clap", arg(long, value_name = "ENGINE", default_value = "auto"))]
    #[serde(with = "super::engine_name")]
    pub engine: PaceEngine,
    /// Bypass the queueing discipline and its rate limit, with an engine that can.
    #[cfg_attr(feature = "clap", arg(long))]
    pub bypass: bool,
    /// Deadline: a packet that leaves later than this after its due time misses it [default: a
    /// gap].
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub late: Option<Nanos>,
    /// Trains to send before measuring.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "N",
            default_value_t = 1,
            value_parser = clap::value_parser!(u32).range(0..=1_000)
        )
    )]
    pub warm_up: u32,
    /// Timestamps to use.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Stamps::Auto))]
    pub stamps: Stamps,
}

impl Default for PaceParameters {
    fn default() -> Self {
        Self {
            pattern: PaceKind::default(),
            size: None,
            payload_size: None,
            frame_size: None,
            pairs: DEFAULT_PAIRS,
            gap: DEFAULT_GAP,
            rate: None,
            count: DEFAULT_COUNT,
            repeat: DEFAULT_REPEAT,
            pause: None,
            seed: 1,
            engine: PaceEngine::default(),
            bypass: false,
            late: None,
            warm_up: 1,
            stamps: Stamps::default(),
        }
    }
}

impl PaceParameters {
    /// The sizes given, with the names of their fields.
    pub fn sizes(&self) -> impl Iterator<Item = (&'static str, NamedSize)> {
        let of = |measure| move |bytes| NamedSize { measure, bytes };
        let sizes = [
            ("size", self.size),
            ("payload_size", self.payload_size.map(of(SizeMeasure::Payload))),
            ("frame_size", self.frame_size.map(of(SizeMeasure::Frame))),
        ];
        sizes.into_iter().filter_map(|(field, size)| Some((field, size?)))
    }

    /// The size, if exactly one is given.
    pub fn named_size(&self) -> Option<NamedSize> {
        let mut sizes = self.sizes();
        let (_, size) = sizes.next()?;
        sizes.next().is_none().then_some(size)
    }

    /// Checks every range that depends on no other option.
    ///
    /// # Errors
    /// The first value outside its range.
    pub fn check(&self) -> Result<(), ParameterError> {
        let Self { rate, count, repeat, pairs, gap, pause, late, .. } = *self;
        ParameterError::unless("rate", rate, |rate| rate.0 > 0, "above 0, like 10Mbit/s")?;
        ParameterError::unless("count", Some(count), |count| count > 1, "2 or more")?;
        for (field, number) in [("repeat", repeat), ("pairs", pairs)] {
            ParameterError::unless(field, Some(number), |number| number > 0, "1 or more")?;
        }
        for (field, time) in [("gap", Some(gap)), ("pause", pause), ("late", late)] {
            ParameterError::unless(field, time, |time| time >= Nanos::ZERO, "0s or more")?;
        }
        Ok(())
    }
}

/// Pairs or trains to send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceJob {
    /// Target: `udp://HOST:PORT`. No receiver is needed.
    pub target: String,
    /// Options of the packets. Without a size, that of the path MTU, at most 1500 B.
    #[serde(default)]
    pub parameters: PaceParameters,
    /// Recorded gaps between packets, to be repeated instead of a pattern.
    pub gaps: Option<Vec<Nanos>>,
    /// While sending, disable offloads of the outgoing interface that would give several packets
    /// one timestamp.
    #[serde(default)]
    pub switch_offloads: bool,
    /// Whether `dwell pace sink` listens at the target; its timestamps are used as departures if
    /// the sender has none.
    #[serde(default)]
    pub sink: SinkTimestamps,
    /// Use IPv4 only.
    #[serde(default)]
    pub ipv4: bool,
    /// Use IPv6 only.
    #[serde(default)]
    pub ipv6: bool,
    /// CPU and scheduling of the timing loop. Other threads are not pinned.
    #[serde(default)]
    pub place: ThreadPlacement,
}

/// When to request timestamps from the far end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SinkTimestamps {
    /// Never; no receiver is needed.
    #[default]
    Never,
    /// If the sender has no departure timestamps, or may choose an engine without them. A receiver
    /// on the same machine influences the measurement.
    Needed,
    /// Always, which also counts losses.
    Always,
}

/// Pattern of departures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum PaceKind {
    /// Two packets back to back, repeatedly (Mok 2015).
    Pair,
    /// Packets at a constant rate (Mok 2015).
    #[default]
    Train,
    /// Packets of a Poisson process.
    Poisson,
}

impl PaceKind {
    /// Name in flags, plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Train => "train",
            Self::Poisson => "poisson",
        }
    }
}

/// Receiver of paced packets: timestamps them and reports to the sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct PaceSinkJob {
    /// Address to listen on, over UDP and TCP: udp://ADDRESS:PORT.
    pub url: String,
    /// CPU and scheduling of the thread.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(default)]
    pub place: ThreadPlacement,
}
