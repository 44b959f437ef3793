//! Mark of a probe in the payload of protocols that echo bytes: plain UDP and TCP echo, ICMP. Bytes
//! 0-7 session, 8-15 probe id, both big-endian; the rest is padding.

use crate::{WireError, field};

/// Length of the mark in bytes, and the minimum payload of plain echo.
pub const LEN: usize = 16;

/// Offset of the probe id in the payload.
pub const ID_AT: usize = 8;

/// Mark of a probe.
///
/// ```
/// use dwell_wire::echo::Mark;
///
/// let mark = Mark { session: 0x5eed, id: 42 };
/// let mut payload = [0; 56];
/// mark.emit(&mut payload);
/// assert_eq!(Mark::parse(&payload), Ok(mark));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Random per run, so that echoes of other runs are not mistaken for this run's.
    pub session: u64,
    /// Probe id.
    pub id: u64,
}

impl Mark {
    /// Reads the mark at the start of `payload`.
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            session: u64::from_be_bytes(field(payload, 0)?),
            id: u64::from_be_bytes(field(payload, ID_AT)?),
        })
    }

    /// Writes the mark to the start of `payload`, which has at least [`LEN`] bytes.
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..8].copy_from_slice(&self.session.to_be_bytes());
        payload[ID_AT..LEN].copy_from_slice(&self.id.to_be_bytes());
    }
}
