//! Packets that leave on time, and their departures (S2.3 to S2.6).

use dwell_units::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::{Place, Stamps};

/// Pairs or trains to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceJob {
    /// Where to: `udp://HOST:PORT`. Nobody has to listen there.
    pub target: String,
    /// When packets leave.
    pub pattern: PacePattern,
    /// How large they are; `None`: IP packets as large as the way takes in one piece, 1500 B at most.
    #[serde(default)]
    pub size: Option<PaceSize>,
    /// What sends them.
    #[serde(default)]
    pub engine: PaceEngine,
    /// The engine, which must be the packet ring, goes past the queueing discipline, and so past a rate
    /// limit there.
    #[serde(default)]
    pub bypass: bool,
    /// Switch off on the outgoing interface, while packets are sent, what would let several leave with one
    /// stamp.
    #[serde(default)]
    pub switch_offloads: bool,
    /// From the last packet of a train to the first of the next; `None`: as long as lets queues drain.
    #[serde(default)]
    pub pause: Option<Nanos>,
    /// A packet that leaves later than this after it was due has missed its deadline; `None`: after
    /// the next one was due.
    #[serde(default)]
    pub late: Option<Nanos>,
    /// Trains to send first, not counted.
    #[serde(default = "one")]
    pub warm_up: u32,
    /// Whether `dwell pace sink` listens at the target and stamps: its stamps are those of departures
    /// where the sender has none.
    #[serde(default)]
    pub sink: FarStamps,
    /// Which stamps to use.
    #[serde(default)]
    pub stamps: Stamps,
    /// Use IPv4 only.
    #[serde(default)]
    pub ipv4: bool,
    /// Use IPv6 only.
    #[serde(default)]
    pub ipv6: bool,
    /// Where and how the timing loop runs. On which CPU the others do is not said.
    #[serde(default)]
    pub place: Place,
}

/// When the far end is asked to stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FarStamps {
    /// It is not asked, and nobody has to listen there.
    #[default]
    Never,
    /// Where the sender has no stamps of departures, or may choose an engine that has none: a far end that
    /// keeps packets takes part in what they meet if it is on the same machine.
    Needed,
    /// In any case, which tells what was lost as well.
    Always,
}

/// When packets leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum PacePattern {
    /// Two packets back to back, and again after a time (S2.4).
    Pair {
        /// How many pairs.
        pairs: u32,
        /// From one pair to the next.
        gap: Nanos,
    },
    /// Packets at a constant rate (S2.5).
    Train {
        /// Bits per second of packets, as large as their size was given.
        rate: BitRate,
        /// Packets of a train.
        count: u32,
        /// Trains.
        repeat: u32,
    },
    /// Packets as by a Poisson process of this mean rate.
    Poisson {
        /// As for a train.
        rate: BitRate,
        /// Packets of a train.
        count: u32,
        /// Trains.
        repeat: u32,
        /// What gaps are drawn by.
        seed: u64,
    },
    /// Gaps that somebody else had.
    Replay {
        /// Between packets.
        gaps: Vec<Nanos>,
        /// How often.
        repeat: u32,
    },
}

/// How large packets are, and what of them was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaceSize {
    /// The IP packet, as S2's.
    Ip(Bytes),
    /// The UDP payload.
    Payload(Bytes),
    /// The Ethernet frame without its check sequence.
    Frame(Bytes),
}

/// What sends the packets of a train. What is due at the same instant is handed over together by those
/// that can.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum PaceEngine {
    /// The best of those that work here, by measuring them.
    #[default]
    Auto,
    /// Sleeps for each gap, then sends: what most programs do.
    Sleep,
    /// Looks at the clock without sleeping.
    Spin,
    /// Sleeps until shortly before a departure, then spins.
    SleepSpin,
    /// Sleeps and spins; hands over what is due together by one call of sendmmsg(2).
    Sendmmsg,
    /// The same as one message that the kernel cuts (UDP_SEGMENT), segmentation offload being off.
    Gso,
    /// A ring of frames shared with the kernel (AF_PACKET).
    PacketRing,
    /// The same in front of the driver (AF_XDP).
    Xsk,
    /// The kernel holds each packet until its time (SO_TXTIME).
    Txtime,
    /// io_uring(7).
    Uring,
}

impl PaceEngine {
    /// Every engine that can be asked for, the simplest first.
    pub const ALL: [Self; 9] = [
        Self::Sleep,
        Self::Spin,
        Self::SleepSpin,
        Self::Sendmmsg,
        Self::Gso,
        Self::PacketRing,
        Self::Xsk,
        Self::Txtime,
        Self::Uring,
    ];

    /// The name, as flags, plans and results have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sleep => "sleep",
            Self::Spin => "spin",
            Self::SleepSpin => "sleep-spin",
            Self::Sendmmsg => "sendmmsg",
            Self::Gso => "gso",
            Self::PacketRing => "packet-ring",
            Self::Xsk => "xsk",
            Self::Txtime => "txtime",
            Self::Uring => "uring",
        }
    }
}

const fn one() -> u32 {
    1
}

/// The far end of packets that are paced: stamps them, and tells whoever sent them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceSinkJob {
    /// Where to listen: `udp://ADDRESS:PORT`.
    pub url: String,
    /// Where and how the thread runs.
    #[serde(default)]
    pub place: Place,
}
