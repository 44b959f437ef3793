//! Outcome of one probe, with all its timestamps.

use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use crate::stamps::{RxStamps, TxStamps};

/// Properties of the reflector's sequence numbers, determined from the replies to the warm-up. The
/// warm-up has its own session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmUpSession {
    /// The reflector numbers its replies itself.
    pub stateful: bool,
    /// The reflector supports sessions, so its numbers in the counted session do not include the
    /// warm-up.
    pub separate: bool,
}

/// Data that the reflector wrote into its reply (STAMP only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// T2: when the reflector received the probe, on *its* clock.
    pub rx: Instant<Realtime>,
    /// T3: when the reflector sent the reply, on *its* clock.
    pub tx: Instant<Realtime>,
    /// Sequence number of the reply. A stateful reflector counts its replies, a stateless one
    /// copies the probe's number.
    pub seq: u32,
    /// TTL or hop limit of the probe on arrival; `None` if unknown (0).
    pub ttl: Option<u8>,
    /// Whether the reflector showed (by its clock TLV) that it reads the local clock. Only then is
    /// T2 - T1 a one-way delay.
    pub same_clock: bool,
}

/// Telemetry of one relay, from a slot in the packet. Times are on the relay's own clock; only
/// differences are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Number of the relay, as configured at its start.
    pub node: u32,
    /// Whether the packet was the reply, on its way back.
    pub back: bool,
    /// `rx_kernel` to `rx_app`, if the relay has kernel timestamps.
    pub queueing_in: Option<Nanos>,
    /// `rx_app` to `tx_app`.
    pub processing: Nanos,
}

impl Hop {
    /// `rx_kernel` to `tx_app`, the last timestamp that the packet itself can carry. `None` without
    /// `rx_kernel`, because a delay from another point is not comparable.
    pub fn node_delay(&self) -> Option<Nanos> {
        self.queueing_in.map(|queueing_in| queueing_in.saturating_add(self.processing))
    }
}

dwell_units::named! {
    /// Outcome of a probe. Lost, late and send-failed are states, never missing rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum State {
        /// A reply arrived within the time-out.
        Received = "received",
        /// A reply arrived after the time-out. Supersedes the `Lost` of the same id.
        Late = "late",
        /// No reply within the time-out.
        Lost = "lost",
        /// An extra reply to a probe that already had one. Not a probe of its own.
        Duplicate = "duplicate",
        /// The send call failed permanently. Not counted as sent.
        SendFailed = "send-failed",
        /// Sent; neither a reply nor a kernel timestamp was expected.
        Sent = "sent",
    }
}

impl State {
    /// Number in binary formats: the position in [`Self::ALL`].
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// One row of a pinger's output: the outcome of a probe with all its timestamps. Small and `Copy`,
/// because a timing thread passes it through a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Id of the probe, counted from 0 without wrapping.
    pub id: u64,
    /// Outcome of the probe.
    pub state: State,
    /// The reply arrived after that of a later probe (RFC 4737: its id is below the highest
    /// received).
    pub reordered: bool,
    /// Scheduled send time.
    pub intended: Instant<Monotonic>,
    /// Timestamps of the probe.
    pub tx: TxStamps,
    /// Timestamps of the reply; `None` without a reply.
    pub rx: Option<RxStamps>,
    /// Data of the reflector.
    pub remote: Option<Remote>,
}
