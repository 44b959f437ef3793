//! The UDP datagram or ICMP echo message in a captured frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Link-layer header type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// `LINKTYPE_ETHERNET`, with or without VLAN tags.
    Ethernet,
    /// `LINKTYPE_LINUX_SLL`: 16 bytes, the protocol last.
    Cooked1,
    /// `LINKTYPE_LINUX_SLL2`: 20 bytes, the protocol first.
    Cooked2,
    /// `LINKTYPE_NULL` and `LINKTYPE_LOOP`: a 4-byte address family.
    Family,
    /// `LINKTYPE_RAW`, `LINKTYPE_IPV4`, `LINKTYPE_IPV6`: no header.
    Ip,
}

/// Why a frame yields no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    /// Another protocol.
    Other,
    /// Not the first fragment.
    Fragment,
    /// Shorter than its headers claim, or with contradicting lengths.
    Cut,
}

/// A UDP datagram, or an ICMP echo message with both ports 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram<'f> {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    /// The captured part of the payload.
    pub(super) payload: &'f [u8],
    /// Bytes of the complete payload; `None` for the first fragment of an echo message.
    pub(super) length: Option<u16>,
    /// The header of an echo message.
    pub(super) echo: Option<Echo>,
}

/// Header of an echo request or reply (RFC 792, RFC 4443 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) reply: bool,
    pub(super) id: u16,
    pub(super) seq: u16,
}

impl Link {
    /// Maps a number of <https://www.tcpdump.org/linktypes.html>, and the numbers that some systems
    /// write for raw IP.
    pub(super) fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Ethernet),
            113 => Some(Self::Cooked1),
            276 => Some(Self::Cooked2),
            0 | 108 => Some(Self::Family),
            12 | 14 | 101 | 228 | 229 => Some(Self::Ip),
            _ => None,
        }
    }
}

/// Returns the datagram in a frame.
pub(super) fn datagram(link: Link, frame: &[u8]) -> Result<Datagram<'_>, FrameError> {
    let packet = match link {
        Link::Ethernet => ethernet(frame)?,
        Link::Cooked1 => of_protocol(be16(frame, 14)?, from(frame, 16)?)?,
        Link::Cooked2 => of_protocol(be16(frame, 0)?, from(frame, 20)?)?,
        Link::Family => from(frame, 4)?,
        Link::Ip => frame,
    };
    match packet.first().ok_or(FrameError::Cut)? >> 4 {
        4 => v4(packet),
        6 => v6(packet),
        _ => Err(FrameError::Other),
    }
}

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

fn ethernet(frame: &[u8]) -> Result<&[u8], FrameError> {
    let mut at = 12;
    // Each 802.1Q or 802.1ad tag is four bytes before the protocol. At most two are read.
    for _ in 0..2 {
        if matches!(be16(frame, at)?, 0x8100 | 0x88a8) {
            at += 4;
        }
    }
    of_protocol(be16(frame, at)?, from(frame, at + 2)?)
}

fn of_protocol(protocol: u16, packet: &[u8]) -> Result<&[u8], FrameError> {
    match protocol {
        0x0800 | 0x86dd => Ok(packet),
        _ => Err(FrameError::Other),
    }
}

fn v4(packet: &[u8]) -> Result<Datagram<'_>, FrameError> {
    let header: &[u8; 20] = packet.first_chunk().ok_or(FrameError::Cut)?;
    let protocol = header[9];
    if !matches!(protocol, UDP | ICMP) {
        return Err(FrameError::Other);
    }
    let fragment = be16(header, 6)?;
    if fragment & 0x1fff != 0 {
        return Err(FrameError::Fragment);
    }
    let length = usize::from(header[0] & 0xf) * 4;
    if length < header.len() {
        return Err(FrameError::Cut);
    }
    let address = |at: usize| Ipv4Addr::from_octets(four(header, at));
    let ends = (address(12).into(), address(16).into());
    let segment = from(packet, length)?;
    if protocol == UDP {
        return udp(ends, segment);
    }
    // If more fragments follow, the total length is that of this fragment only.
    let whole = (fragment & 0x2000 == 0).then(|| be16(header, 2)).transpose()?;
    let whole = whole.and_then(|total| usize::from(total).checked_sub(length));
    echo(ends, segment, whole, (8, 0))
}

fn v6(packet: &[u8]) -> Result<Datagram<'_>, FrameError> {
    let header: &[u8; 40] = packet.first_chunk().ok_or(FrameError::Cut)?;
    let address = |at: usize| Ipv6Addr::from_octets(std::array::from_fn(|byte| header[at + byte]));
    let ends = (address(8).into(), address(24).into());
    let (mut next, mut at) = (header[6], header.len());
    let mut is_whole = true;
    // Each extension header takes at least eight bytes, so the loop ends with the packet.
    loop {
        match next {
            UDP => return udp(ends, from(packet, at)?),
            ICMP6 => {
                let end = header.len() + usize::from(be16(header, 4)?);
                let whole = end.checked_sub(at).filter(|_| is_whole);
                return echo(ends, from(packet, at)?, whole, (128, 129));
            }
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                let extension = from(packet, at)?;
                let [following, length, ..] = extension[..] else { return Err(FrameError::Cut) };
                (next, at) = (following, at + 8 + usize::from(length) * 8);
            }
            // Fragment header.
            44 => {
                let fragment = be16(packet, at + 2)?;
                if fragment & 0xfff8 != 0 {
                    return Err(FrameError::Fragment);
                }
                is_whole = fragment & 1 == 0;
                (next, at) = (packet[at], at + 8);
            }
            _ => return Err(FrameError::Other),
        }
    }
}

