//! Printed statistics that do not follow from the rows, with the slip that explains them.

use super::{Found, stamps};
use crate::document::PrintedStatistic;
use crate::finding::{Finding, number, quantity};
use crate::header;
use crate::printed::{Printed, Reading};
use crate::statistic::{
    Computed, Sorted, Statistic, compute, deviation, mean, nearest_rank, percentile_bounds,
};
use crate::table::{Column, Content, MAX_LISTED_ROWS, Role, Table};
use crate::unit::Unit;

/// Percentiles at which summaries are usually trimmed.
const TRIMS: [f64; 6] = [99.99, 99.9, 99.5, 99.0, 95.0, 90.0];
/// Maximum number of rows for which the omission of single rows is tried.
const MAX_SINGLE_ROWS: usize = 10_000;
/// Standard deviations of rounding errors from which a difference is worth a note.
const SIGMAS_OF_NOTE: f64 = 3.5;

/// Checks the printed statistics of a table.
pub(crate) fn check(table: &Table, printed: &[PrintedStatistic], found: &mut Found) {
    for one in printed {
        let column = match &one.column {
            Some(name) => table.column(name),
            None => table.main(),
        };
        let no_rows = table.rows == 0;
        let Some(column) = column.filter(|_| !no_rows) else {
            let name = one.statistic.name();
            found.cannot_tell(
                one.statistic.code(),
                &table.name,
                format!(
                    "the {name} {} cannot be checked: the table has no rows of its column",
                    one.printed.text
                ),
            );
            continue;
        };
        Check::of(table, column, one).run(found);
    }
    consistency(table, printed, found);
}

/// Whether a column has counts, which no one rounds: by its name, whole numbers.
fn is_count(column: &Column) -> bool {
    column.content == Content::Number
        && column.unit.is_none()
        && column.totals.fine_step() >= 1.0
        && header::is_count(&column.name)
}

/// A printed statistic and the column that it is about.
struct Check<'a> {
    table: &'a Table,
    column: &'a Column,
    printed: &'a PrintedStatistic,
    /// Readings in the column's unit.
    readings: Vec<Reading>,
    /// Factor from the column's unit to the printed one, and that unit.
    shown: (f64, &'static str),
    rows: Option<Sorted>,
    /// Whether the values were not rounded.
    are_exact: bool,
}

impl<'a> Check<'a> {
    fn of(table: &'a Table, column: &'a Column, printed: &'a PrintedStatistic) -> Self {
        let rows = table.is_whole().then(|| Sorted::of(column.values.clone()));
        let readings = readings(&printed.printed, printed.statistic, column.unit);
        let dimension = printed.statistic.dimension();
        let shown = match (printed.printed.unit, column.unit) {
            (Some(to), Some(from)) if dimension == 1 => (from.to(to), to.name()),
            _ if dimension == 1 => (1.0, column.unit_name()),
            _ => (1.0, ""),
        };
        let are_exact = stamps::are_exact(table, column) || is_count(column);
        Self { table, column, printed, readings, shown, rows, are_exact }
    }

    fn run(&self, found: &mut Found) {
        let statistic = self.printed.statistic;
        self.unsupported_percentile(found);
        let Some(computed) = self.computed() else {
            found.cannot_tell(
                statistic.code(),
                &self.table.name,
                format!("the rows do not determine the {}", statistic.name()),
            );
            return;
        };
        if self.agrees(computed.low, computed.high) || self.is_count_of_rows() {
            self.unlikely_rounding(computed, found);
            self.corrected(found);
            return;
        }
        self.contradiction(computed, found);
    }

    fn computed(&self) -> Option<Computed> {
        compute(self.printed.statistic, self.column, self.rows.as_ref(), self.are_exact)
    }

    /// Step of the rows' last digits; 0 if they were not rounded.
    fn step(&self) -> f64 {
        if self.are_exact { 0.0 } else { self.column.totals.mean_step() }
    }

    /// The printed value with its unit, if it has one.
    fn printed_text(&self) -> String {
        let text = &self.printed.printed.text;
        let has_unit = !text.ends_with(|c: char| c.is_ascii_digit());
        if has_unit || self.shown.1.is_empty() {
            text.clone()
        } else {
            format!("{text} {}", self.shown.1)
        }
    }

