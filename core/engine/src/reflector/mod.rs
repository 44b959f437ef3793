//! The reflector turns a request into its reply, in place, so that a reply is never longer than its
//! request. The one exception is `acknowledge` of Chung 2021: 11 bytes for the 7 bytes of
//! `request`. Both fit the shortest Ethernet frame, so nothing is amplified on the wire.
//!
//! [`Responder`] answers the datagrams of one protocol. Replies in streams need no state.

mod driver;
mod limit;
mod loops;
mod plain;
mod replay;
mod stamp;
mod table;

pub use driver::{
    DriverService, MAX_DESTINATIONS, MAX_SERVICES, ModeChoice, ReplyLoss, SendCounts,
    departure_bias, preferred_mode, unanswered_ports,
};
pub use limit::{Budget, Limiter, RateLimits};
pub use loops::{LoopGuard, reply_ttl};
pub use plain::{echo, roundtrip, text};
pub use stamp::{StampConfig, StampReflector, Unfinished};

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use dwell_wire::hmac::{Key, SecretKey};

use crate::protocol::Scheme;

/// Metadata of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestMeta {
    /// Source of the request.
    pub from: SocketAddr,
    /// T2: receive timestamp, from the source closest to the wire.
    pub rx: Instant<Realtime>,
    /// TTL or hop limit of the request.
    pub ttl: Option<u8>,
    /// TOS or traffic class of the request.
    pub tos: Option<u8>,
    /// Current time, for the ageing of sessions.
    pub now: Instant<Monotonic>,
}

/// Reason why a request gets no reply. Without strings, for the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not a request of this protocol.
    Malformed,
    /// The HMAC is invalid. A packet too short for an HMAC is malformed.
    Unauthentic,
    /// Authentic, but answered before or older than the replay window.
    Replayed,
    /// The source exceeds its rate limit.
    Limited,
    /// A reply could loop endlessly or reach a group.
    Loop,
    /// The source sent more than 1,000 identical requests within a second, less than 60 s ago.
    Silenced,
}

/// Options of a responder; each protocol uses the fields it needs.
#[derive(Debug, Default)]
pub struct ResponderConfig {
    /// Key of the authenticated mode; only authenticated requests are answered.
    pub key: Option<SecretKey>,
    /// With a key: length of the replay window, as in [`StampConfig`].
    pub replay_window: Option<u32>,
    /// Copies the sender's sequence number instead of counting replies.
    pub stateless: bool,
    /// Identity of the clock that T2 and T3 are read from.
    pub clock: Option<[u8; 12]>,
    /// Replies of another engine to the sessions of this one.
    pub earlier: Option<Arc<dyn EarlierReplies>>,
}

/// Replies that another engine has sent before a session reached this one. One counter then numbers
/// all replies of a session.
pub trait EarlierReplies: Debug + Send + Sync {
    /// Number of replies to the session with this source and SSID.
    fn count(&self, from: SocketAddr, ssid: u16) -> u32;
}

/// Metadata of a request as its socket delivers it.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Length in bytes.
    pub len: usize,
    /// Source.
    pub from: SocketAddr,
    /// Receive timestamp from the source closest to the wire, if the socket delivers one.
    pub rx: Option<Instant<Realtime>>,
    /// TTL or hop limit, if the socket delivers it.
    pub ttl: Option<u8>,
    /// TOS or traffic class, if the socket delivers it.
    pub tos: Option<u8>,
}

/// A reply, in the buffer of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Length in bytes.
    pub len: usize,
    /// TTL or hop limit to send it with; `None`: the socket's.
    pub ttl: Option<u8>,
    /// TOS or traffic class to send it with; `None`: the socket's.
    pub tos: Option<u8>,
}

/// A reply that may lack its send timestamp T3; see [`Responder::prepare`].
#[derive(Clone, Copy, Debug)]
#[must_use = "pass it to Responder::finish"]
pub struct Prepared {
    /// The reply.
    pub response: Response,
    unfinished: Option<Unfinished>,
}