type Addresses = (IpAddr, IpAddr);

fn udp((source, destination): Addresses, segment: &[u8]) -> Result<Datagram<'_>, FrameError> {
    let length = be16(segment, 4)?.checked_sub(8).ok_or(FrameError::Cut)?;
    let payload = from(segment, 8)?;
    Ok(Datagram {
        source: SocketAddr::new(source, be16(segment, 0)?),
        destination: SocketAddr::new(destination, be16(segment, 2)?),
        // Ethernet pads short packets.
        payload: &payload[..payload.len().min(usize::from(length))],
        length: Some(length),
        echo: None,
    })
}

/// Parses an echo message with these two types. `whole` is its length with header, if known.
fn echo(
    (source, destination): Addresses,
    message: &[u8],
    whole: Option<usize>,
    (request, reply): (u8, u8),
) -> Result<Datagram<'_>, FrameError> {
    let header: &[u8; 8] = message.first_chunk().ok_or(FrameError::Cut)?;
    if header[1] != 0 || ![request, reply].contains(&header[0]) {
        return Err(FrameError::Other);
    }
    let length = whole.map(|whole| whole.checked_sub(header.len()).ok_or(FrameError::Cut));
    let length = length.transpose()?.and_then(|length| u16::try_from(length).ok());
    let payload = from(message, header.len())?;
    let captured = length.map_or(payload.len(), |length| payload.len().min(length.into()));
    Ok(Datagram {
        source: SocketAddr::new(source, 0),
        destination: SocketAddr::new(destination, 0),
        payload: &payload[..captured],
        length,
        echo: Some(Echo { reply: header[0] == reply, id: be16(header, 4)?, seq: be16(header, 6)? }),
    })
}

fn from(bytes: &[u8], at: usize) -> Result<&[u8], FrameError> {
    bytes.get(at..).ok_or(FrameError::Cut)
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, FrameError> {
    let bytes = from(bytes, at)?.first_chunk().ok_or(FrameError::Cut)?;
    Ok(u16::from_be_bytes(*bytes))
}

fn four(bytes: &[u8; 20], at: usize) -> [u8; 4] {
    std::array::from_fn(|byte| bytes[at + byte])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An IPv4 packet with `payload` in UDP from 10.0.0.1:7 to 10.0.0.2:9.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend_from_slice(&[0, 7, 0, 9, 0, 8 + payload.len() as u8, 0, 0]);
        packet.extend_from_slice(payload);
        packet
    }

    fn framed(head: &[u8], packet: &[u8]) -> Vec<u8> {
        [head, packet].concat()
    }

    #[test]
    fn every_link_type_yields_the_same_datagram() {
        let packet = packet(b"hello");
        let expected = Datagram {
            source: "10.0.0.1:7".parse().unwrap(),
            destination: "10.0.0.2:9".parse().unwrap(),
            payload: b"hello",
            length: Some(5),
            echo: None,
        };
        let ethernet = [&[0; 12][..], &[8, 0]].concat();
        let tagged = [&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
        let cooked1 = [&[0; 14][..], &[8, 0]].concat();
        let cooked2 = [&[8, 0][..], &[0; 18]].concat();
        for (number, head) in [(1, &ethernet), (1, &tagged), (113, &cooked1), (276, &cooked2)] {
            let frame = framed(head, &packet);
            assert_eq!(datagram(Link::of(number).unwrap(), &frame), Ok(expected), "{number}");
        }
        assert_eq!(datagram(Link::of(101).unwrap(), &packet), Ok(expected));
        assert_eq!(datagram(Link::of(0).unwrap(), &framed(&[2, 0, 0, 0], &packet)), Ok(expected));
    }

    #[test]
    fn datagram_after_ipv6_extension_headers_is_found() {
        let mut frame = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        frame.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        frame.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        frame.extend_from_slice(&[60, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(&[UDP, 1]);
        frame.extend_from_slice(&[0; 14]);
        frame.extend_from_slice(&[0, 7, 0, 9, 0, 10, 0, 0, b'o', b'k']);
        let found = datagram(Link::Ip, &frame).unwrap();
        assert_eq!((found.payload, found.source.port()), (&b"ok"[..], 7));
        assert_eq!(found.source.ip(), IpAddr::from(Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn later_fragment_is_not_a_datagram() {
        let mut later = packet(b"hello");
        later[7] = 1;
        assert_eq!(datagram(Link::Ip, &later), Err(FrameError::Fragment));
    }

    #[test]
    fn padding_of_a_short_frame_is_not_payload() {
        let mut padded = packet(b"hi");
        padded.extend_from_slice(&[0; 18]);
        assert_eq!(datagram(Link::Ip, &padded).unwrap().payload, b"hi");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(frame: Vec<u8>, link in 0..300_u32, version in 4..7_u8) {
            let mut frame = frame;
            if let Some(link) = Link::of(link) {
                let _ = datagram(link, &frame);
            }
            if let Some(first) = frame.first_mut() {
                *first = version << 4 | 5;
                let _ = datagram(Link::Ip, &frame);
            }
        }
    }
}
