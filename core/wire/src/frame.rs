//! Ethernet frames that carry UDP over IPv4 (RFC 791, 768) or IPv6 (RFC 8200), for senders that use
//! packet sockets. Without options, extension headers or fragments.

use std::net::{IpAddr, SocketAddr};

use crate::icmp::checksum;

/// Destination, source, type.
const ETHERNET_HEADER_LEN: usize = 14;
const UDP: usize = 8;
/// The protocol number of UDP.
const UDP_PROTOCOL: u8 = 17;

/// Header fields of the frames of one flow.
///
/// ```
/// use dwell_wire::frame::UdpFrame;
///
/// let header = UdpFrame {
///     destination_mac: [0x02, 0, 0, 0, 0, 2],
///     source_mac: [0x02, 0, 0, 0, 0, 1],
///     from: "10.0.0.1:4000".parse()?,
///     to: "10.0.0.2:9".parse()?,
///     ttl: 64,
///     tos: 0,
/// };
/// let mut frame = vec![0; header.overhead() + 100];
/// header.emit(&[0; 100], &mut frame);
/// assert_eq!((frame.len(), &frame[12..14]), (142, &[0x08, 0x00][..]));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFrame {
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// Source address and port.
    pub from: SocketAddr,
    /// Destination address and port, of the same family.
    pub to: SocketAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS or traffic class.
    pub tos: u8,
}

impl UdpFrame {
    /// Bytes of a frame besides its payload.
    pub fn overhead(&self) -> usize {
        ETHERNET_HEADER_LEN + self.ip() + UDP
    }

    /// Bytes of an IP packet besides its payload.
    pub fn packet_overhead(&self) -> usize {
        self.ip() + UDP
    }

    /// Writes a frame that carries `payload` to `frame`, which is longer by [`UdpFrame::overhead`]
    /// bytes.
    ///
    /// # Panics
    /// If `frame` has another length, the payload exceeds the maximum packet length, or the
    /// families differ.
    pub fn emit(&self, payload: &[u8], frame: &mut [u8]) {
        let len = u16::try_from(self.packet_overhead() + payload.len()).expect("fits a packet");
        assert_eq!(frame.len(), self.overhead() + payload.len());
        frame[..6].copy_from_slice(&self.destination_mac);
        frame[6..12].copy_from_slice(&self.source_mac);
        let addresses = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let ip = &mut frame[12..34];
                ip[..4].copy_from_slice(&[0x08, 0x00, 0x45, self.tos]);
                ip[4..6].copy_from_slice(&len.to_be_bytes());
                // Don't fragment, so the identification is irrelevant (RFC 6864).
                ip[6..14].copy_from_slice(&[0, 0, 0x40, 0, self.ttl, UDP_PROTOCOL, 0, 0]);
                ip[14..18].copy_from_slice(&from.octets());
                ip[18..].copy_from_slice(&to.octets());
                let sum = checksum(&ip[2..]);
                ip[12..14].copy_from_slice(&sum.to_be_bytes());
                26
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let ip = &mut frame[12..54];
                let class = self.tos;
                ip[..6].copy_from_slice(&[0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 0]);
                ip[6..8].copy_from_slice(&(len - 40).to_be_bytes());
                ip[8..10].copy_from_slice(&[UDP_PROTOCOL, self.ttl]);
                ip[10..26].copy_from_slice(&from.octets());
                ip[26..].copy_from_slice(&to.octets());
                22
            }
            _ => panic!("source and destination are of one family"),
        };
        let at = ETHERNET_HEADER_LEN + self.ip();
        let len = len - self.ip() as u16;
        let udp = &mut frame[at..];
        udp[..2].copy_from_slice(&self.from.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        udp[6..8].fill(0);
        udp[UDP..].copy_from_slice(payload);
        // The pseudo header consists of the addresses, which directly precede the UDP header, the
        // protocol and the length.
        let sum =
            u32::from(!checksum(&frame[addresses..])) + u32::from(UDP_PROTOCOL) + u32::from(len);
        let sum = (sum & 0xffff) + (sum >> 16);
        // 0 means no checksum (RFC 768).
        let sum = match !((sum & 0xffff) + (sum >> 16)) as u16 {
            0 => 0xffff,
            sum => sum,
        };
        frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
    }

    fn ip(&self) -> usize {
        if self.to.is_ipv4() { 20 } else { 40 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_have_valid_checksums_and_lengths(
            v4: (u32, u32),
            v6: (u128, u128),
            ports: (u16, u16),
            tos: u8,
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let (a, b): (IpAddr, IpAddr) =
                (std::net::Ipv4Addr::from(v4.0).into(), std::net::Ipv4Addr::from(v4.1).into());
            let (c, d): (IpAddr, IpAddr) =
                (std::net::Ipv6Addr::from(v6.0).into(), std::net::Ipv6Addr::from(v6.1).into());
            for (from, to, header) in [(a, b, 20), (c, d, 40)] {
                let from = SocketAddr::new(from, ports.0);
                let to = SocketAddr::new(to, ports.1);
                let stations = ([1; 6], [2; 6]);
                let (destination_mac, source_mac) = stations;
                let flow = UdpFrame { destination_mac, source_mac, from, to, ttl: 64, tos };
                let mut frame = vec![0xee; flow.overhead() + payload.len()];
                flow.emit(&payload, &mut frame);
                prop_assert_eq!(&frame[14 + header + 8..], &payload[..]);
                let ip = &frame[14..];
                let udp = &ip[header..];
                prop_assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
                prop_assert_ne!(&udp[6..8], &[0, 0]);
                let addresses = if header == 20 {
                    prop_assert_eq!(checksum(&ip[..20]), 0);
                    prop_assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
                    prop_assert_eq!(ip[1], tos);
                    &ip[12..20]
                } else {
                    prop_assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), udp.len());
                    prop_assert_eq!((u16::from_be_bytes([ip[0], ip[1]]) >> 4) as u8, tos);
                    &ip[8..40]
                };
                let pseudo = [addresses, &[0, UDP_PROTOCOL], &udp[4..6], udp].concat();
                prop_assert_eq!(checksum(&pseudo), 0);
            }
        }
    }
}