    fn agrees(&self, low: f64, high: f64) -> bool {
        self.readings.iter().any(|reading| reading.allows(low, high))
    }

    /// A count may be that of all rows, or of those with a value.
    fn is_count_of_rows(&self) -> bool {
        let rows = self.table.rows as f64;
        self.printed.statistic == Statistic::Count && self.agrees(rows, rows)
    }

    fn contradiction(&self, computed: Computed, found: &mut Found) {
        let statistic = self.printed.statistic;
        let name = statistic.name();
        let (factor, unit) = self.shown;
        let (slip, code) = match self.explanation() {
            Some(Slip { code, text }) => (format!("; {text}"), code.unwrap_or(statistic.code())),
            None => (String::new(), statistic.code()),
        };
        let message = format!(
            "the {name} of {} is {}, printed {}{slip}",
            self.column.name,
            quantity(computed.value * factor, unit),
            self.printed_text()
        );
        let rows = match statistic {
            Statistic::Max => self.column.totals.max.map(|max| max.row),
            Statistic::Min => self.column.totals.min.map(|min| min.row),
            _ => None,
        };
        let finding =
            Finding::serious(code, message).value(computed.value * factor, unit).rows(rows);
        found.push(self.complete(finding));
    }

    /// The statistic of rows whose latencies are corrected by their timestamps.
    fn corrected(&self, found: &mut Found) {
        let is_latency = self.column.role == Role::Latency;
        if !is_latency || !stamps::corrects_rows(self.table) || self.rows.is_none() {
            return;
        }
        let Some(stamps) = &self.table.stamps else { return };
        let values = stamps::corrected(self.table, self.column);
        let step = self.column.totals.coarse_step();
        let exponents = vec![step.log10().round().clamp(-100.0, 100.0) as i8; values.len()];
        let mut column = Column::new("", Role::Latency, Content::Number, self.column.unit);
        column.totals.add(1, &values, &exponents);
        let sorted = Sorted::of(values);
        let statistic = self.printed.statistic;
        let Some(computed) = compute(statistic, &column, Some(&sorted), self.are_exact) else {
            return;
        };
        if self.agrees(computed.low, computed.high) {
            return;
        }
        let code = match statistic {
            Statistic::Sum => "sum-contradicts-timestamps",
            Statistic::Mean => "mean-contradicts-timestamps",
            _ => "statistic-contradicts-timestamps",
        };
        let (factor, unit) = self.shown;
        let message = format!(
            "the {} of received minus sent is {}, printed {}: it includes the wrong latency of {}",
            statistic.name(),
            quantity(computed.value * factor, unit),
            self.printed_text(),
            crate::finding::row_list(&stamps.first.iter().map(|row| row.row).collect::<Vec<_>>())
        );
        let rows = stamps.first.iter().map(|row| row.row);
        let value = computed.value * factor;
        let finding = Finding::serious(code, message).value(value, unit).rows(rows);
        found.push(self.complete(finding));
    }

    /// A difference that rounding permits but rarely causes.
    fn unlikely_rounding(&self, computed: Computed, found: &mut Found) {
        let is_sum = self.printed.statistic == Statistic::Sum;
        if !(is_sum || self.printed.statistic == Statistic::Mean) {
            return;
        }
        let n = self.column.totals.count.max(1) as f64;
        let scale = if self.printed.statistic == Statistic::Sum { n } else { 1.0 };
        let step = self.step();
        let likely = SIGMAS_OF_NOTE * 0.289 * step * scale / n.sqrt();
        // Rows that were cut shift the statistic by half a step.
        let cut = computed.value + step / 2.0 * scale;
        let is_likely = self.agrees(computed.value - likely, computed.value + likely)
            || self.agrees(cut - likely, cut + likely);
        let (code, why) = if !is_likely {
            ("unlikely-rounding", "rounded rows permit that, but rarely")
        } else if is_sum && !self.agrees(computed.value, computed.value) {
            ("not-the-printed-sum", "rows that were rounded after they were added permit that")
        } else {
            return;
        };
        let (factor, unit) = self.shown;
        let name = self.printed.statistic.name();
        let message = format!(
            "the {name} of the printed rows of {} is {}, printed {}; {why}",
            self.column.name,
            number(computed.value * factor, 6),
            self.printed_text()
        );
        let value = computed.value * factor;
        let finding = Finding::note(code, message).value(value, unit);
        found.push(self.complete(finding));
    }

