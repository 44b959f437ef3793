//! STAMP extensions (RFC 8972 section 4): 0 flags, 1 type, 2 u16 length, 4 value.
//!
//! A reflector answers TLVs in place, in the copy of the request that becomes its reply, so a
//! single walk over mutable bytes suffices.

use crate::hmac::{self, Key};

/// Bytes before the value.
pub const HEADER: usize = 4;

/// Flag: unrecognised. The sender sets it; a reflector that supports the TLV clears it.
pub const UNRECOGNISED: u8 = 0x80;
/// Flag: the length exceeds the packet or does not fit the type.
pub const MALFORMED: u8 = 0x40;
/// Flag: the HMAC TLV did not verify.
pub const INTEGRITY: u8 = 0x20;

/// TLV types (RFC 8972 section 5.1 and the IANA registry).
pub mod kind {
    /// Padding.
    pub const EXTRA_PADDING: u8 = 1;
    /// Timestamp information: synchronisation source and timestamping method.
    pub const TIMESTAMP_INFORMATION: u8 = 3;
    /// Class of service.
    pub const CLASS_OF_SERVICE: u8 = 4;
    /// Direct measurement: packet counters.
    pub const DIRECT_MEASUREMENT: u8 = 5;
    /// HMAC over the TLVs before it.
    pub const HMAC: u8 = 8;
    /// Experimental type of dwell: identity of the reflector's clock.
    pub const NODE_CLOCK: u8 = 240;
    /// Experimental type of dwell: telemetry slots for relays. See [`crate::telemetry`].
    pub const PATH: u8 = 241;
    /// Experimental type of dwell: packets dropped by the reflector's socket.
    pub const SOCKET_DROPS: u8 = 242;
}

/// Length of the value of a node clock TLV: 4 bytes of magic, 12 of identity.
pub const NODE_CLOCK_LEN: usize = 16;
/// Start of the value of a node clock TLV. Others may use type 240 too.
pub const NODE_CLOCK_MAGIC: [u8; 4] = *b"dwll";

/// Length of the value of a socket drops TLV: 4 bytes of magic, u32 counter.
pub const SOCKET_DROPS_LEN: usize = 8;
/// Start of the value of a socket drops TLV. Others may use type 242 too.
pub const SOCKET_DROPS_MAGIC: [u8; 4] = *b"dwld";

/// Returns the counter in the value of a socket drops TLV; `None` for a foreign value.
pub fn socket_drops(value: &[u8]) -> Option<u32> {
    let counter: [u8; 4] = value.strip_prefix(&SOCKET_DROPS_MAGIC)?.try_into().ok()?;
    Some(u32::from_be_bytes(counter))
}

/// A TLV in a packet.
#[derive(Debug)]
pub struct Tlv<'a> {
    /// Flags.
    pub flags: &'a mut u8,
    /// Type; see [`kind`].
    pub kind: u8,
    /// Value.
    pub value: &'a mut [u8],
    /// Offset of the TLV in the TLV area.
    pub offset: usize,
}

/// Calls `each` for every TLV in `area`. A remainder that is not a whole TLV gets the malformed
/// flag, loses the flags that only a reflector sets, and ends the walk. Returns whether all TLVs
/// were whole.
///
/// ```
/// use dwell_wire::tlv::{self, kind};
///
/// let mut area = [0; 24];
/// let (value, rest) = tlv::begin(&mut area, kind::CLASS_OF_SERVICE, 4);
/// value[0] = 46 << 2;
/// tlv::begin(rest, kind::EXTRA_PADDING, 12);
///
/// let mut kinds = Vec::new();
/// assert!(tlv::walk(&mut area, |tlv| kinds.push((tlv.kind, tlv.value.len()))));
/// assert_eq!(kinds, [(kind::CLASS_OF_SERVICE, 4), (kind::EXTRA_PADDING, 12)]);
/// ```
pub fn walk(area: &mut [u8], mut each: impl FnMut(Tlv<'_>)) -> bool {
    let mut offset = 0;
    while offset < area.len() {
        let rest = &mut area[offset..];
        let Some((header, body)) = rest.split_at_mut_checked(HEADER) else {
            rest[0] = rest[0] & UNRECOGNISED | MALFORMED;
            return false;
        };
        let [flags, kind, high, low] = header else { return false };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(value) = body.get_mut(..len) else {
            *flags = *flags & UNRECOGNISED | MALFORMED;
            return false;
        };
        each(Tlv { flags, kind: *kind, value, offset });
        offset += HEADER + len;
    }
    true
}

/// Writes the header of a TLV for a request. Returns its value and the rest of the area.
pub fn begin(area: &mut [u8], kind: u8, len: u16) -> (&mut [u8], &mut [u8]) {
    area[0] = UNRECOGNISED;
    area[1] = kind;
    area[2..4].copy_from_slice(&len.to_be_bytes());
    area[HEADER..].split_at_mut(usize::from(len))
}

/// Result of verifying the HMAC TLV of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// Nothing to protect: no TLV, or padding only (RFC 8972 section 4.8).
    Nothing,
    /// Valid. The HMAC TLV starts at this offset.
    Good(usize),
    /// Missing or invalid.
    Bad,
}