/// Clocks and rate limit of the machine that reflects. A responder calls only what it needs.
pub trait Host {
    /// Reads CLOCK_MONOTONIC.
    fn monotonic(&self) -> Instant<Monotonic>;

    /// Reads CLOCK_REALTIME.
    fn realtime(&self) -> Instant<Realtime>;

    /// Returns the maximum offset of CLOCK_REALTIME from UTC; `None` if it is not synchronised.
    fn utc_error(&self) -> Option<Nanos>;

    /// Refuses a well-formed request above the rate limit.
    fn admit(&mut self, from: SocketAddr) -> Result<(), Refusal>;
}

/// Interval between reads of [`Host::utc_error`], which may change while a reflector runs.
const CLOCK_CHECK_INTERVAL: Nanos = Nanos::from_secs(16);

/// Answers the datagrams of one protocol.
#[derive(Debug)]
pub struct Responder(Protocol);

#[derive(Debug)]
enum Protocol {
    Stamp {
        reflector: Box<StampReflector>,
        /// When [`Host::utc_error`] is read next.
        clock_check_due: Instant<Monotonic>,
    },
    /// Its replies could be requests of another reflector.
    Echo(Box<LoopGuard>),
    /// A reply is never a request, so no packet can loop.
    Roundtrip,
    /// The same; its requests are all identical.
    Text,
}

impl Responder {
    /// Creates the responder of a protocol; `None` if its requests are not datagrams of a
    /// reflector.
    pub fn new(scheme: Scheme, config: ResponderConfig) -> Option<Self> {
        Some(Self(match scheme {
            Scheme::Stamp => {
                let ResponderConfig { key, replay_window, stateless, clock, earlier } = config;
                let key = key.map(|key| Key::new(key.bytes()));
                let config =
                    StampConfig { key, replay_window, stateless, clock, utc_error: None, earlier };
                let reflector = Box::new(StampReflector::new(config));
                Protocol::Stamp { reflector, clock_check_due: Instant::EPOCH }
            }
            Scheme::Udp => Protocol::Echo(Box::default()),
            Scheme::Roundtrip => Protocol::Roundtrip,
            Scheme::TextUdp => Protocol::Text,
            Scheme::Icmp | Scheme::Tcp | Scheme::TextTcp => return None,
        }))
    }

    /// Reads the error of the clock. Called before the first request, which it would otherwise delay.
    pub fn check_clock(&mut self, host: &impl Host) {
        if let Protocol::Stamp { reflector, clock_check_due } = &mut self.0 {
            reflector.set_utc_error(host.utc_error());
            *clock_check_due = host.monotonic() + CLOCK_CHECK_INTERVAL;
        }
    }

    /// Whether replies carry an HMAC, which is computed after T3 is read.
    pub fn is_authenticated(&self) -> bool {
        matches!(&self.0, Protocol::Stamp { reflector, .. } if reflector.is_authenticated())
    }

    /// Sets the drop counter of the socket that later replies carry.
    pub fn set_socket_drops(&mut self, drops: Option<u32>) {
        if let Protocol::Stamp { reflector, .. } = &mut self.0 {
            reflector.set_socket_drops(drops);
        }
    }

    /// Turns the request at the start of `buffer` into its reply. The buffer has room for the
    /// longest reply.
    ///
    /// # Errors
    /// If the request gets no reply. A malformed one never reaches [`Host::admit`], so it spends no
    /// budget.
    pub fn answer(
        &mut self,
        buffer: &mut [u8],
        request: &Datagram,
        host: &mut impl Host,
    ) -> Result<Response, Refusal> {
        let prepared = self.prepare(buffer, request, host)?;
        self.finish(&prepared, buffer, || host.realtime());
        Ok(prepared.response)
    }