    /// A percentile beyond the largest values, which so few rows do not determine.
    fn unsupported_percentile(&self, found: &mut Found) {
        let Statistic::Percentile(percent) = self.printed.statistic else { return };
        let n = self.column.totals.count;
        let beyond = n as f64 * (1.0 - percent / 100.0).min(percent / 100.0);
        if beyond >= 1.0 - 1e-9 {
            return;
        }
        let needed = (1.0 / (1.0 - percent / 100.0).min(percent / 100.0) - 1e-6).ceil();
        let name = self.printed.statistic.name();
        let message = format!(
            "{} of {n} values has fewer than one value beyond it; it needs {needed} values",
            name
        );
        let finding = Finding::note("unsupported-percentile", message).value(needed, "");
        found.push(self.complete(finding));
    }

    fn complete(&self, finding: Finding) -> Finding {
        let printed = self.readings.first().map_or(f64::NAN, |reading| reading.value);
        finding.printed(printed * self.shown.0).column(&self.column.name).table(&self.table.name)
    }

    /// Finds the slip by which the printed value follows from the rows.
    fn explanation(&self) -> Option<Slip> {
        let rows = self.rows.as_ref().filter(|rows| rows.values.len() >= 2)?;
        let (values, statistic) = (&rows.values, self.printed.statistic);
        let step = self.step();
        let matches =
            |value: f64| !value.is_nan() && self.agrees(value - step / 2.0, value + step / 2.0);
        let slip = |text: &str| Some(Slip { code: None, text: text.to_owned() });
        let distinct = rows.distinct();
        let has_repeats = distinct.len() < values.len();
        let known = match statistic {
            Statistic::Mean => {
                if has_repeats && matches(mean(&distinct)) {
                    let text = format!(
                        "that is the mean of the {} distinct values among {}",
                        distinct.len(),
                        values.len()
                    );
                    return Some(Slip { code: Some("mean-of-distinct-values"), text });
                }
                mean_slip(rows, self.table.rows, self.is_precise(rows.mean()), &matches)
            }
            Statistic::Max => TRIMS.into_iter().find_map(|percent| {
                let (low, high) = percentile_bounds(values, percent);
                let is_trimmed = high < values[values.len() - 1] && self.agrees(low, high);
                is_trimmed.then(|| Slip {
                    code: Some("trimmed-maximum"),
                    text: format!("that is p{percent} of the rows: larger values are left out"),
                })
            }),
            Statistic::Min => TRIMS.into_iter().find_map(|percent| {
                let (low, high) = percentile_bounds(values, 100.0 - percent);
                let is_trimmed = low > values[0] && self.agrees(low, high);
                is_trimmed.then(|| Slip {
                    code: Some("trimmed-minimum"),
                    text: format!(
                        "that is p{} of the rows: smaller values are left out",
                        number(100.0 - percent, 2)
                    ),
                })
            }),
            Statistic::Count if has_repeats && matches(distinct.len() as f64) => {
                slip("that is the number of distinct values")
            }
            Statistic::Count if matches(values.len() as f64 + 1.0) => {
                slip("that is one more, as if the header were counted")
            }
            Statistic::Count if matches(values.len() as f64 - 1.0) => slip("that is one fewer"),
            Statistic::Sum => self.sum_slip(rows, &distinct, &matches),
            Statistic::Sd | Statistic::StandardError | Statistic::Variance => {
                deviation_slip(statistic, values, &distinct, &matches)
            }
            Statistic::Percentile(50.0) if matches(rows.mean()) => slip("that is the mean"),
            Statistic::Percentile(_) => {
                if has_repeats && {
                    let Statistic::Percentile(percent) = statistic else { return None };
                    let (low, high) = percentile_bounds(&distinct, percent);
                    self.agrees(low, high)
                } {
                    slip("that is the percentile of the distinct values")
                } else {
                    [50.0, 90.0, 95.0, 99.0, 99.9].into_iter().find_map(|percent| {
                        let (low, high) = percentile_bounds(values, percent);
                        (Statistic::Percentile(percent) != statistic && self.agrees(low, high))
                            .then(|| Slip {
                                code: None,
                                text: format!(
                                    "that is the {}",
                                    Statistic::Percentile(percent).name()
                                ),
                            })
                    })
                }
            }
            _ => None,
        };
        known.or_else(|| self.inner_value(rows)).or_else(|| self.unit_slip())
    }

