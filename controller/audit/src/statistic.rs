//! Statistics that authors print, computed from a column with the bounds that rounded rows leave.

use crate::table::Column;

/// A statistic of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// Number of values.
    Count,
    /// Number of rows without a value.
    Lost,
    /// Share of rows without a value; printed as a ratio or in percent.
    LossRatio,
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Largest minus smallest value.
    Range,
    /// Standard deviation.
    Sd,
    /// Variance.
    Variance,
    /// Standard error of the mean.
    StandardError,
    /// Coefficient of variation: standard deviation divided by the mean; a ratio or in percent.
    Variation,
    /// Percentile, in percent; 50 is the median.
    Percentile(f64),
    /// Interquartile range.
    Quartiles,
    /// Mean absolute difference of successive values.
    SuccessiveDifference,
}

impl Statistic {
    /// Finds a statistic by the name of its key, such as `mean`, `sd` or `p99.9`.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim().to_lowercase().replace([' ', '-'], "_");
        Some(match name.as_str() {
            "count" | "n" | "samples" | "received" | "rows" | "anzahl" | "aantal" => Self::Count,
            "lost" => Self::Lost,
            "loss" | "loss_ratio" => Self::LossRatio,
            "sum" | "total" | "summe" | "som" | "somme" | "suma" => Self::Sum,
            "mean" | "average" | "avg" | "mittelwert" | "gemiddelde" | "moyenne" | "media" => {
                Self::Mean
            }
            "min" | "minimum" => Self::Min,
            "max" | "maximum" => Self::Max,
            "range" | "spread" => Self::Range,
            "sd" | "std" | "stdev" | "stddev" | "standard_deviation" | "mdev" => Self::Sd,
            "var" | "variance" => Self::Variance,
            "se" | "sem" | "standard_error" => Self::StandardError,
            "cv" | "coefficient_of_variation" => Self::Variation,
            "median" => Self::Percentile(50.0),
            "q1" => Self::Percentile(25.0),
            "q3" => Self::Percentile(75.0),
            "iqr" => Self::Quartiles,
            "successive_difference" | "mean_abs_diff" => Self::SuccessiveDifference,
            other => {
                let digits =
                    other.strip_prefix("percentile_").or_else(|| other.strip_prefix('p'))?;
                let percent: f64 = digits.replace('_', ".").parse().ok()?;
                // "p999" is p99.9.
                let percent = match digits {
                    "999" => 99.9,
                    "9999" => 99.99,
                    _ => percent,
                };
                return (percent > 0.0 && percent < 100.0).then_some(Self::Percentile(percent));
            }
        })
    }

    /// Name in messages.
    pub fn name(self) -> String {
        match self {
            Self::Count => "number of values".to_owned(),
            Self::Lost => "number of missing values".to_owned(),
            Self::LossRatio => "share of missing values".to_owned(),
            Self::Sum => "sum".to_owned(),
            Self::Mean => "mean".to_owned(),
            Self::Min => "minimum".to_owned(),
            Self::Max => "maximum".to_owned(),
            Self::Range => "range".to_owned(),
            Self::Sd => "standard deviation".to_owned(),
            Self::Variance => "variance".to_owned(),
            Self::StandardError => "standard error".to_owned(),
            Self::Variation => "coefficient of variation".to_owned(),
            Self::Percentile(50.0) => "median".to_owned(),
            Self::Percentile(percent) => format!("p{percent}"),
            Self::Quartiles => "interquartile range".to_owned(),
            Self::SuccessiveDifference => "mean successive difference".to_owned(),
        }
    }

    /// Code of the finding that a printed value contradicts the rows.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Count => "count-contradicts-rows",
            Self::Lost | Self::LossRatio => "loss-contradicts-rows",
            Self::Sum => "sum-contradicts-rows",
            Self::Mean => "mean-contradicts-rows",
            Self::Min => "minimum-contradicts-rows",
            Self::Max => "maximum-contradicts-rows",
            Self::Range | Self::Quartiles => "range-contradicts-rows",
            Self::Sd
            | Self::Variance
            | Self::StandardError
            | Self::Variation
            | Self::SuccessiveDifference => "deviation-contradicts-rows",
            Self::Percentile(50.0) => "median-contradicts-rows",
            Self::Percentile(_) => "percentile-contradicts-rows",
        }
    }

    /// Whether the value is in the unit of the column, in its square, or a pure number.
    pub const fn dimension(self) -> i32 {
        match self {
            Self::Count | Self::Lost | Self::LossRatio | Self::Variation => 0,
            Self::Variance => 2,
            _ => 1,
        }
    }

    /// Whether the value may be printed in percent.
    pub const fn is_ratio(self) -> bool {
        matches!(self, Self::LossRatio | Self::Variation)
    }
}

/// A statistic of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Computed {
    /// Value of the printed rows.
    pub value: f64,
    /// Smallest value of rows that were rounded or cut to the printed ones.
    pub low: f64,
    /// Largest value of such rows.
    pub high: f64,
}

