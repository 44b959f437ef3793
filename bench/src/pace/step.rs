//! The step of the clock that stamps: two instants are not told apart by less.

use std::collections::BTreeMap;
use std::hint::black_box;

use anyhow::Result;

use super::witness::now;

/// Times that are measured.
const TIMES: usize = 50_000;

/// So many different ones, of some nanoseconds each, beside what a look at the clock takes.
const SPREAD: usize = 32;

/// How many a length of time has to come to beside the one that came most often: what the rate of the clock
/// rounds to its neighbour comes much less often.
const SHARE: usize = 4;

/// Nanoseconds, by the clock of the witness's stamps.
pub(super) fn of_clock() -> Result<i64> {
    let time = |turns| -> Result<i64> {
        let begun = now()?;
        for turn in 0..turns {
            black_box(turn);
        }
        Ok(now()? - begun)
    };
    let times: Result<_> = (0..TIMES).map(|n| time(n % SPREAD)).collect();
    times.map(of)
}

/// By how much usual times differ at least; 1 where all are the same. Of the shorter half of them: the longer
/// ones are, the more of them are rounded to the neighbour.
fn of(mut times: Vec<i64>) -> i64 {
    times.sort_unstable();
    let mut counts = BTreeMap::<i64, usize>::new();
    for time in &times[..times.len().div_ceil(2)] {
        *counts.entry(*time).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let usual: Vec<i64> = counts
        .into_iter()
        .filter(|(_, count)| count * SHARE >= most)
        .map(|(time, _)| time)
        .collect();
    usual.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_by_ten_is_known_though_its_rate_is_not_quite_one() {
        let read = |at: i64| (at / 10) as f64 * 9.9996;
        let times = |read: &dyn Fn(i64) -> f64| -> Vec<i64> {
            (0..40_000)
                .map(|n| (n * 37, n % 64 + 25))
                .map(|(at, took)| read(at + took) as i64 - read(at) as i64)
                .collect()
        };
        assert_eq!(of(times(&read)), 10);
        assert_eq!(of(times(&|at| at as f64)), 1);
    }

    #[test]
    fn a_clock_of_which_little_is_known_steps_by_one() {
        assert_eq!((of(Vec::new()), of(vec![25; 9])), (1, 1));
    }

    #[test]
    fn this_machines_clock_steps_by_less_than_a_microsecond() {
        let step = of_clock().unwrap();
        println!("{step} ns");
        assert!((1..1_000).contains(&step), "{step} ns");
    }
}
