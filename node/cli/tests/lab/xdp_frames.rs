//! Frames for the reflector in the driver, and the replies that the socket engine would send.

use std::net::{IpAddr, SocketAddr};

use dwell_engine::protocol::Scheme;
use dwell_engine::reflector::{Datagram, Host, Refusal, Responder, ResponderConfig, is_loop};
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

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Addresses of the services.
pub(crate) fn own_addresses() -> [IpAddr; 2] {
    ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap())
}

/// Broadcast address of the network of the services.
pub(crate) fn subnet_broadcast() -> IpAddr {
    "192.0.2.255".parse().unwrap()
}

/// A UDP or ICMP packet in a frame.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) scheme: Scheme,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) ttl: u8,
    /// TOS or traffic class.
    pub(crate) tos: u8,
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
        Self { scheme, from, to, vlan: None, ttl: 63, tos: 0, payload, udp_checksum: true }
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
                let mut header = vec![0x45, self.tos];
                header.extend(total.to_be_bytes());
                header.extend([0, 0, 0x40, 0, self.ttl, self.protocol(), 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(header);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                frame.extend((transport.len() as u16).to_be_bytes());
                frame.extend([self.protocol(), self.ttl]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => unreachable!("both addresses are of one family"),
        }
        frame.extend(transport);
        frame
    }

    fn protocol(&self) -> u8 {
        match (self.scheme, self.from.is_ipv4()) {
            (Scheme::Icmp, true) => ICMP,
            (Scheme::Icmp, false) => ICMPV6,
            _ => UDP,
        }
    }

    fn pseudo(&self, len: usize) -> Vec<u8> {
        pseudo_header(self.from.ip(), self.to.ip(), self.protocol(), len)
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

/// Pseudo header of a checksum (RFC 768, RFC 8200 8.1).
fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let mut pseudo = match (from, to) {
        _ if protocol == ICMP => return Vec::new(),
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
        _ => unreachable!("both addresses are of one family"),
    };
    pseudo.extend([0, protocol]);
    pseudo.extend((len as u16).to_be_bytes());
    pseudo
}

/// Layout of a frame with a whole UDP or ICMP packet, without IP options or extension headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Offset of the IP header.
    pub(crate) ip: usize,
    /// Offset of the UDP or ICMP header.
    pub(crate) transport: usize,
    /// End of the UDP datagram or ICMP message.
    end: usize,
    protocol: u8,
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().unwrap()))
}

