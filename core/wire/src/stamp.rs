//! STAMP test packets (RFC 8762 sections 4.2 and 4.3), unauthenticated and authenticated, with the
//! session identifier of RFC 8972 section 3.
//!
//! Parsers accept packets of TWAMP-light peers (RFC 5357 appendix I), requests of 14 bytes and
//! replies of 38 bytes, because the fields are at the same offsets.

use crate::hmac::{self, Key};
use crate::timestamp::{ErrorEstimate, Format};
use crate::{WireError, bytes, field};

/// Mode, which determines the offsets of the fields (RFC 8762 figures 2 to 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// 44 bytes.
    Unauthenticated,
    /// 112 bytes; the last 16 are an HMAC.
    Authenticated,
}

impl Mode {
    /// Length of a packet without TLVs.
    pub const fn base(self) -> usize {
        match self {
            Self::Unauthenticated => 44,
            Self::Authenticated => 112,
        }
    }

    /// Offset of the sender's sequence number in a reply.
    pub const fn sender_sequence(self) -> usize {
        reply_offsets(self).1
    }

    /// Minimum length of a request.
    const fn min_request_len(self) -> usize {
        match self {
            Self::Unauthenticated => 14,
            Self::Authenticated => 112,
        }
    }

    /// Minimum length of a reply.
    const fn min_reply_len(self) -> usize {
        match self {
            Self::Unauthenticated => 38,
            Self::Authenticated => 112,
        }
    }

    /// Offset of the sender's timestamp in a request and of T3 in a reply. The error estimate and
    /// the SSID follow it.
    const fn timestamp(self) -> usize {
        match self {
            Self::Unauthenticated => 4,
            Self::Authenticated => 16,
        }
    }
}

/// Number of bytes covered by the HMAC of a packet.
const SIGNED_LEN: usize = 96;

/// Packet of the session-sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Sequence number.
    pub seq: u32,
    /// T1, raw; the reflector copies it.
    pub timestamp: u64,
    /// Error estimate, raw.
    pub error: u16,
    /// Session identifier; 0 if the packet is too short to have one.
    pub ssid: u16,
}

impl Request {
    /// Reads a request.
    pub fn parse(packet: &[u8], mode: Mode) -> Result<Self, WireError> {
        if packet.len() < mode.min_request_len() {
            return Err(WireError::TooShort);
        }
        let at = mode.timestamp();
        Ok(Self {
            seq: u32::from_be_bytes(field(packet, 0)?),
            timestamp: u64::from_be_bytes(field(packet, at)?),
            error: u16::from_be_bytes(field(packet, at + 8)?),
            ssid: bytes(packet, at + 10).map_or(0, u16::from_be_bytes),
        })
    }

    /// Writes the base packet. The caller writes the TLVs after it.
    pub fn emit(&self, packet: &mut [u8], mode: Mode) {
        let at = mode.timestamp();
        packet[..mode.base()].fill(0);
        packet[..4].copy_from_slice(&self.seq.to_be_bytes());
        packet[at..at + 8].copy_from_slice(&self.timestamp.to_be_bytes());
        packet[at + 8..at + 10].copy_from_slice(&self.error.to_be_bytes());
        packet[at + 10..at + 12].copy_from_slice(&self.ssid.to_be_bytes());
    }
}

/// Packet of the session-reflector.
///
/// ```
/// use dwell_wire::stamp::{Mode, Reply, Request};
///
/// let mut packet = [0; Mode::Unauthenticated.base()];
/// let request = Request { seq: 7, timestamp: 1 << 32, error: 0x8001, ssid: 5 };
/// request.emit(&mut packet, Mode::Unauthenticated);
///
/// // The reflector answers in place, so the reply is as long as the request.
/// assert_eq!(Request::parse(&packet, Mode::Unauthenticated), Ok(request));
/// let reply = Reply {
///     seq: request.seq,
///     t3: 3 << 32,
///     error: 0x8001,
///     ssid: request.ssid,
///     t2: 2 << 32,
///     sender_seq: request.seq,
///     sender_timestamp: request.timestamp,
///     sender_error: request.error,
///     ttl: 64,
/// };
/// reply.emit(&mut packet, Mode::Unauthenticated);
/// assert_eq!(Reply::parse(&packet, Mode::Unauthenticated), Ok(reply));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The reflector's own sequence number, or that of the request if the reflector is stateless.
    pub seq: u32,
    /// T3.
    pub t3: u64,
    /// Error estimate of T2 and T3.
    pub error: u16,
    /// Session identifier.
    pub ssid: u16,
    /// T2.
    pub t2: u64,
    /// Sequence number of the request.
    pub sender_seq: u32,
    /// T1 of the request, raw.
    pub sender_timestamp: u64,
    /// Error estimate of the request, raw.
    pub sender_error: u16,
    /// TTL or hop limit of the request on arrival; 0 if the packet is too short.
    pub ttl: u8,
}