/// Verifies the HMAC TLV, which covers the sequence number and all TLVs before it. Only padding may
/// follow (RFC 8972 section 4.8).
pub fn verify(key: &Key, seq: [u8; 4], area: &mut [u8]) -> Integrity {
    let (mut others, mut tag, mut after) = (false, None, false);
    let whole = walk(area, |tlv| match tlv.kind {
        kind::HMAC if tag.is_none() => {
            tag = <[u8; hmac::LEN]>::try_from(&*tlv.value).ok().map(|tag| (tlv.offset, tag));
        }
        kind::EXTRA_PADDING => {}
        _ => {
            others = true;
            after |= tag.is_some();
        }
    });
    match tag {
        None if whole && !others => Integrity::Nothing,
        Some((at, tag)) if whole && !after && key.verify(&[&seq, &area[..at]], &tag) => {
            Integrity::Good(at)
        }
        _ => Integrity::Bad,
    }
}

/// Writes the tag of the HMAC TLV at offset `at`.
pub fn sign(key: &Key, seq: [u8; 4], area: &mut [u8], at: usize) {
    let tag = key.sign(&[&seq, &area[..at]]);
    area[at + HEADER..at + HEADER + hmac::LEN].copy_from_slice(&tag);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn area(values: &[(u8, usize)]) -> Vec<u8> {
        let mut area = vec![0; values.iter().map(|(_, len)| HEADER + len).sum()];
        let mut rest = &mut area[..];
        for (kind, len) in values {
            rest = begin(rest, *kind, *len as u16).1;
        }
        area
    }

    #[test]
    fn signed_area_verifies_unless_changed() {
        let key = Key::new(b"0123456789abcdef");
        let mut tlvs = area(&[(kind::NODE_CLOCK, 16), (kind::HMAC, 16), (kind::EXTRA_PADDING, 7)]);
        sign(&key, [0, 0, 0, 1], &mut tlvs, 20);
        assert_eq!(verify(&key, [0, 0, 0, 1], &mut tlvs), Integrity::Good(20));
        assert_eq!(
            verify(&key, [0, 0, 0, 2], &mut tlvs),
            Integrity::Bad,
            "another sequence number"
        );
        tlvs[6] ^= 1;
        assert_eq!(verify(&key, [0, 0, 0, 1], &mut tlvs), Integrity::Bad);
    }

    #[test]
    fn only_padding_needs_no_hmac() {
        let key = Key::new(b"0123456789abcdef");
        assert_eq!(verify(&key, [0; 4], &mut []), Integrity::Nothing);
        assert_eq!(verify(&key, [0; 4], &mut area(&[(1, 9)])), Integrity::Nothing);
        assert_eq!(verify(&key, [0; 4], &mut area(&[(240, 16)])), Integrity::Bad);
    }

    #[test]
    fn length_beyond_the_packet_is_malformed() {
        let mut tlvs = area(&[(1, 2), (4, 4)]);
        tlvs[9] = 200;
        let mut seen = Vec::new();
        assert!(!walk(&mut tlvs, |tlv| seen.push(tlv.kind)));
        assert_eq!(seen, [1]);
        assert_eq!(tlvs[6], UNRECOGNISED | MALFORMED);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut total = 0;
            walk(&mut bytes, |tlv| total += HEADER + tlv.value.len());
            prop_assert!(total <= bytes.len());
            let _ = verify(&Key::new(b"k"), [0; 4], &mut bytes);
        }
    }
}
