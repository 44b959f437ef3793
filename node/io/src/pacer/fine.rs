//! The last moment before a departure: a look at the clock takes some tens of nanoseconds, so whoever only
//! looks is late by anything up to that, and gaps differ by it. What is left is known from the look
//! before, and is spent by counting.

use std::cell::Cell;
use std::hint::black_box;

use dwell_units::Nanos;

use crate::clock::monotonic;

/// Counting so far takes some microseconds; the shortest of these is believed.
const TURNS: u32 = 10_000;
const TRIES: usize = 20;

/// Looks at the clock that the time of one is taken from.
const LOOKS: usize = 101;

/// So many looks may be left for counting: few pass the instant that do not see it come.
const WITHIN: f64 = 1.5;

/// Never more, however long looks take: counting is as precise as the processor's clock rate is constant.
const MOST: Nanos = Nanos::from_micros(1);

thread_local! {
    // Of the processor that this thread is on, at the clock rate that it has by now.
    static FINE: Cell<Option<Fine>> = const { Cell::new(None) };
}

/// How long this processor takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fine {
    turns_per_nano: f64,
    within: Nanos,
}

impl Fine {
    /// Counts 200,000 turns.
    pub(super) fn measure() {
        let least = (0..TRIES).map(|_| count_timed()).min().unwrap_or(Nanos(1));
        let mut looks = [Nanos::ZERO; LOOKS];
        let mut before = monotonic();
        for look in &mut looks {
            let now = monotonic();
            (*look, before) = (now - before, now);
        }
        FINE.set(Some(Self::of(least, looks)));
    }

    fn of(counting: Nanos, mut looks: [Nanos; LOOKS]) -> Self {
        looks.sort_unstable();
        let within = Nanos((looks[LOOKS / 2].0 as f64 * WITHIN) as i64).min(MOST);
        Self { turns_per_nano: f64::from(TURNS) / counting.0.max(1) as f64, within }
    }

    /// Spends `left` if that is so little that another look would be too coarse; whether it was. Never, before
    /// this thread measured how long this takes.
    pub(super) fn spend(left: Nanos) -> bool {
        let Some(fine) = FINE.get().filter(|fine| left <= fine.within) else { return false };
        count((left.0 as f64 * fine.turns_per_nano) as u32);
        true
    }
}

fn count_timed() -> Nanos {
    let begun = monotonic();
    count(black_box(TURNS));
    monotonic() - begun
}

#[inline(never)]
fn count(turns: u32) {
    for turn in 0..turns {
        black_box(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_counted_only_if_it_is_less_than_looks_tell() {
        let looks = |nanos| [Nanos(nanos); LOOKS];
        let fine = Fine::of(Nanos(20_000), looks(40));
        assert_eq!((fine.turns_per_nano, fine.within), (0.5, Nanos(60)));
        assert_eq!(Fine::of(Nanos(0), looks(9_000)).within, MOST);
        Fine::measure();
        assert!(!Fine::spend(MOST + Nanos(1)));
        assert!(Fine::spend(Nanos::ZERO));
    }

    #[test]
    fn counting_takes_as_long_as_was_measured() {
        Fine::measure();
        let fine = FINE.get().unwrap();
        // Half of them may be held up.
        let mut times: Vec<_> = (0..101)
            .map(|_| {
                let begun = monotonic();
                count((20_000.0 * fine.turns_per_nano) as u32);
                (monotonic() - begun).0
            })
            .collect();
        times.sort_unstable();
        println!("20 us by counting: {} to {} ns", times[0], times[100]);
        assert!((10_000..40_000).contains(&times[20]), "{} ns", times[20]);
    }
}