    /// Like [`Self::answer`], but leaves out T3 and everything that depends on it, so that several
    /// replies can be prepared before the first one is sent.
    pub fn prepare(
        &mut self,
        buffer: &mut [u8],
        request: &Datagram,
        host: &mut impl Host,
    ) -> Result<Prepared, Refusal> {
        let Datagram { len, from, rx, ttl, tos } = *request;
        let mut response = Response { len, ttl: None, tos: None };
        match &mut self.0 {
            Protocol::Stamp { reflector, clock_check_due } => {
                let packet = &mut buffer[..len];
                let rx = rx.unwrap_or_else(|| host.realtime());
                let now = host.monotonic();
                if now >= *clock_check_due {
                    reflector.set_utc_error(host.utc_error());
                    *clock_check_due = now + CLOCK_CHECK_INTERVAL;
                }
                let meta = RequestMeta { from, rx, ttl, tos, now };
                let unfinished = reflector.answer(packet, &meta, || host.admit(from))?;
                response.ttl = unfinished.ttl;
                response.tos = unfinished.tos;
                return Ok(Prepared { response, unfinished: Some(unfinished) });
            }
            Protocol::Echo(guard) => {
                let packet = &buffer[..len];
                response.len = echo(packet)?;
                response.ttl = Some(reply_ttl(ttl)?);
                guard.admit_echo(from, packet, host.monotonic())?;
            }
            Protocol::Roundtrip => response.len = roundtrip(&mut buffer[..len])?,
            Protocol::Text => response.len = text(buffer, len)?,
        }
        host.admit(from)?;
        Ok(Prepared { response, unfinished: None })
    }

    /// Completes the reply in `buffer`. Reads T3 with `t3` if the reply carries it.
    pub fn finish(
        &self,
        prepared: &Prepared,
        buffer: &mut [u8],
        t3: impl FnOnce() -> Instant<Realtime>,
    ) {
        if let (Protocol::Stamp { reflector, .. }, Some(unfinished)) =
            (&self.0, prepared.unfinished)
        {
            reflector.finish(unfinished, &mut buffer[..prepared.response.len], t3());
        }
    }
}

/// Source ports that get no reply: none, echo, chargen and STAMP.
const RESERVED_PORTS: [u16; 4] = [0, 7, 19, 862];

/// Whether the addresses alone forbid a reply: the source port is one of this reflector
/// (`own_ports`) or that of echo, chargen or STAMP, or the source or the destination `to` is a
/// group. Reflectors on other ports are recognised by their packets: [`reply_ttl`], [`LoopGuard`]
/// and [`StampReflector`].
pub fn is_loop(from: SocketAddr, to: Option<IpAddr>, own_ports: &[u16]) -> bool {
    is_group(from.ip())
        || to.is_some_and(is_group)
        || RESERVED_PORTS.contains(&from.port())
        || own_ports.contains(&from.port())
}

/// Whether an address is a group address in any network. The broadcast address of a subnet is not
/// recognised; that takes the netmask, which the code that opens sockets knows.
pub fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Reflection;

    #[test]
    fn every_protocol_with_datagram_replies_has_a_responder() {
        for scheme in Scheme::ALL {
            let replies = matches!(scheme.spec().reflection, Reflection::Datagram { .. });
            let responder = Responder::new(*scheme, ResponderConfig::default());
            assert_eq!(responder.is_some(), replies, "{scheme}");
        }
    }

    #[test]
    fn reflected_ports_and_groups_are_refused() {
        let from = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(!is_loop(from("192.0.2.1:40000"), None, &[862, 7007]));
        for asker in ["192.0.2.1:7", "192.0.2.1:19", "192.0.2.1:862", "[2001:db8::1]:7007"] {
            assert!(is_loop(from(asker), None, &[7007]), "{asker}");
        }
        assert!(is_loop(from("224.0.0.1:40000"), None, &[]));
        assert!(is_loop(from("192.0.2.1:40000"), Some("255.255.255.255".parse().unwrap()), &[]));
        assert!(is_loop(from("[fe80::1]:40000"), Some("ff02::1".parse().unwrap()), &[]));
    }
}
