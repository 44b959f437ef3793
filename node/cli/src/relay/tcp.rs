//! A relay of TCP connections.

/// Bytes by which an enciphered direction of a connection is longer: its initial counter block.
pub(super) const NONCE: usize = 16;
