//! Protocols of probes: they write the message for an id and read the id of a message. `spec` lists
//! them with their static properties.

mod echo;
mod frame_id;
mod opening;
mod roundtrip;
mod spec;
mod stamp;
mod text;

pub use echo::{IcmpEcho, PlainEcho};
pub use frame_id::{FrameId, IdField};
pub use opening::{OpenStep, Opening};
pub use roundtrip::RoundTrip;
pub use spec::{
    Authentication, CsvLayout, DriverReply, Handshake, MAX_PAYLOAD_LEN, PayloadError,
    PayloadLimits, ProbeDefaults, ProbeTransport, ProtocolSpec, Reflection, RelayTransport, Scheme,
    StreamReply, UnknownScheme,
};
pub use stamp::{Session, Stamp};
pub use text::{TextStream, TextUdp};

use dwell_sample::{Hop, Remote, WarmUpSession};
use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::hmac::{Key, SecretKey};
use dwell_wire::icmp::Family;

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

    /// Writes an open request to `message` (of [`MAX_HANDSHAKE_LEN`] bytes) and returns its length.
    /// Used by protocols with a [`Handshake`].
    fn write_open(&mut self, _message: &mut [u8]) -> usize {
        0
    }

    /// Reads the reply to an open request and keeps the token of the session.
    ///
    /// # Errors
    /// If the message is no such reply, or the reflector refuses the session.
    fn read_open(&mut self, _message: &[u8]) -> Result<(), OpenError> {
        Err(OpenError::Reject(Reject::Unknown))
    }

    /// Writes the close request to `message` (of [`MAX_HANDSHAKE_LEN`] bytes) and returns its
    /// length; 0 if there is nothing to close.
    fn write_close(&mut self, _message: &mut [u8]) -> usize {
        0
    }
}

impl<P: Protocol + ?Sized> Protocol for Box<P> {
    fn capacity(&self) -> usize {
        (**self).capacity()
    }

    fn write(&mut self, id: u64, now: Instant<Realtime>, message: &mut [u8]) -> usize {
        (**self).write(id, now, message)
    }

    fn unsent(&mut self, id: u64) {
        (**self).unsent(id);
    }

    fn read(&mut self, message: &[u8], channel: u64) -> Result<Reply, Reject> {
        (**self).read(message, channel)
    }

    fn warm_up_answered(&mut self, id: u64, remote: &Remote) {
        (**self).warm_up_answered(id, remote);
    }

    fn warm_up_session(&self) -> WarmUpSession {
        (**self).warm_up_session()
    }

    fn hops(&self) -> &[Hop] {
        (**self).hops()
    }

    fn socket_drops(&self) -> Option<u32> {
        (**self).socket_drops()
    }

    fn write_open(&mut self, message: &mut [u8]) -> usize {
        (**self).write_open(message)
    }

    fn read_open(&mut self, message: &[u8]) -> Result<(), OpenError> {
        (**self).read_open(message)
    }

    fn write_close(&mut self, message: &mut [u8]) -> usize {
        (**self).write_close(message)
    }
}

/// Maximum length in bytes of a request that opens or closes a session.
pub const MAX_HANDSHAKE_LEN: usize = 256;

/// Why a session is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The message is no reply to an open request.
    Reject(Reject),
    /// The reflector refuses the session.
    Closed,
    /// The reflector does not allow the requested value of this parameter.
    Restricted(&'static str),
}

/// Inputs of a sender; each protocol uses the fields it needs.
#[derive(Debug, Default)]
pub struct SenderConfig {
    /// Distinguishes the probes of this run from those of other runs.
    pub session: u64,
    /// Contents of a probe. Its length is the size of a probe.
    pub payload: Box<[u8]>,
    /// Key of the authenticated mode; `None`: unauthenticated.
    pub key: Option<SecretKey>,
    /// Identity of the local clock.
    pub clock: Option<[u8; 12]>,
    /// Maximum offset of the local clock from UTC; `None` if it is not synchronised.
    pub utc_error: Option<Nanos>,
    /// Number of empty telemetry slots for relays.
    pub path_slots: usize,
    /// Time between probes, for an open request; 0 in closed loop without spacing.
    pub interval: Nanos,
    /// Sending time, for an open request; `None`: unlimited.
    pub duration: Option<Nanos>,
    /// DSCP of probes, for an open request.
    pub dscp: u8,
}

/// Receives the sender of a protocol with its own type, so that a timing loop calls it directly.
/// There is one method for each way to carry messages.
pub trait SenderVisitor: Sized {
    /// Result of a visit.
    type Output;

    /// One ICMP socket. `sender` takes the address family of the peer and the identifier that the
    /// kernel has chosen for the socket, if any.
    fn visit_icmp<P: Protocol + Send + 'static>(
        self,
        sender: impl FnOnce(Family, Option<u16>) -> P,
    ) -> Self::Output;

    /// One UDP socket.
    fn visit_datagrams<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output;

    /// UDP ports in turn: the port of a reply identifies the probe.
    fn visit_ports<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output;

    /// One TCP connection.
    fn visit_stream<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output;
}

/// Creates the sender of a protocol and passes it to `visitor`.
pub fn visit_sender<V: SenderVisitor>(
    scheme: Scheme,
    config: SenderConfig,
    visitor: V,
) -> V::Output {
    let SenderConfig { session, payload, .. } = config;
    match scheme {
        Scheme::Stamp => {
            let session = Session {
                // 0 means no session.
                ssid: (session as u16).max(1),
                key: config.key.map(|key| Key::new(key.bytes())),
                clock: config.clock,
                utc_error: config.utc_error,
                size: payload.len(),
                path_slots: config.path_slots,
            };
            visitor.visit_datagrams(Stamp::new(session, &payload))
        }
        Scheme::Icmp => visitor.visit_icmp(|family, id| {
            IcmpEcho::new(family, session, id.unwrap_or(session as u16), payload)
        }),
        Scheme::Udp => visitor.visit_datagrams(PlainEcho::new(session, payload)),
        Scheme::Tcp => visitor.visit_stream(PlainEcho::new(session, payload)),
        Scheme::Roundtrip => visitor.visit_datagrams(RoundTrip),
        Scheme::TextUdp => visitor.visit_ports(TextUdp::new(payload.len())),
        Scheme::TextTcp => visitor.visit_stream(TextStream::new(payload.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the transport and the length of a probe.
    struct Seen;

    impl SenderVisitor for Seen {
        type Output = (ProbeTransport, usize);

        fn visit_icmp<P: Protocol + Send + 'static>(
            self,
            sender: impl FnOnce(Family, Option<u16>) -> P,
        ) -> Self::Output {
            let header = ProbeTransport::Icmp.header_len() as usize;
            (ProbeTransport::Icmp, sender(Family::V4, None).capacity() - header)
        }

        fn visit_datagrams<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
            (ProbeTransport::Udp, sender.capacity())
        }

        fn visit_ports<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
            (ProbeTransport::Udp, sender.capacity())
        }

        fn visit_stream<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
            (ProbeTransport::Tcp, sender.capacity())
        }
    }

    #[test]
    fn every_sender_agrees_with_its_row() {
        for scheme in Scheme::ALL {
            let spec = scheme.spec();
            let size = spec.payload.default as usize;
            let config = SenderConfig { payload: vec![0; size].into(), ..SenderConfig::default() };
            assert_eq!(visit_sender(*scheme, config, Seen), (spec.transport, size), "{scheme}");
        }
    }
}
