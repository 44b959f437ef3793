//! Closed-loop sending, and steps of the sender's clock.

use super::{Found, MIN_DECIDING_VALUES};
use crate::finding::{Finding, number, quantity, row_list};
use crate::table::{Column, Content, Role, Table};

/// Minimum number of pairs of rows.
const MIN_PAIRS: usize = 8;
/// Correlation of gap and latency, in standard deviations of its z-transform, that chance does not
/// reach.
const MIN_SIGMAS: f64 = 3.7;
/// Minimum rank correlation of gap and latency.
const MIN_CORRELATION: f64 = 0.7;
/// Largest variance of the wait after a reply, relative to that of the gap.
const MAX_VARIANCE_RATIO: f64 = 0.5;
/// The same for a wait so steady that it is no chance whatever the correlation of ranks.
const MAX_STEADY_RATIO: f64 = 0.1;
/// Maximum number of rows that are analysed.
const MAX_ROWS: usize = 200_000;
/// Share of falling times from which rows are unsorted.
const UNSORTED_SHARE: f64 = 0.02;

pub(crate) fn check(table: &Table, found: &mut Found) {
    let sent = table.by_role(Role::Sent).filter(|column| column.content == Content::Time);
    let Some(sent) = sent else {
        if table.rows > 0 && table.main().is_some() {
            found.cannot_tell("closed-loop", &table.name, "there are no send times");
        }
        return;
    };
    clock_steps(table, sent, found);
    closed_loop(table, sent, found);
}

/// Latency of each kept row, in nanoseconds.
fn latencies(table: &Table, sent: &Column) -> Option<Vec<f64>> {
    if let Some(received) = table.by_role(Role::Received).filter(|c| c.content == Content::Time) {
        return Some(received.values.iter().zip(&sent.values).map(|(r, s)| r - s).collect());
    }
    let latency = table.by_role(Role::Latency).filter(|c| c.content == Content::Number)?;
    let unit = latency.unit?;
    Some(latency.values.iter().map(|value| value * unit.nanos()).collect())
}

fn closed_loop(table: &Table, sent: &Column, found: &mut Found) {
    let Some(latencies) = latencies(table, sent) else {
        found.cannot_tell("closed-loop", &table.name, "there are no latencies in a known unit");
        return;
    };
    let mut pairs: Vec<(f64, f64)> = Vec::new();
    for index in 1..sent.values.len().min(MAX_ROWS) {
        let gap = sent.values[index] - sent.values[index - 1];
        let latency = latencies[index - 1];
        if table.follows(index) && gap > 0.0 && !latency.is_nan() {
            pairs.push((gap, latency));
        }
    }
    if pairs.len() < MIN_PAIRS {
        let text = format!("fewer than {MIN_PAIRS} pairs of successive rows with send times");
        found.cannot_tell("closed-loop", &table.name, text);
        return;
    }
    let gaps: Vec<f64> = pairs.iter().map(|(gap, _)| *gap).collect();
    let delays: Vec<f64> = pairs.iter().map(|(_, delay)| *delay).collect();
    let waits: Vec<f64> = pairs.iter().map(|(gap, delay)| gap - delay).collect();
    // A reply before the next request is what closed-loop sending waits for.
    let waited = waits.iter().filter(|wait| **wait >= 0.0).count() as f64 / waits.len() as f64;
    let correlation = super::dependence::rank_correlation(&gaps, &delays);
    let sigmas =
        correlation.clamp(-0.999_999, 0.999_999).atanh() * (pairs.len() as f64 - 3.0).sqrt();
    let ratio = trimmed_variance(&waits) / trimmed_variance(&gaps);
    // Of independent gaps and latencies the wait varies more than the gap.
    let is_correlated =
        correlation >= MIN_CORRELATION && sigmas >= MIN_SIGMAS && ratio <= MAX_VARIANCE_RATIO;
    let is_steady = correlation >= MIN_CORRELATION / 2.0 && ratio <= MAX_STEADY_RATIO;
    let is_closed = (is_correlated || is_steady) && waited >= 0.98;
    if !is_closed {
        if (pairs.len() as u64) + 1 < MIN_DECIDING_VALUES {
            let text = format!("fewer than {MIN_DECIDING_VALUES} rows with send times");
            found.cannot_tell("closed-loop", &table.name, text);
        }
        return;
    }
    let ends = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        (sorted[n / 50], sorted[n / 2], sorted[n - 1 - n / 50])
    };
    let (shortest_wait, wait, longest_wait) = ends(&waits);
    let (shortest, _, longest) = ends(&gaps);
    let seconds = |nanos: f64| {
        let (value, unit) = if nanos < 1e6 {
            (nanos / 1e3, "us")
        } else if nanos < 1e9 {
            (nanos / 1e6, "ms")
        } else {
            (nanos / 1e9, "s")
        };
        quantity(value, unit)
    };
    let message = format!(
        "closed loop: each request follows the reply before it by {} to {}, so requests are {} to {} apart; \
         no request is sent during a long delay, and long delays are underrepresented",
        seconds(shortest_wait),
        seconds(longest_wait),
        seconds(shortest),
        seconds(longest)
    );
    let finding = Finding::note("closed-loop", message).value(wait / 1e6, "ms");
    found.push(finding.table(&table.name));
}

