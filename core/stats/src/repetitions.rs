//! Comparison of repeated measurements. Repetitions differ from each other by more than the samples
//! within one show, so differences are tested against that variation.

use dwell_units::Nanos;

use crate::blocked_comparison::MIN_TRIALS;
use crate::compare::{Compare, Comparison, NanosInterval, QuantileShift};
use crate::distribution::Quantile;
use crate::interval::RealInterval;
use crate::percentile::percentiles;
use crate::probability::{is_confidence, student_quantile};
use crate::shift::Shift;

impl Compare {
    /// Compares the repetitions of A with those of B, each a series in any order, with Welch's t on
    /// the quantile of each repetition. A repetition that does not support a quantile is excluded
    /// from it. Intervals need at least [`MIN_TRIALS`] repetitions per side. `ranks` is `None`,
    /// because ranks compare samples, not repetitions.
    ///
    /// If all quantiles are positive, their logarithms are compared: `baseline` and `other` are
    /// geometric means, and the percentage cannot fall below -100 %. Otherwise they are arithmetic
    /// means.
    ///
    /// Assumes independent repetitions: run A and B in random or alternating order, not one after
    /// the other.
    pub fn repetitions(&self, a: &[&[i64]], b: &[&[i64]]) -> Comparison {
        let confidence_each = 1.0 - (1.0 - self.confidence) / self.quantiles.len().max(1) as f64;
        let (a, b) = (figures(a, &self.quantiles), figures(b, &self.quantiles));
        let sides = self.quantiles.iter().zip(a.iter().zip(&b));
        let quantiles = sides
            .map(|(&quantile, (a, b))| compare_quantile(quantile, a, b, confidence_each))
            .collect();
        Comparison { quantiles, ranks: None, confidence_each }
    }
}

/// For each quantile, its value in every repetition that supports it.
fn figures(repetitions: &[&[i64]], quantiles: &[Quantile]) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::with_capacity(repetitions.len()); quantiles.len()];
    for values in repetitions {
        for (figures, found) in figures.iter_mut().zip(percentiles(values, quantiles)) {
            figures.extend(found.map(|value| value.0 as f64));
        }
    }
    figures
}

/// Mean of a few figures or of their logarithms, with its squared standard error.
#[derive(Clone, Copy)]
struct Mean {
    value: f64,
    square_error: Option<f64>,
    freedom: f64,
}

impl Mean {
    fn of(figures: impl ExactSizeIterator<Item = f64> + Clone) -> Option<Self> {
        let n = figures.len() as f64;
        if figures.len() == 0 {
            return None;
        }
        let value = figures.clone().sum::<f64>() / n;
        let has_min_trials = figures.len() >= MIN_TRIALS;
        let squares: f64 = figures.map(|figure| (figure - value).powi(2)).sum();
        let square_error = has_min_trials.then(|| squares / (n - 1.0) / n);
        Some(Self { value, square_error, freedom: n - 1.0 })
    }

    /// Converts a mean of logarithms to a geometric mean; the standard error follows by the delta
    /// method.
    fn exponential(self) -> Self {
        let value = self.value.exp();
        let square_error = self.square_error.map(|square| square * value * value);
        Self { value, square_error, ..self }
    }
}

fn compare_quantile(quantile: Quantile, a: &[f64], b: &[f64], confidence: f64) -> QuantileShift {
    if a.iter().chain(b).all(|figure| *figure > 0.0) {
        by_logarithm(quantile, a, b, confidence)
    } else {
        by_difference(quantile, a, b, confidence)
    }
}

/// Estimates without intervals and verdict.
fn estimates(quantile: Quantile, baseline: Option<f64>, other: Option<f64>) -> QuantileShift {
    let nanos = |value: f64| Nanos(value.round() as i64);
    let pair = baseline.zip(other);
    let ratio = pair.filter(|(a, b)| *a > 0.0 && *b >= 0.0).map(|(a, b)| b / a);
    QuantileShift {
        quantile,
        baseline: baseline.map(nanos),
        other: other.map(nanos),
        difference: pair.map(|(a, b)| nanos(b - a)),
        interval: None,
        percent: ratio.map(|ratio| (ratio - 1.0) * 100.0),
        percent_interval: None,
        shift: Shift::CannotTell,
    }
}

