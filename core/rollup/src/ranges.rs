//! Sets of sequence numbers as ranges: receipts, duplicate checks and lists of gaps.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A set of sequence numbers, stored as disjoint ranges that do not touch. Its text lists them, like
/// `1-5,7`; the empty set is empty text.
///
/// ```
/// use dwell_rollup::RangeSet;
///
/// let mut committed: RangeSet = "1-5,7".parse()?;
/// assert!(!committed.insert(3), "a duplicate");
/// assert!(committed.insert(6));
/// assert_eq!(committed.to_string(), "1-7");
/// committed.insert(10);
/// assert_eq!(committed.gaps().collect::<Vec<_>>(), [8..=9]);
/// # Ok::<(), dwell_rollup::RangeSetError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RangeSet(Vec<(u64, u64)>);

/// Text that is not a set of ranges.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not a list of ranges; ranges ascend, are separated by ',' and do not touch, like 1-5,7"
)]
pub struct RangeSetError(String);

/// Maximum length of the text in a [`RangeSetError`] in characters.
const MAX_SHOWN_LEN: usize = 64;

impl RangeSet {
    /// Creates an empty set without allocating.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a number. Returns whether the set lacked it.
    pub fn insert(&mut self, number: u64) -> bool {
        self.insert_range(number..=number) == 1
    }

    /// Adds all numbers of a range; an empty range adds none. Returns how many the set lacked.
    pub fn insert_range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (mut first, mut last) = range.into_inner();
        if first > last {
            return 0;
        }
        // The ranges that overlap or touch the new one.
        let from =
            self.0.partition_point(|range| range.1.checked_add(1).is_some_and(|next| next < first));
        let to =
            self.0.partition_point(|range| last.checked_add(1).is_none_or(|next| range.0 <= next));
        let mut held = 0_u64;
        for &(start, end) in &self.0[from..to] {
            let (start_inside, end_inside) = (start.max(first), end.min(last));
            if start_inside <= end_inside {
                held = held.saturating_add(length(start_inside, end_inside));
            }
        }
        let added = length(first, last).saturating_sub(held);
        if let [start, ..] = self.0[from..to] {
            first = first.min(start.0);
        }
        if let [.., end] = self.0[from..to] {
            last = last.max(end.1);
        }
        self.0.splice(from..to, [(first, last)]);
        added
    }

    /// Adds all numbers of another set. The time is proportional to the number of ranges of both.
    pub fn merge(&mut self, other: &Self) {
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.0.len().max(other.0.len()));
        let (mut ours, mut theirs) = (&self.0[..], &other.0[..]);
        loop {
            let (first, last) = match (ours, theirs) {
                ([a, rest @ ..], [b, ..]) if a.0 <= b.0 => {
                    ours = rest;
                    *a
                }
                (_, [b, rest @ ..]) => {
                    theirs = rest;
                    *b
                }
                ([a, rest @ ..], []) => {
                    ours = rest;
                    *a
                }
                ([], []) => break,
            };
            match merged.last_mut() {
                Some(before) if before.1.checked_add(1).is_none_or(|next| first <= next) => {
                    before.1 = before.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        self.0 = merged;
    }

    /// Number of ranges.
    pub const fn range_count(&self) -> usize {
        self.0.len()
    }

    /// Whether adding a number would not begin another range: the set has it, or one beside it.
    pub fn touches(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.1 < number.saturating_sub(1));
        self.0.get(at).is_some_and(|range| range.0 <= number.saturating_add(1))
    }

    /// Whether the set has a number.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.1 < number);
        self.0.get(at).is_some_and(|range| range.0 <= number)
    }

    /// Whether the set has all numbers of a range.
    pub fn contains_range(&self, range: RangeInclusive<u64>) -> bool {
        let at = self.0.partition_point(|held| held.1 < *range.start());
        range.is_empty()
            || self.0.get(at).is_some_and(|held| held.0 <= *range.start() && *range.end() <= held.1)
    }

    /// The ranges that have a number of another set.
    #[must_use]
    pub fn ranges_with(&self, numbers: &Self) -> Self {
        let mut found: Vec<(u64, u64)> = Vec::new();
        for &(first, last) in &numbers.0 {
            let from = self.0.partition_point(|range| range.1 < first);
            let overlapping = self.0[from..].iter().take_while(|range| range.0 <= last);
            let is_known = |range: &(u64, u64)| found.last() == Some(range);
            let new: Vec<_> = overlapping.filter(|range| !is_known(range)).copied().collect();
            found.extend(new);
        }
        Self(found)
    }

    /// Number of elements; saturates.
    pub fn len(&self) -> u64 {
        self.0.iter().fold(0, |sum, range| length(range.0, range.1).saturating_add(sum))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The largest number.
    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|range| range.1)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        self.0.iter().map(|&(first, last)| first..=last)
    }

    /// Numbers from 1 to the largest that the set lacks, ascending.
    pub fn gaps(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        let before = std::iter::once(0).chain(self.0.iter().map(|range| range.1));
        let gaps = before.zip(&self.0).map(|(last, range)| last + 1..=range.0.saturating_sub(1));
        gaps.filter(|gap| !gap.is_empty())
    }
}

