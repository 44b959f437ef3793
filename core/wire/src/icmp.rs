//! ICMP echo (RFC 792, RFC 4443): 0 type, 1 code, 2 checksum, 4 id, 6 sequence, 8 payload.

use crate::{WireError, field};

/// Bytes before the payload.
pub const HEADER: usize = 8;

/// Offset of the sequence number of an echo.
pub const SEQUENCE_AT: usize = 6;

/// IP version, which determines the message types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Types 8 and 0. The sender computes the checksum over the message.
    V4,
    /// Types 128 and 129. The kernel computes the checksum on ping and raw sockets.
    V6,
}

impl Family {
    const fn types(self) -> (u8, u8) {
        match self {
            Self::V4 => (8, 0),
            Self::V6 => (128, 129),
        }
    }
}

/// An echo message.
///
/// ```
/// use dwell_wire::icmp::{self, Echo, Family};
///
/// let mut message = [0; icmp::HEADER + 4];
/// message[icmp::HEADER..].copy_from_slice(b"ping");
/// icmp::emit_request(Family::V4, 7, 1, &mut message);
/// let echo = Echo::parse(Family::V4, &message)?;
/// assert_eq!((echo.reply, echo.id, echo.seq, echo.payload), (false, 7, 1, &b"ping"[..]));
/// assert_eq!(icmp::checksum(&message), 0, "the checksum is valid");
/// # Ok::<(), dwell_wire::WireError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Whether it is a reply; otherwise a request.
    pub reply: bool,
    /// Identifies the sender.
    pub id: u16,
    /// Sequence number.
    pub seq: u16,
    /// Echoed bytes.
    pub payload: &'a [u8],
}

impl<'a> Echo<'a> {
    /// Reads an echo request or reply. The kernel has verified the checksum.
    pub fn parse(family: Family, message: &'a [u8]) -> Result<Self, WireError> {
        let (request, reply) = family.types();
        let [kind, code] = field(message, 0)?;
        if (kind != request && kind != reply) || code != 0 {
            return Err(WireError::Mismatch);
        }
        Ok(Self {
            reply: kind == reply,
            id: u16::from_be_bytes(field(message, 4)?),
            seq: u16::from_be_bytes(field(message, 6)?),
            payload: message.get(HEADER..).ok_or(WireError::TooShort)?,
        })
    }
}

