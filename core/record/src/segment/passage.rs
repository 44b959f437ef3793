//! Passages as bytes: a bit for each stamp, the fate, then flow, id and size, then stamps. Integers
//! are of variable length; the id is a difference to the passage before in the same block, the
//! first stamp too, and the others are differences to the first.

use dwell_engine::passage::{Fate, Passage, Point, PointStamps};
use dwell_units::Instant;

use super::varint::{Bytes, signed, unsigned};

/// The least bytes that a passage takes: two of stamps, and one for each of fate, flow, id, size.
pub(super) const LEAST: usize = 6;

/// The passage before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    next_id: u64,
    first: i64,
}

/// Appends a passage.
pub(super) fn append(out: &mut Vec<u8>, passage: &Passage, before: &mut Before) {
    let stamps = passage.stamps;
    let present = stamps.iter().fold(0_u16, |bits, (point, _)| bits | 1 << point as u16);
    out.extend_from_slice(&present.to_le_bytes());
    out.push(passage.fate as u8);
    unsigned(out, u64::from(passage.flow));
    signed(out, passage.id.wrapping_sub(before.next_id) as i64);
    unsigned(out, u64::from(passage.size));
    let mut base = before.first;
    for (n, (_, at)) in stamps.iter().enumerate() {
        signed(out, at.as_nanos().wrapping_sub(base));
        if n == 0 {
            base = at.as_nanos();
            before.first = base;
        }
    }
    before.next_id = passage.id.wrapping_add(1);
}

impl Bytes<'_> {
    /// The next passage; `None` for bytes that are none.
    pub(super) fn passage(&mut self, before: &mut Before) -> Option<Passage> {
        let present = u16::from_le_bytes([self.byte()?, self.byte()?]);
        if present >> Point::ALL.len() != 0 {
            return None;
        }
        let fate = *Fate::ALL.get(usize::from(self.byte()?))?;
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
        Some(Passage { flow, id, size, fate, stamps })
    }
}
