//! Encoding of packet observations: a bit per timestamp, the outcome, then flow, id, size and
//! timestamps as variable-length integers. The id and the first timestamp are differences to the
//! previous observation of the block; other timestamps are differences to the first.

use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_units::Instant;

use super::varint::{Bytes, signed, unsigned};

/// Minimum encoded length: two bytes of timestamp bits, and one each of outcome, flow, id and
/// size.
pub(super) const MIN_ENCODED_LEN: usize = 6;

/// State of the previous observation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Previous {
    next_id: u64,
    first: i64,
}

/// Appends an observation.
pub(super) fn append(out: &mut Vec<u8>, observation: &PacketObservation, before: &mut Previous) {
    let stamps = observation.stamps;
    let present = stamps.iter().fold(0_u16, |bits, (point, _)| bits | 1 << point as u16);
    out.extend_from_slice(&present.to_le_bytes());
    out.push(observation.outcome as u8);
    unsigned(out, u64::from(observation.flow));
    signed(out, observation.id.wrapping_sub(before.next_id) as i64);
    unsigned(out, u64::from(observation.size));
    let mut base = before.first;
    for (n, (_, at)) in stamps.iter().enumerate() {
        signed(out, at.as_nanos().wrapping_sub(base));
        if n == 0 {
            base = at.as_nanos();
            before.first = base;
        }
    }
    before.next_id = observation.id.wrapping_add(1);
}

impl Bytes<'_> {
    /// Decodes the next observation; `None` for invalid bytes.
    pub(super) fn observation(&mut self, before: &mut Previous) -> Option<PacketObservation> {
        let present = u16::from_le_bytes([self.byte()?, self.byte()?]);
        if present >> Point::ALL.len() != 0 {
            return None;
        }
        let outcome = *PacketOutcome::ALL.get(usize::from(self.byte()?))?;
        let flow = self.unsigned()?.try_into().ok()?;
        let id = before.next_id.wrapping_add(self.signed()? as u64);
        let size = self.unsigned()?.try_into().ok()?;
        let mut stamps = PointStamps::default();
        let mut base = before.first;
        let mut first = true;
        for point in Point::ALL {
            if present & 1 << point as u16 == 0 {
                continue;
            }
            let at = base.wrapping_add(self.signed()?);
            stamps.set(point, Instant::from_nanos(at));
            if std::mem::take(&mut first) {
                base = at;
                before.first = at;
            }
        }
        before.next_id = id.wrapping_add(1);
        Some(PacketObservation { flow, id, size, outcome, stamps })
    }
}
