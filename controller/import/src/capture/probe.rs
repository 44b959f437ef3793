//! Recognises a captured payload by its content: a STAMP packet (RFC 8762), the Roedlach/Vock
//! round-trip message or an iperf2 datagram. ICMP echo messages are probes too.

use dwell_units::{Instant, Realtime};
use dwell_wire::roundtrip::{Control, Message};
use dwell_wire::stamp::{Mode, Reply, Request};
use dwell_wire::timestamp::{self, ErrorEstimate};

use super::frame::Echo;

/// A protocol with packet ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Stamp {
        /// The session identifier.
        ssid: u16,
    },
    RoundTrip,
    Iperf2,
    Icmp {
        /// The echo identifier, which distinguishes sessions.
        id: u16,
    },
}

/// A recognised payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) protocol: Protocol,
    pub(super) reply: bool,
    pub(super) id: Id,
    /// Send time according to the sender, in nanoseconds since the epoch on its clock.
    pub(super) t1: Option<i64>,
    /// Receive and send time according to the reflector, on its clock.
    pub(super) t2_t3: Option<(i64, i64)>,
}

/// The id in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// A counter that wraps.
    Bits16(u16),
    /// A counter that wraps.
    Bits32(u32),
    /// A counter that does not wrap.
    Whole(u64),
    /// The end of a test. It is sent several times and is not a probe.
    End,
}

impl Protocol {
    pub(super) const fn scheme(self) -> &'static str {
        match self {
            Self::Stamp { .. } => "stamp",
            Self::RoundTrip => "roundtrip",
            Self::Iperf2 => "iperf2",
            Self::Icmp { .. } => "icmp",
        }
    }

    /// Returns the text that distinguishes its flows.
    pub(super) fn name(self) -> String {
        match self {
            Self::Stamp { ssid } => format!("{} ssid {ssid}", self.scheme()),
            Self::Icmp { id } => format!("{} id {id}", self.scheme()),
            Self::RoundTrip | Self::Iperf2 => self.scheme().to_owned(),
        }
    }
}

impl From<Echo> for Probe {
    fn from(Echo { reply, id, seq }: Echo) -> Self {
        let (protocol, id) = (Protocol::Icmp { id }, Id::Bits16(seq));
        Self { protocol, reply, id, t1: None, t2_t3: None }
    }
}

/// Recognises a payload captured at `at`; `ports` are source and destination.
pub(super) fn recognise(payload: &[u8], ports: (u16, u16), at: i64) -> Option<Probe> {
    round_trip(payload).or_else(|| stamp(payload, ports, at)).or_else(|| iperf2(payload, at))
}

/// Registered port of STAMP (RFC 8762).
const STAMP_PORT: u16 = 862;

/// Maximum difference between the clocks of sender and witness when only the timestamp identifies a
/// packet. Random data passes this test once in 25,000 packets; the other fields far more rarely.
const MAX_CLOCK_DIFFERENCE_NS: u64 = 86_400_000_000_000;

fn round_trip(payload: &[u8]) -> Option<Probe> {
    let message = Message::parse(payload).ok()?;
    let reply = message.control == Control::Acknowledge;
    // Its timestamps are of a clock that starts at boot and are not comparable here.
    let (protocol, id) = (Protocol::RoundTrip, Id::Bits32(message.id));
    Some(Probe { protocol, reply, id, t1: None, t2_t3: None })
}

fn stamp(payload: &[u8], (source, destination): (u16, u16), at: i64) -> Option<Probe> {
    let zero = |from: usize, to: usize| {
        payload.get(from..to).is_some_and(|part| part.iter().all(|byte| *byte == 0))
    };
    // These bytes hold the timestamp of an unauthenticated packet and are zero in an authenticated
    // one.
    let mode = if zero(4, 16) { Mode::Authenticated } else { Mode::Unauthenticated };
    let pivot = Instant::<Realtime>::from_nanos(at);
    let time = |bits: u64, error: u16| {
        timestamp::read(bits, ErrorEstimate::from_bits(error).format, pivot).as_nanos()
    };
    let credible = |bits: u64, error: u16| {
        // RFC 8762 section 4.2.1: the multiplier is not zero.
        error & 0xff != 0 && time(bits, error).abs_diff(at) <= MAX_CLOCK_DIFFERENCE_NS
    };
    if destination != STAMP_PORT
        && let Ok(reply) = Reply::parse(payload, mode)
        && (source == STAMP_PORT
            || payload.len() >= mode.base()
                && credible(reply.sender_timestamp, reply.sender_error)
                && reply.error & 0xff != 0)
    {
        let t1 = credible(reply.sender_timestamp, reply.sender_error)
            .then(|| time(reply.sender_timestamp, reply.sender_error));
        return Some(Probe {
            protocol: Protocol::Stamp { ssid: reply.ssid },
            reply: true,
            id: Id::Bits32(reply.sender_seq),
            t1,
            t2_t3: Some((time(reply.t2, reply.error), time(reply.t3, reply.error))),
        });
    }
    let request = Request::parse(payload, mode).ok()?;
    let blank = match mode {
        Mode::Unauthenticated => zero(16, 44),
        Mode::Authenticated => zero(28, 96),
    };
    let credible = credible(request.timestamp, request.error);
    (destination == STAMP_PORT || blank && credible).then(|| Probe {
        protocol: Protocol::Stamp { ssid: request.ssid },
        reply: false,
        id: Id::Bits32(request.seq),
        t1: credible.then(|| time(request.timestamp, request.error)),
        t2_t3: None,
    })
}

