//! Packet formats: what goes over the wire, and nothing about when or why.
//!
//! Every parser takes any bytes and never panics; every `emit` writes into a caller's buffer and
//! allocates nothing. Fields that a reflector only echoes stay raw, so that it echoes them bit for
//! bit. Offsets are from the start of the payload.

#![forbid(unsafe_code)]

pub mod echo;
pub mod frame;
pub mod hmac;
pub mod icmp;
pub mod id;
pub mod iperf2;
pub mod roundtrip;
pub mod size;
pub mod stamp;
pub mod telemetry;
pub mod text;
pub mod timestamp;
pub mod tlv;
pub mod traffic;

/// Why bytes are not a packet of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the format has at least.
    #[error("too short")]
    TooShort,
    /// A constant field has another value.
    #[error("not of this format")]
    Mismatch,
}

/// The `N` bytes at `at`; `None` beyond the end.
fn bytes<const N: usize>(message: &[u8], at: usize) -> Option<[u8; N]> {
    message.get(at..at + N)?.try_into().ok()
}

/// The field of `N` bytes at `at`.
fn field<const N: usize>(message: &[u8], at: usize) -> Result<[u8; N], WireError> {
    bytes(message, at).ok_or(WireError::TooShort)
}