    /// Whether the printed digits single out one of many possible slips: a value near the right one
    /// is by chance the mean of some part of the rows.
    fn is_precise(&self, right: f64) -> bool {
        const MAX_WINDOW: f64 = 0.02;
        let is_far = |reading: &Reading| {
            let window = 1.5 * reading.step + self.step();
            window <= MAX_WINDOW * (reading.value - right).abs()
        };
        self.readings.iter().any(is_far)
    }

    /// A printed extreme that is another value of the rows.
    fn inner_value(&self, rows: &Sorted) -> Option<Slip> {
        let n = rows.values.len();
        let (code, side, order): (_, _, Vec<f64>) = match self.printed.statistic {
            Statistic::Max => {
                ("trimmed-maximum", "larger", rows.values.iter().rev().copied().collect())
            }
            Statistic::Min => ("trimmed-minimum", "smaller", rows.values.clone()),
            _ => return None,
        };
        let beyond = order.iter().position(|value| self.agrees(*value, *value))?;
        (beyond > 0 && beyond * 2 <= n).then(|| Slip {
            code: Some(code),
            text: format!("that is a value of the rows: {beyond} {side} left out"),
        })
    }

    /// Slips of a sum: a row left out or counted twice.
    fn sum_slip(
        &self,
        rows: &Sorted,
        distinct: &[f64],
        matches: &dyn Fn(f64) -> bool,
    ) -> Option<Slip> {
        let total = self.column.totals.sum();
        let of = |text: String| Some(Slip { code: None, text });
        if distinct.len() < rows.values.len() && matches(distinct.iter().sum()) {
            return of("that is the sum of the distinct values".to_owned());
        }
        if rows.rows.len() > MAX_SINGLE_ROWS {
            return None;
        }
        let single = |sign: f64| -> Vec<u64> {
            let fits = |(_, value): &(usize, &f64)| matches(total + sign * **value);
            let rows = rows.rows.iter().enumerate().filter(|(_, value)| !value.is_nan());
            rows.filter(fits).map(|(row, _)| row as u64 + 1).take(MAX_LISTED_ROWS).collect()
        };
        let (left_out, twice) = (single(-1.0), single(1.0));
        if !left_out.is_empty() && left_out.len() <= 3 {
            return of(format!("{} left out", one_of(&left_out)));
        }
        if !twice.is_empty() && twice.len() <= 3 {
            return of(format!("{} counted twice", one_of(&twice)));
        }
        None
    }

    /// A value in another unit.
    fn unit_slip(&self) -> Option<Slip> {
        let unit = self.column.unit.filter(|_| self.printed.statistic.dimension() == 1)?;
        let computed = self.computed()?;
        let stated = self.printed.printed.unit.unwrap_or(unit);
        let raw = &self.printed.printed.readings;
        Unit::ALL.into_iter().filter(|other| *other != stated).find_map(|other| {
            let factor = unit.to(other);
            let fits =
                |reading: &Reading| reading.allows(computed.low * factor, computed.high * factor);
            raw.iter()
                .any(fits)
                .then(|| Slip { code: None, text: format!("that is the value in {other}") })
        })
    }
}

/// `row 3 is`, `one of rows 3 and 5 is`.
fn one_of(rows: &[u64]) -> String {
    let list = crate::finding::row_list(rows);
    if rows.len() == 1 { format!("{list} is") } else { format!("one of {list} is") }
}

