//! Packet numbers in the payloads of known formats. Senders, relays, traces and receivers join
//! their timestamps by these numbers.

use dwell_units::{Instant, Nanos, Realtime};

use crate::iperf2::{self, Datagram};
use crate::traffic::Mark;
use crate::{bytes, roundtrip};

/// A payload format whose packets carry a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// UDP datagrams of iperf2.
    Iperf,
    /// The first 12 bytes of an iperf2 datagram: the whole header of old clients, and all that
    /// stays clear if a relay encrypts the rest (Miya 2020).
    IperfClassic,
    /// STAMP test packets in both directions and modes.
    Stamp,
    /// Round-trip messages of Roedlach/Vock in both directions.
    Roundtrip,
    /// Traffic with dwell's own mark.
    Dwell,
}

/// Detects the format of a payload from its fixed fields and plausible times. Another payload
/// matches only if several bytes coincide. The first packets of a flow decide; the user can
/// override the result.
pub fn detect(payload: &[u8]) -> Option<Format> {
    if Mark::parse(payload).is_ok() {
        Some(Format::Dwell)
    } else if roundtrip::Message::parse(payload).is_ok() {
        Some(Format::Roundtrip)
    } else if looks_like_iperf(payload) {
        Some(Format::Iperf)
    } else if looks_like_stamp(payload) {
        Some(Format::Stamp)
    } else {
        None
    }
}

/// Like [`detect`], for a payload with an encrypted tail. The first 12 bytes of iperf2 contain no
/// fixed field, so they are accepted only if their time is within ten days of `now`, the time of
/// observation; one in ten million other payloads matches.
pub fn detect_clear(payload: &[u8], now: Instant<Realtime>) -> Option<Format> {
    detect(payload)
        .or_else(|| looks_like_classic_iperf(payload, now).then_some(Format::IperfClassic))
}

/// Returns the number of a packet in its flow: the absolute id of iperf2 (of its first 12 bytes the
/// lower 32 bits), the sequence number of STAMP and of dwell's mark, or the cycle of a round-trip
/// message. `None` if the payload is too short or its fixed bytes do not match.
///
/// An iperf2 FIN ([`Datagram::is_fin`]) has a number too, but is repeated until it is answered.
/// Senders and receivers keep no timestamps of it, because they could not be joined.
///
/// ```
/// use dwell_wire::id::{Format, detect, packet_id};
/// use dwell_wire::traffic::Mark;
///
/// let mut payload = [0; 100];
/// Mark { flow: 2, seq: 1_000 }.emit(&mut payload);
/// assert_eq!(detect(&payload), Some(Format::Dwell));
/// assert_eq!(packet_id(Format::Dwell, &payload), Some(1_000));
/// ```
pub fn packet_id(format: Format, payload: &[u8]) -> Option<u64> {
    match format {
        Format::Iperf | Format::IperfClassic => {
            iperf(format, payload).map(|datagram| datagram.number())
        }
        Format::Stamp => bytes(payload, 0).map(|seq| u32::from_be_bytes(seq).into()),
        Format::Roundtrip => roundtrip::Message::parse(payload).ok().map(|m| m.id.into()),
        Format::Dwell => Mark::parse(payload).ok().map(|mark| mark.seq),
    }
}

/// Header of an iperf2 datagram, as far as it is clear in this format; `None` in other formats.
pub fn iperf(format: Format, payload: &[u8]) -> Option<Datagram> {
    match format {
        Format::Iperf => Datagram::parse(payload).ok(),
        // The bytes after it may be encrypted.
        Format::IperfClassic => Datagram::parse(payload.get(..iperf2::CLASSIC_LEN)?).ok(),
        Format::Stamp | Format::Roundtrip | Format::Dwell => None,
    }
}

fn looks_like_classic_iperf(payload: &[u8], now: Instant<Realtime>) -> bool {
    const MAX_TIME_OFFSET: Nanos = Nanos::from_secs(10 * 86_400);
    iperf(Format::IperfClassic, payload).is_some_and(|datagram| {
        let off = datagram.at().as_nanos().abs_diff(now.as_nanos());
        datagram.usec < 1_000_000 && off <= MAX_TIME_OFFSET.0.unsigned_abs()
    })
}

fn looks_like_iperf(payload: &[u8]) -> bool {
    let word = |at| bytes(payload, at).map(u32::from_be_bytes);
    let (Some(low), Some(sec), Some(usec), Some(high)) = (word(0), word(4), word(8), word(12))
    else {
        return false;
    };
    // Old clients have flags in place of the upper half: none, or those of the first version.
    let fits = match high {
        0 | 0x8000_0000 | 0x8000_0001 => true,
        u32::MAX => low >> 31 == 1,
        _ => false,
    };
    // A board without a real-time clock may report a time in 1970.
    sec != 0 && usec < 1_000_000 && fits
}

