//! Variability j of inter-departure times (Mok 2015) in four definitions: equation (2) as printed
//! gives the mean gap, so three plausible corrections are computed as well.

/// j of one train in nanoseconds over its known gaps; `None` without any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Variability {
    /// See [`Variability::EXPLAINED`] for all fields.
    pub literal: Option<f64>,
    /// Against the nominal gap.
    pub nominal: Option<f64>,
    /// Against the mean gap.
    pub mean: Option<f64>,
    /// Against the previous gap; needs two consecutive gaps.
    pub successive: Option<f64>,
}

impl Variability {
    /// Name in results and a one-sentence explanation of each definition.
    pub const EXPLAINED: [(&str, &str); 4] = [
        (
            "j_literal_ns",
            "Equation (2) of Mok 2015 as printed, the mean of |t_i - t_(i-1)|. This is the mean \
             gap and does not measure how much gaps vary.",
        ),
        (
            "j_nominal_ns",
            "The mean of |gap - nominal gap|: how far gaps are from the requested gap, including \
             the effect of a wrong rate; if requested gaps vary, from their mean.",
        ),
        (
            "j_mean_ns",
            "The mean of |gap - mean gap|: how unequal gaps are, independent of their rate.",
        ),
        (
            "j_successive_ns",
            "The mean of |gap - previous gap|: how much gaps change from one to the next; 0 for a \
             constant train.",
        ),
    ];

    /// Computes j from gaps in order (`None` if unknown) around a nominal gap, in nanoseconds.
    pub fn of(gaps: &[Option<i64>], nominal: f64) -> Self {
        let known = || gaps.iter().flatten().map(|gap| *gap as f64);
        let average = mean(known());
        let changes =
            gaps.windows(2).filter_map(|pair| Some((pair[1]? as f64 - pair[0]? as f64).abs()));
        Self {
            literal: mean(known().map(f64::abs)),
            nominal: mean(known().map(|gap| (gap - nominal).abs())),
            mean: average.and_then(|average| mean(known().map(|gap| (gap - average).abs()))),
            successive: mean(changes),
        }
    }

    /// Each value with its name in results.
    pub fn values(&self) -> [(&'static str, Option<f64>); 4] {
        let values = [self.literal, self.nominal, self.mean, self.successive];
        std::array::from_fn(|n| (Self::EXPLAINED[n].0, values[n]))
    }
}

/// The arithmetic mean; `None` if empty.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0_u64), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / n as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn four_definitions_give_different_values() {
        // Nominal gap 100; the mean is 110.
        let found = Variability::of(&[100, 140, 90, 110].map(Some), 100.0);
        let expected = [("j_literal_ns", 110.0), ("j_nominal_ns", 15.0)];
        assert_eq!(found.values()[..2], expected.map(|(name, value)| (name, Some(value))));
        assert_eq!((found.mean, found.successive), (Some(15.0), Some(110.0 / 3.0)));
        let slow = Variability::of(&[Some(130); 49], 100.0);
        assert_eq!((slow.literal, slow.nominal), (Some(130.0), Some(30.0)));
        assert_eq!((slow.mean, slow.successive), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn unknown_gap_has_no_successive_difference() {
        let found = Variability::of(&[Some(10), None, Some(30), Some(34)], 10.0);
        assert_eq!((found.literal, found.successive), (Some(74.0 / 3.0), Some(4.0)));
        assert_eq!(Variability::of(&[None, None], 10.0), Variability::default());
        assert_eq!(Variability::of(&[Some(9)], 10.0).successive, None);
    }

    proptest! {
        #[test]
        fn literal_j_of_ordered_timestamps_is_the_mean_gap(
            stamps in proptest::collection::vec(0..1_000_000_000_i64, 2..100),
        ) {
            let mut stamps = stamps;
            stamps.sort_unstable();
            let gaps: Vec<_> = stamps.windows(2).map(|pair| Some(pair[1] - pair[0])).collect();
            let mean = (stamps[stamps.len() - 1] - stamps[0]) as f64 / gaps.len() as f64;
            let literal = Variability::of(&gaps, 1e3).literal.unwrap();
            prop_assert!((literal - mean).abs() <= 1e-9 * mean, "{literal} {mean}");
        }

        #[test]
        fn constant_train_has_zero_mean_and_successive_j(
            gap in 0..10_000_000_i64, n in 2..100_usize, nominal in 0.0..1e7,
        ) {
            let found = Variability::of(&vec![Some(gap); n], nominal);
            prop_assert_eq!((found.mean, found.successive), (Some(0.0), Some(0.0)));
            prop_assert!((found.nominal.unwrap() - (gap as f64 - nominal).abs()).abs() < 1e-6);
        }
    }
}