/// An explanation of a wrong value.
struct Slip {
    /// Code instead of the statistic's own.
    code: Option<&'static str>,
    text: String,
}

/// Slips of a mean.
fn mean_slip(
    rows: &Sorted,
    all_rows: u64,
    is_precise: bool,
    matches: &dyn Fn(f64) -> bool,
) -> Option<Slip> {
    let values = &rows.values;
    let n = values.len() as f64;
    let sum = rows.mean() * n;
    let slip = |text: String| Some(Slip { code: None, text });
    let trimmed = |percent: f64| {
        let limit = nearest_rank(values, percent);
        let kept: Vec<f64> = values.iter().copied().filter(|value| *value <= limit).collect();
        (kept.len() < values.len()).then(|| mean(&kept))
    };
    for percent in TRIMS {
        if trimmed(percent).is_some_and(matches) {
            return Some(Slip {
                code: Some("trimmed-mean"),
                text: format!("that is the mean of the values up to p{percent}"),
            });
        }
    }
    let present: Vec<f64> = rows.rows.iter().copied().filter(|value| !value.is_nan()).collect();
    let without = |skip: usize| mean(&present[skip..]);
    let that_is = if is_precise { "that is" } else { "that may be" };
    let skipped: &[usize] = if is_precise { &[1, 2, 5, 10] } else { &[1] };
    for skip in skipped.iter().copied() {
        if present.len() > skip + 1 && matches(without(skip)) {
            let rows =
                if skip == 1 { "first row".to_owned() } else { format!("first {skip} rows") };
            return slip(format!("{that_is} the mean without the {rows}"));
        }
    }
    if matches(mean(&present[..present.len() - 1])) {
        return slip(format!("{that_is} the mean without the last row"));
    }
    // The mean without the k largest values, as after removing outliers.
    let mut rest = sum;
    let most = if is_precise { (values.len() / 10).max(2) } else { 1 };
    for (k, value) in values.iter().rev().enumerate().take(most) {
        rest -= value;
        let kept = n - (k + 1) as f64;
        if kept >= 1.0 && matches(rest / kept) {
            let count = if k == 0 {
                "largest value".to_owned()
            } else {
                format!("{} largest values", k + 1)
            };
            return slip(format!("{that_is} the mean without the {count}"));
        }
    }
    let (min, max) = (values[0], values[values.len() - 1]);
    let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
    let logs: Vec<f64> = positive.iter().map(|value| value.ln()).collect();
    let inverses: Vec<f64> = positive.iter().map(|value| 1.0 / value).collect();
    let middle = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
    let candidates = [
        (sum - min, n - 1.0, "that is the mean without the smallest value"),
        (sum - max - min, n - 2.0, "that is the mean without the largest and the smallest value"),
        (middle, 1.0, "that is the median"),
        (min + max, 2.0, "that is the middle of minimum and maximum"),
        (sum, n - 1.0, "that is the sum divided by n - 1"),
        (sum, n + 1.0, "that is the sum divided by n + 1"),
        (
            sum,
            all_rows as f64,
            "that is the sum divided by the number of all rows, lost ones included",
        ),
        (mean(&logs).exp(), 1.0, "that is the geometric mean"),
        (1.0 / mean(&inverses), 1.0, "that is the harmonic mean"),
        (positive.iter().sum(), positive.len() as f64, "that is the mean of the positive values"),
        (
            (values.iter().map(|value| value * value).sum::<f64>() / n).sqrt(),
            1.0,
            "that is the root mean square",
        ),
    ];
    candidates
        .into_iter()
        .find(|(value, by, _)| *by > 0.0 && matches(value / by))
        .and_then(|(_, _, text)| slip(text.to_owned()))
}