impl Computed {
    const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }
}

/// Number of standard deviations that rounding errors are allowed.
const ROUNDING_SIGMAS: f64 = 6.0;
/// Standard deviation of a rounding error, in steps: the root of 1/12.
const ROUNDING_SD: f64 = 0.288_675;

/// Rows of a column, sorted, for statistics that need all of them.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    /// Values in row order.
    pub rows: Vec<f64>,
    /// Values in ascending order.
    pub values: Vec<f64>,
}

impl Sorted {
    /// Sorts values; not a number is left out.
    pub(crate) fn of(rows: Vec<f64>) -> Self {
        let mut values: Vec<f64> = rows.iter().copied().filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        Self { rows, values }
    }

    /// Mean of the values.
    pub(crate) fn mean(&self) -> f64 {
        mean(&self.values)
    }

    /// Bounds of a percentile by any of the usual definitions.
    pub(crate) fn percentile(&self, percent: f64) -> (f64, f64) {
        percentile_bounds(&self.values, percent)
    }

    /// Distinct values in ascending order.
    pub(crate) fn distinct(&self) -> Vec<f64> {
        let mut distinct = self.values.clone();
        distinct.dedup();
        distinct
    }
}

/// Mean; not a number without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    // Relative to the first value, so that equal values have exactly that mean.
    let Some(first) = values.first() else { return f64::NAN };
    first + values.iter().map(|value| value - first).sum::<f64>() / values.len() as f64
}

/// Standard deviation, divided by n - 1; not a number for fewer than two values.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::NAN;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Bounds of a percentile of ascending values: the order statistics that any usual definition uses.
pub(crate) fn percentile_bounds(values: &[f64], percent: f64) -> (f64, f64) {
    let n = values.len();
    if n == 0 {
        return (f64::NAN, f64::NAN);
    }
    let position = n as f64 * percent / 100.0;
    let at = |rank: f64| values[(rank.max(1.0).min(n as f64) as usize) - 1];
    // Definitions place the percentile between ranks n p and (n + 1) p, or interpolate towards the
    // next rank.
    (at((position - 1e-9).floor()), at((position + 1e-9).ceil() + 1.0))
}

/// Computes a statistic of a column. `whole` are its rows if all are kept. Values that `are_exact`
/// were not rounded. `None` if the rows do not determine it.
pub(crate) fn compute(
    statistic: Statistic,
    column: &Column,
    whole: Option<&Sorted>,
    are_exact: bool,
) -> Option<Computed> {
    let totals = &column.totals;
    let n = totals.count as f64;
    let rows = n + totals.missing as f64;
    let of_rows = |step: f64| if are_exact { 0.0 } else { step };
    let step = of_rows(totals.coarse_step());
    if totals.count == 0 && statistic.dimension() != 0 {
        return None;
    }
    Some(match statistic {
        Statistic::Count => Computed { value: n, low: n, high: n },
        Statistic::Lost => Computed::exact(totals.missing as f64),
        Statistic::LossRatio => Computed::exact(totals.missing as f64 / rows.max(1.0)),
        Statistic::Sum | Statistic::Mean => {
            let (low, high) = if are_exact { (0.0, 0.0) } else { mean_errors(column) };
            let scale = if statistic == Statistic::Sum { n } else { 1.0 };
            let value = totals.sum() / n * scale;
            let value = if statistic == Statistic::Sum { totals.sum() } else { value };
            Computed { value, low: value - low * scale, high: value + high * scale }
        }
        Statistic::Min => {
            let min = totals.min?;
            let step = of_rows(min.step);
            Computed { value: min.value, low: min.value - step / 2.0, high: min.value + step }
        }
        Statistic::Max => {
            let max = totals.max?;
            let step = of_rows(max.step);
            Computed { value: max.value, low: max.value - step / 2.0, high: max.value + step }
        }
        Statistic::Range => {
            let range = totals.max?.value - totals.min?.value;
            Computed { value: range, low: range - step, high: range + step }
        }
        Statistic::Sd | Statistic::Variance | Statistic::StandardError | Statistic::Variation => {
            if totals.count < 2 {
                return None;
            }
            let squares = totals.deviations();
            let [sample, population] = [(squares / (n - 1.0)).sqrt(), (squares / n).sqrt()];
            let error = step / 2.0 * (n / (n - 1.0)).sqrt();
            let (low, high) = ((population - error).max(0.0), sample + error);
            let mean = totals.mean()?;
            let apply = |sd: f64| match statistic {
                Statistic::Variance => sd * sd,
                Statistic::StandardError => sd / n.sqrt(),
                Statistic::Variation => sd / mean,
                _ => sd,
            };
            Computed { value: apply(sample), low: apply(low), high: apply(high) }
        }
        Statistic::Percentile(percent) => match whole {
            Some(sorted) => {
                let (low, high) = sorted.percentile(percent);
                let value = if percent == 50.0 {
                    let middle = sorted.values.len();
                    (sorted.values[(middle - 1) / 2] + sorted.values[middle / 2]) / 2.0
                } else {
                    nearest_rank(&sorted.values, percent)
                };
                let (low, high) = if percent == 50.0 {
                    let middle = sorted.values.len();
                    (sorted.values[(middle - 1) / 2], sorted.values[middle / 2])
                } else {
                    (low, high)
                };
                Computed { value, low: low - step / 2.0, high: high + step }
            }
            None => {
                let rank = (n * percent / 100.0).ceil().max(1.0) as u64;
                let below = totals.ranked(rank.saturating_sub(1).max(1))?;
                let above = totals.ranked((rank + 2).min(totals.count))?;
                let value = totals.ranked(rank)?;
                let middle = value.0 + (value.1 - value.0) / 2.0;
                Computed { value: middle, low: below.0 - step / 2.0, high: above.1 + step }
            }
        },
        Statistic::Quartiles => {
            let sorted = whole?;
            let [(low1, high1), (low3, high3)] = [sorted.percentile(25.0), sorted.percentile(75.0)];
            let value = nearest_rank(&sorted.values, 75.0) - nearest_rank(&sorted.values, 25.0);
            Computed { value, low: low3 - high1 - step, high: high3 - low1 + step }
        }
        Statistic::SuccessiveDifference => {
            let sorted = whole?;
            let steps: Vec<f64> = sorted
                .rows
                .windows(2)
                .map(|pair| (pair[1] - pair[0]).abs())
                .filter(|step| !step.is_nan())
                .collect();
            if steps.is_empty() {
                return None;
            }
            let value = mean(&steps);
            Computed { value, low: value - step, high: value + step }
        }
    })
}