/// RFC 8762 figures 2 to 6: the fields that must be zero are zero, and the multiplier of the error
/// estimate is not (RFC 4656 section 4.1.2).
fn looks_like_stamp(payload: &[u8]) -> bool {
    let zeros = |from: usize, to: usize| {
        payload.get(from..to).is_some_and(|field| field.iter().all(|byte| *byte == 0))
    };
    let given = |at: usize| payload.get(at).is_some_and(|byte| *byte != 0);
    let request = given(13) && zeros(16, 44);
    let reply = given(13) && zeros(38, 40) && zeros(41, 44) && given(37);
    let authenticated = payload.len() >= 112 && zeros(4, 16) && given(25) && zeros(28, 32);
    given(4) && (request || reply) || authenticated
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::iperf2::{self, Client};
    use crate::stamp::{Mode, Reply, Request};

    const AT: i64 = 1_795_258_609_986_151_000;

    fn datagram(id: i64, len: usize) -> Vec<u8> {
        let mut payload = vec![0xa5; len];
        Datagram::new(id, Instant::from_nanos(AT)).emit(&mut payload);
        Client { threads: 1, port: 5_001, size: len as u32, amount: -500, rate: 0 }
            .emit(&mut payload);
        payload
    }

    fn stamp(seq: u32, mode: Mode) -> Vec<u8> {
        let mut packet = vec![0; mode.base()];
        Request { seq, timestamp: 0xeb01_78f1_8000_1234, error: 0x0001, ssid: 77 }
            .emit(&mut packet, mode);
        packet
    }

    #[test]
    fn each_format_is_detected_and_numbered() {
        let mut mark = [0xa5; 100];
        Mark { flow: 3, seq: 9 }.emit(&mut mark);
        let mut message = [0; roundtrip::LEN];
        let control = roundtrip::Control::Request;
        roundtrip::Message { seconds: 8, nanoseconds: 7, id: 9, control }.emit(&mut message);
        let mut reply = vec![0; 44];
        let sent = Request::parse(&stamp(9, Mode::Unauthenticated), Mode::Unauthenticated).unwrap();
        Reply {
            seq: 9,
            t3: sent.timestamp,
            error: 0x8001,
            ssid: sent.ssid,
            t2: sent.timestamp,
            sender_seq: 9,
            sender_timestamp: sent.timestamp,
            sender_error: sent.error,
            ttl: 64,
        }
        .emit(&mut reply, Mode::Unauthenticated);
        for (payload, format) in [
            (&mark[..], Format::Dwell),
            (&message, Format::Roundtrip),
            (&datagram(9, 1_400), Format::Iperf),
            (&datagram(-9, 100), Format::Iperf),
            (&datagram(9, 16), Format::Iperf),
            (&stamp(9, Mode::Unauthenticated), Format::Stamp),
            (&stamp(9, Mode::Authenticated), Format::Stamp),
            (&reply, Format::Stamp),
        ] {
            assert_eq!(detect(payload), Some(format), "{payload:02x?}");
            assert_eq!(packet_id(format, payload), Some(9), "{format:?}");
        }
        assert_eq!(detect(b"request"), None);
        assert_eq!(detect(&[0xa5; 200]), None);
        assert_eq!(detect(&[0; 200]), None);
    }

    #[test]
    fn encrypted_iperf_payload_gives_the_low_half_of_its_id() {
        let seed = 0x5eed_u64;
        let mut noise = seed;
        for id in [1, 9, 77_777, -9] {
            for _ in 0..64 {
                let mut payload = datagram(id, 200);
                payload[12..].iter_mut().for_each(|byte| {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (noise >> 56) as u8;
                });
                let now = Instant::from_nanos(AT + 3_000_000_000);
                let found = detect_clear(&payload, now);
                assert_eq!(found, Some(Format::IperfClassic), "seed {seed}: {payload:02x?}");
                let number = packet_id(Format::IperfClassic, &payload);
                assert_eq!(number, Some(id.unsigned_abs()), "seed {seed}");
                let header = iperf(Format::IperfClassic, &payload).unwrap();
                assert_eq!(header.is_fin(), id < 0, "seed {seed}");
                let next_year = Instant::from_nanos(AT + 31_536_000_000_000_000);
                assert_eq!(detect_clear(&payload, next_year), None, "seed {seed}");
            }
        }
        // Encrypted bytes that look like a client with 64-bit numbers.
        let mut payload = datagram(9, 200);
        payload[12..16].fill(0x5a);
        assert_ne!(packet_id(Format::Iperf, &payload), Some(9));
        assert_eq!(packet_id(Format::IperfClassic, &payload), Some(9));
        assert_eq!(packet_id(Format::IperfClassic, &[0; 11]), None);
    }

    proptest! {
        #[test]
        fn every_number_of_iperf_is_found(id in 1_i64..=i64::MAX, len in 76_usize..200) {
            let payload = datagram(id, len);
            prop_assert_eq!(packet_id(Format::Iperf, &payload), Some(id as u64));
            prop_assert!(iperf2::clear_len(&payload) == 76);
        }

        #[test]
        fn any_bytes_are_read_without_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (detect(&payload), detect_clear(&payload, Instant::from_nanos(AT)));
            for format in [Format::Iperf, Format::IperfClassic, Format::Stamp, Format::Roundtrip, Format::Dwell] {
                let _ = (packet_id(format, &payload), iperf(format, &payload));
            }
        }
    }
}
