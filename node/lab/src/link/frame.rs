//! Content of an Ethernet frame, as far as the event log needs it. The parser is total: any bytes
//! give a result, and unknown values are absent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses, ports and payload of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary<'a> {
    /// IP protocol or last next header; `None` if it is not IP.
    pub(super) protocol: Option<u8>,
    pub(super) source: Option<IpAddr>,
    pub(super) destination: Option<IpAddr>,
    /// Ports of UDP and TCP.
    pub(super) ports: Option<(u16, u16)>,
    /// Bytes after the header of UDP or TCP; for other protocols the whole message, for other
    /// frames everything after the Ethernet header.
    pub(super) payload: &'a [u8],
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Parses a frame.
pub(super) fn summary(frame: &[u8]) -> Summary<'_> {
    const IPV4: u16 = 0x0800;
    const IPV6: u16 = 0x86dd;
    let packet = frame.get(14..).unwrap_or_default();
    let found = match number(frame, 12) {
        Some(IPV4) => ipv4(packet),
        Some(IPV6) => ipv6(packet),
        _ => None,
    };
    found.unwrap_or(Summary { payload: packet, ..Summary::default() })
}

/// RFC 791 section 3.1.
fn ipv4(packet: &[u8]) -> Option<Summary<'_>> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let address = |at: usize| {
        let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(octets)))
    };
    let (source, destination) = (address(12)?, address(16)?);
    // Short frames are padded; the header says where the packet ends.
    let end = usize::from(number(packet, 2)?).min(packet.len());
    let message = packet.get(header.max(20)..end)?;
    let first = number(packet, 6)? & 0x1fff == 0;
    Some(transport(*packet.get(9)?, source, destination, message, first))
}

/// RFC 8200 sections 3 and 4; skips extension headers that may precede a probe.
fn ipv6(packet: &[u8]) -> Option<Summary<'_>> {
    const SKIPPED_HEADERS: [u8; 3] = [0, 43, 60];
    const MAX_EXTENSION_HEADERS: usize = 8;
    let address = |at: usize| {
        let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(octets)))
    };
    let (source, destination) = (address(8)?, address(24)?);
    let end = (40 + usize::from(number(packet, 4)?)).min(packet.len());
    let mut message = packet.get(40..end)?;
    let mut protocol = *packet.get(6)?;
    for _ in 0..MAX_EXTENSION_HEADERS {
        if !SKIPPED_HEADERS.contains(&protocol) {
            break;
        }
        let len = (usize::from(*message.get(1)?) + 1) * 8;
        protocol = *message.first()?;
        message = message.get(len..)?;
    }
    Some(transport(protocol, source, destination, message, true))
}

fn transport(
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    message: &[u8],
    has_header: bool,
) -> Summary<'_> {
    let ports = || Some((number(message, 0)?, number(message, 2)?));
    let header = match protocol {
        UDP => Some(8),
        TCP => message.get(12).map(|offset| usize::from(offset >> 4) * 4),
        _ => None,
    };
    let header = header.filter(|_| has_header);
    Summary {
        protocol: Some(protocol),
        source: Some(source),
        destination: Some(destination),
        ports: header.and_then(|_| ports()),
        payload: message.get(header.unwrap_or(0)..).unwrap_or_default(),
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn udp_over_ipv4(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend(((28 + payload.len()) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, UDP, 0, 0, 198, 19, 0, 1, 198, 19, 0, 2]);
        frame.extend([0x1f, 0x90, 0x03, 0x5e, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn udp_frame_is_summarised() {
        let mut frame = udp_over_ipv4(b"probe");
        frame.extend([0; 13]);
        let seen = summary(&frame);
        assert_eq!(seen.protocol, Some(UDP));
        assert_eq!(seen.source, Some("198.19.0.1".parse().unwrap()));
        assert_eq!(seen.destination, Some("198.19.0.2".parse().unwrap()));
        assert_eq!(seen.ports, Some((8_080, 862)));
        assert_eq!(seen.payload, b"probe", "padding is not payload");
    }

    #[test]
    fn later_fragment_has_no_ports() {
        let mut frame = udp_over_ipv4(b"middle");
        frame[14 + 7] = 100;
        assert_eq!(summary(&frame).ports, None);
    }

    #[test]
    fn icmpv6_after_hop_by_hop_header_keeps_its_type() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 0, 1]);
        frame.extend([0xfe; 32]);
        frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
        frame.extend([143, 0, 0, 0]);
        let seen = summary(&frame);
        assert_eq!((seen.protocol, seen.payload), (Some(58), &[143, 0, 0, 0][..]));
    }

    proptest! {
        #[test]
        fn any_frame_is_parsed_without_panic(
            mut frame in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3_usize,
        ) {
            let kinds = [[0x08, 0x00], [0x86, 0xdd], [0x12, 0x34]];
            if let Some(place) = frame.get_mut(12..14) {
                place.copy_from_slice(&kinds[kind]);
            }
            let _ = summary(&frame);
        }
    }
}
