//! The guard of a comparison: in 1,000 seeded pairs of series of the same thing, less than 5 % have
//! a verdict, on any quantile or by ranks, that tells them apart; and a true difference is found.

mod series;

use dwell_stats::{Compare, Comparison, Shift};
use series::delays;

const PAIRS: u64 = 1_000;
/// Fewer than by default, to end in time; the intervals are the same but for their last digits.
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

fn prove_same(n: usize, phi: f64, first: u64) {
    let tells =
        |&seed: &u64| verdicts(&compare(seed, n, phi, 1.0)).any(|shift| shift != Shift::CannotTell);
    let different = (first..first + PAIRS).filter(tells).count();
    println!("{n} delays, phi {phi}, seeds from {first}: {different} of {PAIRS} differ");
    assert!(different < 50, "n {n}, phi {phi}, seeds from {first}: {different} of {PAIRS} differ");
}

#[test]
fn independent_series_of_the_same_thing_do_not_differ() {
    prove_same(500, 0.0, 1_000);
    prove_same(2_000, 0.0, 3_000);
}

#[test]
fn dependent_series_of_the_same_thing_do_not_differ() {
    prove_same(500, 0.5, 11_000);
    prove_same(2_000, 0.5, 13_000);
}

#[test]
fn strongly_dependent_series_of_the_same_thing_do_not_differ() {
    prove_same(500, 0.8, 21_000);
    prove_same(2_000, 0.8, 23_000);
}

#[test]
fn a_tenth_more_is_found_in_two_thousand_delays() {
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