/// Value of the nearest rank.
pub(crate) fn nearest_rank(values: &[f64], percent: f64) -> f64 {
    let rank = (values.len() as f64 * percent / 100.0 - 1e-9).ceil().max(1.0) as usize;
    values[rank.min(values.len()) - 1]
}

/// By how much the mean of the unrounded rows may be below and above that of the printed ones.
/// Rounded rows are above and below their true values alike; rows that were cut are below.
fn mean_errors(column: &Column) -> (f64, f64) {
    let step = column.totals.mean_step();
    let chance = ROUNDING_SIGMAS * ROUNDING_SD * step / (column.totals.count.max(1) as f64).sqrt();
    let spread = chance.min(step / 2.0);
    (spread, step / 2.0 + spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Content, Role};

    fn column(values: &[f64], exponent: i8) -> Column {
        let mut column = Column::new("x", Role::Latency, Content::Number, None);
        column.totals.add(1, values, &vec![exponent; values.len()]);
        column.values = values.to_vec();
        column
    }

    #[test]
    fn names_of_statistics_are_understood() {
        assert_eq!(Statistic::parse("p99.9"), Some(Statistic::Percentile(99.9)));
        assert_eq!(Statistic::parse("p99_9"), Some(Statistic::Percentile(99.9)));
        assert_eq!(Statistic::parse("p999"), Some(Statistic::Percentile(99.9)));
        assert_eq!(Statistic::parse("Standard deviation"), Some(Statistic::Sd));
        assert_eq!(Statistic::parse("median"), Some(Statistic::Percentile(50.0)));
        assert_eq!(Statistic::parse("mode"), None);
        assert_eq!(Statistic::parse("p100"), None);
    }

    #[test]
    fn statistics_equal_those_computed_by_hand() {
        let values = [1.0, 2.0, 4.0, 9.0];
        let column = column(&values, 0);
        let sorted = Sorted::of(values.to_vec());
        let value = |statistic| compute(statistic, &column, Some(&sorted), false).unwrap().value;
        assert_eq!(value(Statistic::Sum), 16.0);
        assert_eq!(value(Statistic::Mean), 4.0);
        assert_eq!(value(Statistic::Range), 8.0);
        assert_eq!(value(Statistic::Percentile(50.0)), 3.0);
        assert!((value(Statistic::Variance) - 38.0 / 3.0).abs() < 1e-9);
        assert!((value(Statistic::SuccessiveDifference) - 8.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn rounded_rows_widen_the_mean_less_the_more_there_are() {
        let few = column(&[1.0, 2.0, 3.0], 0);
        let wide = compute(Statistic::Mean, &few, None, false).unwrap();
        assert!((wide.low - 1.5).abs() < 1e-9 && (wide.high - 3.0).abs() < 1e-9, "{wide:?}");
        let many: Vec<f64> = (0..10_000).map(|i| f64::from(i % 7)).collect();
        let narrow = compute(Statistic::Mean, &column(&many, 0), None, false).unwrap();
        assert!(narrow.high - narrow.low < 0.6, "{narrow:?}");
    }
}
