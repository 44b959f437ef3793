//! Jobs that send packets on schedule and record their departures (Mok 2015, S2.3 to S2.6).

use dwell_sample::PaceEngine;
use dwell_units::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::{Stamps, ThreadPlacement};

/// Pairs or trains to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceJob {
    /// Target: `udp://HOST:PORT`. No receiver is needed.
    pub target: String,
    /// Send schedule.
    pub pattern: PacePattern,
    /// Packet size; `None`: the path MTU, at most 1500 B.
    #[serde(default)]
    pub size: Option<PaceSize>,
    /// Send engine.
    #[serde(default, with = "super::engine_name")]
    pub engine: PaceEngine,
    /// Bypass the queueing discipline, including any rate limit there, if the engine can.
    #[serde(default)]
    pub bypass: bool,
    /// While sending, disable offloads of the outgoing interface that would give several packets
    /// one timestamp.
    #[serde(default)]
    pub switch_offloads: bool,
    /// Pause from the last packet of a train to the first of the next; `None`: long enough for
    /// queues to drain.
    #[serde(default)]
    pub pause: Option<Nanos>,
    /// Maximum lateness before a packet has missed its deadline; `None`: until the next packet is
    /// due.
    #[serde(default)]
    pub late: Option<Nanos>,
    /// Warm-up trains, not counted.
    #[serde(default = "one")]
    pub warm_up: u32,
    /// Whether `dwell pace sink` listens at the target; its timestamps are used as departures if
    /// the sender has none.
    #[serde(default)]
    pub sink: SinkTimestamps,
    /// Timestamps to use.
    #[serde(default)]
    pub stamps: Stamps,
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

/// Send schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum PacePattern {
    /// Two packets back to back, repeated (Mok 2015, S2.4).
    Pair {
        /// Number of pairs.
        pairs: u32,
        /// Time from one pair to the next.
        gap: Nanos,
    },
    /// Packets at a constant rate (Mok 2015, S2.5).
    Train {
        /// Bits per second, counted over the size as given.
        rate: BitRate,
        /// Packets per train.
        count: u32,
        /// Number of trains.
        repeat: u32,
    },
    /// Packets of a Poisson process with this mean rate.
    Poisson {
        /// Bits per second, counted over the size as given.
        rate: BitRate,
        /// Packets per train.
        count: u32,
        /// Number of trains.
        repeat: u32,
        /// Seed of the gaps.
        seed: u64,
    },
    /// Recorded gaps.
    Replay {
        /// Gaps between packets.
        gaps: Vec<Nanos>,
        /// Number of repetitions.
        repeat: u32,
    },
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

/// Packet size, and the layer it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaceSize {
    /// IP packet, as in Mok 2015.
    Ip(Bytes),
    /// The UDP payload.
    Payload(Bytes),
    /// Ethernet frame without frame check sequence.
    Frame(Bytes),
}

const fn one() -> u32 {
    1
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
