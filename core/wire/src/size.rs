//! Size of a UDP packet, by any of three measures: IP packet, UDP payload or Ethernet frame. Tools
//! and papers mix them up: the "IP packet size" of 1514 B in Mok 2015 is the size of a frame whose
//! IP packet has 1500 B. A size is therefore stored with the measure in which it was given, and
//! rates count the bytes of that measure.

use dwell_units::{Bytes, Rate};
use thiserror::Error;

use crate::icmp::Family;

/// Length of a UDP header in bytes (RFC 768).
pub const UDP_HEADER: u64 = 8;
/// Length of an Ethernet header in bytes: two addresses and a type, without VLAN tag and frame
/// check sequence (IEEE 802.3, clause 3.1.1).
pub const ETHERNET_HEADER: u64 = 14;

dwell_units::named! {
    /// The part of a packet that a size counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SizeMeasure {
        /// The IP packet: IP header, UDP header and payload.
        Ip = "ip",
        /// The UDP payload.
        Payload = "payload",
        /// The Ethernet frame without frame check sequence. Network cards pad frames to 60 B.
        Frame = "frame",
    }
}

/// Size of a UDP packet that fits the MTU of its link.
///
/// ```
/// use dwell_units::Bytes;
/// use dwell_wire::icmp::Family;
/// use dwell_wire::size::{PacketSize, SizeMeasure};
///
/// let (content, mtu) = (Bytes(16), Bytes(1_500));
/// let size = PacketSize::new(SizeMeasure::Frame, Bytes(1_514), Family::V4, content, mtu)?;
/// assert_eq!(size.to_string(), "frame 1514B, IP packet 1500B, UDP payload 1472B");
/// assert_eq!(size.gap_ns("100Mbit/s".parse().unwrap()), Some(121_120.0));
/// # Ok::<(), dwell_wire::size::SizeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSize {
    counted: SizeMeasure,
    family: Family,
    payload: u64,
}

/// Error in a packet size. The message follows the name of the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum SizeError {
    #[error(
        "invalid value {given} for {}: at least {least}, with headers and {content} of payload",
        counted.flag()
    )]
    TooSmall { counted: SizeMeasure, given: Bytes, least: Bytes, content: Bytes },
    #[error(
        "invalid value {given} for {}: at most {most}, for IP packets of at most {mtu}",
        counted.flag()
    )]
    TooLarge {
        counted: SizeMeasure,
        given: Bytes,
        most: Bytes,
        /// The MTU, or the maximum length of an IP packet if that is smaller.
        mtu: Bytes,
    },
    #[error("no packet with {content} of payload fits an MTU of {mtu}")]
    MtuTooSmall { content: Bytes, mtu: Bytes },
}

impl SizeMeasure {
    /// Command-line option for a size in this measure.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Ip => "--size",
            Self::Payload => "--payload-size",
            Self::Frame => "--frame-size",
        }
    }

    /// Bytes counted besides the payload.
    pub const fn headers(self, family: Family) -> u64 {
        match self {
            Self::Payload => 0,
            Self::Ip => ip_header(family) + UDP_HEADER,
            Self::Frame => ETHERNET_HEADER + ip_header(family) + UDP_HEADER,
        }
    }
}

impl PacketSize {
    /// Creates a size from `given`. The payload must hold at least `content`, and the IP packet
    /// must not exceed `mtu`.
    pub fn new(
        counted: SizeMeasure,
        given: Bytes,
        family: Family,
        content: Bytes,
        mtu: Bytes,
    ) -> Result<Self, SizeError> {
        let ip_headers = SizeMeasure::Ip.headers(family);
        let mtu = mtu.min(largest(family));
        let room = mtu.0.checked_sub(ip_headers).filter(|room| *room >= content.0);
        let Some(room) = room else { return Err(SizeError::MtuTooSmall { content, mtu }) };
        let headers = counted.headers(family);
        match given.0.checked_sub(headers) {
            Some(payload) if payload > room => {
                Err(SizeError::TooLarge { counted, given, most: Bytes(room + headers), mtu })
            }
            Some(payload) if payload >= content.0 => Ok(Self { counted, family, payload }),
            _ => Err(SizeError::TooSmall {
                counted,
                given,
                least: Bytes(content.0 + headers),
                content,
            }),
        }
    }

