//! Comparing what was measured several times each: repetitions differ among themselves, by more
//! than the samples within one can tell, and only against that is a difference a difference.

use dwell_units::Nanos;

use crate::blocked::FEWEST_TRIALS;
use crate::compare::{Compare, Comparison, NanosInterval, QuantileShift};
use crate::distribution::Quantile;
use crate::interval::RealInterval;
use crate::percentile::percentiles;
use crate::probability::{is_confidence, student_quantile};
use crate::shift::Shift;

impl Compare {
    /// Compares the repetitions of A with those of B, each a series in any order: Welch's t on the
    /// quantile of each repetition. `baseline` and `other` are the means of these, and repetitions
    /// that do not support a quantile are left out of it. There is no interval below
    /// [`FEWEST_TRIALS`] that do, on either side. `ranks` is `None`: ranks see samples, not repetitions.
    ///
    /// Believes that repetitions are independent of each other: A and B in random or alternating
    /// order, not first all of one.
    pub fn repetitions(&self, a: &[&[i64]], b: &[&[i64]]) -> Comparison {
        let confidence_each = 1.0 - (1.0 - self.confidence) / self.quantiles.len().max(1) as f64;
        let (a, b) = (figures(a, &self.quantiles), figures(b, &self.quantiles));
        let sides = self.quantiles.iter().zip(a.iter().zip(&b));
        let quantiles =
            sides.map(|(&quantile, (a, b))| welch(quantile, a, b, confidence_each)).collect();
        Comparison { quantiles, ranks: None, confidence_each }
    }
}

/// For each quantile, that of every repetition that supports it.
fn figures(repetitions: &[&[i64]], quantiles: &[Quantile]) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::with_capacity(repetitions.len()); quantiles.len()];
    for values in repetitions {
        for (figures, found) in figures.iter_mut().zip(percentiles(values, quantiles)) {
            figures.extend(found.map(|value| value.0 as f64));
        }
    }
    figures
}

/// The mean of a few figures and the square of its standard error.
#[derive(Clone, Copy)]
struct Mean {
    value: f64,
    square_error: Option<f64>,
    freedom: f64,
}

impl Mean {
    fn of(figures: &[f64]) -> Option<Self> {
        let n = figures.len() as f64;
        if figures.is_empty() {
            return None;
        }
        let value = figures.iter().sum::<f64>() / n;
        let squares: f64 = figures.iter().map(|figure| (figure - value).powi(2)).sum();
        let square_error = (figures.len() >= FEWEST_TRIALS).then(|| squares / (n - 1.0) / n);
        Some(Self { value, square_error, freedom: n - 1.0 })
    }
}

fn welch(quantile: Quantile, a: &[f64], b: &[f64], confidence: f64) -> QuantileShift {
    let (a, b) = (Mean::of(a), Mean::of(b));
    let nanos = |mean: Mean| Nanos(mean.value.round() as i64);
    let mut shift = QuantileShift {
        quantile,
        baseline: a.map(nanos),
        other: b.map(nanos),
        difference: None,
        interval: None,
        percent: None,
        percent_interval: None,
        shift: Shift::CannotTell,
    };
    let Some((a, b)) = a.zip(b) else { return shift };
    let difference = b.value - a.value;
    shift.difference = Some(Nanos(difference.round() as i64));
    let ratio = (a.value > 0.0).then(|| b.value / a.value);
    shift.percent = ratio.map(|ratio| (ratio - 1.0) * 100.0);
    if !is_confidence(confidence) {
        return shift;
    }
    let Some(margin) = margin(a, b, 1.0, confidence) else { return shift };
    let low = Nanos((difference - margin).floor() as i64);
    let high = Nanos((difference + margin).ceil() as i64);
    shift.interval = Some(NanosInterval { low, high });
    shift.shift = Shift::of(low.0, high.0);
    shift.percent_interval = ratio.and_then(|ratio| of_percent(a, b, ratio, confidence));
    shift
}

