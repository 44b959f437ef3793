//! Unequal numbers of values in columns or tables that are compared.

use super::Found;
use crate::document::Document;
use crate::finding::Finding;
use crate::statistic::Statistic;
use crate::table::{Column, Content, Role, Table};

/// Compares the number of values of the measured columns of one table.
pub(crate) fn within(table: &Table, found: &mut Found) {
    let measures: Vec<&Column> = table.measures();
    // A latency beside other values is not compared with them.
    if measures.len() < 2 || measures.iter().any(|column| column.role == Role::Latency) {
        return;
    }
    let counts: Vec<(&str, u64)> =
        measures.iter().map(|column| (column.name.as_str(), column.totals.count)).collect();
    if let Some(finding) = unequal(&counts) {
        found.push(finding.table(&table.name));
    }
}

/// Compares the number of values of the main columns of several tables.
pub(crate) fn between(tables: &[Table], document: &Document, found: &mut Found) {
    let counts: Vec<(&str, u64)> = tables
        .iter()
        .enumerate()
        .filter_map(|(index, table)| {
            if table.rows == 0 {
                // Of a table without rows the printed count.
                let printed = &document.tables.get(index)?.printed;
                let count = printed.iter().find(|one| one.statistic == Statistic::Count)?;
                return Some((table.name.as_str(), count.printed.value().max(0.0) as u64));
            }
            let times = || table.columns.iter().find(|column| column.content == Content::Time);
            let column = table.main().or_else(times)?;
            Some((table.name.as_str(), column.totals.count))
        })
        .collect();
    found.findings.extend(unequal(&counts));
}

fn unequal(counts: &[(&str, u64)]) -> Option<Finding> {
    let smallest = counts.iter().map(|(_, count)| *count).min()?;
    let largest = counts.iter().map(|(_, count)| *count).max()?;
    if smallest == largest {
        return None;
    }
    const MAX_SHOWN: usize = 8;
    let shown: Vec<String> =
        counts.iter().take(MAX_SHOWN).map(|(name, count)| format!("{name} {count}")).collect();
    let more = if counts.len() > MAX_SHOWN { ", ..." } else { "" };
    let message = format!(
        "unequal numbers of values are compared: {}{more}; extremes and tail percentiles depend on the number",
        shown.join(", ")
    );
    Some(Finding::note("unequal-counts", message).value(smallest as f64, ""))
}
