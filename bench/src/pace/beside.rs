//! One contestant beside another: the factor between what both did in the same turns, and what that is
//! shown to be at least.

/// One-sided, of 15 cells together 95 % sure: a normal deviate of 1 - 0.05 / 15.
const SURE: f64 = 2.713;

/// By which factor one contestant's figures exceed another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factor {
    pub(super) typical: f64,
    /// What it is shown to be at least; `None` of so few turns that they show nothing.
    pub(super) at_least: Option<f64>,
}

impl Factor {
    /// Of figures of both in the same turns, which are at least 1. The middle of the geometric means of all two
    /// turns' ratios (Hodges and Lehmann 1963), and the lower end of the interval that inverts Wilcoxon's test
    /// of signed ranks, with which it goes. What a turn does to both it takes out, one turn in four may
    /// be as odd as it likes, and it lies between the steps of a clock where turns' figures lie on them.
    /// `None` of no turn.
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
        let rank = (n * (n + 1.0) / 4.0 - SURE * deviation).floor();
        let lower = if rank < 1.0 { None } else { means.get(rank as usize - 1) };
        Some(Self { typical: middle.exp(), at_least: lower.map(|lower| lower.exp()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of which each is as the machine is then, and a figure is off that by a tenth.
    fn turns(factor: f64) -> Vec<(f64, f64)> {
        let wave = |n: i32, by: i32| 1.1_f64.powf(f64::from(n * by % 20) / 10.0 - 1.0);
        let machine = |n: i32| 20.0 * 4_f64.powi(n % 3);
        (0..40).map(|n| (factor * machine(n) * wave(n, 7), machine(n) * wave(n, 3))).collect()
    }

    #[test]
    fn what_is_the_same_is_not_shown_to_be_more_and_what_is_a_quarter_more_is() {
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
    fn figures_on_the_steps_of_a_clock_have_a_factor_between_them() {
        // One is at 17 instead of 13 in every fourth turn, or in half of the turns.
        let at = |often: usize| {
            let own = |n| if n % often == 0 { 17.0 } else { 13.0 };
            let turns: Vec<_> = (0..60).map(|n| (own(n), 13.0)).collect();
            Factor::of(&turns).unwrap().typical
        };
        assert_eq!(at(4), 1.0);
        assert!(at(2) > 1.1 && at(2) < 1.2, "{}", at(2));
    }

    #[test]
    fn few_turns_show_nothing_and_none_have_no_factor() {
        let few = Factor::of(&[(900.0, 1.0); 5]).unwrap();
        assert!((few.typical - 900.0).abs() < 1e-9 && few.at_least.is_none(), "{few:?}");
        assert_eq!(Factor::of(&[]), None);
    }
}
