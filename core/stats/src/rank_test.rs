//! Mann-Whitney rank-sum test for series with dependent neighbours: is a delay of B more often
//! above a delay of A than below it?

use crate::dependence::Dependence;
use crate::probability::{is_confidence, student_two_sided};
use crate::shift::Shift;

/// Maximum number of pooled values in the scoring grid. The grid only affects the dependence; U is
/// exact.
const MAX_GRID_VALUES: usize = 1_000;

/// Result of the rank-sum test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// U: number of pairs in which the sample of B is larger; ties count half.
    pub u: f64,
    /// Share of pairs in which the sample of B is larger, ties counting half; 0.5 if neither side
    /// is larger.
    pub superiority: f64,
    /// Effective number of independent samples of A and of B.
    pub effective_n: [f64; 2],
    /// Probability of a U at least this far from even if A and B had the same distribution; `None`
    /// if all values are equal.
    pub p_value: Option<f64>,
    /// Verdict at the requested confidence.
    pub shift: Shift,
}

impl RankTest {
    /// Cliff's delta, from -1 (every sample of B below every sample of A) to 1.
    pub fn cliffs_delta(&self) -> f64 {
        2.0 * self.superiority - 1.0
    }
}

/// Compares two series, each in time order. The variance of U is corrected for ties and uses
/// effective sample sizes; Student's t accounts for their uncertainty. `None` if either series has
/// fewer than two samples or the confidence is not between 0 and 1. Takes the time of sorting both.
pub fn mann_whitney(a: &[i64], b: &[i64], confidence: f64) -> Option<RankTest> {
    if a.len() < 2 || b.len() < 2 || !is_confidence(confidence) {
        return None;
    }
    let (sorted_a, sorted_b) = (sorted(a), sorted(b));
    let pooled = Pooled::of(&sorted_a, &sorted_b);
    let grid = grid(&sorted_a, &sorted_b);
    let score = |value: i64| {
        let below = grid.partition_point(|&other| other < value);
        let up_to = below + grid[below..].partition_point(|&other| other == value);
        (below + up_to) as f64 / 2.0
    };
    let series =
        [Dependence::of(a.len(), |i| score(a[i]))?, Dependence::of(b.len(), |i| score(b[i]))?];
    let (n, m) = (a.len() as f64, b.len() as f64);
    let effective_n = [series[0].effective().min(n), series[1].effective().min(m)];
    let superiority = pooled.u / (n * m);
    let sum = effective_n[0] + effective_n[1];
    let variance = (sum + 1.0) / (12.0 * effective_n[0] * effective_n[1]) * pooled.tie_factor;
    let freedom = series[0].freedom.min(series[1].freedom);
    let p_value =
        (variance > 0.0).then(|| student_two_sided((superiority - 0.5) / variance.sqrt(), freedom));
    let is_significant = p_value.is_some_and(|p| p < 1.0 - confidence);
    let shift = if is_significant {
        Shift::of(superiority - 0.5, superiority - 0.5)
    } else {
        Shift::CannotTell
    };
    Some(RankTest { u: pooled.u, superiority, effective_n, p_value, shift })
}

struct Pooled {
    u: f64,
    /// Factor of the variance due to ties: 1 without ties, 0 if all values are equal.
    tie_factor: f64,
}

impl Pooled {
    fn of(a: &[i64], b: &[i64]) -> Self {
        // An exact count of half pairs: the number of pairs may exceed 2^53.
        let mut twice_u = 0_u128;
        let mut ties = 0_f64;
        let (mut i, mut j) = (0, 0);
        while i < a.len() || j < b.len() {
            let value = match (a.get(i), b.get(j)) {
                (Some(&x), Some(&y)) => x.min(y),
                (Some(&x), None) => x,
                (None, Some(&y)) => y,
                (None, None) => break,
            };
            let of_a = a[i..].iter().take_while(|&&x| x == value).count();
            let of_b = b[j..].iter().take_while(|&&y| y == value).count();
            twice_u += of_b as u128 * (2 * i + of_a) as u128;
            let tied = (of_a + of_b) as f64;
            ties += tied * tied * tied - tied;
            i += of_a;
            j += of_b;
        }
        let all = (a.len() + b.len()) as f64;
        Self { u: twice_u as f64 / 2.0, tie_factor: 1.0 - ties / (all * all * all - all) }
    }
}

/// Evenly spaced values of both samples, sorted.
fn grid(a: &[i64], b: &[i64]) -> Vec<i64> {
    let step = (a.len() + b.len()).div_ceil(MAX_GRID_VALUES);
    let mut grid: Vec<_> = a.iter().chain(b).step_by(step).copied().collect();
    grid.sort_unstable();
    grid
}

fn sorted(values: &[i64]) -> Vec<i64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn verdict_gives_the_direction_of_b() {
        let a: Vec<i64> = (0..300).map(|i| i * 7_919 % 1_000).collect();
        let b: Vec<i64> = a.iter().map(|value| value + 400).collect();
        assert_eq!(mann_whitney(&a, &b, 0.99).unwrap().shift, Shift::Rises);
        assert_eq!(mann_whitney(&b, &a, 0.99).unwrap().shift, Shift::Falls);
        assert_eq!(mann_whitney(&a, &a, 0.99).unwrap().shift, Shift::CannotTell);
        assert_eq!(mann_whitney(&a, &a, 0.99).unwrap().superiority, 0.5);
    }

    #[test]
    fn equal_or_few_values_give_no_verdict() {
        let same = mann_whitney(&[5; 40], &[5; 30], 0.95).unwrap();
        assert_eq!((same.p_value, same.shift), (None, Shift::CannotTell));
        assert_eq!(mann_whitney(&[5], &[5; 30], 0.95), None);
        assert_eq!(mann_whitney(&[5; 3], &[5; 30], 1.5), None);
    }

    proptest! {
        #[test]
        fn u_counts_the_pairs(
            a in proptest::collection::vec(-20..20_i64, 2..60),
            b in proptest::collection::vec(-20..20_i64, 2..60),
        ) {
            let twice: usize = b
                .iter()
                .map(|y| a.iter().map(|x| usize::from(x < y) + usize::from(x <= y)).sum::<usize>())
                .sum();
            let found = mann_whitney(&a, &b, 0.95).unwrap();
            prop_assert_eq!(found.u, twice as f64 / 2.0);
            let mirrored = mann_whitney(&b, &a, 0.95).unwrap();
            prop_assert_eq!(found.u + mirrored.u, (a.len() * b.len()) as f64);
            prop_assert!((found.cliffs_delta() + mirrored.cliffs_delta()).abs() < 1e-12);
        }

        #[test]
        fn tie_factor_is_the_rank_variance_left_by_ties(
            a in proptest::collection::vec(-9..9_i64, 2..50),
            b in proptest::collection::vec(-9..9_i64, 2..50),
        ) {
            let pooled: Vec<_> = a.iter().chain(&b).copied().collect();
            let n = pooled.len() as f64;
            let rank = |value: i64| {
                let below = pooled.iter().filter(|&&other| other < value).count() as f64;
                let same = pooled.iter().filter(|&&other| other == value).count() as f64;
                below + (same + 1.0) / 2.0
            };
            let variance =
                pooled.iter().map(|&v| (rank(v) - (n + 1.0) / 2.0).powi(2)).sum::<f64>() / n;
            let naive = variance / ((n * n - 1.0) / 12.0);
            let found = Pooled::of(&sorted(&a), &sorted(&b)).tie_factor;
            prop_assert!((found - naive).abs() < 1e-9, "{} for {}", found, naive);
        }
    }
}
