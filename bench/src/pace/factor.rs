//! Comparison of two contestants: the factor between their figures in the same turns, and its lower
//! confidence bound.

use crate::judge::paired;

/// Two-sided confidence whose lower bound holds with 95 % for 15 cells together.
const CONFIDENCE: f64 = 1.0 - 2.0 * 0.05 / 15.0;

/// Factor by which one contestant's figures exceed another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factor {
    pub(super) typical: f64,
    /// Lower confidence bound; `None` with too few turns.
    pub(super) at_least: Option<f64>,
}

impl Factor {
    /// Compares figures of both in the same turns, each above 0. `None` without turns.
    pub(super) fn of(turns: &[(f64, f64)]) -> Option<Self> {
        let ratio = paired::ratio_at(turns.iter().copied(), CONFIDENCE)?;
        Some(Self { typical: ratio.value, at_least: ratio.low })
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