/// Similarity of a packet to a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Its timestamps do not fit a reply, or it is too short for them.
    None,
    /// Its timestamps fit a reply; other fields do not.
    Partial,
    /// All fields fit a reply.
    Full,
}

/// Compares `packet` with a reply. The likeness is full if the bytes after the sender's error
/// estimate and after its TTL are zero (RFC 8762 figures 5 and 6), these two fields are not, and T3
/// is less than a second after T2.
///
/// A sender must zero all of these fields, but a reflector ignores them, and some senders fill them
/// with random bytes. The probability that random bytes have full likeness is 2^-72.
pub fn likeness_to_reply(packet: &[u8], mode: Mode) -> Likeness {
    let (t2_at, _, _, error_at, ttl_at) = reply_offsets(mode);
    let zeros_to = match mode {
        Mode::Unauthenticated => mode.base(),
        Mode::Authenticated => SIGNED_LEN,
    };
    let timestamp = |at| bytes(packet, at).map(u64::from_be_bytes);
    let own_error = bytes(packet, mode.timestamp() + 8).map(u16::from_be_bytes);
    let (Some(t3), Some(t2), Some(own_error)) =
        (timestamp(mode.timestamp()), timestamp(t2_at), own_error)
    else {
        return Likeness::None;
    };
    let residence_fits = match ErrorEstimate::from_bits(own_error).format {
        Format::Ntp => t3.wrapping_sub(t2) < 1 << 32,
        Format::Ptp => (0..1_000_000_000).contains(&ptp_difference(t3, t2)),
    };
    let is_zero = |from: usize, to: usize| {
        let present = packet.get(from..to.min(packet.len())).unwrap_or_default();
        present.iter().all(|byte| *byte == 0)
    };
    if !residence_fits {
        return Likeness::None;
    }
    let is_full = packet.len() >= mode.base()
        && packet[error_at..error_at + 2] != [0, 0]
        && packet[ttl_at] != 0
        && is_zero(error_at + 2, ttl_at)
        && is_zero(ttl_at + 1, zeros_to);
    // Zeros or another constant byte are padding, not a time.
    let is_constant = t2 == t2.rotate_left(8);
    match (is_full, is_constant) {
        (true, _) => Likeness::Full,
        (false, true) => Likeness::None,
        // TWAMP-light reflectors send padding where STAMP has zeros (RFC 5357 section 4.2.1).
        (false, false) => Likeness::Partial,
    }
}

/// Nanoseconds from one timestamp in PTP format to a later one; the seconds wrap.
fn ptp_difference(later: u64, earlier: u64) -> i64 {
    let seconds = ((later >> 32) as u32).wrapping_sub((earlier >> 32) as u32) as i32;
    i64::from(seconds) * 1_000_000_000 + i64::from(later as u32) - i64::from(earlier as u32)
}

/// Offsets of the fields that only a reply has: T2, sender's sequence number, T1, error estimate,
/// TTL.
const fn reply_offsets(mode: Mode) -> (usize, usize, usize, usize, usize) {
    match mode {
        Mode::Unauthenticated => (16, 24, 28, 36, 40),
        Mode::Authenticated => (32, 48, 64, 72, 80),
    }
}

impl Reply {
    /// Reads a reply.
    pub fn parse(packet: &[u8], mode: Mode) -> Result<Self, WireError> {
        if packet.len() < mode.min_reply_len() {
            return Err(WireError::TooShort);
        }
        let at = mode.timestamp();
        let (t2, seq, t1, error, ttl) = reply_offsets(mode);
        Ok(Self {
            seq: u32::from_be_bytes(field(packet, 0)?),
            t3: u64::from_be_bytes(field(packet, at)?),
            error: u16::from_be_bytes(field(packet, at + 8)?),
            ssid: u16::from_be_bytes(field(packet, at + 10)?),
            t2: u64::from_be_bytes(field(packet, t2)?),
            sender_seq: u32::from_be_bytes(field(packet, seq)?),
            sender_timestamp: u64::from_be_bytes(field(packet, t1)?),
            sender_error: u16::from_be_bytes(field(packet, error)?),
            ttl: packet.get(ttl).copied().unwrap_or(0),
        })
    }