fn length(first: u64, last: u64) -> u64 {
    (last - first).saturating_add(1)
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for RangeSet {
    type Err = RangeSetError;

    fn from_str(text: &str) -> Result<Self, RangeSetError> {
        let refused = || RangeSetError(text.chars().take(MAX_SHOWN_LEN).collect());
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if is_plain { text.parse::<u64>().ok() } else { None }
        };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        if text.is_empty() {
            return Ok(Self(ranges));
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = number(first).zip(number(last)).ok_or_else(refused)?;
            let is_next = ranges
                .last()
                .is_none_or(|before| before.1.checked_add(1).is_some_and(|next| next < first));
            if first > last || !is_next {
                return Err(refused());
            }
            ranges.push((first, last));
        }
        Ok(Self(ranges))
    }
}

impl TryFrom<String> for RangeSet {
    type Error = RangeSetError;

    fn try_from(text: String) -> Result<Self, RangeSetError> {
        text.parse()
    }
}

impl From<RangeSet> for String {
    fn from(set: RangeSet) -> Self {
        set.to_string()
    }
}

impl FromIterator<u64> for RangeSet {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut set = Self::new();
        for number in numbers {
            set.insert(number);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn set_of_ranges_equals_a_set_of_numbers(
            inserts in prop::collection::vec((0..60_u64, 0..8_u64), 0..40),
        ) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (first, more) in inserts {
                let added = set.insert_range(first..=first + more);
                let new = (first..=first + more).filter(|number| model.insert(*number)).count();
                prop_assert_eq!(added, new as u64);
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert_eq!(set.last(), model.last().copied());
            for number in 0..70 {
                prop_assert_eq!(set.contains(number), model.contains(&number));
            }
            let missing: Vec<_> = set.gaps().flatten().collect();
            let last = model.last().copied().unwrap_or(0);
            let expected: Vec<_> = (1..last).filter(|number| !model.contains(number)).collect();
            prop_assert_eq!(missing, expected);
            prop_assert_eq!(set.to_string().parse(), Ok(set));
        }

        #[test]
        fn merged_sets_equal_the_union_of_their_numbers(
            a in prop::collection::vec((0..200_u64, 0..4_u64), 0..40),
            b in prop::collection::vec((0..200_u64, 0..4_u64), 0..40),
        ) {
            let set = |ranges: &[(u64, u64)]| {
                let mut set = RangeSet::new();
                ranges.iter().for_each(|(first, more)| {
                    set.insert_range(*first..=first + more);
                });
                set
            };
            let with = set(&a).ranges_with(&set(&b));
            let expected: Vec<_> =
                set(&a).ranges().filter(|range| range.clone().any(|n| set(&b).contains(n))).collect();
            prop_assert_eq!(with.ranges().collect::<Vec<_>>(), expected);
            let mut merged = set(&a);
            merged.merge(&set(&b));
            prop_assert_eq!(&merged, &set(&[a, b].concat()));
            for number in 0..210 {
                let mut with_number = merged.clone();
                with_number.insert(number);
                let begins_range = with_number.range_count() > merged.range_count();
                prop_assert_eq!(merged.touches(number), !begins_range, "{}", number);
            }
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "[0-9,-]{0,20}") {
            if let Ok(set) = text.parse::<RangeSet>() {
                let printed = set.to_string();
                prop_assert_eq!(printed.parse(), Ok(set));
            }
        }
    }

    #[test]
    fn largest_numbers_do_not_overflow() {
        let mut set = RangeSet::new();
        assert_eq!(set.insert_range(0..=u64::MAX), u64::MAX);
        assert!(!set.insert(u64::MAX) && set.contains(0));
        let mut set: RangeSet = "18446744073709551615".parse().unwrap();
        assert!(set.insert(u64::MAX - 1));
        assert_eq!(set.to_string(), "18446744073709551614-18446744073709551615");
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in
            [",", "1,", "5-1", "1-2,3", "3,1", "1,1", "+1", "1--2", " 1", "18446744073709551616"]
        {
            assert!(text.parse::<RangeSet>().is_err(), "{text}");
        }
        let long = "9,".repeat(10_000).parse::<RangeSet>().unwrap_err();
        assert!(long.to_string().len() < 300);
    }
}
