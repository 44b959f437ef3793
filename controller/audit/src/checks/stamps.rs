//! Latencies that disagree with their own timestamps, and replies before their requests.

use super::Found;
use crate::finding::{Finding, counted, number, quantity, row_list};
use crate::table::{Column, Role, Table};
use crate::unit::Unit;

/// Maximum number of rows that have a finding each.
const MAX_SINGLE_FINDINGS: u64 = 10;
/// Share of rows from which a disagreement concerns the column, not single rows.
const SYSTEMATIC_SHARE: f64 = 0.5;

/// Whether timestamps correct single rows: some disagree, most agree.
pub(crate) fn corrects_rows(table: &Table) -> bool {
    table.stamps.as_ref().is_some_and(|stamps| {
        stamps.different > 0
            && (stamps.different as f64) < SYSTEMATIC_SHARE * stamps.compared as f64
            && stamps.different == stamps.first.len() as u64
    })
}

/// Minimum number of rows that show that latencies were computed from the printed times. Those of
/// finer times agree by chance with probability 0.75 per row.
const MIN_EXACT_ROWS: u64 = 12;

/// Whether the latencies are received minus sent to the last digit, and so were not rounded. Single
/// rows may be wrong.
pub(crate) fn are_exact(table: &Table, column: &Column) -> bool {
    table.stamps.as_ref().is_some_and(|stamps| {
        column.role == Role::Latency
            && stamps.compared >= MIN_EXACT_ROWS
            && stamps.compared == column.totals.count
            && stamps.exact + stamps.different == stamps.compared
            && stamps.different * 10 <= stamps.compared
    })
}

/// Kept values of a column; of latencies, single rows that contradict their timestamps are replaced
/// by received minus sent.
pub(crate) fn corrected(table: &Table, column: &Column) -> Vec<f64> {
    let mut values = column.values.clone();
    if column.role != Role::Latency || !corrects_rows(table) || !table.is_whole() {
        return values;
    }
    if let (Some(stamps), Some(unit)) = (&table.stamps, column.unit) {
        for row in &stamps.first {
            if let Some(value) = values.get_mut(row.row as usize - 1) {
                *value = row.computed_nanos / unit.nanos();
            }
        }
    }
    values
}

pub(crate) fn check(table: &Table, found: &mut Found) {
    negative(table, found);
    let (Some(stamps), Some(latency)) = (&table.stamps, table.by_role(Role::Latency)) else {
        return;
    };
    let Some(unit) = latency.unit else { return };
    if stamps.different == 0 {
        return;
    }
    let code = "latency-contradicts-timestamps";
    let in_unit = |nanos: f64| nanos / unit.nanos();
    let complete = |finding: Finding| finding.column(&latency.name).table(&table.name);
    let share = stamps.different as f64 / stamps.compared as f64;
    if share >= SYSTEMATIC_SHARE && stamps.compared >= 3 {
        systematic(table, unit, found);
        return;
    }
    if stamps.different <= MAX_SINGLE_FINDINGS {
        for row in &stamps.first {
            let computed = in_unit(row.computed_nanos);
            let message = format!(
                "row {}: received minus sent is {}, printed {}",
                row.row,
                quantity(computed, unit.name()),
                number(row.printed, 9)
            );
            let finding = Finding::serious(code, message).rows([row.row]);
            found.push(complete(finding.value(computed, unit.name()).printed(row.printed)));
        }
        return;
    }
    let rows: Vec<u64> = stamps.first.iter().map(|row| row.row).collect();
    let first = stamps.first[0];
    let computed = in_unit(first.computed_nanos);
    let message = format!(
        "{} of {} disagree with received minus sent: {}; row {}: {}, printed {}",
        counted(stamps.different, "row"),
        stamps.compared,
        row_list(&rows),
        first.row,
        quantity(computed, unit.name()),
        number(first.printed, 9)
    );
    let finding = Finding::serious(code, message).rows(rows);
    found.push(complete(finding.value(computed, unit.name()).printed(first.printed)));
}