/// Slips of a deviation.
fn deviation_slip(
    statistic: Statistic,
    values: &[f64],
    distinct: &[f64],
    matches: &dyn Fn(f64) -> bool,
) -> Option<Slip> {
    let n = values.len() as f64;
    let sd = deviation(values);
    let centre = mean(values);
    let absolute: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    let limit = nearest_rank(values, 99.0);
    let kept: Vec<f64> = values.iter().copied().filter(|value| *value <= limit).collect();
    let mut candidates = vec![
        (sd / n.sqrt(), "that is the standard error"),
        (sd, "that is the standard deviation"),
        (sd * sd, "that is the variance"),
        (mean(&absolute), "that is the mean absolute deviation"),
        (values[values.len() - 1] - values[0], "that is the range"),
        (1.96 * sd / n.sqrt(), "that is 1.96 standard errors"),
        (deviation(&kept), "that is the deviation of the values up to p99"),
    ];
    if distinct.len() < values.len() {
        candidates.push((deviation(distinct), "that is the deviation of the distinct values"));
    }
    let own = match statistic {
        Statistic::StandardError => 0,
        Statistic::Sd => 1,
        _ => 2,
    };
    candidates
        .into_iter()
        .enumerate()
        .find(|(at, (value, _))| *at != own && matches(*value))
        .map(|(_, (_, text))| Slip { code: None, text: text.to_owned() })
}

/// Readings of a printed value in the column's unit.
fn readings(printed: &Printed, statistic: Statistic, unit: Option<Unit>) -> Vec<Reading> {
    let factor = match (printed.unit, unit) {
        (Some(from), Some(to)) => from.to(to).powi(statistic.dimension()),
        _ => 1.0,
    };
    let scaled = printed.readings.iter().map(|reading| {
        let percent = if printed.percent && statistic.is_ratio() { 0.01 } else { 1.0 };
        reading.scaled(factor * percent)
    });
    let mut readings: Vec<Reading> = scaled.collect();
    if statistic.is_ratio() && !printed.percent {
        // "loss = 2.5" without a sign may be percent.
        let as_percent: Vec<Reading> =
            readings.iter().map(|reading| reading.scaled(0.01)).collect();
        readings.extend(as_percent);
    }
    readings
}

/// Contradictions between printed statistics of one column, which need no rows.
fn consistency(table: &Table, printed: &[PrintedStatistic], found: &mut Found) {
    let mut columns: Vec<&Option<String>> = printed.iter().map(|one| &one.column).collect();
    columns.dedup();
    for column in columns {
        let of = |statistic: Statistic| {
            printed.iter().find(|one| one.column == *column && one.statistic == statistic)
        };
        let unit = |one: &PrintedStatistic| one.printed.unit;
        let same = |a: &PrintedStatistic, b: &PrintedStatistic| unit(a) == unit(b);
        if let (Some(sum), Some(mean)) = (of(Statistic::Sum), of(Statistic::Mean))
            && same(sum, mean)
        {
            let n = of(Statistic::Count).map(|count| count.printed.value());
            let n =
                n.or((table.rows > 0).then(|| table.main().map_or(0.0, |c| c.totals.count as f64)));
            mean_of_sum(table, sum, mean, n, found);
        }
        order(table, printed, column, found);
        if let (Some(sd), Some(min), Some(max)) =
            (of(Statistic::Sd), of(Statistic::Min), of(Statistic::Max))
            && same(sd, min)
            && same(min, max)
        {
            deviation_beyond_range(table, sd, min, max, of(Statistic::Count), found);
        }
        if let (Some(sd), Some(variance)) = (of(Statistic::Sd), of(Statistic::Variance)) {
            let reading = sd.printed.readings[0];
            let (low, high) = (reading.value - reading.step, reading.value + reading.step);
            let agrees = variance.printed.readings.iter().any(|v| v.allows(low * low, high * high));
            if !agrees {
                let message = format!(
                    "the printed variance {} is not the square of the printed standard deviation {}",
                    variance.printed.text, sd.printed.text
                );
                let finding = Finding::serious("printed-values-contradict", message);
                let value = reading.value * reading.value;
                found.push(
                    finding.value(value, "").printed(variance.printed.value()).table(&table.name),
                );
            }
        }
    }
}