    /// Writes as much of the base packet as fits into `packet`, so that a reply is never longer
    /// than its request. Readers expect at least the 38 bytes of a TWAMP-light reply, but a shorter
    /// request gets a shorter reply.
    pub fn emit(&self, packet: &mut [u8], mode: Mode) {
        let mut whole = [0; 112];
        let at = mode.timestamp();
        let (t2, seq, t1, error, ttl) = reply_offsets(mode);
        whole[..4].copy_from_slice(&self.seq.to_be_bytes());
        whole[at..at + 8].copy_from_slice(&self.t3.to_be_bytes());
        whole[at + 8..at + 10].copy_from_slice(&self.error.to_be_bytes());
        whole[at + 10..at + 12].copy_from_slice(&self.ssid.to_be_bytes());
        whole[t2..t2 + 8].copy_from_slice(&self.t2.to_be_bytes());
        whole[seq..seq + 4].copy_from_slice(&self.sender_seq.to_be_bytes());
        whole[t1..t1 + 8].copy_from_slice(&self.sender_timestamp.to_be_bytes());
        whole[error..error + 2].copy_from_slice(&self.sender_error.to_be_bytes());
        whole[ttl] = self.ttl;
        let len = packet.len().min(mode.base());
        packet[..len].copy_from_slice(&whole[..len]);
    }

    /// Error estimate of T2 and T3.
    pub fn estimate(&self) -> ErrorEstimate {
        ErrorEstimate::from_bits(self.error)
    }
}

/// Writes the HMAC of an authenticated packet.
///
/// ```
/// use dwell_wire::hmac::{Key, SecretKey};
/// use dwell_wire::stamp::{self, Mode};
///
/// let secret = SecretKey::from_hex("000102030405060708090a0b0c0d0e0f")?;
/// let key = Key::new(secret.bytes());
/// let mut packet = [0; Mode::Authenticated.base()];
/// stamp::sign(&key, &mut packet);
/// assert!(stamp::verify(&key, &packet));
/// packet[3] ^= 1;
/// assert!(!stamp::verify(&key, &packet));
/// # Ok::<(), dwell_wire::hmac::KeyError>(())
/// ```
pub fn sign(key: &Key, packet: &mut [u8]) {
    let (signed, rest) = packet.split_at_mut(SIGNED_LEN);
    rest[..hmac::LEN].copy_from_slice(&key.sign(&[signed]));
}

