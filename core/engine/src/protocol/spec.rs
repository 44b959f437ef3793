//! The protocols of probes and their static properties, one row per URL scheme. Command lines,
//! plans, reports and documentation read this table.

use std::fmt;
use std::str::FromStr;

use dwell_units::Nanos;
use dwell_wire::hmac::{KeyError, SecretKey};
use dwell_wire::stamp::Mode;
use dwell_wire::{echo, roundtrip, text, tlv};
use thiserror::Error;

use super::frame_id::{FrameId, IdField};

/// Maximum UDP payload over IPv4 (65,535 - 20 - 8), used for all protocols.
pub const MAX_PAYLOAD_LEN: u64 = 65_507;

/// A protocol of probes, named by its URL scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// STAMP (RFC 8762).
    Stamp,
    /// ICMP echo.
    Icmp,
    /// Plain echo over UDP.
    Udp,
    /// Plain echo over TCP.
    Tcp,
    /// The 24-byte round-trip message of Roedlach/Vock over UDP.
    Roundtrip,
    /// The request/acknowledge exchange of Chung 2021 over UDP.
    TextUdp,
    /// The request/acknowledge exchange of Chung 2021 over TCP.
    TextTcp,
}

impl Scheme {
    /// All protocols, in the order of the documentation.
    pub const ALL: &[Self] = &[
        Self::Stamp,
        Self::Icmp,
        Self::Udp,
        Self::Tcp,
        Self::Roundtrip,
        Self::TextUdp,
        Self::TextTcp,
    ];

    /// The properties of the protocol.
    pub const fn spec(self) -> &'static ProtocolSpec {
        match self {
            Self::Stamp => &STAMP,
            Self::Icmp => &ICMP,
            Self::Udp => &UDP,
            Self::Tcp => &TCP,
            Self::Roundtrip => &ROUNDTRIP,
            Self::TextUdp => &TEXT_UDP,
            Self::TextTcp => &TEXT_TCP,
        }
    }

    /// The text before `://`.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The protocols with this property, in the order of the documentation.
    pub fn with(property: impl Fn(&ProtocolSpec) -> bool) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |scheme| property(scheme.spec()))
    }

    /// All names, separated by commas.
    pub fn names() -> String {
        Self::ALL.iter().map(|scheme| scheme.name()).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, UnknownScheme> {
        let known = Self::ALL.iter().copied().find(|scheme| scheme.name() == name);
        known.ok_or_else(|| UnknownScheme(name.to_owned()))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown protocol '{0}'; known are {names}", names = Scheme::names())]
pub struct UnknownScheme(pub String);

/// Static properties of a protocol.
#[derive(Debug)]
pub struct ProtocolSpec {
    /// Text before `://`, and the value of `ping.protocol` in a plan.
    pub name: &'static str,
    /// Description in reports and in `docs/protocols.md`.
    pub description: &'static str,
    /// Transport of its messages.
    pub transport: ProbeTransport,
    /// Port of a target without one; `None`: a target must name its port.
    pub default_port: Option<u16>,
    /// Sizes of a probe.
    pub payload: PayloadLimits,
    /// Authenticated mode, if it has one.
    pub authentication: Option<Authentication>,
    /// Defaults of a measurement.
    pub defaults: ProbeDefaults,
    /// Opening of a session before the first probe, if it has one.
    pub handshake: Option<Handshake>,
    /// Who replies, and how.
    pub reflection: Reflection,
    /// Reply of a reflector in the network driver (`dwell reflect --engine xdp`), if it answers
    /// this protocol.
    pub driver_reply: Option<DriverReply>,
    /// Where single frames carry the id of a probe, with the authenticated mode and the size of
    /// probes in bytes as arguments.
    pub frame_id: fn(bool, u64) -> FrameId,
    /// Replies carry T2 and T3. The reflector then reads arrival times, the accuracy of its clock
    /// and its socket's drop counter.
    pub remote_timestamps: bool,
    /// Relays can write their delays into probes.
    pub telemetry: bool,
    /// Data that `dwell relay` forwards for URLs of this scheme, if any.
    pub relay: Option<RelayTransport>,
    /// Columns of `ping --csv`.
    pub csv: CsvLayout,
    /// Reports the connection on stderr, as the client of Chung 2021 does.
    pub announces_connection: bool,
    /// Results name the delays in the sockets of both ends as client lag and server lag (Chung
    /// 2021), and the server's socket is timestamped for it.
    pub names_lags: bool,
    /// Question to ask if a target does not reply.
    pub silent_hint: &'static str,
}

impl ProtocolSpec {
    /// Whether `dwell reflect` replies with a socket; otherwise the kernel does.
    pub const fn has_reflector(&self) -> bool {
        !matches!(self.reflection, Reflection::Kernel)
    }

    /// Whether several clients can probe at the same time. Sequence numbers of a reflector are those
    /// of one session, and ICMP has no ports that tell clients apart.
    pub const fn allows_clients(&self) -> bool {
        self.transport.has_ports() && !self.remote_timestamps && self.handshake.is_none()
    }

    /// Whether a reply has a lower TTL than the probe had on arrival.
    pub const fn decrements_ttl(&self) -> bool {
        matches!(self.reflection, Reflection::Datagram { decrements_ttl: true, .. })
    }

    /// Number of bytes by which a reply can exceed its request.
    pub const fn max_extra_bytes(&self) -> u64 {
        match self.reflection {
            Reflection::Datagram { max_extra_bytes, .. } => max_extra_bytes,
            Reflection::Kernel | Reflection::Stream(_) => 0,
        }
    }

    /// Sizes of a probe in this mode.
    pub const fn payload_limits(&self, authenticated: bool) -> &PayloadLimits {
        match &self.authentication {
            Some(authentication) if authenticated => &authentication.payload,
            _ => &self.payload,
        }
    }
}

/// Transport of the messages of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTransport {
    /// ICMP echo requests and replies.
    Icmp,
    /// UDP datagrams.
    Udp,
    /// One TCP connection.
    Tcp,
}

impl ProbeTransport {
    /// Length in bytes of the headers between the IP header and the payload. TCP segments carry the
    /// timestamp option.
    pub const fn header_len(self) -> u64 {
        match self {
            Self::Icmp | Self::Udp => 8,
            Self::Tcp => 32,
        }
    }

    /// Whether targets have a port.
    pub const fn has_ports(self) -> bool {
        !matches!(self, Self::Icmp)
    }
}

/// Sizes of a payload in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLimits {
    /// Minimum.
    pub min: u64,
    /// Size if none is requested.
    pub default: u64,
    /// Only the default is possible, and the next size if there is one.
    pub fixed: bool,
    /// Minimum number of bytes above the minimum up to the next size; 0: none.
    pub min_extra: u64,
}

