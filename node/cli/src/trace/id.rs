//! Packet ids: reading them, and detecting the format of a flow.

use dwell_io::bpf::{Event, Protocol};
use dwell_protocol::IdFormat;
use dwell_units::Nanos;
use dwell_wire::id::{Format, packet_id};

/// Maximum difference between a time in a packet and the packet's timestamp; the sender's clock may
/// be wrong.
const MAX_CLOCK_DIFFERENCE: Nanos = Nanos::from_secs(10 * 86_400);

/// Seconds from 1900, the NTP epoch, to 1970 (RFC 5905, section 6).
const NTP_EPOCH: i64 = 2_208_988_800;

/// Identification of packets within a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// By an id in the payload.
    Payload(Format),
    /// By the TCP or ICMP echo sequence number.
    Header,
    /// By the order at each hook.
    Order,
}

impl Id {
    /// Selects the identification of a flow from its first event.
    pub(super) fn of(requested: IdFormat, first: &Event) -> Self {
        match (first.protocol, requested) {
            (Protocol::Tcp | Protocol::Echo, _) => Self::Header,
            (Protocol::Udp, IdFormat::Auto) => found(first).map_or(Self::Order, Self::Payload),
            (Protocol::Udp, requested) => {
                crate::id::format(requested).map_or(Self::Order, Self::Payload)
            }
        }
    }

    /// Returns the name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Payload(Format::Iperf) => "iperf",
            Self::Payload(Format::IperfClassic) => "iperf, first 12 bytes",
            Self::Payload(Format::Stamp) => "stamp",
            Self::Payload(Format::Roundtrip) => "roundtrip",
            Self::Payload(Format::Dwell) => "dwell",
            Self::Header => "sequence number",
            Self::Order => "order",
        }
    }

    /// Returns the packet's id; `None` if it has none or only its order identifies it.
    pub(super) fn read(self, event: &Event) -> Option<u64> {
        match (self, event.protocol) {
            (Self::Payload(format), _) => packet_id(format, event.head()),
            (Self::Header, Protocol::Tcp) => u32_at(event.head(), 0).map(u64::from),
            (Self::Header, _) => {
                event.head().first_chunk().map(|seq| u64::from(u16::from_be_bytes(*seq)))
            }
            (Self::Order, _) => None,
        }
    }
}

/// Detects the format of a payload from its start and length, as far as the event contains them.
fn found(event: &Event) -> Option<Format> {
    let head = event.head();
    if head.starts_with(b"dwlt") && head.len() >= 16 {
        return Some(Format::Dwell);
    }
    if event.size == 24 && [b"REQ\0", b"ACK\0"].iter().any(|word| head.ends_with(*word)) {
        return Some(Format::Roundtrip);
    }
    let now = event.at.as_nanos() / 1_000_000_000;
    let is_near = |at: usize, epoch: i64| {
        let seconds = u32_at(head, at).map(|seconds| i64::from(seconds) - epoch);
        seconds
            .is_some_and(|seconds| (seconds - now).abs() <= MAX_CLOCK_DIFFERENCE.0 / 1_000_000_000)
    };
    let is_time = |at| is_near(at, 0) || is_near(at, NTP_EPOCH);
    // iperf2 times are seconds and microseconds; the upper half of its 64-bit id follows: 0 so far,
    // or all ones in the negated id of a FIN.
    let is_upper_half = u32_at(head, 12).is_some_and(|half| half == 0 || half == u32::MAX);
    if is_near(4, 0) && is_upper_half && u32_at(head, 8).is_some_and(|us| us < 1_000_000) {
        return Some(Format::Iperf);
    }
    // STAMP without and with authentication (RFC 8762, section 4.2.1); the multiplier of an error
    // estimate is not 0.
    let is_estimate = |at: usize| head.get(at + 1).is_some_and(|multiplier| *multiplier != 0);
    // A request continues with zeros, a reply with the receive time (sections 4.2.1, 4.3.1).
    let is_next = is_time(16) || head.get(16..24).is_some_and(|zeros| zeros == [0; 8]);
    let is_open = event.size >= 44 && is_time(4) && is_estimate(12) && is_next;
    let is_authenticated =
        event.size >= 112 && head.get(4..16).is_some_and(|zeros| zeros == [0; 12]) && is_time(16);
    if is_open || is_authenticated {
        return Some(Format::Stamp);
    }
    // Encrypted bytes after the time may have any value.
    let is_classic = is_near(4, 0) && u32_at(head, 8).is_some_and(|us| us < 1_000_000);
    is_classic.then_some(Format::IperfClassic)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-01-01.
    const NOW: u32 = 1_735_689_600;

    fn event(size: u16, head: &[u8]) -> Event {
        let at = dwell_units::Instant::from_parts(i64::from(NOW), 0);
        let (from, to) = ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:5001".parse().unwrap());
        Event::udp(dwell_sample::Point::PreRouting, at, (from, to), size, head)
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn id_format_is_detected_from_payload_start() {
        let ntp = NOW.wrapping_add(2_208_988_800_u32);
        let mut roundtrip = vec![0; 16];
        roundtrip.extend(7_u32.to_le_bytes());
        roundtrip.extend(b"REQ\0");
        let classic = Format::IperfClassic;
        let dwell = [b"dwlt".as_slice(), &words(&[4, 0, 7, 0])].concat();
        for (size, head, format, id) in [
            (1_470, words(&[7, NOW, 999_999, 0, 0x4801_0098, 0]), Format::Iperf, 7),
            (1_470, words(&[7_u32.wrapping_neg(), NOW, 5, u32::MAX, 0, 0]), Format::Iperf, 7),
            (44, words(&[7, ntp, 1, 0x0001_0007, 0, 0]), Format::Stamp, 7),
            (44, words(&[7, NOW, 1, 0x4001_0007, 0, 0]), Format::Stamp, 7),
            (112, words(&[7, 0, 0, 0, ntp, 1]), Format::Stamp, 7),
            (24, roundtrip, Format::Roundtrip, 7),
            (1_400, dwell, Format::Dwell, 7),
            // Encrypted after 12 bytes; the bytes that follow would be an upper half and its flag.
            (512, words(&[7, NOW, 5, 0x1234_5678, 0x8000_0000 | 0x0800_0098, 9]), classic, 7),
            (512, words(&[7, NOW, 5, 0x00ab_5678, 77, 9]), classic, 7),
        ] {
            let event = event(size, &head);
            let found = Id::of(IdFormat::Auto, &event);
            assert_eq!(found, Id::Payload(format), "{head:?}");
            assert_eq!(found.read(&event), Some(id), "{head:?}");
        }
    }

    #[test]
    fn unknown_payload_is_matched_by_order() {
        for head in [&b"hello"[..], &[0; 24], &[0xff; 24], &words(&[7, NOW, 1_000_000, 0]), b""] {
            assert_eq!(Id::of(IdFormat::Auto, &event(100, head)), Id::Order, "{head:?}");
        }
        let short = event(3, b"abc");
        for format in [Format::Iperf, Format::Stamp, Format::Roundtrip, Format::Dwell] {
            assert_eq!(Id::Payload(format).read(&short), None, "{format:?}");
        }
    }
}
