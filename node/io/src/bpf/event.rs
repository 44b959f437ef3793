//! Events that eBPF programs write when a packet passes a hook (struct event in
//! node/bpf/dwell.bpf.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dwell_sample::Point;
use dwell_units::{Instant, Nanos, Realtime};

/// Maximum number of packet bytes in an event.
pub const HEAD: usize = 24;

/// Measurement points by hook number.
const POINTS: [Point; 5] =
    [Point::RxDriver, Point::RxTcx, Point::PreRouting, Point::PostRouting, Point::TxTcx];

/// Protocol to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// Echo requests and replies of ICMP and ICMPv6.
    Echo,
}

impl Protocol {
    /// Protocol number in IPv4.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
            Self::Echo => 1,
        }
    }

    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Echo => "icmp",
        }
    }
}

/// A packet at a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Measurement point.
    pub point: Point,
    /// Time at that point.
    pub at: Instant<Realtime>,
    /// Index of the interface: the outgoing one at POST_ROUTING and tcx egress, otherwise the
    /// incoming one.
    pub interface: u32,
    /// Protocol.
    pub protocol: Protocol,
    /// Source. The identifier of an echo serves as port on both ends.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Length of the payload in bytes; of an echo, of the data after the sequence number.
    pub size: u16,
    head: [u8; HEAD],
    head_length: u8,
}

impl Event {
    /// Returns the bytes that identify a packet within its flow: the beginning of the UDP payload,
    /// the TCP header from the sequence number on, or the echo message from its sequence number on.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_length).min(HEAD)]
    }

    /// Builds the event of a UDP packet, for tests of event consumers.
    pub fn udp(
        point: Point,
        at: Instant<Realtime>,
        (from, to): (SocketAddr, SocketAddr),
        size: u16,
        payload: &[u8],
    ) -> Self {
        let mut head = [0; HEAD];
        let length = payload.len().min(HEAD);
        head[..length].copy_from_slice(&payload[..length]);
        let (interface, protocol) = (1, Protocol::Udp);
        Self { point, at, interface, protocol, from, to, size, head, head_length: length as u8 }
    }

    /// Parses an event. `tai_offset` is CLOCK_TAI minus CLOCK_REALTIME. Returns `None` for bytes
    /// that no program of ours writes.
    pub(super) fn parse(bytes: &[u8], tai_offset: Nanos) -> Option<Self> {
        let (fixed, addresses) = bytes.split_first_chunk::<48>()?;
        let u16_at = |at: usize| u16::from_ne_bytes([fixed[at], fixed[at + 1]]);
        let port_at = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let tai = u64::from_ne_bytes(*fixed.first_chunk()?);
        let interface = u32::from_ne_bytes(*fixed[8..].first_chunk()?);
        let protocol = match fixed[15] {
            17 => Protocol::Udp,
            6 => Protocol::Tcp,
            1 => Protocol::Echo,
            _ => return None,
        };
        let (from, to) = match fixed[20] {
            4 => (v4(addresses.get(..4)?)?, v4(addresses.get(4..8)?)?),
            6 => (v6(addresses.get(..16)?)?, v6(addresses.get(16..32)?)?),
            _ => return None,
        };
        let (from_port, to_port) = match protocol {
            Protocol::Echo => (port_at(18), port_at(18)),
            _ => (port_at(16), port_at(18)),
        };
        let mut head = [0; HEAD];
        head.copy_from_slice(&fixed[24..]);
        let header = match protocol {
            Protocol::Udp | Protocol::Echo => 8,
            // The data offset in 32-bit words; `head` begins four bytes into the header.
            Protocol::Tcp => u16::from(head[8] >> 4) * 4,
        };
        Some(Self {
            point: *POINTS.get(usize::from(fixed[14]))?,
            at: Instant::from_nanos(i64::try_from(tai).ok()?) - tai_offset,
            interface,
            protocol,
            from: SocketAddr::new(from, from_port),
            to: SocketAddr::new(to, to_port),
            size: u16_at(12).saturating_sub(header),
            head,
            head_length: fixed[21],
        })
    }
}

fn v4(bytes: &[u8]) -> Option<IpAddr> {
    Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into())
}

fn v6(bytes: &[u8]) -> Option<IpAddr> {
    Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(hook: u8, protocol: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(37_000_001_000_u64.to_ne_bytes());
        bytes.extend(3_u32.to_ne_bytes());
        bytes.extend(108_u16.to_ne_bytes());
        bytes.extend([hook, protocol]);
        bytes.extend(40_000_u16.to_be_bytes());
        bytes.extend(5_001_u16.to_be_bytes());
        bytes.extend([family, 24, 0, 0]);
        bytes.extend(0..24);
        bytes.extend(addresses);
        bytes
    }

    #[test]
    fn event_is_parsed_as_the_program_writes_it() {
        let bytes = event(2, 17, 4, &[10, 0, 0, 1, 10, 0, 1, 2]);
        assert_eq!(
            bytes.len(),
            56,
            "an event of IPv4 and the ring's own 8 bytes fill a cache line"
        );
        let read = Event::parse(&bytes, Nanos::from_secs(37)).unwrap();
        assert_eq!(read.point, Point::PreRouting);
        assert_eq!(read.at, Instant::from_nanos(1_000));
        assert_eq!((read.interface, read.size), (3, 100));
        assert_eq!(read.from, "10.0.0.1:40000".parse().unwrap());
        assert_eq!(read.to, "10.0.1.2:5001".parse().unwrap());
        assert_eq!(read.head(), (0..24).collect::<Vec<u8>>());
    }

    #[test]
    fn ipv6_echo_event_has_long_addresses_and_id_as_ports() {
        let mut addresses = [0; 32];
        (addresses[15], addresses[31]) = (1, 2);
        let read = Event::parse(&event(4, 1, 6, &addresses), Nanos(0)).unwrap();
        assert_eq!(read.point, Point::TxTcx);
        assert_eq!(read.from, "[::1]:5001".parse().unwrap());
        assert_eq!(read.to, "[::2]:5001".parse().unwrap());
    }

    #[test]
    fn invalid_event_bytes_are_rejected() {
        let addresses = [0; 32];
        for bytes in [
            event(5, 17, 4, &addresses),
            event(2, 2, 4, &addresses),
            event(2, 17, 5, &addresses),
            event(2, 17, 6, &addresses[..31]),
            event(2, 17, 4, &addresses[..7]),
            vec![0; 47],
            Vec::new(),
        ] {
            assert_eq!(Event::parse(&bytes, Nanos(0)), None, "{bytes:?}");
        }
    }
}