/// Where the true percentage lies: every limit that b - (1 + limit) a does not tell apart from nought
/// (Fieller's interval). An error of the baseline counts at the limit that is judged and not at the
/// ratio that was found, which would hide the largest rises best. An end is infinite where no limit
/// on its side can be told apart.
fn of_percent(a: Mean, b: Mean, ratio: f64, confidence: f64) -> Option<RealInterval> {
    a.square_error.and(b.square_error)?;
    let apart = |weight: f64, sign: f64| {
        margin(a, b, weight, confidence)
            .is_some_and(|margin| sign * (b.value - weight * a.value) > margin)
    };
    let end = |sign: f64| {
        // No change at all and nothing left first: the likeliest limits.
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
    Some(RealInterval { low: end(1.0), high: end(-1.0) })
}

/// Half the interval of b - `weight` a, with the degrees of freedom of Welch and Satterthwaite;
/// `None` where either has no standard error.
fn margin(a: Mean, b: Mean, weight: f64, confidence: f64) -> Option<f64> {
    let (of_a, of_b) = (a.square_error? * weight * weight, b.square_error?);
    let both = of_a + of_b;
    if both == 0.0 {
        return Some(0.0);
    }
    let freedom = both * both / (of_a * of_a / a.freedom + of_b * of_b / b.freedom);
    Some(student_quantile(0.5 + confidence / 2.0, freedom) * both.sqrt())
}

#[cfg(test)]
mod tests {
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
        assert_eq!((found.baseline, found.other), (Some(Nanos(1_007)), Some(Nanos(1_120))));
        assert_eq!((found.difference, found.shift), (Some(Nanos(113)), Shift::Rises));
        // Standard errors 17.64 and 25.82, 4.86 degrees of freedom, for which t is 2.78 at 98 %.
        let interval = found.interval.unwrap();
        let half = (interval.high.0 - interval.low.0) / 2;
        assert!((86..=88).contains(&half), "{found:?}");
        assert_eq!(borrowed(&a).shift, Shift::CannotTell);
    }

    #[test]
    fn a_large_rise_over_an_unsteady_baseline_is_a_rise_in_percent_too() {
        let unsteady: [&[i64]; 3] = [&[40_000; 9], &[62_000; 9], &[115_000; 9]];
        let slow: [&[i64]; 3] = [&[880_000; 9], &[900_000; 9], &[920_000; 9]];
        let found = compare(&unsteady, &slow);
        assert_eq!(found.shift, Shift::Rises);
        let interval = found.percent_interval.unwrap();
        assert!(interval.low > 100.0 && interval.low < found.percent.unwrap(), "{found:?}");
        // The baseline is so unsteady that no multiple of it is too much.
        assert_eq!(interval.high, f64::INFINITY);
        let back = compare(&slow, &unsteady);
        assert_eq!(back.shift, Shift::Falls);
        assert!(back.percent_interval.unwrap().high < -50.0, "{back:?}");
    }

    #[test]
    fn a_percentage_lies_between_the_limits_that_a_test_of_each_tells_apart() {
        let (a, b) = ([1_000.0, 1_040.0, 980.0], [1_100.0, 1_180.0, 1_140.0, 1_060.0]);
        let found = welch(Quantile::P50, &a, &b, 0.96);
        let (a, b) = (Mean::of(&a).unwrap(), Mean::of(&b).unwrap());
        let RealInterval { low, high } = found.percent_interval.unwrap();
        for (end, sign) in [(low, 1.0), (high, -1.0)] {
            let weight = 1.0 + end / 100.0;
            let left = sign * (b.value - weight * a.value) - margin(a, b, weight, 0.96).unwrap();
            assert!(left.abs() < 1e-6, "{end} %: {left}");
        }
        // The interval in nanoseconds is some 26 to 200 of 1,007.
        assert!((2.0..4.0).contains(&low) && (18.0..21.0).contains(&high), "{found:?}");
    }

    #[test]
    fn one_or_two_repetitions_have_a_difference_and_no_interval() {
        let found = compare(&[&[10, 20, 30]], &[&[40, 50, 60]]);
        assert_eq!((found.difference, found.percent), (Some(Nanos(30)), Some(150.0)));
        assert_eq!((found.interval, found.shift), (None, Shift::CannotTell));
        let two: [&[i64]; 2] = [&[10, 20, 30], &[11, 21, 31]];
        assert_eq!(compare(&two, &[&[70, 80, 90], &[71, 81, 91]]).interval, None);
        assert_eq!(compare(&[], &[]).difference, None);
        assert_eq!(compare(&[&[1]], &[&[1, 2, 3], &[]]).difference, None);
    }
}
