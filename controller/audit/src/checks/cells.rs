//! Malformed and missing cells, and rows that occur twice.

use std::collections::HashMap;

use super::Found;
use crate::finding::{Finding, counted, row_list};
use crate::table::{Column, Content, MAX_LISTED_ROWS, OddTime, Role, Table};

/// Maximum number of malformed cells of a column that have a finding each.
const MAX_SINGLE_FINDINGS: usize = 10;
/// Share of times with the usual number of decimals from which other numbers are errors.
const MIN_TYPICAL_SHARE: f64 = 0.75;
/// Minimum number of times for a usual number of decimals.
const MIN_TIMES: u64 = 4;
/// Expected number of times without a fraction from which one is no surprise.
const MIN_EXPECTED_WHOLE: f64 = 1e-3;
/// Maximum number of rows that are compared for duplicates.
const MAX_DUPLICATE_ROWS: usize = 100_000;

pub(crate) fn check(table: &Table, found: &mut Found) {
    malformed(table, found);
    for column in table.columns.iter().filter(|column| column.content == Content::Time) {
        odd_times(table, column, found);
    }
    missing(table, found);
    duplicates(table, found);
}

fn malformed(table: &Table, found: &mut Found) {
    let mut groups: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for (at, cell) in table.malformed.cells.iter().enumerate() {
        match groups.iter_mut().find(|(column, _)| *column == cell.column) {
            Some((_, members)) => members.push(at),
            None => groups.push((cell.column, vec![at])),
        }
    }
    for (column, members) in groups {
        let column = column.and_then(|index| table.columns.get(index));
        let code = match column {
            None => "malformed-row",
            Some(column) if column.content == Content::Time => "malformed-timestamp",
            Some(_) => "malformed-cell",
        };
        let place = column.map_or(String::new(), |column| format!(" of {}", column.name));
        let with_column = |finding: Finding| match column {
            Some(column) => finding.column(&column.name),
            None => finding,
        };
        if members.len() <= MAX_SINGLE_FINDINGS {
            for cell in members.iter().map(|at| &table.malformed.cells[*at]) {
                let message = format!("row {}{place}: '{}' {}", cell.row, cell.text, cell.reason);
                let finding = Finding::serious(code, message).rows([cell.row]);
                found.push(with_column(finding).table(&table.name));
            }
            continue;
        }
        let first = &table.malformed.cells[members[0]];
        let rows: Vec<u64> = members.iter().map(|at| table.malformed.cells[*at].row).collect();
        let total = if members.len() >= MAX_LISTED_ROWS {
            table.malformed.count
        } else {
            rows.len() as u64
        };
        let message = format!(
            "{}{place}: row {}: '{}' {}; {}",
            counted(total, "malformed cell"),
            first.row,
            first.text,
            first.reason,
            row_list(&rows)
        );
        let finding = Finding::serious(code, message).rows(rows).value(total as f64, "");
        found.push(with_column(finding).table(&table.name));
    }
}

/// Times with another number of decimals than almost all of their column. More decimals are always
/// an error; fewer only if the column prints trailing zeros and no program prints times like that.
fn odd_times(table: &Table, column: &Column, found: &mut Found) {
    let (typical, usual) = column.totals.typical_exponent();
    let count = column.totals.count;
    if count < MIN_TIMES || (usual as f64) < MIN_TYPICAL_SHARE * count as f64 {
        return;
    }
    let keeps_zeros = column.totals.trailing_zeros > 0;
    let odd: Vec<_> = column
        .odd_times
        .iter()
        .filter(|time| {
            time.exponent < typical || (time.exponent > typical && keeps_zeros && typical < 9)
        })
        .collect();
    // Many are a format, not an error.
    if odd.len() as f64 > 0.1 * count as f64 + 1.0 {
        return;
    }
    let resolution = resolution(column);
    for time in odd.into_iter().take(MAX_SINGLE_FINDINGS) {
        let decimals = |exponent: i8| u64::from((9 - i32::from(exponent)).max(0).unsigned_abs());
        let message = format!(
            "row {} of {}: '{}' has {}, and {usual} of {count} times have {}",
            time.row,
            column.name,
            time.text,
            counted(decimals(time.exponent), "decimal"),
            decimals(typical)
        );
        let finding = if !drops_zeros(time.exponent, typical) {
            Finding::serious("malformed-timestamp", message)
        } else if is_explained(table, column, time, typical, resolution) {
            continue;
        } else {
            let message = format!("{message}; its fraction may be lost");
            Finding::note("short-timestamp", message)
        };
        found.push(finding.rows([time.row]).column(&column.name).table(&table.name));
    }
}

/// Whether programs that drop a fraction of zeros, all of it or in groups of three digits, print
/// some of a column's times like that.
fn drops_zeros(exponent: i8, typical: i8) -> bool {
    exponent > typical && exponent <= 9 && (exponent == 9 || exponent % 3 == 0 && typical % 3 == 0)
}

/// Exponent of ten, in nanoseconds, of the last digit of the kept times that is not always 0.
fn resolution(column: &Column) -> i8 {
    let nanos = |value: f64| column.origin.wrapping_add(value as i64);
    let is_multiple = |power: i64| column.present().all(|value| nanos(value) % power == 0);
    (0..9).find(|exponent| !is_multiple(10_i64.pow(*exponent as u32 + 1))).unwrap_or(9)
}