/// Whether the HMAC of an authenticated packet is valid.
pub fn verify(key: &Key, packet: &[u8]) -> bool {
    packet
        .get(SIGNED_LEN..SIGNED_LEN + hmac::LEN)
        .is_some_and(|tag| key.verify(&[&packet[..SIGNED_LEN]], tag))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MODES: [Mode; 2] = [Mode::Unauthenticated, Mode::Authenticated];

    #[test]
    fn field_offsets_match_rfc_8762() {
        let reply = Reply {
            seq: 0x01020304,
            t3: 0x1111_1111_1111_1111,
            error: 0x2222,
            ssid: 0x3333,
            t2: 0x4444_4444_4444_4444,
            sender_seq: 0x05060708,
            sender_timestamp: 0x5555_5555_5555_5555,
            sender_error: 0x6666,
            ttl: 64,
        };
        let mut packet = [0; 44];
        reply.emit(&mut packet, Mode::Unauthenticated);
        assert_eq!(packet[..4], [1, 2, 3, 4]);
        assert_eq!(packet[4..12], [0x11; 8]);
        assert_eq!(packet[12..16], [0x22, 0x22, 0x33, 0x33]);
        assert_eq!(packet[16..24], [0x44; 8]);
        assert_eq!(packet[24..28], [5, 6, 7, 8]);
        assert_eq!(packet[28..36], [0x55; 8]);
        assert_eq!(packet[36..44], [0x66, 0x66, 0, 0, 64, 0, 0, 0]);
        let mut packet = [0; 112];
        reply.emit(&mut packet, Mode::Authenticated);
        assert_eq!((packet[16], packet[32], packet[48], packet[64]), (0x11, 0x44, 5, 0x55));
        assert_eq!((packet[72], packet[80]), (0x66, 64));
    }

    /// A reply with a residence time of `after` units of its timestamp format.
    fn reply(mode: Mode, error: u16, t2: u64, after: u64) -> Vec<u8> {
        let mut packet = vec![0; mode.base()];
        let sent = Reply {
            seq: 1,
            t3: t2.wrapping_add(after),
            error,
            ssid: 7,
            t2,
            sender_seq: 1,
            sender_timestamp: t2.wrapping_sub(1_000),
            sender_error: 0x0100,
            ttl: 64,
        };
        sent.emit(&mut packet, mode);
        packet
    }

    #[test]
    fn replies_are_recognised_in_both_modes_and_formats() {
        const NTP: u16 = 0x8001;
        const PTP: u16 = 0xc001;
        let ntp = 0xeb01_78f1_ffff_ff00;
        let ptp = 0x6553_f100_3b9a_c9ff;
        for mode in MODES {
            let likeness =
                |error, t2, after| likeness_to_reply(&reply(mode, error, t2, after), mode);
            for after in [0, 1, (1 << 32) - 1] {
                assert_eq!(likeness(NTP, ntp, after), Likeness::Full, "{mode:?} {after}");
            }
            for after in [1 << 32, u64::MAX] {
                assert_eq!(likeness(NTP, ntp, after), Likeness::None, "{mode:?} {after}");
            }
            // From the last nanosecond of a second to the next second.
            let wrap = (1 << 32) - 999_999_999;
            assert_eq!(likeness(PTP, ptp, wrap), Likeness::Full, "{mode:?}");
            assert_eq!(likeness(PTP, ptp, 1 << 32), Likeness::None, "{mode:?}: a whole second");
            assert_eq!(likeness(NTP, u64::MAX, 1), Likeness::Full, "{mode:?}: the next era");
        }
    }

    #[test]
    fn incomplete_reply_has_partial_likeness() {
        for mode in MODES {
            let whole = reply(mode, 0x8001, 0xeb01_78f1_0000_0000, 9);
            let (_, _, _, error, ttl) = reply_offsets(mode);
            let zero_to = if mode == Mode::Unauthenticated { 44 } else { SIGNED_LEN };
            for at in (error + 2..ttl).chain(ttl + 1..zero_to) {
                let mut packet = whole.clone();
                packet[at] = 1;
                assert_eq!(likeness_to_reply(&packet, mode), Likeness::Partial, "{mode:?} {at}");
            }
            for field in [error..error + 2, ttl..ttl + 1] {
                let mut packet = whole.clone();
                packet[field].fill(0);
                assert_eq!(likeness_to_reply(&packet, mode), Likeness::Partial, "{mode:?}");
            }
            let mut request = vec![0; mode.base()];
            Request { seq: 1, timestamp: 5, error: 0x8001, ssid: 7 }.emit(&mut request, mode);
            assert_eq!(likeness_to_reply(&request, mode), Likeness::None, "{mode:?}");
        }
        let whole = reply(Mode::Unauthenticated, 0x8001, 0xeb01_78f1_0000_0000, 9);
        for len in 0..44 {
            let expected = if len < 24 { Likeness::None } else { Likeness::Partial };
            let found = likeness_to_reply(&whole[..len], Mode::Unauthenticated);
            assert_eq!(found, expected, "{len} bytes");
        }
    }

    #[test]
    fn twamp_light_reply_of_38_bytes_is_read() {
        let mut packet = [0; 38];
        packet[24..28].copy_from_slice(&7_u32.to_be_bytes());
        let reply = Reply::parse(&packet, Mode::Unauthenticated).unwrap();
        assert_eq!((reply.sender_seq, reply.ttl), (7, 0));
    }

    proptest! {
        #[test]
        fn written_packet_is_read_back(
            seq: u32, timestamp: u64, error: u16, ssid: u16, t2: u64, sender_seq: u32, t1: u64,
            sender_error: u16, ttl: u8,
        ) {
            for mode in MODES {
                let mut packet = vec![0xff; mode.base()];
                let request = Request { seq, timestamp, error, ssid };
                request.emit(&mut packet, mode);
                prop_assert_eq!(Request::parse(&packet, mode), Ok(request));
                let reply = Reply {
                    seq, t3: timestamp, error, ssid, t2, sender_seq, sender_timestamp: t1,
                    sender_error, ttl,
                };
                reply.emit(&mut packet, mode);
                prop_assert_eq!(Reply::parse(&packet, mode), Ok(reply));
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(packet in prop::collection::vec(any::<u8>(), 0..130)) {
            for mode in MODES {
                let _ = Request::parse(&packet, mode);
                if let Ok(reply) = Reply::parse(&packet, mode) {
                    let mut again = packet.clone();
                    reply.emit(&mut again, mode);
                    prop_assert_eq!(Reply::parse(&again, mode), Ok(reply));
                }
            }
            for mode in MODES {
                let _ = likeness_to_reply(&packet, mode);
            }
            let _ = verify(&Key::new(b"key"), &packet);
        }

        #[test]
        fn changed_authenticated_packet_is_refused(seq: u32, bit in 0..896_usize) {
            let key = Key::new(b"0123456789abcdef");
            let mut packet = [0; 112];
            Request { seq, timestamp: 5, error: 1, ssid: 9 }.emit(&mut packet, Mode::Authenticated);
            sign(&key, &mut packet);
            prop_assert!(verify(&key, &packet));
            packet[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!verify(&key, &packet));
        }
    }
}
