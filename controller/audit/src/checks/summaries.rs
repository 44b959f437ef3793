//! Tables whose rows are summaries: columns such as `min_ms,mean_ms,max_ms,n`.

use super::Found;
use crate::finding::{Finding, number};
use crate::header;
use crate::statistic::Statistic;
use crate::table::{Column, Content, Table};

/// A column of statistics.
struct Summary<'t> {
    column: &'t Column,
    statistic: Statistic,
    /// The rest of its name: columns with the same rest are of one quantity.
    quantity: String,
}

/// Checks each row: minimum, percentiles, mean and maximum are in order, and the count supports the
/// percentiles.
pub(crate) fn check(table: &Table, found: &mut Found) {
    if !table.is_whole() {
        return;
    }
    let summaries: Vec<Summary<'_>> = table
        .columns
        .iter()
        .filter(|column| column.content == Content::Number)
        .filter_map(|column| {
            let (statistic, quantity) = header::statistic(&column.name)?;
            Some(Summary { column, statistic, quantity })
        })
        .collect();
    for (index, lower) in summaries.iter().enumerate() {
        for upper in &summaries[index + 1..] {
            compare(table, lower, upper, found);
        }
    }
    let count = summaries.iter().find(|summary| summary.statistic == Statistic::Count);
    if let Some(count) = count {
        for summary in &summaries {
            unsupported(table, count.column, summary, found);
        }
    }
}

/// Position of a statistic between minimum and maximum; the mean lies anywhere between them.
fn position(statistic: Statistic) -> Option<f64> {
    match statistic {
        Statistic::Min => Some(0.0),
        Statistic::Percentile(percent) => Some(percent),
        Statistic::Max => Some(100.0),
        _ => None,
    }
}

fn compare(table: &Table, a: &Summary<'_>, b: &Summary<'_>, found: &mut Found) {
    if a.quantity != b.quantity || a.column.unit != b.column.unit {
        return;
    }
    let is_between = |one: &Summary<'_>, other: &Summary<'_>| {
        one.statistic == Statistic::Mean
            && matches!(other.statistic, Statistic::Min | Statistic::Max)
    };
    let (lower, upper) = match (position(a.statistic), position(b.statistic)) {
        (Some(first), Some(second)) if first < second => (a, b),
        (Some(first), Some(second)) if first > second => (b, a),
        _ if is_between(a, b) => {
            if b.statistic == Statistic::Min {
                (b, a)
            } else {
                (a, b)
            }
        }
        _ if is_between(b, a) => {
            if a.statistic == Statistic::Min {
                (a, b)
            } else {
                (b, a)
            }
        }
        _ => return,
    };
    let steps = lower.column.totals.coarse_step() + upper.column.totals.coarse_step();
    let pairs = lower.column.values.iter().zip(&upper.column.values).enumerate();
    for (row, (low, high)) in pairs.filter(|(_, (low, high))| **low - **high > steps) {
        let message = format!(
            "row {}: {} {} is above {} {}",
            row + 1,
            lower.column.name,
            number(*low, 9),
            upper.column.name,
            number(*high, 9)
        );
        let finding = Finding::serious("printed-values-contradict", message).rows([row as u64 + 1]);
        let finding = finding.printed(*low).value(*high, upper.column.unit_name());
        found.push(finding.column(&lower.column.name).table(&table.name));
    }
}

fn unsupported(table: &Table, count: &Column, summary: &Summary<'_>, found: &mut Found) {
    let Statistic::Percentile(percent) = summary.statistic else { return };
    let tail = (1.0 - percent / 100.0).min(percent / 100.0);
    let needed = (1.0 / tail - 1e-6).ceil();
    let rows: Vec<u64> = (0..)
        .zip(&count.values)
        .filter(|(row, n)| **n < needed && !summary.column.values[*row as usize].is_nan())
        .map(|(row, _): (u64, &f64)| row + 1)
        .collect();
    if rows.is_empty() {
        return;
    }
    let message = format!(
        "{} needs {needed} values; {} has fewer in {}",
        summary.column.name,
        count.name,
        crate::finding::row_list(&rows)
    );
    let finding = Finding::note("unsupported-percentile", message).rows(rows).value(needed, "");
    found.push(finding.column(&summary.column.name).table(&table.name));
}