fn mean_of_sum(
    table: &Table,
    sum: &PrintedStatistic,
    mean: &PrintedStatistic,
    n: Option<f64>,
    found: &mut Found,
) {
    let Some(n) = n.filter(|n| *n > 0.0) else { return };
    let agrees = sum.printed.readings.iter().any(|sum| {
        let (low, high) = ((sum.value - sum.step / 2.0) / n, (sum.value + sum.step / 2.0) / n);
        mean.printed.readings.iter().any(|mean| mean.allows(low, high))
    });
    if agrees {
        return;
    }
    let value = sum.printed.value() / n;
    let message = format!(
        "the printed sum {} over {} values is a mean of {}, printed {}",
        sum.printed.text,
        number(n, 0),
        quantity(value, ""),
        mean.printed.text
    );
    let finding = Finding::serious("mean-contradicts-sum", message);
    found.push(finding.value(value, "").printed(mean.printed.value()).table(&table.name));
}

/// Minimum, percentiles and maximum must rise, and the mean lies between the extremes.
fn order(table: &Table, printed: &[PrintedStatistic], column: &Option<String>, found: &mut Found) {
    let mut ranked: Vec<(f64, &PrintedStatistic)> = printed
        .iter()
        .filter(|one| one.column == *column)
        .filter_map(|one| match one.statistic {
            Statistic::Min => Some((0.0, one)),
            Statistic::Percentile(percent) => Some((percent, one)),
            Statistic::Max => Some((100.0, one)),
            _ => None,
        })
        .collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let nanos = |one: &PrintedStatistic| {
        let factor = one.printed.unit.map_or(1.0, Unit::nanos);
        let low = one.printed.readings.iter().map(|r| (r.value - r.step) * factor);
        let high = one.printed.readings.iter().map(|r| (r.value + r.step) * factor);
        (low.fold(f64::INFINITY, f64::min), high.fold(f64::NEG_INFINITY, f64::max))
    };
    let same_unit = |a: &PrintedStatistic, b: &PrintedStatistic| a.printed.unit == b.printed.unit;
    let mean = printed.iter().find(|one| one.column == *column && one.statistic == Statistic::Mean);
    let mut pairs: Vec<(&PrintedStatistic, &PrintedStatistic)> =
        ranked.windows(2).map(|pair| (pair[0].1, pair[1].1)).collect();
    if let Some(mean) = mean {
        pairs.extend(ranked.first().filter(|(p, _)| *p == 0.0).map(|(_, min)| (*min, mean)));
        pairs.extend(ranked.last().filter(|(p, _)| *p == 100.0).map(|(_, max)| (mean, *max)));
    }
    for (lower, upper) in pairs {
        if lower.statistic != upper.statistic
            && same_unit(lower, upper)
            && nanos(lower).0 > nanos(upper).1
        {
            let message = format!(
                "the printed {} {} is above the printed {} {}",
                lower.statistic.name(),
                lower.printed.text,
                upper.statistic.name(),
                upper.printed.text
            );
            let finding = Finding::serious("printed-values-contradict", message);
            found.push(finding.printed(lower.printed.value()).table(&table.name));
        }
    }
}

/// No deviation exceeds half the range times the root of n / (n - 1).
fn deviation_beyond_range(
    table: &Table,
    sd: &PrintedStatistic,
    min: &PrintedStatistic,
    max: &PrintedStatistic,
    count: Option<&PrintedStatistic>,
    found: &mut Found,
) {
    let n = count.map_or(2.0, |count| count.printed.value().max(2.0));
    let [sd_reading, min_reading, max_reading] = [sd, min, max].map(|one| one.printed.readings[0]);
    let range = max_reading.value - min_reading.value + max_reading.step + min_reading.step;
    let limit = range / 2.0 * (n / (n - 1.0)).sqrt();
    if sd_reading.value - sd_reading.step <= limit {
        return;
    }
    let message = format!(
        "a standard deviation of {} is impossible between {} and {}: at most {}",
        sd.printed.text,
        min.printed.text,
        max.printed.text,
        quantity(limit, "")
    );
    let finding = Finding::serious("printed-values-contradict", message);
    found.push(finding.value(limit, "").printed(sd_reading.value).table(&table.name));
}
