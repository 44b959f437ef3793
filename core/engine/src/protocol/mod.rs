//! What the pinger needs of a protocol: a message for an id, and the id of a message.

mod echo;
mod roundtrip;
mod stamp;
mod text;

pub use echo::{IcmpEcho, PlainEcho};
pub use roundtrip::RoundTrip;
pub use stamp::{Session, Stamp};
pub use text::{TextStream, TextUdp};

use dwell_units::{Instant, Realtime};

use crate::stamps::{Hop, Remote};

/// A probe id as far as the wire carries it: the low `bits` of the full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireId {
    /// The bits that came.
    pub value: u64,
    /// How many they are, 1 to 64.
    pub bits: u32,
}

impl WireId {
    /// All 64 bits.
    pub const fn full(value: u64) -> Self {
        Self { value, bits: 64 }
    }

    /// The low `bits` bits.
    pub const fn low(value: u64, bits: u32) -> Self {
        Self { value, bits }
    }

    /// The bits that count.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

/// A well-formed reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The probe it answers.
    pub id: WireId,
    /// What the far end says of its own stamps.
    pub remote: Option<Remote>,
    /// The clock that the probe was written with, where the reply gives it back (STAMP's T1). A
    /// reply that gives back another one answers another probe, or none.
    pub written: Option<Instant<Realtime>>,
}

impl Reply {
    /// A reply that says nothing but whose it is.
    pub const fn plain(id: WireId) -> Self {
        Self { id, remote: None, written: None }
    }
}

/// Why a message is no reply. A plain enum: this is the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Not of the protocol's form.
    Malformed,
    /// Not of this run: another session, or an id that was never sent.
    Unknown,
    /// The HMAC does not match.
    Unauthentic,
}

/// What the replies to the warm-up showed of the far end's sequence numbers. The warm-up has a session
/// of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmUpSession {
    /// The far end numbers its replies itself.
    pub stateful: bool,
    /// The far end knows sessions, so that its numbers in the counted session do not include the
    /// warm-up.
    pub separate: bool,
}

/// Whether `id` is that of a warm-up probe: these count up to 0 from below, in the upper half of the
/// range.
pub const fn is_warm_up(id: u64) -> bool {
    id > u64::MAX / 2
}

/// A protocol that probes can be sent in. Implementations keep what a run needs (session, key,
/// padding) and allocate nothing per message.
pub trait Protocol {
    /// Bytes to reserve for a message.
    fn capacity(&self) -> usize;

    /// Writes the probe `id` into `message` (of [`Protocol::capacity`] bytes) and returns its
    /// length. `now` is the clock as close before sending as the protocol allows: the T1 of those
    /// that carry one.
    fn write(&mut self, id: u64, now: Instant<Realtime>, message: &mut [u8]) -> usize;

    /// The last probe written, `id`, did not leave. Only a protocol that counts needs to know.
    fn unsent(&mut self, _id: u64) {}

    /// Reads a message. `channel` tells on which of several sockets it came, where that is what
    /// identifies it.
    fn read(&mut self, message: &[u8], channel: u64) -> Result<Reply, Reject>;

    /// The reply with these timestamps answers the warm-up probe `id`. Only a protocol whose far end
    /// numbers its replies needs to know.
    fn warm_up_answered(&mut self, _id: u64, _remote: &Remote) {}

    /// What the warm-up showed of the far end's sequence numbers.
    fn warm_up_session(&self) -> WarmUpSession {
        WarmUpSession::default()
    }

    /// What relays on the way wrote into the message that was read last, and into the probe that it
    /// answers, in the order of the way.
    fn hops(&self) -> &[Hop] {
        &[]
    }

    /// The kernel's drop counter of the reflector's socket in the message that was read last, if
    /// it has one. It wraps.
    fn socket_drops(&self) -> Option<u32> {
        None
    }
}