impl Layout {
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let is_tagged = matches!(word(frame, 12)?, 0x8100 | 0x88a8);
        let ip = if is_tagged { 18 } else { 14 };
        let (transport, len, protocol) = match (word(frame, ip - 2)?, *frame.get(ip)?) {
            (0x0800, 0x45) if word(frame, ip + 6)? & 0x3fff == 0 => {
                (ip + 20, usize::from(word(frame, ip + 2)?).checked_sub(20)?, *frame.get(ip + 9)?)
            }
            (0x86dd, 0x60..=0x6f) => {
                (ip + 40, usize::from(word(frame, ip + 4)?), *frame.get(ip + 6)?)
            }
            _ => return None,
        };
        let is_ipv6 = transport == ip + 40;
        let packet_end = transport + len;
        let end = match protocol {
            UDP => transport + usize::from(word(frame, transport + 4)?),
            ICMP if !is_ipv6 => packet_end,
            ICMPV6 if is_ipv6 => packet_end,
            _ => return None,
        };
        let is_whole = transport + 8 <= end && end <= packet_end && packet_end <= frame.len();
        is_whole.then_some(Self { ip, transport, end, protocol })
    }

    fn is_ipv6(&self) -> bool {
        self.transport == self.ip + 40
    }

    /// Source and destination, with port 0 for ICMP.
    fn ends(&self, frame: &[u8]) -> (SocketAddr, SocketAddr) {
        let address = |at: usize| match self.is_ipv6() {
            false => IpAddr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).unwrap()),
            true => IpAddr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap()),
        };
        let (from, to) = if self.is_ipv6() { (8, 24) } else { (12, 16) };
        let port = |at| if self.protocol == UDP { word(frame, at).unwrap() } else { 0 };
        (
            SocketAddr::new(address(self.ip + from), port(self.transport)),
            SocketAddr::new(address(self.ip + to), port(self.transport + 2)),
        )
    }

    /// Scheme of the service that a request of this protocol is for.
    pub(crate) fn scheme(&self, frame: &[u8]) -> Option<Scheme> {
        if self.protocol == UDP {
            let (_, to) = self.ends(frame);
            return SCHEMES[..3].iter().copied().find(|scheme| port(*scheme) == to.port());
        }
        let echo = if self.is_ipv6() { 128 } else { 8 };
        (frame[self.transport..self.transport + 2] == [echo, 0]).then_some(Scheme::Icmp)
    }

    /// Offset of the UDP or ICMP checksum.
    fn sum_at(&self) -> usize {
        self.transport + if self.protocol == UDP { 6 } else { 2 }
    }

    fn pseudo(&self, frame: &[u8]) -> Vec<u8> {
        let (from, to) = self.ends(frame);
        pseudo_header(from.ip(), to.ip(), self.protocol, self.end - self.transport)
    }

    fn transport_sum(&self, frame: &[u8]) -> u16 {
        checksum(&[&self.pseudo(frame), &frame[self.transport..self.end]].concat())
    }

    /// The sum of the UDP datagram is that of its pseudo header: it was made on this machine.
    fn has_partial_sum(&self, frame: &[u8]) -> bool {
        self.protocol == UDP && word(frame, self.sum_at()) == Some(!checksum(&self.pseudo(frame)))
    }

    fn has_valid_sums(&self, frame: &[u8]) -> bool {
        let is_absent =
            self.protocol == UDP && !self.is_ipv6() && frame[self.sum_at()..][..2] == [0, 0];
        (self.is_ipv6() || checksum(&frame[self.ip..self.transport]) == 0)
            && (is_absent || self.has_partial_sum(frame) || self.transport_sum(frame) == 0)
    }

    /// Computes all checksums. UDP over IPv4 without a checksum stays without.
    pub(crate) fn set_sums(&self, frame: &mut [u8]) {
        if !self.is_ipv6() {
            frame[self.ip + 10..][..2].fill(0);
            let sum = checksum(&frame[self.ip..self.transport]);
            frame[self.ip + 10..][..2].copy_from_slice(&sum.to_be_bytes());
        }
        let at = self.sum_at();
        if self.protocol == UDP && !self.is_ipv6() && frame[at..at + 2] == [0, 0] {
            return;
        }
        frame[at..at + 2].fill(0);
        let sum = self.transport_sum(frame);
        let sum = if sum == 0 && self.protocol == UDP { 0xffff } else { sum };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
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

    /// Returns the reply to a packet; see [`Self::reply_to_frame`].
    pub(crate) fn reply(&mut self, packet: &Packet, timed: &[u8]) -> Option<Vec<u8>> {
        self.reply_to_frame(&packet.frame(OUR_MAC, THEIR_MAC), timed)
    }

    /// Returns the reply to a frame, with the times of `timed`, a frame of the program; `None` if a
    /// reply is forbidden.
    pub(crate) fn reply_to_frame(&mut self, request: &[u8], timed: &[u8]) -> Option<Vec<u8>> {
        let layout = Layout::of(request)?;
        let scheme = layout.scheme(request)?;
        if request[..6] != OUR_MAC || !layout.has_valid_sums(request) || forbids(&layout, request) {
            return None;
        }
        let Layout { ip, transport, end, .. } = layout;
        let (from, _) = layout.ends(request);
        let mut reply = request.to_vec();
        let exchange = |reply: &mut [u8], at: usize, len: usize| {
            reply[at..at + len].copy_from_slice(&request[at + len..][..len]);
            reply[at + len..][..len].copy_from_slice(&request[at..at + len]);
        };
        exchange(&mut reply, 0, 6);
        let (ttl_at, tos) = match layout.is_ipv6() {
            false => (ip + 8, request[ip + 1]),
            true => (ip + 7, (word(request, ip).unwrap() >> 4) as u8),
        };
        let mut ttl = 64;
        let responder = match scheme {
            Scheme::Stamp => Some(&mut self.stamp),
            Scheme::Udp => Some(&mut self.udp),
            Scheme::Roundtrip => Some(&mut self.roundtrip),
            _ => None,
        };
        if let Some(responder) = responder {
            exchange(&mut reply, transport, 2);
            let payload = transport + 8..end;
            let len = payload.len();
            let ttl_then = Some(request[ttl_at]);
            let datagram = Datagram { len, from, rx: None, ttl: ttl_then, tos: Some(tos) };
            let response = responder.answer(&mut reply[payload], &datagram, &mut NoLimit).ok()?;
            assert_eq!((response.len, response.tos), (len, None));
            ttl = response.ttl.unwrap_or(ttl);
        } else {
            reply[transport] = if layout.is_ipv6() { 129 } else { 0 };
        }
        if scheme == Scheme::Stamp {
            for times in [4..12, 16..24] {
                let times = transport + 8 + times.start..transport + 8 + times.end;
                reply[times.clone()].copy_from_slice(&timed[times]);
            }
        }
        // ICMP keeps TOS and traffic class (RFC 1122 3.2.2.6; icmpv6_echo_reply(), net/ipv6/icmp.c).
        let tos = if scheme == Scheme::Icmp { tos } else { 0 };
        if layout.is_ipv6() {
            // No flow label.
            reply[ip..ip + 4].copy_from_slice(&[0x60 | tos >> 4, tos << 4, 0, 0]);
            exchange(&mut reply, ip + 8, 16);
        } else {
            reply[ip + 1] = tos;
            // No identification, and "don't fragment".
            reply[ip + 4..ip + 8].copy_from_slice(&[0, 0, 0x40, 0]);
            exchange(&mut reply, ip + 12, 4);
        }
        reply[ttl_at] = ttl;
        layout.set_sums(&mut reply);
        if layout.has_partial_sum(request) {
            // The pseudo header has the same sum in both directions.
            let at = layout.sum_at();
            reply[at..at + 2].copy_from_slice(&request[at..at + 2]);
        }
        Some(reply)
    }
}

/// Whether the addresses or ports of a request forbid a reply.
fn forbids(layout: &Layout, request: &[u8]) -> bool {
    let (mut from, to) = layout.ends(request);
    if layout.protocol != UDP {
        from.set_port(40_000);
    }
    let is_mapped = |ip| matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    request[6] & 1 != 0
        || !own_addresses().contains(&to.ip())
        || own_addresses().contains(&from.ip())
        || from.ip() == subnet_broadcast()
        || from.ip().is_loopback()
        || is_mapped(from.ip())
        || is_loop(from, Some(to.ip()), &SCHEMES.map(port))
}
