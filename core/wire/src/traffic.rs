//! Mark of dwell's traffic at the start of the payload: `dwlt`, then big-endian u32 flow and u64
//! sequence number.

use crate::{WireError, field};

const MAGIC: [u8; 4] = *b"dwlt";

/// Mark of a packet of dwell's traffic.
///
/// ```
/// use dwell_wire::traffic::Mark;
///
/// let mark = Mark { flow: 2, seq: 1_000 };
/// let mut payload = [0; 100];
/// mark.emit(&mut payload);
/// assert_eq!(Mark::parse(&payload), Ok(mark));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Flow number, assigned by the sender.
    pub flow: u32,
    /// Sequence number in the flow, from 0.
    pub seq: u64,
}

impl Mark {
    /// Length of the mark in bytes.
    pub const LEN: usize = 16;

    /// Reads the mark at the start of `payload`.
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        if field(payload, 0)? != MAGIC {
            return Err(WireError::Mismatch);
        }
        Ok(Self {
            flow: u32::from_be_bytes(field(payload, 4)?),
            seq: u64::from_be_bytes(field(payload, 8)?),
        })
    }

    /// Writes the mark to the start of `payload`, which has at least [`Mark::LEN`] bytes.
    pub fn emit(self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&MAGIC);
        payload[4..8].copy_from_slice(&self.flow.to_be_bytes());
        payload[8..16].copy_from_slice(&self.seq.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_round_trips_and_other_bytes_are_refused() {
        let mark = Mark { flow: 7, seq: 1 << 40 };
        let mut payload = [0xff; 20];
        mark.emit(&mut payload);
        assert_eq!(Mark::parse(&payload), Ok(mark));
        assert_eq!(Mark::parse(&payload[..15]), Err(WireError::TooShort));
        payload[0] = b'D';
        assert_eq!(Mark::parse(&payload), Err(WireError::Mismatch));
    }
}
