//! What a train carries, built before its first packet leaves.

use std::ops::Range;

use dwell_wire::traffic::Mark;

/// Packets that lead trains, and are not of them, have numbers from here on.
pub const LEAD: u64 = u64::MAX - u32::MAX as u64;

/// The numbers that the packets of a train carry: those that lead it first, then its own, one after the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    leads: usize,
    first: u64,
    packets: usize,
}

impl Numbers {
    /// Of so many packets, from `first` on.
    pub const fn new(first: u64, packets: usize) -> Self {
        Self { leads: 0, first, packets }
    }

    /// The same behind so many packets that lead them: [`LEAD`] and the train's own first numbers, modulo
    /// 2^32, so that nobody who joins them by number takes one for another.
    #[must_use]
    pub const fn led_by(self, leads: usize) -> Self {
        Self { leads, ..self }
    }

    /// How many they are, with those that lead.
    pub const fn len(&self) -> usize {
        self.leads + self.packets
    }

    /// There is no packet.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All, in the order in which their packets leave.
    pub fn all(&self) -> impl Iterator<Item = u64> + use<> {
        let own = self.first..self.first.saturating_add(self.packets as u64);
        let first = self.first as u32;
        (0..self.leads as u32).map(move |n| LEAD | u64::from(first.wrapping_add(n))).chain(own)
    }

    /// How many lead the train.
    pub(super) const fn leads(&self) -> usize {
        self.leads
    }

    /// The place in the train of the packet with this number, behind those that lead, which have none.
    pub(super) fn place(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (place < self.packets).then_some(place)
    }
}

/// The payloads of a train, built ahead: a [`Mark`] and then one random series.
pub struct Payloads {
    flow: u32,
    len: usize,
    bytes: Vec<u8>,
}

impl Payloads {
    /// Payloads of `len` bytes (at least [`Mark::LEN`]) of flow `flow`; `fill` goes behind the mark.
    pub fn new(flow: u32, len: usize, fill: Vec<u8>) -> Self {
        let mut bytes = fill;
        bytes.resize(len.max(Mark::LEN), 0);
        Self { flow, len: len.max(Mark::LEN), bytes }
    }

    /// Of which flow they are.
    pub(super) const fn flow(&self) -> u32 {
        self.flow
    }

    /// Their length.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a payload holds its mark.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Builds those of packets with these numbers.
    pub fn prepare(&mut self, numbers: Numbers) {
        let known = self.bytes.len() / self.len;
        if known < numbers.len() {
            self.bytes.reserve_exact((numbers.len() - known) * self.len);
            for _ in known..numbers.len() {
                self.bytes.extend_from_within(..self.len);
            }
        }
        for (seq, payload) in numbers.all().zip(self.bytes.chunks_exact_mut(self.len)) {
            Mark { flow: self.flow, seq }.emit(payload);
        }
    }

    /// The `n`th of the train.
    ///
    /// # Panics
    /// Fewer were prepared.
    pub fn at(&self, n: usize) -> &[u8] {
        self.span(n..n + 1)
    }

    /// Several of the train, one behind the other.
    ///
    /// # Panics
    /// Fewer were prepared.
    pub fn span(&self, which: Range<usize>) -> &[u8] {
        &self.bytes[which.start * self.len..which.end * self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_a_train_has_no_place_in_it() {
        let numbers = Numbers::new(7, 3).led_by(2);
        assert_eq!(numbers.all().collect::<Vec<_>>(), [LEAD + 7, LEAD + 8, 7, 8, 9]);
        assert_eq!(
            [6, 7, 9, 10, LEAD + 7].map(|n| numbers.place(n)),
            [None, Some(0), Some(2), None, None]
        );
        let mut payloads = Payloads::new(5, 20, vec![1; 20]);
        payloads.prepare(numbers);
        let marks = (0..5).map(|n| Mark::parse(payloads.at(n)).unwrap());
        assert!(marks.map(|mark| mark.seq).eq(numbers.all()));
        assert_eq!(payloads.at(4)[Mark::LEN..], [1; 20 - Mark::LEN]);
    }
}