/// Variance without the extreme 2 % on each side, which hold pauses.
fn trimmed_variance(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 50;
    let kept = &sorted[cut..sorted.len() - cut];
    crate::statistic::deviation(kept).powi(2)
}

/// Send times that fall, or that leave a regular schedule for good.
fn clock_steps(table: &Table, sent: &Column, found: &mut Found) {
    let values = &sent.values;
    let mut falls: Vec<(usize, f64)> = Vec::new();
    let mut last = f64::NAN;
    for (index, value) in values.iter().copied().enumerate() {
        if value < last && (index == 0 || table.follows(index)) {
            falls.push((index, value - last));
        }
        if !value.is_nan() {
            last = value;
        }
    }
    let total = sent.totals.falls;
    if !falls.is_empty() && total as f64 > (UNSORTED_SHARE * sent.totals.count as f64).max(3.0) {
        let message = format!(
            "{} is not in order in {} of {} rows: the table is unsorted or joins several series",
            sent.name, total, sent.totals.count
        );
        let rows = falls.iter().map(|(index, _)| table.row_number(*index));
        let finding = Finding::note("unsorted-rows", message).value(total as f64, "").rows(rows);
        found.push(finding.column(&sent.name).table(&table.name));
        return;
    }
    let gaps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // In a closed loop the wait after a reply is regular, not the gap.
    let waits = || -> Option<Vec<f64>> {
        let latencies = latencies(table, sent)?;
        Some(gaps.iter().zip(&latencies).map(|(gap, latency)| gap - latency).collect())
    };
    let schedule = Schedule::of(&gaps).or_else(|| Schedule::of(&waits()?));
    if let Some((index, gap)) = falls.first().copied() {
        let row = table.row_number(index);
        // Without the step the usual interval would have passed.
        let late = schedule.as_ref().and_then(|schedule| schedule.lateness(index));
        let size = late.unwrap_or(gap);
        let rows: Vec<u64> = falls.iter().map(|(index, _)| table.row_number(*index)).collect();
        let place = if rows.len() == 1 {
            format!("row {row} by {}", quantity(-gap / 1e6, "ms"))
        } else {
            format!("{}, in row {row} by {}", row_list(&rows), quantity(-gap / 1e6, "ms"))
        };
        let from_usual = if late.is_some() {
            format!(", a step of {} from the schedule", quantity(size / 1e6, "ms"))
        } else {
            String::new()
        };
        let message = format!(
            "{} falls in {place}{from_usual}: the clock was stepped, or a time is wrong",
            sent.name
        );
        let finding = Finding::note("clock-step", message).value(size / 1e6, "ms").rows(rows);
        found.push(finding.column(&sent.name).table(&table.name));
        return;
    }
    let Some(schedule) = schedule else { return };
    let (row, size, message) = if let Some((row, size)) = schedule.shift(table) {
        let message = format!(
            "the schedule of {} is shifted by {} from row {row} on: the clock was stepped, or sending paused",
            sent.name,
            quantity(size / 1e6, "ms")
        );
        (row, size, message)
    } else if let Some((row, size)) = schedule.pause(table) {
        let message = format!(
            "{} is {} later than the schedule in row {row}, {} whole intervals: the clock was stepped, sending \
             paused, or rows are missing",
            sent.name,
            quantity(size / 1e6, "ms"),
            number(size / schedule.interval, 0)
        );
        (row, size, message)
    } else {
        return;
    };
    let finding = Finding::note("clock-step", message).value(size / 1e6, "ms").rows([row]);
    found.push(finding.column(&sent.name).table(&table.name));
}

