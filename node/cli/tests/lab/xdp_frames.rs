//! Frames for the reflector in the driver, and the replies that the socket engine would send.

use std::net::{IpAddr, SocketAddr};

use dwell_engine::protocol::Scheme;
use dwell_engine::reflector::{Datagram, Host, Refusal, Responder, ResponderConfig, reply_ttl};
use dwell_io::clock;
use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use dwell_wire::icmp::checksum;
use dwell_wire::stamp::{Mode, Request};
use dwell_wire::tlv::{self, kind};

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const CLOCK: [u8; 12] = *b"this machine";

/// Services in the order of their numbers.
pub(crate) const SCHEMES: [Scheme; 4] =
    [Scheme::Stamp, Scheme::Udp, Scheme::Roundtrip, Scheme::Icmp];

/// A UDP or ICMP packet in a frame.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) scheme: Scheme,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) ttl: u8,
    /// UDP payload, or ICMP message with a zero checksum.
    pub(crate) payload: Vec<u8>,
    pub(crate) udp_checksum: bool,
}

impl Packet {
    pub(crate) fn new(scheme: Scheme, is_ipv6: bool, payload: Vec<u8>) -> Self {
        let (from, to) = match is_ipv6 {
            false => ("192.0.2.2", "192.0.2.1"),
            true => ("2001:db8::2", "2001:db8::1"),
        };
        let address = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        let (from, to) = (address(from, 40_000), address(to, port(scheme)));
        Self { scheme, from, to, vlan: None, ttl: 63, payload, udp_checksum: true }
    }

