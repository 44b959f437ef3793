//! Autocorrelation, drift and level shifts of a series of values.

use dwell_stats::effective_sample_size;

use super::{Found, MIN_DECIDING_VALUES};
use crate::finding::{Finding, quantity};
use crate::table::{Column, Role, Table};

/// Minimum number of values for a drift.
const MIN_DRIFT_VALUES: usize = 10;
/// Minimum number of values for autocorrelation and level shifts.
const MIN_VALUES: usize = MIN_DECIDING_VALUES as usize;
/// Maximum number of successive values for autocorrelation.
const MAX_SUCCESSIVE: usize = 65_536;
/// Maximum number of evenly spaced values for drift and shifts.
const MAX_SPACED: usize = 16_384;
/// Standard deviations that chance does not reach.
const MIN_SIGMAS: f64 = 4.0;
/// Smallest autocorrelation worth a note; the effective number of values is then a fifth smaller.
const MIN_AUTOCORRELATION: f64 = 0.1;
/// Smallest rank correlation with time worth a note.
const MIN_TREND: f64 = 0.1;
/// Smallest level shift, in standard deviations of the values around both levels.
const MIN_SHIFT_SIGMAS: f64 = 3.5;

pub(crate) fn check(table: &Table, found: &mut Found) {
    for column in table.measures() {
        let before = found.findings.len();
        series(table, column, found);
        let is_undecided = column.totals.count < MIN_DECIDING_VALUES;
        if is_undecided && column.role == Role::Latency && table.rows > 0 {
            let text = format!("{} has fewer than {MIN_DECIDING_VALUES} values", column.name);
            found.cannot_tell("autocorrelation", &table.name, text.clone());
            if found.findings.len() == before {
                found.cannot_tell("drift", &table.name, text);
            }
        }
    }
}

fn series(table: &Table, column: &Column, found: &mut Found) {
    if column.totals.count >= MIN_DRIFT_VALUES as u64 {
        let all = column.values.len();
        let spaced: Vec<(f64, u64)> = spaced(table, column, all);
        let values: Vec<f64> = spaced.iter().map(|(value, _)| *value).collect();
        if values.windows(2).all(|pair| pair[0] == pair[1]) {
            return;
        }
        let shift = level_shift(&values);
        match shift {
            Some((at, size)) => shifted(table, column, spaced[at].1, size, found),
            None => drift(table, column, &values, found),
        }
        autocorrelation(table, column, found);
    }
}

/// Evenly spaced values and their rows.
fn spaced(table: &Table, column: &Column, all: usize) -> Vec<(f64, u64)> {
    let stride = all.div_ceil(MAX_SPACED).max(1);
    (0..all)
        .step_by(stride)
        .map(|index| (column.values[index], table.row_number(index)))
        .filter(|(value, _)| !value.is_nan())
        .collect()
}

fn autocorrelation(table: &Table, column: &Column, found: &mut Found) {
    // Rows without a value are skipped: their neighbours still follow one another.
    let values: Vec<f64> = column.present().take(MAX_SUCCESSIVE).collect();
    if values.len() < MIN_VALUES {
        return;
    }
    let ranks = ranks(&values);
    let n = ranks.len();
    let correlation = correlation(&ranks[..n - 1], &ranks[1..]);
    let sigmas = correlation * (n as f64).sqrt();
    if correlation < MIN_AUTOCORRELATION || sigmas < MIN_SIGMAS {
        return;
    }
    let Some(effective) = effective_sample_size(&ranks) else { return };
    // The first correlation alone leaves at most this share.
    let by_first = (1.0 - correlation) / (1.0 + correlation);
    let total = column.totals.count as f64;
    // Values that rise throughout are one observation.
    let share = (effective / n as f64).min(by_first).max(1.0 / total);
    let effective = (share * total).max(1.0).round();
    let message = format!(
        "successive values of {} are correlated ({correlation:.2}): the {total} values count as {effective} \
         independent ones, and intervals that assume independence are {:.1} times too narrow",
        column.name,
        (1.0 / share).sqrt()
    );
    let finding = Finding::note("autocorrelation", message).value(effective, "");
    found.push(finding.column(&column.name).table(&table.name));
}