impl PayloadLimits {
    /// Any size from `min` to the maximum of a datagram.
    const fn from(min: u64, default: u64) -> Self {
        Self { min, default, fixed: false, min_extra: 0 }
    }

    /// One size only.
    const fn fixed(size: u64) -> Self {
        Self { min: size, default: size, fixed: true, min_extra: 0 }
    }

    /// Two sizes only, of which the smaller is the default.
    const fn either(size: u64, other: u64) -> Self {
        Self { min: size, default: size, fixed: true, min_extra: other - size }
    }

    /// Checks a requested size.
    ///
    /// # Errors
    /// If no message has this size.
    pub fn check(&self, size: u64) -> Result<(), PayloadError> {
        let Self { min, default, fixed, min_extra } = *self;
        match (fixed, min_extra) {
            (true, 0) if size != default => return Err(PayloadError::Fixed(default)),
            (true, extra) if size != default && size != min + extra => {
                return Err(PayloadError::Either(min, min + extra));
            }
            _ => {}
        }
        if size < min {
            return Err(PayloadError::TooSmall(min));
        }
        if size > MAX_PAYLOAD_LEN {
            return Err(PayloadError::TooLarge(MAX_PAYLOAD_LEN));
        }
        if size > min && size < min + min_extra {
            return Err(PayloadError::Between(min, min + min_extra));
        }
        Ok(())
    }
}

/// Why no message has a size; all sizes in bytes. Plans and the command line have their own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// The only size is this one.
    Fixed(u64),
    /// The only sizes are these two.
    Either(u64, u64),
    /// The minimum is this one.
    TooSmall(u64),
    /// The maximum is this one.
    TooLarge(u64),
    /// The smallest sizes are these two.
    Between(u64, u64),
}

/// Authenticated mode of a protocol.
#[derive(Debug)]
pub struct Authentication {
    /// Sizes of a probe with a key.
    pub payload: PayloadLimits,
    /// Reads the text of a key.
    pub parse_key: fn(&str) -> Result<SecretKey, KeyError>,
}

/// Defaults of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeDefaults {
    /// Each probe is sent after the reply to the previous one, whatever is requested.
    pub closed_loop: bool,
    /// Closed loop: pause after each reply if no interval is requested.
    pub pause: Nanos,
    /// Number of warm-up probes.
    pub warm_up: u32,
    /// Time between warm-up probes.
    pub warm_up_interval: Nanos,
}

