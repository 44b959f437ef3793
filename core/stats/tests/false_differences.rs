//! Error rates of comparisons: in less than 5 % of 1,000 seeded pairs of series from the same
//! condition any verdict, on a quantile or on ranks, reports a difference; and a true difference is
//! found.

mod series;

use dwell_stats::{Compare, Comparison, Shift};
use series::{MEDIAN, delays};

const PAIRS: u64 = 1_000;
/// Fewer draws than the default, to limit the run time; intervals differ in the last digits only.
const DRAWS: usize = 400;

/// B is `slower` times as slow as A.
fn compare(seed: u64, n: usize, phi: f64, slower: f64) -> Comparison {
    let a = delays(2 * seed, n, phi);
    let mut b = delays(2 * seed + 1, n, phi);
    b.iter_mut().for_each(|delay| *delay = (*delay as f64 * slower) as i64);
    Compare { seed, draws: DRAWS, ..Compare::default() }.series(&a, &b)
}

fn verdicts(comparison: &Comparison) -> impl Iterator<Item = Shift> {
    let ranks = comparison.ranks.iter().map(|ranks| ranks.shift);
    comparison.quantiles.iter().map(|quantile| quantile.shift).chain(ranks)
}

fn differ(comparison: &Comparison) -> bool {
    verdicts(comparison).any(|shift| shift != Shift::CannotTell)
}

fn assert_same(n: usize, phi: f64, first: u64) {
    let different =
        (first..first + PAIRS).filter(|&seed| differ(&compare(seed, n, phi, 1.0))).count();
    println!("{n} delays, phi {phi}, seeds from {first}: {different} of {PAIRS} differ");
    assert!(different < 50, "n {n}, phi {phi}, seeds from {first}: {different} of {PAIRS} differ");
}

#[test]
fn short_series_of_same_condition_do_not_differ() {
    assert_same(500, 0.0, 1_000);
    assert_same(500, 0.5, 11_000);
    assert_same(500, 0.8, 21_000);
}

#[test]
fn long_independent_series_do_not_differ() {
    assert_same(2_000, 0.0, 3_000);
}

#[test]
fn long_dependent_series_do_not_differ() {
    assert_same(2_000, 0.5, 13_000);
}

#[test]
fn long_strongly_dependent_series_do_not_differ() {
    assert_same(2_000, 0.8, 23_000);
}

#[test]
fn coarse_clock_causes_no_difference() {
    let ticks = |seed| -> Vec<i64> {
        delays(seed, 1_000, 0.5).into_iter().map(|delay| delay / 50_000 * 50_000).collect()
    };
    let differs = |&seed: &u64| {
        let compare = Compare { seed, draws: DRAWS, ..Compare::default() };
        differ(&compare.series(&ticks(2 * seed), &ticks(2 * seed + 1)))
    };
    let different = (51_000..51_000 + PAIRS).filter(differs).count();
    println!("coarse clock, seeds from 51000: {different} of {PAIRS} differ");
    assert!(different < 50, "seeds from 51000: {different} of {PAIRS} differ");
}

/// Five repetitions of each, with levels that vary by about 5 %.
fn compare_repetitions(seed: u64, slower: f64) -> Comparison {
    let levels = delays(seed ^ 0xface, 10, 0.0);
    let repetition = |i: usize| -> Vec<i64> {
        let level = (levels[i] as f64 / MEDIAN).powf(0.1) * if i < 5 { 1.0 } else { slower };
        let delays = delays(10 * seed + i as u64, 300, 0.5);
        delays.into_iter().map(|delay| (delay as f64 * level) as i64).collect()
    };
    let all: Vec<_> = (0..10).map(repetition).collect();
    let all: Vec<_> = all.iter().map(Vec::as_slice).collect();
    Compare::default().repetitions(&all[..5], &all[5..])
}

#[test]
fn varying_repetitions_do_not_differ() {
    let differs = |&seed: &u64| differ(&compare_repetitions(seed, 1.0));
    let different = (41_000..41_000 + PAIRS).filter(differs).count();
    let rises = |&seed: &u64| compare_repetitions(seed, 1.3).quantiles[0].shift == Shift::Rises;
    let found = (43_000..43_000 + PAIRS).filter(rises).count();
    println!("repetitions, seeds from 41000 and 43000: {different} differ, {found} found");
    assert!(different < 50, "seeds from 41000: {different} of {PAIRS} differ");
    assert!(found >= 900, "seeds from 43000: {found} of {PAIRS} found");
}

#[test]
fn ten_percent_shift_is_found_in_2000_delays() {
    let (mut median, mut ranks) = (0, 0);
    for seed in 31_000..31_000 + PAIRS {
        let found = compare(seed, 2_000, 0.0, 1.1);
        median += usize::from(found.quantiles[0].shift == Shift::Rises);
        ranks += usize::from(found.ranks.is_some_and(|ranks| ranks.shift == Shift::Rises));
        assert!(verdicts(&found).all(|shift| shift != Shift::Falls), "seed {seed}: {found:?}");
    }
    println!("a tenth more, seeds from 31000: median {median}, ranks {ranks} of {PAIRS}");
    assert!(median >= 950 && ranks >= 990, "seeds from 31000: median {median}, ranks {ranks}");
}
