//! Stamps of a packet's way through a node, on the clock that all packet stamps share, and the
//! record of what became of one probe.

use dwell_units::{Card, Instant, Monotonic, Nanos, Realtime};

/// How deep in the machine a stamp was taken, from the shallowest to the deepest. A result always
/// names its rung; nothing claims a rung that no stamp came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// The program read the clock.
    User,
    /// The kernel's software stamp: at the driver when sending, on entry to the stack when
    /// receiving.
    KernelSw,
    /// An eBPF program in the driver (XDP); receiving only.
    Driver,
    /// The network card.
    Hw,
}

impl Rung {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::KernelSw => "kernel-sw",
            Self::Driver => "driver",
            Self::Hw => "hw",
        }
    }

    /// The rung of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::User, Self::KernelSw, Self::Driver, Self::Hw];
        all.into_iter().find(|rung| rung.name() == name)
    }
}

/// Where a kernel's TX stamp was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxPoint {
    /// Before the qdisc (`tx_sched`).
    Sched,
    /// After it, at the driver (`tx_kernel`).
    Kernel,
    /// In the card (`tx_hw`).
    Hw,
}

/// A kernel's TX stamp of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxStamp {
    /// `tx_sched`
    Sched(Instant<Realtime>),
    /// `tx_kernel`
    Kernel(Instant<Realtime>),
    /// `tx_hw`
    Hw(Instant<Card>),
}

impl TxStamp {
    /// Where it was taken.
    pub const fn point(self) -> TxPoint {
        match self {
            Self::Sched(_) => TxPoint::Sched,
            Self::Kernel(_) => TxPoint::Kernel,
            Self::Hw(_) => TxPoint::Hw,
        }
    }
}

/// Stamps of a packet on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxStamps {
    /// `tx_app`: read by the program just before the send call.
    pub app: Instant<Realtime>,
    /// `tx_sched`, if asked for and delivered.
    pub sched: Option<Instant<Realtime>>,
    /// `tx_kernel`, if delivered.
    pub kernel: Option<Instant<Realtime>>,
    /// `tx_hw`, if the card delivered one.
    pub hw: Option<Instant<Card>>,
}

/// Stamps of a packet on its way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxStamps {
    /// `rx_hw`, if the card delivered one.
    pub hw: Option<Instant<Card>>,
    /// `rx_kernel`, if delivered.
    pub kernel: Option<Instant<Realtime>>,
    /// `rx_app`: read by the program right after the receive call.
    pub app: Instant<Realtime>,
}

/// What the far end wrote into its reply (STAMP only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// T2: when the far end received the probe, on *its* clock.
    pub rx: Instant<Realtime>,
    /// T3: when it sent the reply, on *its* clock.
    pub tx: Instant<Realtime>,
    /// The reply's own sequence number. A stateful reflector counts, a stateless one copies ours.
    pub seq: u32,
    /// TTL or hop limit with which the probe arrived there; `None` if it cannot tell (0).
    pub ttl: Option<u8>,
    /// Whether the far end proved (by its clock TLV) that it reads the very clock we read, which
    /// alone makes T2 - T1 a one-way delay.
    pub same_clock: bool,
}

/// What one relay said of a probe or of its reply, in a slot that the probe carried. All on the
/// relay's own clock, of which only differences matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// The relay, by the number that it was started with.
    pub node: u32,
    /// It was the reply, on its way back.
    pub back: bool,
    /// `rx_kernel` to `rx_app`, if the relay has kernel stamps.
    pub queueing_in: Option<Nanos>,
    /// `rx_app` to `tx_app`.
    pub processing: Nanos,
}

impl Hop {
    /// `rx_kernel` to `tx_app`, the last stamp that can be in the packet itself. `None` without
    /// `rx_kernel`: what begins at another point is another delay.
    pub fn node_delay(&self) -> Option<Nanos> {
        self.queueing_in.map(|queueing_in| queueing_in.saturating_add(self.processing))
    }
}

/// What became of a probe. Lost, late and send-failed are states, never missing rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A reply came within the time-out.
    Received,
    /// A reply came after the time-out. Supersedes the `Lost` of the same id.
    Late,
    /// No reply within the time-out.
    Lost,
    /// An extra reply to a probe that already had one. Not a probe of its own.
    Duplicate,
    /// The send call failed for good; not among the sent.
    SendFailed,
    /// It left, and nobody was to answer or to stamp it.
    Sent,
}

impl State {
    /// Every state, in the order of [`Self::code`].
    pub const ALL: [Self; 6] =
        [Self::Received, Self::Late, Self::Lost, Self::Duplicate, Self::SendFailed, Self::Sent];

    /// Its number in binary formats.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in rows and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Late => "late",
            Self::Lost => "lost",
            Self::Duplicate => "duplicate",
            Self::SendFailed => "send-failed",
            Self::Sent => "sent",
        }
    }
}

/// One row of what a pinger saw: the fate of a probe, with every stamp that came. Small and `Copy`,
/// because a timing thread hands it over through a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The probe's id, counted from 0 without wrapping.
    pub id: u64,
    /// What became of it.
    pub state: State,
    /// The reply overtook that of an earlier probe (RFC 4737: its id is below the highest seen).
    pub reordered: bool,
    /// When the schedule wanted it sent.
    pub intended: Instant<Monotonic>,
    /// Stamps of the probe.
    pub tx: TxStamps,
    /// Stamps of the reply; `None` when there was none.
    pub rx: Option<RxStamps>,
    /// What the far end says.
    pub remote: Option<Remote>,
}