/// Writes the header of an echo request to `message`, whose payload is already in place from
/// [`HEADER`] on, and its checksum.
pub fn emit_request(family: Family, id: u16, seq: u16, message: &mut [u8]) {
    message[0] = family.types().0;
    message[1..4].fill(0);
    message[4..6].copy_from_slice(&id.to_be_bytes());
    message[SEQUENCE_AT..HEADER].copy_from_slice(&seq.to_be_bytes());
    if family == Family::V4 {
        let sum = checksum(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Internet checksum (RFC 1071). It is 0 over a message that includes a valid checksum.
pub fn checksum(message: &[u8]) -> u16 {
    let (pairs, last) = message.as_chunks::<2>();
    let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    let mut sum = sum + last.first().map_or(0, |byte| u64::from(*byte) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Class of an ICMP error message, as seen by the probe that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Port unreachable: no program listens on the port.
    Port,
    /// The TTL or hop limit was exceeded.
    TimeExceeded,
    /// A filter refused the packet.
    Prohibited,
    /// The packet exceeds the MTU of a link on the path.
    TooBig,
    /// No route, or no such host behind the last router.
    Unreachable,
    /// Anything else, such as a malformed header.
    Other,
}

/// Returns the name of an ICMP error by type and code (RFC 792, RFC 1122 section 3.2.2.1, RFC 1812
/// section 5.2.7.1, RFC 4443, IANA registries), and its meaning.
pub const fn error(family: Family, kind: u8, code: u8) -> (&'static str, ErrorClass) {
    match (family, kind, code) {
        (Family::V4, 3, 0) => ("network unreachable", ErrorClass::Unreachable),
        (Family::V4, 3, 1) => ("host unreachable", ErrorClass::Unreachable),
        (Family::V4, 3, 2) => ("protocol unreachable", ErrorClass::Other),
        (Family::V4, 3, 3) | (Family::V6, 1, 4) => ("port unreachable", ErrorClass::Port),
        (Family::V4, 3, 4) => ("fragmentation needed", ErrorClass::TooBig),
        (Family::V4, 3, 5) => ("source route failed", ErrorClass::Unreachable),
        (Family::V4, 3, 6) => ("network unknown", ErrorClass::Unreachable),
        (Family::V4, 3, 7) => ("host unknown", ErrorClass::Unreachable),
        (Family::V4, 3, 9) => ("network administratively prohibited", ErrorClass::Prohibited),
        (Family::V4, 3, 10) => ("host administratively prohibited", ErrorClass::Prohibited),
        (Family::V4, 3, 11) => ("network unreachable for this DSCP", ErrorClass::Unreachable),
        (Family::V4, 3, 12) => ("host unreachable for this DSCP", ErrorClass::Unreachable),
        (Family::V4, 3, 13) | (Family::V6, 1, 1) => {
            ("communication administratively prohibited", ErrorClass::Prohibited)
        }
        (Family::V4, 3, 14) => ("host precedence violation", ErrorClass::Prohibited),
        (Family::V4, 3, 15) => ("precedence cutoff in effect", ErrorClass::Prohibited),
        (Family::V4, 3, _) | (Family::V6, 1, _) => match (family, code) {
            (Family::V6, 0) => ("no route to destination", ErrorClass::Unreachable),
            (Family::V6, 2) => ("beyond scope of source address", ErrorClass::Unreachable),
            (Family::V6, 3) => ("address unreachable", ErrorClass::Unreachable),
            (Family::V6, 5) => ("source address failed ingress policy", ErrorClass::Prohibited),
            (Family::V6, 6) => ("reject route to destination", ErrorClass::Prohibited),
            _ => ("destination unreachable", ErrorClass::Unreachable),
        },
        (Family::V6, 2, _) => ("packet too big", ErrorClass::TooBig),
        (Family::V4, 11, 1) | (Family::V6, 3, 1) => {
            ("fragment reassembly time exceeded", ErrorClass::Other)
        }
        (Family::V4, 11, _) | (Family::V6, 3, _) => {
            ("time exceeded in transit", ErrorClass::TimeExceeded)
        }
        (Family::V4, 12, _) | (Family::V6, 4, _) => ("parameter problem", ErrorClass::Other),
        _ => ("ICMP error", ErrorClass::Other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_are_named_in_both_families() {
        use ErrorClass::{Port, Prohibited, TimeExceeded, Unreachable};
        let cases = [
            (Family::V4, 11, 0, "time exceeded in transit", TimeExceeded),
            (Family::V6, 3, 0, "time exceeded in transit", TimeExceeded),
            (Family::V4, 3, 3, "port unreachable", Port),
            (Family::V6, 1, 4, "port unreachable", Port),
            (Family::V4, 3, 13, "communication administratively prohibited", Prohibited),
            (Family::V6, 1, 1, "communication administratively prohibited", Prohibited),
            (Family::V4, 3, 1, "host unreachable", Unreachable),
            (Family::V6, 1, 3, "address unreachable", Unreachable),
            // A type of the other family.
            (Family::V6, 11, 0, "ICMP error", ErrorClass::Other),
        ];
        for (family, kind, code, name, meaning) in cases {
            assert_eq!(error(family, kind, code), (name, meaning), "{family:?} {kind} {code}");
        }
    }

    proptest! {
        #[test]
        fn written_echo_is_read_back_with_valid_checksum(
            id: u16, seq: u16, payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            for family in [Family::V4, Family::V6] {
                let mut message = vec![0; HEADER];
                message.extend(&payload);
                emit_request(family, id, seq, &mut message);
                let echo = Echo { reply: false, id, seq, payload: &payload };
                prop_assert_eq!(Echo::parse(family, &message), Ok(echo));
                if family == Family::V4 {
                    prop_assert_eq!(checksum(&message), 0);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Echo::parse(Family::V4, &bytes);
            let _ = Echo::parse(Family::V6, &bytes);
            let _ = checksum(&bytes);
        }
    }
}
