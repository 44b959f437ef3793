//! Payloads of a train, built before its first packet leaves.

use std::ops::Range;

use dwell_wire::traffic::Mark;

/// First number of lead-in packets, which do not belong to a train.
pub const FIRST_LEAD_NUMBER: u64 = u64::MAX - u32::MAX as u64;

/// Numbers of the packets of a train: first those of the lead-in, then consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    leads: usize,
    first: u64,
    packets: usize,
}

impl Numbers {
    /// Returns `packets` consecutive numbers from `first` on.
    pub const fn new(first: u64, packets: usize) -> Self {
        Self { leads: 0, first, packets }
    }

    /// Adds `leads` lead-in packets. Their numbers are [`FIRST_LEAD_NUMBER`] plus the first numbers
    /// of the train, modulo 2^32, so that they are not confused with those of any train.
    #[must_use]
    pub const fn led_by(self, leads: usize) -> Self {
        Self { leads, ..self }
    }

    /// Returns the number of packets, including the lead-in.
    pub const fn len(&self) -> usize {
        self.leads + self.packets
    }

    /// Whether there are no packets.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all numbers, in the order in which the packets leave.
    pub fn all(&self) -> impl Iterator<Item = u64> + use<> {
        let own = self.first..self.first.saturating_add(self.packets as u64);
        let first = self.first as u32;
        (0..self.leads as u32)
            .map(move |n| FIRST_LEAD_NUMBER | u64::from(first.wrapping_add(n)))
            .chain(own)
    }

    /// Returns the number of lead-in packets.
    pub(super) const fn lead_in_len(&self) -> usize {
        self.leads
    }

    /// Returns the place in the train of the packet with this number; `None` for lead-in packets
    /// and unknown numbers.
    pub(super) fn place(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (place < self.packets).then_some(place)
    }
}

/// Payloads of a train, built ahead: each is a [`Mark`] followed by the same random bytes.
pub struct Payloads {
    flow: u32,
    len: usize,
    bytes: Vec<u8>,
}

impl Payloads {
    /// Creates payloads of `len` bytes (at least [`Mark::LEN`]) for flow `flow`; `fill` is copied
    /// behind the mark.
    pub fn new(flow: u32, len: usize, fill: Vec<u8>) -> Self {
        let mut bytes = fill;
        bytes.resize(len.max(Mark::LEN), 0);
        Self { flow, len: len.max(Mark::LEN), bytes }
    }

    /// Returns the flow.
    pub(super) const fn flow(&self) -> u32 {
        self.flow
    }

    /// Returns the length of a payload in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always `false`: a payload contains its mark.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Builds the payloads of packets with these numbers.
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

    /// Returns the `n`th payload of the train.
    ///
    /// # Panics
    /// If fewer were prepared.
    pub fn at(&self, n: usize) -> &[u8] {
        self.span(n..n + 1)
    }

    /// Returns several consecutive payloads of the train.
    ///
    /// # Panics
    /// If fewer were prepared.
    pub fn span(&self, which: Range<usize>) -> &[u8] {
        &self.bytes[which.start * self.len..which.end * self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_in_packets_have_no_place_in_train() {
        let numbers = Numbers::new(7, 3).led_by(2);
        assert_eq!(
            numbers.all().collect::<Vec<_>>(),
            [FIRST_LEAD_NUMBER + 7, FIRST_LEAD_NUMBER + 8, 7, 8, 9]
        );
        assert_eq!(
            [6, 7, 9, 10, FIRST_LEAD_NUMBER + 7].map(|n| numbers.place(n)),
            [None, Some(0), Some(2), None, None]
        );
        let mut payloads = Payloads::new(5, 20, vec![1; 20]);
        payloads.prepare(numbers);
        let marks = (0..5).map(|n| Mark::parse(payloads.at(n)).unwrap());
        assert!(marks.map(|mark| mark.seq).eq(numbers.all()));
        assert_eq!(payloads.at(4)[Mark::LEN..], [1; 20 - Mark::LEN]);
    }
}