fn by_logarithm(quantile: Quantile, a: &[f64], b: &[f64], confidence: f64) -> QuantileShift {
    let [of_a, of_b] = [a, b].map(|side| Mean::of(side.iter().map(|figure| figure.ln())));
    let typical = |mean: Option<Mean>| mean.map(|mean| mean.value.exp());
    let mut shift = estimates(quantile, typical(of_a), typical(of_b));
    let Some((of_a, of_b)) = of_a.zip(of_b).filter(|_| is_confidence(confidence)) else {
        return shift;
    };
    let (baseline, other) = (of_a.value.exp(), of_b.value.exp());
    // The larger side dominates the error of their difference.
    let [in_ns_a, in_ns_b] = [of_a, of_b].map(Mean::exponential);
    let margins = Margins::of(of_a, of_b, 1.0, confidence);
    let Some((of_ratio, of_both)) = margins.zip(Margins::of(in_ns_a, in_ns_b, 1.0, confidence))
    else {
        return shift;
    };
    let change = of_b.value - of_a.value;
    let percent = |log: f64| log.exp_m1() * 100.0;
    let of_percent = RealInterval {
        low: percent(change - of_ratio.both),
        high: percent(change + of_ratio.both),
    };
    // Interval of a difference from the intervals of both sides (MOVER, Zou and Donner 2008).
    let [below, above] = [-1.0, 1.0].map(|sign: f64| {
        let a = baseline * (-sign * of_both.a / baseline).exp_m1();
        let b = other * (sign * of_both.b / other).exp_m1();
        sign * a.hypot(b)
    });
    let difference = other - baseline;
    let low = Nanos((difference + below).floor() as i64);
    let high = Nanos((difference + above).ceil() as i64);
    shift.percent_interval = Some(of_percent);
    shift.interval = Some(NanosInterval { low, high });
    let verdicts = [Shift::of(of_percent.low, of_percent.high), Shift::of(low.0, high.0)];
    if verdicts[0] == verdicts[1] {
        shift.shift = verdicts[0];
    }
    shift
}

fn by_difference(quantile: Quantile, a: &[f64], b: &[f64], confidence: f64) -> QuantileShift {
    let is_signed = a.iter().chain(b).any(|figure| *figure < 0.0);
    let [a, b] = [a, b].map(|side| Mean::of(side.iter().copied()));
    let mut shift = estimates(quantile, a.map(|mean| mean.value), b.map(|mean| mean.value));
    let Some((a, b)) = a.zip(b).filter(|_| is_confidence(confidence)) else { return shift };
    let Some(margins) = Margins::of(a, b, 1.0, confidence) else { return shift };
    let difference = b.value - a.value;
    let low = difference - margins.both;
    // If no value is negative, the difference cannot fall below -A.
    let low = if is_signed { low } else { low.max(-(a.value + margins.a)) };
    let low = Nanos(low.floor() as i64);
    let high = Nanos((difference + margins.both).ceil() as i64);
    shift.interval = Some(NanosInterval { low, high });
    shift.shift = Shift::of(low.0, high.0);
    if is_signed {
        shift.percent = None;
    }
    let ratio = shift.percent.map(|percent| percent / 100.0 + 1.0);
    shift.percent_interval = ratio.and_then(|ratio| of_percent(a, b, ratio, confidence));
    shift
}