    /// The measure in which the size was given.
    pub fn counted(&self) -> SizeMeasure {
        self.counted
    }

    /// The size as given. Rates count these bytes.
    pub fn as_given(&self) -> Bytes {
        self.of(self.counted)
    }

    /// The size in the measure `counted`.
    pub fn of(&self, counted: SizeMeasure) -> Bytes {
        Bytes(self.payload + counted.headers(self.family))
    }

    /// Length of the IP packet.
    pub fn ip(&self) -> Bytes {
        self.of(SizeMeasure::Ip)
    }

    /// Length of the UDP payload.
    pub fn payload(&self) -> Bytes {
        self.of(SizeMeasure::Payload)
    }

    /// Length of the Ethernet frame without frame check sequence.
    pub fn frame(&self) -> Bytes {
        self.of(SizeMeasure::Frame)
    }

    /// Gap between departures at `rate`, in nanoseconds. Fractions are kept, so that the rate does
    /// not drift over many packets. `None` at rate 0.
    pub fn gap_ns(&self, rate: Rate) -> Option<f64> {
        let gap = match rate {
            Rate::Bits(rate) => self.bits() * 1e9 / rate.0 as f64,
            Rate::Packets(rate) => 1e9 / rate.as_f64(),
        };
        gap.is_finite().then_some(gap)
    }

    /// Rate in bit/s of packets that are sent every `gap_ns`; `None` if that is not above 0.
    pub fn rate_bps(&self, gap_ns: f64) -> Option<f64> {
        (gap_ns > 0.0).then(|| self.bits() * 1e9 / gap_ns)
    }

    /// Bits of the size as given (8 s in Mok 2015).
    pub fn bits(&self) -> f64 {
        self.as_given().0 as f64 * 8.0
    }
}

impl std::fmt::Display for PacketSize {
    /// Prints all three sizes, the given one first.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |counted| match counted {
            SizeMeasure::Ip => "IP packet",
            SizeMeasure::Payload => "UDP payload",
            SizeMeasure::Frame => "frame",
        };
        write!(f, "{} {}", word(self.counted), self.as_given())?;
        for other in SizeMeasure::ALL.into_iter().filter(|other| *other != self.counted) {
            write!(f, ", {} {}", word(other), self.of(other))?;
        }
        Ok(())
    }
}

/// Length of an IP header without options or extensions (RFC 791, section 3.1; RFC 8200, section
/// 3).
const fn ip_header(family: Family) -> u64 {
    match family {
        Family::V4 => 20,
        Family::V6 => 40,
    }
}

