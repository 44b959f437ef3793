//! Which records of a spool a carrier ships next.

use crate::codec::{Identity, Piece, pieces, written_at};
use crate::ranges::RangeSet;

/// What [`select_records`] did with a part of a file with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Length of the bytes that were used. The next bytes to read are after them.
    pub used: usize,
    /// Whether the message has no space for the next record.
    pub is_full: bool,
}

/// Appends the records without receipt to a message, as long as it has at most `max_len` bytes; an empty
/// message takes one record of any length. With `written`, only records that were written between these
/// times, in nanoseconds of CLOCK_REALTIME, which belong to the span.
///
/// `content` begins with a record or with damaged bytes, which are left out. An incomplete record at its
/// end is not used: the agent may be writing it, or the content ends within it.
pub fn select_records(
    content: &[u8],
    receipts: &RangeSet,
    written: Option<(i64, i64)>,
    max_len: usize,
    message: &mut Vec<u8>,
) -> Selection {
    let mut used = 0;
    for piece in pieces(content) {
        match piece {
            Piece::Damaged(bytes) if used + bytes.len() == content.len() => break,
            Piece::Damaged(bytes) => used += bytes.len(),
            Piece::Record(record) => {
                let at = written_at(record);
                let is_beyond = |(from, to)| at.is_some_and(|at| at < from || at > to);
                let is_wanted = !written.is_some_and(is_beyond)
                    && Identity::of(record)
                        .is_ok_and(|identity| !receipts.contains(identity.sequence));
                if is_wanted {
                    if !message.is_empty() && message.len() + record.len() > max_len {
                        return Selection { used, is_full: true };
                    }
                    message.extend_from_slice(record);
                }
                used += record.len();
            }
        }
    }
    Selection { used, is_full: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Body, BootId, Incarnation, Record};

    fn record(sequence: u64) -> Vec<u8> {
        let node = "n1".parse().unwrap();
        let record = Record {
            identity: Identity { node, incarnation: Incarnation(7), sequence },
            wall_ns: 0,
            boot_ns: 0,
            boot_id: BootId::default(),
            body: Body::Status(Box::default()),
        };
        let mut out = Vec::new();
        record.encode(&mut out).unwrap();
        out
    }

    fn sequences(message: &[u8]) -> Vec<u64> {
        let identities = pieces(message).map(|piece| match piece {
            Piece::Record(record) => Identity::of(record).unwrap().sequence,
            Piece::Damaged(bytes) => panic!("{} damaged bytes", bytes.len()),
        });
        identities.collect()
    }

    #[test]
    fn records_with_receipts_and_damage_are_left_out() {
        let mut content = b"damaged".to_vec();
        (1..=4).for_each(|sequence| content.extend(record(sequence)));
        content.extend(b"DWR");
        let whole = content.len() - 3;
        let mut message = Vec::new();
        let receipts = "2".parse().unwrap();
        let selection = select_records(&content, &receipts, None, 1 << 20, &mut message);
        assert_eq!(selection, Selection { used: whole, is_full: false });
        assert_eq!(sequences(&message), [1, 3, 4]);
    }

    #[test]
    fn full_message_continues_with_the_next_record() {
        let records: Vec<_> = (1..=3).flat_map(record).collect();
        let len = record(1).len();
        let none = RangeSet::new();
        let mut message = Vec::new();
        let selection = select_records(&records, &none, None, 2 * len, &mut message);
        assert_eq!(selection, Selection { used: 2 * len, is_full: true });
        assert_eq!(sequences(&message), [1, 2]);
        message.clear();
        let selection = select_records(&records[selection.used..], &none, None, 1, &mut message);
        assert_eq!(selection, Selection { used: len, is_full: false });
        assert_eq!(sequences(&message), [3]);
    }

    #[test]
    fn incomplete_record_is_not_used() {
        let records: Vec<_> = (1..=2).flat_map(record).collect();
        let len = record(1).len();
        for cut in [1, len - 1] {
            let mut message = Vec::new();
            let content = &records[..records.len() - cut];
            let selection = select_records(content, &RangeSet::new(), None, 1 << 20, &mut message);
            assert_eq!(selection, Selection { used: len, is_full: false });
        }
    }
}