/// Whether a time without a fraction needs no other explanation than digits that are 0: its row's
/// latency agrees, or one is expected among that number of times.
fn is_explained(
    table: &Table,
    column: &Column,
    time: &OddTime,
    typical: i8,
    resolution: i8,
) -> bool {
    if let Some(agrees) = agrees_with_latency(table, time, typical) {
        return agrees;
    }
    let share = 10_f64.powi(i32::from(resolution.max(typical)) - i32::from(time.exponent));
    column.totals.count as f64 * share > MIN_EXPECTED_WHOLE
}

/// Whether the latency of a row agrees with its times to the usual number of decimals.
fn agrees_with_latency(table: &Table, time: &OddTime, typical: i8) -> Option<bool> {
    let latency = table.by_role(Role::Latency)?;
    let (sent, received) = (table.by_role(Role::Sent)?, table.by_role(Role::Received)?);
    table.stamps.as_ref().filter(|_| table.is_whole())?;
    let row = time.row as usize - 1;
    let printed = *latency.values.get(row)? * latency.unit?.nanos();
    let computed = received.values.get(row)? - sent.values.get(row)?;
    let step = 10_f64.powi(i32::from(typical));
    let tolerance = step + latency.totals.coarse_step() * latency.unit?.nanos();
    let difference = (computed - printed).abs();
    (!difference.is_nan()).then_some(difference <= tolerance)
}

/// Rows without a value; columns that lack the same rows have one finding.
fn missing(table: &Table, found: &mut Found) {
    let mut groups: Vec<(u64, Vec<u64>, Vec<&str>)> = Vec::new();
    for (index, column) in table.columns.iter().enumerate() {
        if column.content == Content::Text || column.totals.missing == 0 {
            continue;
        }
        let malformed: Vec<u64> = table
            .malformed
            .cells
            .iter()
            .filter(|cell| cell.column == Some(index))
            .map(|cell| cell.row)
            .collect();
        let rows: Vec<u64> = column
            .totals
            .missing_rows
            .iter()
            .copied()
            .filter(|row| malformed.binary_search(row).is_err())
            .collect();
        let total = column.totals.missing.saturating_sub(malformed.len() as u64);
        if total == 0 {
            continue;
        }
        match groups.iter_mut().find(|(count, of, _)| *count == total && *of == rows) {
            Some((.., names)) => names.push(&column.name),
            None => groups.push((total, rows, vec![&column.name])),
        }
    }
    for (total, rows, names) in groups {
        let message = format!(
            "{} of {} without a value: {}",
            counted(total, "row"),
            names.join(", "),
            row_list(&rows)
        );
        let finding = Finding::note("missing-cells", message).rows(rows).value(total as f64, "");
        let finding = if let [name] = names.as_slice() { finding.column(name) } else { finding };
        found.push(finding.table(&table.name));
    }
}

/// Rows whose timestamps both occur in an earlier row, and ids that occur twice.
fn duplicates(table: &Table, found: &mut Found) {
    if !table.is_whole() || table.rows as usize > MAX_DUPLICATE_ROWS {
        return;
    }
    let times: Vec<&Column> = [Role::Sent, Role::Received]
        .into_iter()
        .filter_map(|role| table.by_role(role))
        .filter(|column| column.content == Content::Time)
        .collect();
    if times.len() == 2 {
        let mut seen: HashMap<(u64, u64), u64> = HashMap::new();
        let mut rows = Vec::new();
        for row in 0..table.rows as usize {
            let key = (times[0].values[row].to_bits(), times[1].values[row].to_bits());
            if times.iter().any(|column| column.values[row].is_nan()) {
                continue;
            }
            if let Some(first) = seen.insert(key, row as u64 + 1) {
                rows.push((first, row as u64 + 1));
            }
        }
        // Coarse timestamps repeat by chance in fast measurements.
        if let Some((first, second)) = rows.first().copied()
            && rows.len() as u64 * 100 <= table.rows + 99
        {
            let message = format!("rows {first} and {second} have the same two timestamps");
            let rows = rows.iter().map(|(_, row)| *row);
            found.push(Finding::note("duplicate-rows", message).rows(rows).table(&table.name));
        }
    }
    let Some(ids) = table.by_role(Role::Id).filter(|column| column.content == Content::Number)
    else {
        return;
    };
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let mut rows = Vec::new();
    for (row, id) in ids.values.iter().enumerate().filter(|(_, id)| !id.is_nan()) {
        if seen.insert(id.to_bits(), row as u64 + 1).is_some() {
            rows.push(row as u64 + 1);
        }
    }
    // A column with few distinct values is a group, not a number of rows.
    if !rows.is_empty() && rows.len() * 10 <= ids.values.len() + 9 {
        let message = format!(
            "{} in {} occur twice: {}",
            counted(rows.len() as u64, "id"),
            ids.name,
            row_list(&rows)
        );
        let finding = Finding::note("duplicate-ids", message).value(rows.len() as f64, "");
        found.push(finding.rows(rows).column(&ids.name).table(&table.name));
    }
}
