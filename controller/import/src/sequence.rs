//! Tracks which numbers of a sequence arrived, are missing, are duplicates or arrived late.

use std::collections::BTreeMap;
use std::ops::Range;

/// Meaning of the arrival of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It arrived for the first time.
    First {
        /// A greater number arrived before.
        overtaken: bool,
    },
    /// A duplicate, or a number so old that it was given up.
    Again,
    /// So far ahead that it does not belong to this sequence.
    OutOfRange,
}

/// State of a sequence. Its memory is bounded by [`WINDOW`], and the missing numbers by those that
/// arrived.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Least number not known to have been sent.
    next: u64,
    /// Greatest number that arrived.
    latest: Option<u64>,
    /// Missing runs below `next`, by start and end.
    missing: BTreeMap<u64, u64>,
    /// How many more numbers may be missing. A missing number becomes a row, so a short file must
    /// not yield any number of them.
    may_miss: u64,
}

/// A missing number further behind the newest is given up.
const WINDOW: u64 = 32_768;

/// Maximum length of a missing run: ten seconds at 100,000 per second.
pub(crate) const MAX_GAP: u64 = 1_000_000;

/// Missing numbers per number that arrived, in addition to [`MAX_GAP`]: a loss of 99.9 %.
const MISSING_PER_ARRIVAL: u64 = 1_000;

impl Sequence {
    /// Returns a sequence whose first number is `first`.
    pub(crate) fn starting_at(first: u64) -> Self {
        Self { next: first, latest: None, missing: BTreeMap::new(), may_miss: MAX_GAP }
    }

    /// Returns the least number not known to have been sent.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Records the arrival of `number`.
    pub(crate) fn arrive(&mut self, number: u64) -> Arrival {
        if number >= self.next {
            if !self.expect(number) {
                return Arrival::OutOfRange;
            }
            self.next = number.saturating_add(1);
        } else {
            let found = self.missing.range(..=number).next_back().map(|(s, e)| (*s, *e));
            let Some((start, end)) = found.filter(|(_, end)| number < *end) else {
                return Arrival::Again;
            };
            self.missing.remove(&start);
            if start < number {
                self.missing.insert(start, number);
            }
            if number + 1 < end {
                self.missing.insert(number + 1, end);
            }
        }
        self.may_miss = self.may_miss.saturating_add(MISSING_PER_ARRIVAL);
        let overtaken = self.latest.is_some_and(|latest| number < latest);
        self.latest = self.latest.max(Some(number));
        Arrival::First { overtaken }
    }

    /// Records that all numbers below `end` were sent. Returns false, without effect, if that is
    /// not credible.
    pub(crate) fn expect(&mut self, end: u64) -> bool {
        if end > self.next {
            let gap = end - self.next;
            if gap > MAX_GAP.min(self.may_miss) {
                return false;
            }
            self.may_miss -= gap;
            self.missing.insert(self.next, end);
            self.next = end;
        }
        true
    }

    /// Removes a run of numbers that is given up.
    pub(crate) fn given_up(&mut self) -> Option<Range<u64>> {
        let (&start, &end) = self.missing.first_key_value()?;
        if self.next - end < WINDOW {
            return None;
        }
        self.missing.remove(&start);
        Some(start..end)
    }

    /// Removes a missing run at the end of the sequence.
    pub(crate) fn left(&mut self) -> Option<Range<u64>> {
        self.missing.pop_first().map(|(start, end)| start..end)
    }
}

/// Unwraps a counter of `bits` bits: returns the number nearest to `near` that `raw` can be, which
/// is negative below the first wrap.
pub(crate) fn unwrapped(raw: u64, bits: u32, near: i64) -> i64 {
    let modulus = 1_i64 << bits;
    let ahead = (raw as i64).wrapping_sub(near).rem_euclid(modulus);
    let ahead = if ahead >= modulus / 2 { ahead - modulus } else { ahead };
    near.saturating_add(ahead)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn overtaken_number_is_neither_lost_nor_duplicate() {
        let mut sequence = Sequence::starting_at(1);
        let first = |overtaken| Arrival::First { overtaken };
        let arrivals = [1, 4, 3, 3, 4, 6].map(|number| sequence.arrive(number));
        let again = Arrival::Again;
        assert_eq!(arrivals, [first(false), first(false), first(true), again, again, first(false)]);
        assert_eq!(
            [sequence.left(), sequence.left(), sequence.left()],
            [Some(2..3), Some(5..6), None]
        );
    }

    #[test]
    fn expected_next_number_is_not_overtaken() {
        let mut sequence = Sequence::starting_at(1);
        assert!(sequence.expect(3));
        assert_eq!(sequence.arrive(2), Arrival::First { overtaken: false });
        assert_eq!(sequence.arrive(1), Arrival::First { overtaken: true });
    }

    #[test]
    fn number_out_of_range_changes_nothing() {
        let mut sequence = Sequence::starting_at(0);
        assert_eq!(sequence.arrive(u64::MAX), Arrival::OutOfRange);
        assert_eq!(sequence.arrive(0), Arrival::First { overtaken: false });
        assert_eq!(sequence.left(), None);
    }

    #[test]
    fn few_arrivals_do_not_make_any_number_missing() {
        let mut sequence = Sequence::starting_at(0);
        let arrivals = (1..=1_000).map(|n| sequence.arrive(n * (MAX_GAP - 1)));
        assert!(arrivals.filter(|arrival| *arrival != Arrival::OutOfRange).count() < 10);
        let mut lossy = Sequence::starting_at(0);
        let one_in_a_thousand = (0..10_000).map(|n| lossy.arrive(n * 1_000));
        assert!({ one_in_a_thousand }.all(|arrival| arrival != Arrival::OutOfRange));
    }

    #[test]
    fn wrapped_counters_are_unwrapped() {
        assert_eq!(unwrapped(0, 16, 65_535), 65_536);
        assert_eq!(unwrapped(65_535, 16, 65_536), 65_535);
        assert_eq!(unwrapped(3, 16, 65_536 * 4 + 1), 65_536 * 4 + 3);
        assert_eq!(unwrapped(0xffff_fffb, 32, 0), -5);
    }

    proptest! {
        #[test]
        fn sequence_equals_a_reference_set(
            numbers in proptest::collection::vec(0..200_u64, 1..300),
        ) {
            let mut sequence = Sequence::starting_at(0);
            let mut seen = BTreeSet::new();
            for &number in &numbers {
                let overtaken = seen.last().is_some_and(|last| number < *last);
                let expected = match seen.insert(number) {
                    true => Arrival::First { overtaken },
                    false => Arrival::Again,
                };
                prop_assert_eq!(sequence.arrive(number), expected);
            }
            let end = *seen.last().unwrap();
            let missing: Vec<_> = (0..end).filter(|number| !seen.contains(number)).collect();
            let left: Vec<_> = std::iter::from_fn(|| sequence.left()).flatten().collect();
            prop_assert_eq!(left, missing);
        }
    }
}
