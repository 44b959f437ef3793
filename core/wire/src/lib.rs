//! Packet formats, without timing or policy.
//!
//! Parsers accept any bytes and never panic. `emit` functions write to the caller's buffer and do
//! not allocate. Fields that a reflector only echoes stay raw, so that they are returned bit for
//! bit. Offsets count from the start of the payload.

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

/// Reason why bytes are not a packet of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than the minimum length.
    #[error("too short")]
    TooShort,
    /// A constant field has a different value.
    #[error("not of this format")]
    Mismatch,
}

/// Returns the `N` bytes at `at`; `None` beyond the end.
fn bytes<const N: usize>(message: &[u8], at: usize) -> Option<[u8; N]> {
    message.get(at..at + N)?.try_into().ok()
}

/// Returns the field of `N` bytes at `at`.
fn field<const N: usize>(message: &[u8], at: usize) -> Result<[u8; N], WireError> {
    bytes(message, at).ok_or(WireError::TooShort)
}