/// Most rows disagree: names a unit, a factor or an offset that explains them.
fn systematic(table: &Table, unit: Unit, found: &mut Found) {
    let (Some(stamps), Some(latency)) = (&table.stamps, table.by_role(Role::Latency)) else {
        return;
    };
    let rows: Vec<u64> = stamps.first.iter().map(|row| row.row).collect();
    let differences: Vec<f64> =
        stamps.first.iter().map(|row| row.computed_nanos / unit.nanos() - row.printed).collect();
    let ratios: Vec<f64> = stamps
        .first
        .iter()
        .filter(|row| row.printed != 0.0)
        .map(|row| row.computed_nanos / unit.nanos() / row.printed)
        .collect();
    let [offset, ratio] = [middle(&differences), middle(&ratios)];
    let near = |values: &[f64], centre: f64, width: f64| {
        let inside = values.iter().filter(|value| (**value - centre).abs() <= width).count();
        inside * 10 >= values.len() * 9
    };
    let cause = if let Some(other) = Unit::ALL
        .into_iter()
        .find(|other| *other != unit && near(&ratios, other.to(unit), 0.02 * other.to(unit)))
    {
        format!("the column fits its timestamps in {other}, not in {unit}")
    } else if near(&ratios, 2.0, 0.04) || near(&ratios, 0.5, 0.01) {
        format!("received minus sent is {} times the printed latency", number(ratio, 2))
    } else if near(&differences, offset, 0.02 * offset.abs()) {
        let offset = quantity(offset, unit.name());
        format!("received minus sent is {offset} more; the clocks may differ by that")
    } else {
        "the latency may not be received minus sent".to_owned()
    };
    let first = stamps.first[0];
    let computed = first.computed_nanos / unit.nanos();
    let message = format!(
        "{} of {} disagree with received minus sent; row {}: {}, printed {}; {cause}",
        counted(stamps.different, "row"),
        stamps.compared,
        first.row,
        quantity(computed, unit.name()),
        number(first.printed, 9)
    );
    let finding = Finding::serious("latency-contradicts-timestamps", message).rows(rows);
    let finding = finding.value(computed, unit.name()).printed(first.printed);
    found.push(finding.column(&latency.name).table(&table.name));
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Rows whose reply is before the request, or whose latency is negative.
fn negative(table: &Table, found: &mut Found) {
    let pair = table.by_role(Role::Sent).zip(table.by_role(Role::Received));
    if let Some((sent, received)) = pair.filter(|_| table.stamps.is_some()) {
        let is_negative = |(sent, received): (&f64, &f64)| received < sent;
        let rows: Vec<u64> = sent
            .values
            .iter()
            .zip(&received.values)
            .enumerate()
            .filter(|(_, pair)| is_negative(*pair))
            .map(|(index, _)| table.row_number(index))
            .collect();
        if !rows.is_empty() {
            let message = format!(
                "{} received before {}: a clock was stepped, or the columns are of two clocks",
                row_list(&rows),
                if rows.len() == 1 { "it was sent" } else { "they were sent" }
            );
            let count = rows.len() as f64;
            let finding = Finding::note("received-before-sent", message).value(count, "");
            found.push(finding.rows(rows).table(&table.name));
            return;
        }
    }
    if let Some(latency) = table.by_role(Role::Latency)
        && latency.totals.min.is_some_and(|min| min.value < 0.0)
    {
        let rows: Vec<u64> = latency
            .values
            .iter()
            .enumerate()
            .filter(|(_, value)| **value < 0.0)
            .map(|(index, _)| table.row_number(index))
            .collect();
        let min = latency.totals.min.map_or(f64::NAN, |min| min.value);
        let message = format!("negative latency in {}", row_list(&rows));
        let finding = Finding::note("negative-latency", message).value(min, latency.unit_name());
        found.push(finding.rows(rows).column(&latency.name).table(&table.name));
    }
}
