//! Comparison of two contestants: the factor between their figures in the same turns, and its lower
//! confidence bound.

/// One-sided 95 % confidence over 15 cells together: the normal deviate of 1 - 0.05 / 15.
const NORMAL_DEVIATE: f64 = 2.713;

/// Factor by which one contestant's figures exceed another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factor {
    pub(super) typical: f64,
    /// Lower confidence bound; `None` with too few turns.
    pub(super) at_least: Option<f64>,
}

impl Factor {
    /// Compares figures of both in the same turns, each at least 1. `typical` is the Hodges-Lehmann
    /// estimate (1963): the median of the geometric means of all pairs of ratios. `at_least` is the
    /// matching bound from Wilcoxon's signed-rank test. Effects common to both in a turn cancel, up
    /// to a quarter of the turns may be outliers, and the estimate may lie between the steps of a
    /// coarse clock. `None` without turns.
    pub(super) fn of(turns: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = turns.iter().map(|(own, other)| (own / other).ln()).collect();
        let with_later = |(i, one): (usize, &f64)| {
            let one = *one;
            logs[i..].iter().map(move |other| f64::midpoint(one, *other))
        };
        let mut means: Vec<f64> = logs.iter().enumerate().flat_map(with_later).collect();
        means.sort_by(f64::total_cmp);
        let [below, above] = [means.len().checked_sub(1)? / 2, means.len() / 2];
        let middle = f64::midpoint(means[below], means[above]);
        let n = logs.len() as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let rank = (n * (n + 1.0) / 4.0 - NORMAL_DEVIATE * deviation).floor();
        let lower = if rank < 1.0 { None } else { means.get(rank as usize - 1) };
        Some(Self { typical: middle.exp(), at_least: lower.map(|lower| lower.exp()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns with a common machine effect each, and a deviation of up to a tenth per figure.
    fn turns(factor: f64) -> Vec<(f64, f64)> {
        let wave = |n: i32, by: i32| 1.1_f64.powf(f64::from(n * by % 20) / 10.0 - 1.0);
        let machine = |n: i32| 20.0 * 4_f64.powi(n % 3);
        (0..40).map(|n| (factor * machine(n) * wave(n, 7), machine(n) * wave(n, 3))).collect()
    }

    #[test]
    fn factor_bound_separates_equal_from_quarter_more() {
        let [same, more] = [1.0, 1.25].map(|factor| Factor::of(&turns(factor)).unwrap());
        assert!((same.typical - 1.0).abs() < 0.03, "{same:?}");
        assert!(same.at_least.unwrap() < 1.0, "{same:?}");
        assert!((more.typical - 1.25).abs() < 0.03, "{more:?}");
        assert!(more.at_least.unwrap() > 1.15, "{more:?}");
    }

    #[test]
    fn a_few_odd_turns_change_little() {
        let mut odd = turns(1.0);
        odd.iter_mut().take(8).for_each(|(own, _)| *own *= 100.0);
        let found = Factor::of(&odd).unwrap().typical;
        assert!((1.0..1.1).contains(&found), "{found}");
    }

    #[test]
    fn factor_interpolates_clock_steps() {
        // One contestant is at 17 instead of 13 in every fourth turn, or in every second.
        let at = |often: usize| {
            let own = |n| if n % often == 0 { 17.0 } else { 13.0 };
            let turns: Vec<_> = (0..60).map(|n| (own(n), 13.0)).collect();
            Factor::of(&turns).unwrap().typical
        };
        assert_eq!(at(4), 1.0);
        assert!(at(2) > 1.1 && at(2) < 1.2, "{}", at(2));
    }

    #[test]
    fn few_turns_have_no_bound() {
        let few = Factor::of(&[(900.0, 1.0); 5]).unwrap();
        assert!((few.typical - 900.0).abs() < 1e-9 && few.at_least.is_none(), "{few:?}");
        assert_eq!(Factor::of(&[]), None);
    }
}