/// Opening of a session.
#[derive(Debug)]
pub struct Handshake {
    /// Time-outs of successive open requests.
    pub timeouts: &'static [Nanos],
}

/// Who replies to a probe, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflection {
    /// The kernel of the target.
    Kernel,
    /// A reflector, with a datagram.
    Datagram {
        /// The reply has the TTL of the request less 1, so that packets cannot loop endlessly.
        decrements_ttl: bool,
        /// Number of bytes by which a reply can exceed its request.
        max_extra_bytes: u64,
    },
    /// A reflector, in the stream.
    Stream(StreamReply),
}

/// Reply of a reflector in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamReply {
    /// The bytes of the request.
    Echo,
    /// `acknowledge` for each `request`.
    Acknowledge,
}

/// Reply of the program in the network driver. The values are those of `enum kind` in
/// node/bpf/reflect.bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DriverReply {
    /// STAMP without authentication.
    Stamp = 1,
    /// The UDP payload of the request.
    Echo = 2,
    /// The round-trip message.
    Roundtrip = 3,
    /// ICMP echo.
    IcmpEcho = 4,
}

/// Data that a relay forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayTransport {
    /// UDP datagrams, whatever they carry.
    Datagrams,
    /// The bytes of TCP connections.
    Streams,
}

/// Columns of a CSV file with one row per probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvLayout {
    /// Outcome and every timestamp.
    Probe,
    /// The columns of Roedlach/Vock.
    RoundTrip,
}

/// Defaults of most protocols.
const DEFAULT_OPEN_LOOP: ProbeDefaults = ProbeDefaults {
    closed_loop: false,
    pause: Nanos::ZERO,
    warm_up: 8,
    warm_up_interval: Nanos::from_millis(10),
};

/// The client of Chung 2021 pauses after each reply.
const DEFAULT_CLOSED_LOOP: ProbeDefaults = ProbeDefaults {
    closed_loop: true,
    pause: Nanos::from_secs(1),
    warm_up: 1,
    warm_up_interval: Nanos::from_millis(100),
};

/// A STAMP packet grows by TLVs, with room for the clock and socket-drops TLVs by default.
const fn stamp_payload(mode: Mode, default: u64) -> PayloadLimits {
    let min_extra = tlv::HEADER as u64;
    PayloadLimits { min: mode.base() as u64, default, fixed: false, min_extra }
}

/// Mode of a STAMP session.
const fn mode(authenticated: bool) -> Mode {
    if authenticated { Mode::Authenticated } else { Mode::Unauthenticated }
}

/// Plain echo over UDP, without relays. The rows state how they differ from it.
const ECHO: ProtocolSpec = ProtocolSpec {
    name: "udp",
    description: "UDP messages, echoed unchanged",
    transport: ProbeTransport::Udp,
    default_port: None,
    payload: PayloadLimits::from(echo::LEN as u64, 64),
    authentication: None,
    defaults: DEFAULT_OPEN_LOOP,
    handshake: None,
    reflection: Reflection::Datagram { decrements_ttl: true, max_extra_bytes: 0 },
    driver_reply: Some(DriverReply::Echo),
    frame_id: |_, _| FrameId::Field(IdField::ECHO),
    remote_timestamps: false,
    telemetry: false,
    relay: None,
    csv: CsvLayout::Probe,
    announces_connection: false,
    names_lags: false,
    silent_hint: "is an echo server or reflector running there?",
};

const UDP: ProtocolSpec = ProtocolSpec { relay: Some(RelayTransport::Datagrams), ..ECHO };

const STAMP: ProtocolSpec = ProtocolSpec {
    name: "stamp",
    description: "STAMP over UDP (RFC 8762)",
    // RFC 8762 section 4.1.
    default_port: Some(862),
    payload: stamp_payload(Mode::Unauthenticated, 76),
    authentication: Some(Authentication {
        // Room for the HMAC TLV as well.
        payload: stamp_payload(Mode::Authenticated, 164),
        parse_key: SecretKey::from_hex,
    }),
    reflection: Reflection::Datagram { decrements_ttl: false, max_extra_bytes: 0 },
    driver_reply: Some(DriverReply::Stamp),
    frame_id: |authenticated, _| FrameId::Field(IdField::stamp(mode(authenticated))),
    remote_timestamps: true,
    telemetry: true,
    silent_hint: "is a reflector running there, and does it want a key (--key-file)?",
    ..ECHO
};