fn drift(table: &Table, column: &Column, values: &[f64], found: &mut Found) {
    let n = values.len();
    if n < MIN_DRIFT_VALUES {
        return;
    }
    let ranks = ranks(values);
    let time: Vec<f64> = (0..n).map(|at| at as f64).collect();
    let trend = correlation(&time, &ranks);
    // Neighbours that are correlated beyond the trend count less.
    let slope = trend * deviation(&ranks) / deviation(&time);
    let rest: Vec<f64> = ranks.iter().zip(&time).map(|(rank, at)| rank - slope * at).collect();
    let first = correlation(&rest[..n - 1], &rest[1..]).clamp(0.0, 0.999);
    let inflation = (1.0 + first) / (1.0 - first);
    let sigmas = trend.clamp(-0.999_999, 0.999_999).atanh().abs()
        * ((n as f64 - 3.0) / 1.06 / inflation).max(0.0).sqrt();
    if trend.abs() < MIN_TREND || sigmas < MIN_SIGMAS {
        return;
    }
    let third = n / 3;
    let change = (median(&values[n - third..]) - median(&values[..third])) * 1.5;
    let unit = column.unit_name();
    let direction = if trend > 0.0 { "rise" } else { "fall" };
    let message = format!(
        "the values of {} {direction} from the first row to the last by about {} (rank correlation with time {trend:.2})",
        column.name,
        quantity(change.abs(), unit)
    );
    let finding = Finding::note("drift", message).value(change, unit);
    found.push(finding.column(&column.name).table(&table.name));
}

fn shifted(table: &Table, column: &Column, row: u64, size: f64, found: &mut Found) {
    let unit = column.unit_name();
    let has_clocks = table.by_role(Role::Sent).is_some() && table.by_role(Role::Received).is_some();
    let cause =
        if has_clocks { "a step of one clock" } else { "another path or a step of a clock" };
    let message = format!(
        "the level of {} shifts by {} from row {row} on, as after {cause}",
        column.name,
        quantity(size, unit)
    );
    let finding = Finding::note("level-shift", message).value(size, unit).rows([row]);
    found.push(finding.column(&column.name).table(&table.name));
}

/// Index of the first value after a shift of the level, and its size (Pettitt's test, with a large
/// effect).
fn level_shift(values: &[f64]) -> Option<(usize, f64)> {
    const MIN_SIDE: usize = 5;
    /// Logarithm of the probability of a false shift.
    const MAX_LOG_CHANCE: f64 = -9.2;
    let n = values.len();
    if n < MIN_VALUES {
        return None;
    }
    let ranks = ranks(values);
    let centre = (n as f64 + 1.0) / 2.0;
    let (mut sum, mut best, mut at) = (0.0, 0.0_f64, 0);
    for (index, rank) in ranks.iter().enumerate().take(n - MIN_SIDE) {
        sum += 2.0 * (rank - centre);
        if index + 1 >= MIN_SIDE && sum.abs() > best {
            (best, at) = (sum.abs(), index + 1);
        }
    }
    let cube = (n as f64).powi(3) + (n as f64).powi(2);
    if at == 0 || -6.0 * best * best / cube > MAX_LOG_CHANCE {
        return None;
    }
    let (before, after) = (&values[..at], &values[at..]);
    let size = median(after) - median(before);
    let spread = spread(before).max(spread(after));
    let floor = values.iter().map(|value| value.abs()).fold(0.0, f64::max) * 1e-9;
    (size.abs() > MIN_SHIFT_SIGMAS * spread && size.abs() > floor).then_some((at, size))
}

/// Robust standard deviation; for more than half equal values the mean absolute deviation.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let robust = 1.483 * median(&distances);
    if robust > 0.0 { robust } else { 1.25 * crate::statistic::mean(&distances) }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 { f64::NAN } else { (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0 }
}

/// Ranks from 1; equal values have their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let mut end = start;
        while end < order.len() && values[order[end]] == values[order[start]] {
            end += 1;
        }
        let rank = (start + end + 1) as f64 / 2.0;
        order[start..end].iter().for_each(|at| ranks[*at] = rank);
        start = end;
    }
    ranks
}

/// Spearman's rank correlation; 0 if one side is constant.
pub(crate) fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    correlation(&ranks(a), &ranks(b))
}

/// Pearson's correlation; 0 if one side is constant.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let [mean_a, mean_b] = [a, b].map(crate::statistic::mean);
    let product: f64 = a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum();
    let squares: f64 = a.iter().map(|a| (a - mean_a).powi(2)).sum::<f64>()
        * b.iter().map(|b| (b - mean_b).powi(2)).sum::<f64>();
    if squares > 0.0 { product / squares.sqrt() } else { 0.0 }
}

fn deviation(values: &[f64]) -> f64 {
    crate::statistic::deviation(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_equal_values_are_their_mean() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[1.0, 8.0, 27.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn level_shift_is_found_where_it_is() {
        let noise = |i: usize| ((i * 7_919) % 101) as f64 / 101.0;
        let values: Vec<f64> =
            (0..60).map(|i| noise(i) + if i >= 37 { 10.0 } else { 0.0 }).collect();
        let (at, size) = level_shift(&values).unwrap();
        assert_eq!(at, 37);
        assert!((size - 10.0).abs() < 0.5, "{size}");
        let trend: Vec<f64> = (0..60).map(|i| noise(i) + i as f64 / 4.0).collect();
        assert_eq!(level_shift(&trend), None);
    }
}
