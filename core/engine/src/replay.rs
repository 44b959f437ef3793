//! A sliding window over sequence numbers that distinguishes new numbers from replayed ones
//! (RFC 4303 section 3.4.3). The bitmap is a ring of words, so that advancing clears words instead of
//! shifting bits (RFC 6479).
//!
//! The caller owns the bitmap, so that a table of many windows can use one allocation.

/// Bits per word of the bitmap.
const WORD_BITS: u32 = u64::BITS;

/// A sliding window. Numbers are compared in serial arithmetic (RFC 1982), so they may wrap.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Highest number marked so far.
    highest: u32,
    /// Length of the window, counted back from the highest number.
    size: u32,
}

/// Position of a number relative to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Above the highest number, by this much.
    Ahead(u32),
    /// Within the window, not marked.
    Unmarked,
    /// Within the window, marked.
    Marked,
    /// Below the window.
    TooOld,
}

impl Window {
    /// Number of words in the bitmap of a window of `size` numbers: a power of two, so that the
    /// ring is continuous where 32-bit numbers wrap, and at least one word more than the window,
    /// because whole words are cleared.
    pub const fn words(size: u32) -> usize {
        (size.div_ceil(WORD_BITS) as usize + 1).next_power_of_two()
    }

    /// Starts a window of `size` numbers with `first` marked and all lower numbers unmarked.
    ///
    /// # Panics
    /// If `bits` does not have [`Window::words`] words.
    pub fn start(size: u32, first: u32, bits: &mut [u64]) -> Self {
        assert_eq!(bits.len(), Self::words(size), "the bitmap fits the window");
        bits.fill(0);
        set(bits, first);
        Self { highest: first, size }
    }

    /// Starts a window of `size` numbers with `highest` and all lower numbers marked.
    ///
    /// # Panics
    /// If `bits` does not have [`Window::words`] words.
    pub fn start_after(size: u32, highest: u32, bits: &mut [u64]) -> Self {
        let window = Self::start(size, highest, bits);
        bits.fill(u64::MAX);
        let (word, bit) = position(bits, highest);
        bits[word] = bit | (bit - 1);
        window
    }

    /// Highest number marked so far.
    pub const fn highest(&self) -> u32 {
        self.highest
    }

    /// Returns the position of `number`. Changes nothing.
    pub fn place(&self, number: u32, bits: &[u64]) -> Place {
        let ahead = number.wrapping_sub(self.highest);
        if ahead != 0 && ahead <= i32::MAX as u32 {
            return Place::Ahead(ahead);
        }
        if self.highest.wrapping_sub(number) >= self.size {
            return Place::TooOld;
        }
        let (word, bit) = position(bits, number);
        if bits[word] & bit == 0 { Place::Unmarked } else { Place::Marked }
    }

    /// Marks `number`, and advances the window if it is ahead. A number that is too old changes
    /// nothing.
    pub fn mark(&mut self, number: u32, bits: &mut [u64]) {
        match self.place(number, bits) {
            Place::Ahead(_) => {
                let (from, to) = (self.highest / WORD_BITS, number / WORD_BITS);
                let words = (to.wrapping_sub(from) & (u32::MAX / WORD_BITS)) as usize;
                for n in 1..=words.min(bits.len()) {
                    let word = (from as usize).wrapping_add(n) & (bits.len() - 1);
                    bits[word] = 0;
                }
                self.highest = number;
                set(bits, number);
            }
            Place::Unmarked => set(bits, number),
            Place::Marked | Place::TooOld => {}
        }
    }
}

fn set(bits: &mut [u64], number: u32) {
    let (word, bit) = position(bits, number);
    bits[word] |= bit;
}

/// Word index and bit mask of a number.
fn position(bits: &[u64], number: u32) -> (usize, u64) {
    ((number / WORD_BITS) as usize & (bits.len() - 1), 1 << (number % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Marks `number` if it is new. Returns whether it was new.
    fn take(window: &mut Window, bits: &mut [u64], number: u32) -> bool {
        let is_new = matches!(window.place(number, bits), Place::Ahead(_) | Place::Unmarked);
        if is_new {
            window.mark(number, bits);
        }
        is_new
    }

    proptest! {
        #[test]
        fn window_matches_a_set_of_all_numbers(
            size in prop_oneof![Just(1_u32), Just(64), Just(100), Just(1_024)],
            start in prop_oneof![Just(0_u32), Just(u32::MAX - 500), any::<u32>()],
            steps in prop::collection::vec(
                prop_oneof![-1_200_i32..1_200, -3_i32..4, Just(100_000), Just(i32::MAX)], 1..400),
        ) {
            let mut bits = vec![u64::MAX; Window::words(size)];
            let mut window = Window::start(size, start, &mut bits);
            // The model counts in 64 bits, where nothing wraps.
            let (mut seen, mut highest) = (HashSet::from([0_i64]), 0_i64);
            for step in steps {
                let number = highest + i64::from(step);
                let expected = number > highest
                    || (highest - number < i64::from(size) && !seen.contains(&number));
                let taken = take(&mut window, &mut bits, start.wrapping_add(number as u32));
                prop_assert_eq!(taken, expected, "{} below {}", highest - number, highest);
                seen.insert(number);
                highest = highest.max(number);
            }
        }
    }

    #[test]
    fn window_started_after_a_number_takes_only_higher_ones() {
        let mut bits = vec![0; Window::words(1_024)];
        let mut window = Window::start_after(1_024, 5_000, &mut bits);
        for old in [5_000, 4_999, 4_000, 0] {
            assert!(!take(&mut window, &mut bits, old), "{old}");
        }
        assert!(take(&mut window, &mut bits, 5_200));
        assert!(take(&mut window, &mut bits, 5_001), "reordered, but above the start");
        assert!(!take(&mut window, &mut bits, 5_000));
    }
}