    /// Offset of the IP header.
    pub(crate) fn ip_at(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Offset of the UDP or ICMP header.
    pub(crate) fn transport_at(&self) -> usize {
        self.ip_at() + if self.from.is_ipv4() { 20 } else { 40 }
    }

    pub(crate) fn frame(&self, mac_to: [u8; 6], mac_from: [u8; 6]) -> Vec<u8> {
        let mut frame = [mac_to, mac_from].concat();
        if let Some(tag) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        let transport = self.transport();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = (20 + transport.len()) as u16;
                let protocol = if self.scheme == Scheme::Icmp { 1 } else { 17 };
                let mut header = vec![0x45, 0];
                header.extend(total.to_be_bytes());
                header.extend([0, 0, 0x40, 0, self.ttl, protocol, 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(header);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let next = if self.scheme == Scheme::Icmp { 58 } else { 17 };
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((transport.len() as u16).to_be_bytes());
                frame.extend([next, self.ttl]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => unreachable!("both addresses are of one family"),
        }
        frame.extend(transport);
        frame
    }

    /// Sum of the pseudo header (RFC 768, RFC 8200 8.1), as bytes.
    fn pseudo(&self, len: usize) -> Vec<u8> {
        let protocol = match (self.scheme, self.from.is_ipv4()) {
            (Scheme::Icmp, true) => return Vec::new(),
            (Scheme::Icmp, false) => 58,
            _ => 17,
        };
        let mut pseudo = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
            (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
            _ => unreachable!("both addresses are of one family"),
        };
        pseudo.extend([0, protocol]);
        pseudo.extend((len as u16).to_be_bytes());
        pseudo
    }

    fn transport(&self) -> Vec<u8> {
        let mut transport = Vec::new();
        let at = if self.scheme == Scheme::Icmp {
            2
        } else {
            transport.extend(self.from.port().to_be_bytes());
            transport.extend(self.to.port().to_be_bytes());
            transport.extend((8 + self.payload.len() as u16).to_be_bytes());
            transport.extend([0, 0]);
            6
        };
        transport.extend(&self.payload);
        if self.udp_checksum || self.scheme == Scheme::Icmp {
            let sum = checksum(&[self.pseudo(transport.len()), transport.clone()].concat());
            let sum = if sum == 0 && self.scheme != Scheme::Icmp { 0xffff } else { sum };
            transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        transport
    }

    /// The checksum field of a packet that was made on this machine: the folded sum of the pseudo
    /// header.
    pub(crate) fn partial_sum(&self) -> u16 {
        !checksum(&self.pseudo(8 + self.payload.len()))
    }
}

/// Port of the test services.
pub(crate) fn port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Stamp => 8_620,
        Scheme::Udp => 7_000,
        Scheme::Roundtrip => 7_024,
        _ => 0,
    }
}

/// A STAMP request of `len` bytes with dwell's own TLVs, as far as there is room.
pub(crate) fn stamp(seq: u32, ssid: u16, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    let request = Request { seq, timestamp: 0xeb01_78f1_1234_5678, error: 0x8203, ssid };
    request.emit(&mut packet, Mode::Unauthenticated);
    let mut area = &mut packet[44..];
    for (kind, magic, value) in [
        (kind::NODE_CLOCK, &tlv::NODE_CLOCK_MAGIC, tlv::NODE_CLOCK_LEN),
        (kind::SOCKET_DROPS, &tlv::SOCKET_DROPS_MAGIC, tlv::SOCKET_DROPS_LEN),
    ] {
        if area.len() >= tlv::HEADER + value {
            let (value, rest) = tlv::begin(area, kind, value as u16);
            value[..4].copy_from_slice(magic);
            area = rest;
        }
    }
    if let Some(rest) = area.len().checked_sub(tlv::HEADER) {
        tlv::begin(area, kind::EXTRA_PADDING, rest as u16);
    }
    packet
}

/// The socket engine as a reference, with the real clocks and no limit.
pub(crate) struct Reference {
    stamp: Responder,
    udp: Responder,
    roundtrip: Responder,
}

struct NoLimit;

impl Host for NoLimit {
    fn monotonic(&self) -> Instant<Monotonic> {
        clock::monotonic()
    }

    fn realtime(&self) -> Instant<Realtime> {
        clock::realtime()
    }

    fn utc_error(&self) -> Option<Nanos> {
        None
    }

    fn admit(&mut self, _: SocketAddr) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Reference {
    pub(crate) fn new() -> Self {
        let responder = |scheme| {
            let config = ResponderConfig { clock: Some(CLOCK), ..ResponderConfig::default() };
            Responder::new(scheme, config).unwrap()
        };
        let [stamp, udp, roundtrip] =
            [Scheme::Stamp, Scheme::Udp, Scheme::Roundtrip].map(responder);
        Self { stamp, udp, roundtrip }
    }

    /// The reply to a packet, whose times are those of `timed`, a frame of the program.
    pub(crate) fn reply(&mut self, packet: &Packet, timed: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut reply = packet.clone();
        (reply.from, reply.to, reply.ttl) = (packet.to, packet.from, 64);
        let len = reply.payload.len();
        let responder = match packet.scheme {
            Scheme::Stamp => &mut self.stamp,
            Scheme::Udp => &mut self.udp,
            Scheme::Roundtrip => &mut self.roundtrip,
            _ => {
                reply.payload[0] = if packet.from.is_ipv4() { 0 } else { 129 };
                return Ok(reply.frame(THEIR_MAC, OUR_MAC));
            }
        };
        if packet.scheme == Scheme::Udp {
            reply.ttl = reply_ttl(Some(packet.ttl))?;
        }
        let from = packet.from;
        let request = Datagram { len, from, rx: None, ttl: Some(packet.ttl), tos: Some(0) };
        responder.answer(&mut reply.payload, &request, &mut NoLimit)?;
        if packet.scheme == Scheme::Stamp {
            let at = packet.transport_at() + 8;
            for times in [4..12, 16..24] {
                reply.payload[times.clone()]
                    .copy_from_slice(&timed[at + times.start..at + times.end]);
            }
        }
        Ok(reply.frame(THEIR_MAC, OUR_MAC))
    }
}
