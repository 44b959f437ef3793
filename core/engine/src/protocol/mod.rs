//! Protocols of probes: they write the message for an id and read the id of a message. `spec` lists
//! them with their static properties.

mod echo;
mod roundtrip;
mod spec;
mod stamp;
mod text;

pub use echo::{IcmpEcho, PlainEcho};
pub use roundtrip::RoundTrip;
pub use spec::{
    Authentication, CsvLayout, Handshake, MAX_PAYLOAD_LEN, PayloadError, PayloadLimits,
    ProbeDefaults, ProbeTransport, ProtocolSpec, Reflection, Scheme, StreamReply, UnknownScheme,
};
pub use stamp::{Session, Stamp};
pub use text::{TextStream, TextUdp};

use dwell_sample::{Hop, Remote, WarmUpSession};
use dwell_units::{Instant, Realtime};

/// The part of a probe id that a message carries: its low `bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireId {
    /// Value of these bits.
    pub value: u64,
    /// Number of bits, 1 to 64.
    pub bits: u32,
}

impl WireId {
    /// An id of all 64 bits.
    pub const fn full(value: u64) -> Self {
        Self { value, bits: 64 }
    }

    /// An id of the low `bits` bits.
    pub const fn low(value: u64, bits: u32) -> Self {
        Self { value, bits }
    }

    /// Mask of the significant bits.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

/// A well-formed reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Id of the probe that it answers.
    pub id: WireId,
    /// Timestamps of the reflector, if the protocol carries them.
    pub remote: Option<Remote>,
    /// Timestamp of the probe as returned by the reply (STAMP's T1), if any. A reply that returns
    /// another one does not answer this probe.
    pub written: Option<Instant<Realtime>>,
}

impl Reply {
    /// A reply that carries only an id.
    pub const fn plain(id: WireId) -> Self {
        Self { id, remote: None, written: None }
    }
}

/// Reason why a message is no reply. Without strings, for the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Not a message of this protocol.
    Malformed,
    /// Of another session, or with an id that was never sent.
    Unknown,
    /// The HMAC does not match.
    Unauthentic,
}

/// Whether `id` belongs to a warm-up probe. Warm-up ids are in the upper half of the range and
/// count up to 0.
pub const fn is_warm_up(id: u64) -> bool {
    id > u64::MAX / 2
}

/// A protocol for probes. Implementations hold the state of a run (session, key, padding) and do
/// not allocate per message.
pub trait Protocol {
    /// Maximum message length in bytes.
    fn capacity(&self) -> usize;

    /// Writes the probe `id` to `message` (of [`Protocol::capacity`] bytes) and returns its length.
    /// `now` is read as late as possible before sending and is used as T1.
    fn write(&mut self, id: u64, now: Instant<Realtime>, message: &mut [u8]) -> usize;

    /// Reports that the last probe written, `id`, was not sent.
    fn unsent(&mut self, _id: u64) {}

    /// Reads a message. `channel` identifies the socket it arrived on, for protocols that match
    /// replies by socket.
    fn read(&mut self, message: &[u8], channel: u64) -> Result<Reply, Reject>;

    /// Reports a reply to the warm-up probe `id`. Used by protocols whose reflector numbers its
    /// replies.
    fn warm_up_answered(&mut self, _id: u64, _remote: &Remote) {}

    /// Properties of the reflector's sequence numbers, determined from the warm-up.
    fn warm_up_session(&self) -> WarmUpSession {
        WarmUpSession::default()
    }

    /// Telemetry that relays wrote into the probe and into its reply, the last message read, in
    /// path order.
    fn hops(&self) -> &[Hop] {
        &[]
    }

    /// Drop counter of the reflector's socket in the last message read, if present. It wraps.
    fn socket_drops(&self) -> Option<u32> {
        None
    }
}