/// A schedule with one interval, and the gaps between its rows, or the waits after replies.
struct Schedule {
    gaps: Vec<f64>,
    interval: f64,
    /// Largest deviation from the interval that is no shift.
    limit: f64,
}

impl Schedule {
    /// The schedule with these gaps, in nanoseconds; `None` if nine in ten are not regular.
    fn of(gaps: &[f64]) -> Option<Self> {
        const MIN_GAPS: usize = 12;
        let gaps = gaps[..gaps.len().min(MAX_ROWS)].to_vec();
        let mut sorted: Vec<f64> = gaps.iter().copied().filter(|gap| !gap.is_nan()).collect();
        if sorted.len() < MIN_GAPS {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let interval = sorted[sorted.len() / 2];
        let mut distances: Vec<f64> = sorted.iter().map(|gap| (gap - interval).abs()).collect();
        distances.sort_by(f64::total_cmp);
        let noise = 1.483 * distances[distances.len() / 2];
        let usual = distances[distances.len() * 9 / 10];
        if interval <= 0.0 || noise > 0.02 * interval || usual > 0.05 * interval {
            return None;
        }
        Some(Self { gaps, interval, limit: (20.0 * noise).max(0.1 * interval) })
    }

    /// How much later than the interval the row with this index follows the one before.
    fn lateness(&self, index: usize) -> Option<f64> {
        let gap = *self.gaps.get(index.checked_sub(1)?)?;
        (!gap.is_nan()).then_some(gap - self.interval)
    }

    /// Whether the gaps on both sides of one are regular.
    fn is_between_regular(&self, at: usize) -> bool {
        /// Gaps on each side of a shift that must be regular.
        const REGULAR_GAPS: usize = 3;
        if at < REGULAR_GAPS || at + REGULAR_GAPS >= self.gaps.len() {
            return false;
        }
        let mut sides =
            self.gaps[at - REGULAR_GAPS..at].iter().chain(&self.gaps[at + 1..=at + REGULAR_GAPS]);
        sides.all(|gap| (gap - self.interval).abs() <= self.limit / 2.0)
    }

    /// The first row from which the schedule is shifted by no whole interval, and by how much.
    fn shift(&self, table: &Table) -> Option<(u64, f64)> {
        // Lost rows leave whole intervals.
        let beyond = |gap: f64| gap - self.interval * (gap / self.interval).round().max(1.0);
        let is_shift = |at: &usize| {
            beyond(self.gaps[*at]).abs() > self.limit
                && self.is_between_regular(*at)
                && table.follows(*at + 1)
        };
        let at = (0..self.gaps.len()).find(is_shift)?;
        Some((table.row_number(at + 1), self.gaps[at] - self.interval))
    }

    /// The only row after a gap of several intervals, and how much later it is, unless numbers of
    /// rows show that rows are missing. Without such numbers one lost row is likelier than a pause.
    fn pause(&self, table: &Table) -> Option<(u64, f64)> {
        const MIN_UNNUMBERED_INTERVALS: f64 = 1.5;
        let is_long = |at: &usize| self.gaps[*at] > 1.5 * self.interval && table.follows(*at + 1);
        let numbered = numbers_by_row(table);
        let mut long = (0..self.gaps.len()).filter(is_long);
        let at = match numbered {
            // Rows are missing where the numbers have a gap as well.
            Some((numbers, usual)) => long.find(|at| numbers[*at + 1] - numbers[*at] == usual)?,
            None => {
                let only = long.next().filter(|_| long.next().is_none())?;
                let size = self.gaps[only] - self.interval;
                Some(only).filter(|_| size > MIN_UNNUMBERED_INTERVALS * self.interval)?
            }
        };
        self.is_between_regular(at)
            .then(|| (table.row_number(at + 1), self.gaps[at] - self.interval))
    }
}

/// The numbers of the rows, and their usual step; `None` without such a column.
fn numbers_by_row(table: &Table) -> Option<(&[f64], f64)> {
    let ids = table.by_role(Role::Id).filter(|column| column.content == Content::Number)?;
    let mut steps: Vec<f64> = ids.values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_by(f64::total_cmp);
    let usual = *steps.get(steps.len() / 2)?;
    let rising = steps.iter().filter(|step| **step >= usual).count();
    (usual > 0.0 && rising * 10 >= steps.len() * 9).then_some((ids.values.as_slice(), usual))
}
