//! Paired comparisons: the Hodges-Lehmann estimate (1963) with the interval that inverts Wilcoxon's
//! signed-rank test.
//!
//! The estimate is the median of the means of all pairs of values. It takes out what a turn does to
//! both sides, tolerates one odd turn in four, and needs no normal distribution. The interval is
//! exact for up to 200 turns; two-sided 95 % needs at least six.

use super::Estimate;

/// Confidence of the intervals that goals are judged by.
pub const CONFIDENCE: f64 = 0.95;

/// Largest factor that [`factor`] finds.
const MAX_FACTOR: f64 = 1e4;

/// Up to this many values the null distribution is computed exactly.
const MAX_EXACT: usize = 200;

/// Ratio of the first to the second of each turn; `None` without turns or if a value is not
/// above 0.
pub fn ratio(turns: impl IntoIterator<Item = (f64, f64)>) -> Option<Estimate> {
    ratio_at(turns, CONFIDENCE)
}

/// Like [`ratio`], with another two-sided confidence (0 to 1).
pub fn ratio_at(turns: impl IntoIterator<Item = (f64, f64)>, confidence: f64) -> Option<Estimate> {
    let logs = turns.into_iter().map(|(of, by)| {
        let positive = of > 0.0 && by > 0.0;
        positive.then(|| (of / by).ln())
    });
    let logs: Option<Vec<f64>> = logs.collect();
    Some(location_at(&logs?, confidence)?.map(f64::exp))
}

/// Factor `f` for which `first - f * second` of the turns has its centre at 0. Like [`ratio`] for
/// values that noise can push below 0, such as delays added by a relay. `None` without turns or if
/// the centre of the second is not above 0; no interval if its interval reaches 0.
pub fn factor(turns: &[(f64, f64)]) -> Option<Estimate> {
    let by = location(&turns.iter().map(|turn| turn.1).collect::<Vec<_>>())?;
    if by.value <= 0.0 {
        return None;
    }
    let rest = |factor: f64| {
        let rest: Vec<f64> = turns.iter().map(|(of, by)| of - factor * by).collect();
        location(&rest)
    };
    let is_known = by.low.is_some_and(|low| low > 0.0);
    let bound = |of: fn(&Estimate) -> Option<f64>| {
        is_known.then(|| root(|factor| rest(factor).as_ref().and_then(of))).flatten()
    };
    Some(Estimate {
        value: root(|factor| rest(factor).map(|rest| rest.value))?,
        low: bound(|rest| rest.low),
        high: bound(|rest| rest.high),
    })
}

/// Zero of a decreasing function, to 1 part in 10^9 of [`MAX_FACTOR`].
fn root(of: impl Fn(f64) -> Option<f64>) -> Option<f64> {
    let (mut low, mut high) = (-MAX_FACTOR, MAX_FACTOR);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if of(middle)? > 0.0 { low = middle } else { high = middle }
    }
    Some(f64::midpoint(low, high))
}

/// Difference between the first and the second of each turn; `None` without turns.
pub fn difference(turns: impl IntoIterator<Item = (f64, f64)>) -> Option<Estimate> {
    let differences: Vec<f64> = turns.into_iter().map(|(of, from)| of - from).collect();
    location(&differences)
}

/// Centre of the values of one contestant; `None` without values.
pub fn location(values: &[f64]) -> Option<Estimate> {
    location_at(values, CONFIDENCE)
}

fn location_at(values: &[f64], confidence: f64) -> Option<Estimate> {
    let mut means: Vec<f64> = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (i, one) in values.iter().enumerate() {
        means.extend(values[i..].iter().map(|other| f64::midpoint(*one, *other)));
    }
    means.sort_by(f64::total_cmp);
    let last = means.len().checked_sub(1)?;
    let value = f64::midpoint(means[last / 2], means[means.len() / 2]);
    let rank = rank(values.len(), (1.0 - confidence) / 2.0);
    let bounds = rank.map(|rank| (means[rank - 1], means[last + 1 - rank]));
    Some(Estimate { value, low: bounds.map(|b| b.0), high: bounds.map(|b| b.1) })
}

