//! The step of the clock that stamps: two instants are not told apart by less.

use std::collections::BTreeMap;
use std::hint::black_box;

use anyhow::Result;

use super::witness::now;

/// Times that are measured.
const TIMES: usize = 50_000;

/// So many different ones, of a nanosecond or less each, beside what a look at the clock takes.
const SPREAD: usize = 256;

/// Of those, the ones that exceed the shortest by at most so many nanoseconds: the longer one is, the more
/// often the rate of the clock has it rounded to its neighbour.
const WINDOW: i64 = 128;

/// How many a length of time has to come to beside the one that came most often: neighbours are fewer.
const SHARE: usize = 4;

/// Nanoseconds, by the clock of the witness's stamps; `None` where that cannot be told.
pub(super) fn of_clock() -> Result<Option<i64>> {
    let time = |turns| -> Result<i64> {
        let begun = now()?;
        for turn in 0..turns {
            black_box(turn);
        }
        Ok(now()? - begun)
    };
    let times: Result<Vec<i64>> = (0..TIMES).map(|n| time(n % SPREAD)).collect();
    times.map(|times| of(&times))
}

/// By how much usual times differ at least. Of a clock whose step is no whole number of nanoseconds, that is one.
fn of(times: &[i64]) -> Option<i64> {
    let shortest = *times.iter().min()?;
    let mut counts = BTreeMap::<i64, usize>::new();
    for time in times.iter().filter(|time| **time - shortest <= WINDOW) {
        *counts.entry(*time).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let usual = counts.into_iter().filter(|(_, count)| count * SHARE >= most);
    let usual: Vec<i64> = usual.map(|(time, _)| time).collect();
    usual.windows(2).map(|pair| pair[1] - pair[0]).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is measured of a clock that is read every `look` nanoseconds and steps by `step`, at a rate that is
    /// not quite one; the longest time is so much longer.
    fn measured(step: i64, look: i64, spread: i64) -> Option<i64> {
        let read = |at: i64| ((at / step * step) as f64 * 1.0004) as i64;
        let time = |n: i64| {
            let (at, took) = (n * 1_237, look + n % SPREAD as i64 * spread / SPREAD as i64);
            read(at + took) - read(at)
        };
        of(&(0..TIMES as i64).map(time).collect::<Vec<_>>())
    }

    #[test]
    fn a_step_is_known_however_long_looks_take() {
        for (step, look) in
            [1, 10, 20, 40].into_iter().flat_map(|step| (17..50).map(move |look| (step, look)))
        {
            for spread in [64, 128, 250] {
                assert_eq!(measured(step, look, spread), Some(step), "{look} ns, {spread} ns");
            }
        }
    }

    #[test]
    fn of_a_clock_that_hardly_moved_nothing_is_known() {
        assert_eq!((of(&[]), of(&[25; 9])), (None, None));
    }

    #[test]
    fn this_machines_clock_steps_by_less_than_a_microsecond() {
        let step = of_clock().unwrap();
        println!("{step:?} ns");
        assert!(step.is_some_and(|step| (1..1_000).contains(&step)), "{step:?} ns");
    }
}