/// Interval of the true percentage (Fieller): all limits from -100 % for which b - (1 + limit) a
/// does not differ significantly from 0. The baseline's error is evaluated at the tested limit, not
/// at the estimated ratio, which would hide the largest increases. The upper end is infinite if no
/// limit is significant.
fn of_percent(a: Mean, b: Mean, ratio: f64, confidence: f64) -> Option<RealInterval> {
    a.square_error.and(b.square_error)?;
    let apart = |weight: f64, sign: f64| {
        Margins::of(a, b, weight, confidence)
            .is_some_and(|margins| sign * (b.value - weight * a.value) > margins.both)
    };
    let end = |sign: f64| {
        // First try no change and a decrease to zero, the most likely limits.
        let near = [1.0, 0.0].into_iter().filter(|weight| sign * (ratio - weight) > 0.0);
        let far = (-10..30).map(|power| ratio - sign * f64::from(power).exp2());
        let Some(mut beyond) = near.chain(far).find(|weight| apart(*weight, sign)) else {
            return -sign * f64::INFINITY;
        };
        let mut within = ratio;
        for _ in 0..60 {
            let middle = f64::midpoint(within, beyond);
            *(if apart(middle, sign) { &mut beyond } else { &mut within }) = middle;
        }
        (beyond - 1.0) * 100.0
    };
    Some(RealInterval { low: end(1.0).max(-100.0), high: end(-1.0) })
}

/// Half widths of the intervals of `a`, `b` and b - `weight` a, with the degrees of freedom of the
/// last one (Welch-Satterthwaite).
struct Margins {
    a: f64,
    b: f64,
    both: f64,
}