/// Rank (from 1) of the pairwise mean that is the lower end of the interval for a tail of this
/// probability; `None` if `n` values support none.
fn rank(n: usize, tail: f64) -> Option<usize> {
    if n > MAX_EXACT {
        let count = n as f64;
        let mean = count * (count + 1.0) / 4.0;
        let deviation = (mean * (2.0 * count + 1.0) / 6.0).sqrt();
        return Some((mean - normal_quantile(1.0 - tail) * deviation).floor().max(1.0) as usize);
    }
    // Probability of each rank sum: rank k is in the sum or not, with equal chance.
    let mut chance = vec![0.0_f64; n * (n + 1) / 2 + 1];
    chance[0] = 1.0;
    for k in 1..=n {
        for sum in (0..chance.len()).rev() {
            let with = sum.checked_sub(k).map_or(0.0, |rest| chance[rest]);
            chance[sum] = f64::midpoint(chance[sum], with);
        }
    }
    let mut cumulated = 0.0;
    let within = chance.iter().take_while(|chance| {
        cumulated += **chance;
        cumulated <= tail
    });
    Some(within.count()).filter(|rank| *rank > 0)
}

fn normal_quantile(probability: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, Normal};
    Normal::standard().inverse_cdf(probability)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Tables of the signed-rank test (two-sided 5 %): the critical sum plus 1.
    #[test]
    fn ranks_are_those_of_the_tables() {
        let known =
            [(5, None), (6, Some(1)), (7, Some(3)), (8, Some(4)), (10, Some(9)), (25, Some(90))];
        for (n, expected) in known {
            assert_eq!(rank(n, 0.025), expected, "{n} values");
        }
        let (exact, approximate) = (rank(200, 0.025).unwrap(), rank(201, 0.025).unwrap());
        assert!((0..200).contains(&(approximate as i64 - exact as i64)), "{exact} {approximate}");
    }

    #[test]
    fn interval_of_a_ratio_covers_the_truth() {
        const SEED: u64 = 0x70_6169_7265_6421;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut covered = 0;
        for _ in 0..1_000 {
            // The machine changes from turn to turn, and each value is off by up to a tenth.
            let turns: Vec<(f64, f64)> = (0..9)
                .map(|_| {
                    let machine = rng.random_range(10.0..40.0);
                    let mut off = || 1.1_f64.powf(rng.random_range(-1.0..1.0));
                    (1.25 * machine * off(), machine * off())
                })
                .collect();
            let found = ratio(turns).unwrap();
            covered += i32::from(found.low.unwrap() <= 1.25 && 1.25 <= found.high.unwrap());
        }
        assert!((930..=980).contains(&covered), "seed {SEED:#x}: {covered}");
    }

    #[test]
    fn factor_survives_values_below_zero() {
        let by = |n: i32| f64::from(10 + (n * 7) % 11 - 5);
        let turns: Vec<(f64, f64)> =
            (0..20).map(|n| (0.3 * by(n) + 1.5 * f64::from((n * 5) % 7 - 3), by(n))).collect();
        assert!(turns.iter().any(|turn| turn.0 < 0.0), "{turns:?}");
        let found = factor(&turns).unwrap();
        assert!((found.value - 0.3).abs() < 0.1, "{found:?}");
        assert!(found.low.unwrap() < 0.3 && 0.3 < found.high.unwrap(), "{found:?}");
        assert_eq!(factor(&[(1.0, -1.0); 8]), None);
    }

    #[test]
    fn odd_turns_change_little() {
        let turn = |n: i32| (if n < 2 { 100.0 } else { 1.0 }, 1.0 + f64::from(n) / 100.0);
        let found = ratio((0..10).map(turn)).unwrap();
        assert!((0.9..1.1).contains(&found.value), "{found:?}");
    }

    #[test]
    fn few_turns_have_no_interval_and_none_no_value() {
        let few = ratio([(2.0, 1.0); 5]).unwrap();
        assert!(
            (few.value - 2.0).abs() < 1e-9 && few.low.is_none() && few.high.is_none(),
            "{few:?}"
        );
        assert_eq!(ratio([]), None);
        assert_eq!(ratio([(1.0, 0.0)]), None);
        assert_eq!(difference([(3.0, 1.0); 6]), Some(Estimate::exact(2.0)));
    }
}
