//! Stateless replies: plain echo, round trip (Roedlach/Vock), acknowledge (Chung 2021).

use dwell_wire::text::{ACKNOWLEDGE, REQUEST, is, is_timed_request};

use super::Refusal;

/// Plain echo: returns the message. An empty one is malformed. The caller also applies
/// [`super::reply_ttl`] and [`super::LoopGuard`].
pub fn echo(message: &[u8]) -> Result<usize, Refusal> {
    if message.is_empty() { Err(Refusal::Malformed) } else { Ok(message.len()) }
}

/// Round trip: REQ becomes ACK. Any other message, including a truncated one, gets no reply (the
/// slave of Roedlach/Vock answers even those).
pub fn roundtrip(message: &mut [u8]) -> Result<usize, Refusal> {
    dwell_wire::roundtrip::acknowledge(message).map_err(|_| Refusal::Malformed)?;
    Ok(message.len())
}

/// Chung 2021: `request` becomes `acknowledge`. `buffer` holds the request of `len` bytes and has
/// room for the reply.
pub fn text(buffer: &mut [u8], len: usize) -> Result<usize, Refusal> {
    // The times are those of a device's clock, which this reflector does not have.
    if !is(REQUEST, &buffer[..len]) && !is_timed_request(&buffer[..len]) {
        return Err(Refusal::Malformed);
    }
    buffer[..ACKNOWLEDGE.len()].copy_from_slice(ACKNOWLEDGE);
    Ok(ACKNOWLEDGE.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_are_answered() {
        assert_eq!(echo(b""), Err(Refusal::Malformed));
        assert_eq!(roundtrip(&mut [0; 24]), Err(Refusal::Malformed));
        let mut message = *b"01234567012345670123REQ\0";
        assert_eq!(roundtrip(&mut message), Ok(24));
        assert_eq!(&message[20..], b"ACK\0");
        assert_eq!(roundtrip(&mut message), Err(Refusal::Malformed), "a reply is not answered");
        let mut buffer = *b"request-----";
        assert_eq!(text(&mut buffer, 12), Err(Refusal::Malformed));
        assert_eq!(text(&mut buffer, 7), Ok(11));
        assert_eq!(&buffer[..11], b"acknowledge");
        assert_eq!(text(&mut buffer, 11), Err(Refusal::Malformed), "a reply is not answered");
    }
}