const ICMP: ProtocolSpec = ProtocolSpec {
    name: "icmp",
    description: "ICMP echo, which the kernel of the other node answers",
    transport: ProbeTransport::Icmp,
    payload: PayloadLimits::from(0, 56),
    reflection: Reflection::Kernel,
    driver_reply: Some(DriverReply::IcmpEcho),
    frame_id: |_, size| FrameId::Field(IdField::icmp(size)),
    silent_hint: "is the host up, and does a firewall drop ICMP echo?",
    ..ECHO
};

const TCP: ProtocolSpec = ProtocolSpec {
    name: "tcp",
    description: "messages over one TCP connection, echoed unchanged",
    transport: ProbeTransport::Tcp,
    reflection: Reflection::Stream(StreamReply::Echo),
    driver_reply: None,
    frame_id: |_, _| FrameId::Stream,
    relay: Some(RelayTransport::Streams),
    ..ECHO
};

const ROUNDTRIP: ProtocolSpec = ProtocolSpec {
    name: "roundtrip",
    description: "roundtrip, UDP messages that the other node returns immediately",
    payload: PayloadLimits::fixed(roundtrip::LEN as u64),
    reflection: Reflection::Datagram { decrements_ttl: false, max_extra_bytes: 0 },
    driver_reply: Some(DriverReply::Roundtrip),
    frame_id: |_, _| FrameId::Field(IdField::ROUNDTRIP),
    csv: CsvLayout::RoundTrip,
    silent_hint: "is a reflector running there?",
    ..ECHO
};

const TEXT_UDP: ProtocolSpec = ProtocolSpec {
    name: "text+udp",
    description: "a line of text over UDP",
    payload: PayloadLimits::either(text::REQUEST.len() as u64, text::TIMED_REQUEST.len() as u64),
    defaults: DEFAULT_CLOSED_LOOP,
    reflection: Reflection::Datagram {
        decrements_ttl: false,
        max_extra_bytes: (text::ACKNOWLEDGE.len() - text::REQUEST.len()) as u64,
    },
    driver_reply: None,
    frame_id: |_, _| FrameId::Missing,
    names_lags: true,
    silent_hint: "is a reflector running there?",
    ..ECHO
};

const TEXT_TCP: ProtocolSpec = ProtocolSpec {
    name: "text+tcp",
    description: "a line of text over one TCP connection",
    transport: ProbeTransport::Tcp,
    reflection: Reflection::Stream(StreamReply::Acknowledge),
    frame_id: |_, _| FrameId::Stream,
    announces_connection: true,
    ..TEXT_UDP
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_listed_once_and_read_by_its_name() {
        for (number, scheme) in Scheme::ALL.iter().enumerate() {
            assert_eq!(*scheme as usize, number, "{scheme} is out of order");
            assert_eq!(scheme.name().parse(), Ok(*scheme));
        }
        let unknown = "gopher".parse::<Scheme>().unwrap_err().to_string();
        assert!(unknown.starts_with("unknown protocol 'gopher'; known are stamp, icmp, "));
    }

    #[test]
    fn every_default_size_is_possible() {
        for scheme in Scheme::ALL {
            let spec = scheme.spec();
            for limits in [spec.payload_limits(false), spec.payload_limits(true)] {
                assert_eq!(limits.check(limits.default), Ok(()), "{scheme}");
                assert!(!limits.fixed || limits.min == limits.default, "{scheme}");
            }
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        let check = |scheme: Scheme, size| scheme.spec().payload.check(size);
        assert_eq!(check(Scheme::Stamp, 43), Err(PayloadError::TooSmall(44)));
        assert_eq!(check(Scheme::Roundtrip, 25), Err(PayloadError::Fixed(24)));
        for size in [0, 8, 40, 42] {
            assert_eq!(check(Scheme::TextTcp, size), Err(PayloadError::Either(7, 41)));
        }
        assert_eq!((check(Scheme::TextUdp, 7), check(Scheme::TextUdp, 41)), (Ok(()), Ok(())));
        for size in 45..48 {
            assert_eq!(check(Scheme::Stamp, size), Err(PayloadError::Between(44, 48)));
        }
        assert_eq!([44, 48, MAX_PAYLOAD_LEN].map(|size| check(Scheme::Stamp, size)), [Ok(()); 3]);
        assert_eq!(check(Scheme::Udp, 65_508), Err(PayloadError::TooLarge(65_507)));
        assert_eq!(check(Scheme::Roundtrip, 30), Err(PayloadError::Fixed(24)));
        assert_eq!(check(Scheme::Icmp, 0), Ok(()));
    }
}