impl Margins {
    /// `None` if either mean has no standard error.
    fn of(a: Mean, b: Mean, weight: f64, confidence: f64) -> Option<Self> {
        let (of_a, of_b) = (a.square_error? * weight * weight, b.square_error?);
        let both = of_a + of_b;
        if both == 0.0 {
            return Some(Self { a: 0.0, b: 0.0, both: 0.0 });
        }
        let freedom = both * both / (of_a * of_a / a.freedom + of_b * of_b / b.freedom);
        let t = student_quantile(0.5 + confidence / 2.0, freedom);
        Some(Self { a: t * of_a.sqrt(), b: t * of_b.sqrt(), both: t * both.sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compare(a: &[&[i64]], b: &[&[i64]]) -> QuantileShift {
        let compare = Compare { quantiles: vec![Quantile::P50], ..Compare::default() };
        compare.repetitions(a, b).quantiles[0]
    }

    #[test]
    fn medians_of_repetitions_follow_welch() {
        let levels =
            |levels: &[i64]| levels.iter().map(|&level| vec![level; 9]).collect::<Vec<_>>();
        let (a, b) = (levels(&[1_000, 1_040, 980]), levels(&[1_100, 1_180, 1_140, 1_060]));
        let borrowed = |side: &[Vec<i64>]| -> QuantileShift {
            let a: Vec<&[i64]> = a.iter().map(Vec::as_slice).collect();
            compare(&a, &side.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        let found = borrowed(&b);
        // Geometric means of the repetitions.
        assert_eq!((found.baseline, found.other), (Some(Nanos(1_006)), Some(Nanos(1_119))));
        assert_eq!((found.difference, found.shift), (Some(Nanos(113)), Shift::Rises));
        // Standard errors 17.64 and 25.82 by differences, 4.86 degrees of freedom: t is 2.59 at 95
        // %. By logarithms nearly the same.
        let interval = found.interval.unwrap();
        let half = (interval.high.0 - interval.low.0) / 2;
        assert!((79..=83).contains(&half), "{found:?}");
        assert_eq!(borrowed(&a).shift, Shift::CannotTell);
    }

    #[test]
    fn large_rise_over_unsteady_baseline_rises_in_percent() {
        let unsteady: [&[i64]; 3] = [&[40_000; 9], &[62_000; 9], &[115_000; 9]];
        let slow: [&[i64]; 3] = [&[2_880_000; 9], &[2_900_000; 9], &[2_920_000; 9]];
        let found = compare(&unsteady, &slow);
        assert_eq!(found.shift, Shift::Rises);
        let interval = found.percent_interval.unwrap();
        assert!(interval.low > 100.0 && interval.low < found.percent.unwrap(), "{found:?}");
        assert!(interval.high.is_finite(), "{found:?}");
        let back = compare(&slow, &unsteady);
        assert_eq!(back.shift, Shift::Falls);
        let interval = back.percent_interval.unwrap();
        assert!(interval.high < -50.0 && interval.low > -100.0, "{back:?}");
    }

    #[test]
    fn percentage_is_welch_on_logarithms() {
        let e = |logs: [f64; 3]| logs.map(f64::exp);
        let found =
            compare_quantile(Quantile::P50, &e([10.0, 10.1, 10.2]), &e([11.0, 11.2, 11.4]), 0.95);
        // Standard errors 0.0577 and 0.1155, 2.94 degrees of freedom: t is 3.22.
        let RealInterval { low, high } = found.percent_interval.unwrap();
        let [low, high] = [low, high].map(|percent| (percent / 100.0).ln_1p());
        assert!((low - 0.684).abs() < 0.01 && (high - 1.516).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn percentage_interval_with_zeros_matches_fieller() {
        let (a, b) = ([1_000.0, 1_040.0, 980.0], [0.0, 80.0, 40.0, 60.0]);
        let found = compare_quantile(Quantile::P50, &a, &b, 0.96);
        let of = |side: &[f64]| Mean::of(side.iter().copied()).unwrap();
        let (a, b) = (of(&a), of(&b));
        let RealInterval { low, high } = found.percent_interval.unwrap();
        let weight = 1.0 + high / 100.0;
        let margin = Margins::of(a, b, weight, 0.96).unwrap().both;
        assert!((weight * a.value - b.value - margin).abs() < 1e-6, "{found:?}");
        // The test alone would not reject limits below -100 %, which are impossible for delays.
        assert_eq!(low, -100.0, "{found:?}");
    }

    #[test]
    fn signed_figures_have_a_difference_and_no_percentage() {
        let offsets: [&[i64]; 3] = [&[-50; 9], &[40; 9], &[60; 9]];
        let found = compare(&offsets, &[&[900; 9], &[950; 9], &[1_000; 9]]);
        assert_eq!((found.shift, found.percent), (Shift::Rises, None));
        assert_eq!(found.percent_interval, None);
    }

    #[test]
    fn one_or_two_repetitions_have_a_difference_and_no_interval() {
        let found = compare(&[&[10, 20, 30]], &[&[40, 50, 60]]);
        assert_eq!(found.difference, Some(Nanos(30)));
        assert!((found.percent.unwrap() - 150.0).abs() < 1e-9, "{found:?}");
        assert_eq!((found.interval, found.shift), (None, Shift::CannotTell));
        let two: [&[i64]; 2] = [&[10, 20, 30], &[11, 21, 31]];
        assert_eq!(compare(&two, &[&[70, 80, 90], &[71, 81, 91]]).interval, None);
        assert_eq!(compare(&[], &[]).difference, None);
        assert_eq!(compare(&[&[1]], &[&[1, 2, 3], &[]]).difference, None);
    }

    proptest! {
        #[test]
        fn repetition_intervals_are_never_below_minus_100_percent(
            a in proptest::collection::vec(prop_oneof![0.0..3.0_f64, 1.0..1e9_f64], 1..6),
            b in proptest::collection::vec(prop_oneof![0.0..3.0_f64, 1.0..1e9_f64], 1..6),
            confidence in 0.5..0.999,
        ) {
            let [a, b] = [a, b].map(|side| side.iter().map(|figure| figure.floor()).collect());
            let (a, b): (Vec<f64>, Vec<f64>) = (a, b);
            let found = compare_quantile(Quantile::P50, &a, &b, confidence);
            if let (Some(interval), Some(percent)) = (found.percent_interval, found.percent) {
                prop_assert!(interval.low >= -100.0, "{found:?}");
                let grain = 1e-6 * (1.0 + percent.abs());
                prop_assert!(interval.low <= percent + grain, "{found:?}");
                prop_assert!(interval.high >= percent - grain, "{found:?}");
            }
            if let (Some(interval), Some(difference)) = (found.interval, found.difference) {
                prop_assert!(interval.low <= difference && difference <= interval.high);
            }
        }
    }
}