/// 0 u32 id, 4 u32 seconds, 8 u32 microseconds, 12 u32 upper half of the id; versions before 2.1
/// have other fields at 12.
fn iperf2(payload: &[u8], at: i64) -> Option<Probe> {
    let word = |at: usize| Some(u32::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    let (low, seconds, micros) = (word(0)?, word(4)?, word(8)?);
    let t1 = i64::from(seconds) * 1_000_000_000 + i64::from(micros) * 1_000;
    if micros >= 1_000_000 || t1.abs_diff(at) > MAX_CLOCK_DIFFERENCE_NS {
        return None;
    }
    // A valid upper half is small or a sign extension.
    let high = word(12).filter(|high| *high < 1 << 16 || *high == u32::MAX);
    let id = match high {
        Some(high) => (u64::from(high) << 32 | u64::from(low)) as i64,
        None => i64::from(low as i32),
    };
    let id = u64::try_from(id).map_or(Id::End, Id::Whole);
    Some(Probe { protocol: Protocol::Iperf2, reply: false, id, t1: Some(t1), t2_t3: None })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_795_247_657_000_000_000;

    #[test]
    fn iperf_ids_exceed_32_bits_and_negative_ids_end_the_test() {
        let datagram = |low: u32, high: u32| {
            let words = [low, (NOW / 1_000_000_000) as u32, 5, high];
            words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>()
        };
        let id = |low, high| recognise(&datagram(low, high), (9, 5001), NOW).unwrap().id;
        assert_eq!(id(7, 0), Id::Whole(7));
        assert_eq!(id(7, 1), Id::Whole((1 << 32) + 7));
        assert_eq!(id(0xffff_ffe5, 0xffff_ffff), Id::End);
        // The flags of older versions are not part of the id.
        assert_eq!(id(7, 0x8000_0000), Id::Whole(7));
    }

    fn request(mode: Mode, timestamp: u64, error: u16, length: usize) -> Vec<u8> {
        let mut packet = vec![0; mode.base()];
        Request { seq: 7, timestamp, error, ssid: 9 }.emit(&mut packet, mode);
        packet.truncate(length);
        packet
    }

    #[test]
    fn stamp_is_recognised_by_content_on_any_port() {
        let ntp = (timestamp::write_ntp(Instant::from_nanos(NOW)), 0x0001);
        // A PTP timestamp with few nanoseconds could also be an iperf2 timestamp.
        let ptp = (timestamp::write_ptp(Instant::from_nanos(NOW + 5)), 0x4001);
        for mode in [Mode::Unauthenticated, Mode::Authenticated] {
            for (time, error) in [ntp, ptp] {
                let packet = request(mode, time, error, mode.base());
                let probe = recognise(&packet, (40_000, 20_862), NOW).unwrap();
                assert_eq!(probe.protocol, Protocol::Stamp { ssid: 9 });
                assert_eq!((probe.reply, probe.id), (false, Id::Bits32(7)));
                assert!(probe.t1.unwrap().abs_diff(NOW) <= 5, "{probe:?}");

                let mut packet = vec![0; mode.base()];
                let reply = Reply {
                    seq: 70,
                    t3: time,
                    error,
                    ssid: 9,
                    t2: time,
                    sender_seq: 7,
                    sender_timestamp: time,
                    sender_error: error,
                    ttl: 64,
                };
                reply.emit(&mut packet, mode);
                let answer = recognise(&packet, (20_862, 40_000), NOW).unwrap();
                assert_eq!((answer.protocol, answer.id), (probe.protocol, probe.id));
                assert_eq!((answer.reply, answer.t1), (true, probe.t1));
                assert_eq!(answer.t2_t3.unwrap().0, probe.t1.unwrap());
            }
        }
    }

    #[test]
    fn short_twamp_light_request_needs_the_port() {
        let time = timestamp::write_ntp(Instant::from_nanos(NOW));
        let packet = request(Mode::Unauthenticated, time, 0x0001, 14);
        assert_eq!(recognise(&packet, (40_000, 20_862), NOW), None);
        let probe = recognise(&packet, (40_000, 862), NOW).unwrap();
        assert_eq!((probe.protocol, probe.id), (Protocol::Stamp { ssid: 0 }, Id::Bits32(7)));
    }

    #[test]
    fn timestamp_of_another_day_is_not_recognised() {
        let words = [1, (NOW / 1_000_000_000) as u32 - 2 * 86_400, 5, 0];
        let datagram: Vec<_> = words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        assert_eq!(recognise(&datagram, (9, 5001), NOW), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(payload: Vec<u8>, ports: (u16, u16), at: i64, port in 0..3) {
            let ports = match port {
                0 => (STAMP_PORT, ports.1),
                1 => (ports.0, STAMP_PORT),
                _ => ports,
            };
            let _ = recognise(&payload, ports, at);
        }
    }
}