/// Maximum length of an IP packet. Length fields have 16 bits, and that of IPv6 excludes its
/// header.
const fn largest(family: Family) -> Bytes {
    match family {
        Family::V4 => Bytes(65_535),
        Family::V6 => Bytes(65_535 + 40),
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::{BitRate, PacketRate};
    use proptest::prelude::*;

    use super::*;

    const MTU: Bytes = Bytes(1_500);
    const CONTENT: Bytes = Bytes(16);

    fn v4(counted: SizeMeasure, size: u64) -> Result<PacketSize, SizeError> {
        PacketSize::new(counted, Bytes(size), Family::V4, CONTENT, MTU)
    }

    fn mbit(n: u64) -> Rate {
        Rate::Bits(BitRate(n * 1_000_000))
    }

    #[test]
    fn frame_of_1514_bytes_holds_an_ip_packet_of_the_mtu() {
        let frame = v4(SizeMeasure::Frame, 1_514).unwrap();
        assert_eq!((frame.ip(), frame.payload()), (Bytes(1_500), Bytes(1_472)));
        assert_eq!(frame.to_string(), "frame 1514B, IP packet 1500B, UDP payload 1472B");
        let error = v4(SizeMeasure::Ip, 1_514).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid value 1514B for --size: at most 1500B, for IP packets of at most 1500B"
        );
    }

    #[test]
    fn gap_follows_from_the_size_as_given() {
        // Target gaps of Mok 2015 for 1, 10 and 1,000 Mbit/s.
        for (size, gaps) in [
            (v4(SizeMeasure::Ip, 200), [1_600_000.0, 160_000.0, 1_600.0]),
            (v4(SizeMeasure::Ip, 576), [4_608_000.0, 460_800.0, 4_608.0]),
            (v4(SizeMeasure::Frame, 1_514), [12_112_000.0, 1_211_200.0, 12_112.0]),
        ] {
            let size = size.unwrap();
            for (rate, gap) in [1, 10, 1_000].into_iter().zip(gaps) {
                assert_eq!(size.gap_ns(mbit(rate)), Some(gap));
                assert_eq!(size.rate_bps(gap), Some(rate as f64 * 1e6));
            }
        }
        // 576 B at 7 Mbit/s: fractions of a nanosecond are kept.
        let gap = v4(SizeMeasure::Ip, 576).unwrap().gap_ns(mbit(7)).unwrap();
        assert!((gap - 658_285.714_285_714_3).abs() < 1e-6, "{gap}");
        let slow = v4(SizeMeasure::Ip, 576).unwrap();
        let packets = Rate::Packets(PacketRate::from_millipps(200_000));
        assert_eq!(slow.gap_ns(packets), Some(5_000_000.0));
        assert_eq!((slow.gap_ns(mbit(0)), slow.rate_bps(0.0)), (None, None));
    }

    #[test]
    fn too_small_size_is_refused_with_the_minimum() {
        for (counted, least) in
            [(SizeMeasure::Ip, 44), (SizeMeasure::Payload, 16), (SizeMeasure::Frame, 58)]
        {
            assert_eq!(v4(counted, least).unwrap().payload(), CONTENT);
            for size in [0, least - 1] {
                let error = v4(counted, size).unwrap_err().to_string();
                let expected = format!("for {}: at least {least}B", counted.flag());
                assert!(error.contains(&expected), "{error}");
            }
        }
        let v6 = PacketSize::new(SizeMeasure::Ip, Bytes(63), Family::V6, CONTENT, MTU);
        assert!(v6.unwrap_err().to_string().contains("at least 64B"));
    }

    #[test]
    fn mtu_below_the_headers_is_refused() {
        let error = PacketSize::new(SizeMeasure::Ip, Bytes(100), Family::V6, CONTENT, Bytes(63));
        let expected = SizeError::MtuTooSmall { content: CONTENT, mtu: Bytes(63) };
        assert_eq!(error, Err(expected));
    }

    #[test]
    fn size_is_limited_by_the_datagram_maximum() {
        let size = |payload| {
            PacketSize::new(
                SizeMeasure::Payload,
                Bytes(payload),
                Family::V4,
                CONTENT,
                Bytes(65_536),
            )
        };
        assert_eq!(size(65_507).unwrap().ip(), Bytes(65_535));
        assert!(size(65_508).unwrap_err().to_string().contains("at most 65507B"));
    }

    proptest! {
        #[test]
        fn three_measures_describe_the_same_packet(
            v6 in any::<bool>(), which in 0..3_usize, given in prop_oneof![0..2_000_u64, any::<u64>()],
            content in 0..64_u64, mtu in prop_oneof![0..2_000_u64, any::<u64>()],
        ) {
            let family = if v6 { Family::V6 } else { Family::V4 };
            let (content, mtu) = (Bytes(content), Bytes(mtu));
            let size = PacketSize::new(SizeMeasure::ALL[which], Bytes(given), family, content, mtu);
            if let Ok(size) = size {
                prop_assert_eq!(size.as_given(), Bytes(given));
                prop_assert!(size.payload() >= content && size.ip() <= mtu);
                prop_assert_eq!(size.ip().0, size.payload().0 + if v6 { 48 } else { 28 });
                prop_assert_eq!(size.frame().0, size.ip().0 + 14);
                for counted in SizeMeasure::ALL {
                    let other = PacketSize::new(counted, size.of(counted), family, content, mtu);
                    prop_assert_eq!(other.map(|other| other.ip()), Ok(size.ip()));
                }
            }
        }
    }
}
