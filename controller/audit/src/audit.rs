//! Audits tables: runs every check and collects the findings.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::checks::{
    Found, cells, clusters, counts, dependence, derived, formulas, printed, ranging, schedule,
    stamps, summaries, tick,
};
use crate::columns::Mapping;
use crate::csv;
use crate::document::{Document, MAX_DESCRIPTION_LEN, Rows};
use crate::error::AuditError;
use crate::report::{Report, TableSummary};
use crate::scope::TableScope;
use crate::table::{Role, Table};

/// Audits tables without printed results. `compare` states whether equal numbers of values are
/// expected.
pub fn audit_tables(source: &str, tables: &[Table], compare: bool) -> Report {
    let document = Document { compare, ..Document::default() };
    audit(source, tables, &document)
}

/// Reads a description and the files that it names, and audits them. Paths are relative to the
/// description.
///
/// # Errors
/// If a file cannot be read or is no table, or the description is wrong.
pub fn audit_description(path: &Path) -> Result<Report, AuditError> {
    let shown = path.display().to_string();
    let text = read_text(path)?;
    let document = Document::parse(&text, &shown)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut tables = Vec::new();
    for described in &document.tables {
        let mut table = match &described.rows {
            Rows::File(file) => {
                let path = directory.join(file);
                with_main_unit(&described.columns, |columns| csv::read_file(&path, columns))?
            }
            Rows::Text(rows) => {
                let source = format!("{shown}, table {}", described.name);
                with_main_unit(&described.columns, |columns| {
                    csv::read(rows.as_bytes(), &source, columns)
                })?
            }
            Rows::None => Table { source: shown.clone(), ..Table::default() },
        };
        table.name.clone_from(&described.name);
        tables.push(table);
    }
    check_names(&document, &tables, &shown)?;
    Ok(audit(&shown, &tables, &document))
}

/// Checks that formulas about tables name columns that exist.
fn check_names(document: &Document, tables: &[Table], path: &str) -> Result<(), AuditError> {
    let results = document.results.iter().map(|one| (&one.table, &one.expression, &one.text));
    let derived = document.derived.iter().map(|one| (&one.table, &one.expression, &one.text));
    for (name, expression, text) in results.chain(derived) {
        let table = name.as_ref().and_then(|name| tables.iter().find(|table| table.name == *name));
        let scope = TableScope { tables, table, unit: None };
        for (table, column) in expression.columns() {
            scope.check(table.as_deref(), &column).map_err(|reason| {
                AuditError::Columns(format!("{path}: formula '{text}': {reason}"))
            })?;
        }
    }
    for one in &document.derived {
        let scope = TableScope {
            tables,
            table: one
                .table
                .as_ref()
                .and_then(|name| tables.iter().find(|table| table.name == *name)),
            unit: None,
        };
        scope
            .check(None, &one.column)
            .map_err(|reason| AuditError::Columns(format!("{path}: derived column: {reason}")))?;
    }
    for (described, table) in document.tables.iter().zip(tables).filter(|(_, table)| table.rows > 0)
    {
        for name in described.printed.iter().filter_map(|printed| printed.column.as_ref()) {
            if table.column(name).is_none() {
                let known: Vec<&str> =
                    table.columns.iter().map(|column| column.name.as_str()).collect();
                return Err(AuditError::Columns(format!(
                    "{path}: printed: no column '{name}' in {}; known: {}",
                    table.name,
                    known.join(", ")
                )));
            }
        }
    }
    Ok(())
}

/// Reads a table whose mappings may have a unit without a column, which is that of the main column.
fn with_main_unit(
    columns: &[Mapping],
    read: impl Fn(&[Mapping]) -> Result<Table, AuditError>,
) -> Result<Table, AuditError> {
    let (named, general): (Vec<Mapping>, Vec<Mapping>) =
        columns.iter().cloned().partition(|mapping| !mapping.name.is_empty());
    let table = read(&named)?;
    let Some(unit) = general.first().and_then(|mapping| mapping.unit) else { return Ok(table) };
    let Some(main) = table.main() else { return Ok(table) };
    let mut columns = named;
    let role = Some(main.role).filter(|role| *role == Role::Latency);
    columns.push(Mapping { role, name: main.name.clone(), unit: Some(unit) });
    read(&columns)
}

fn read_text(path: &Path) -> Result<String, AuditError> {
    let shown = path.display().to_string();
    let failed = |source| AuditError::Read { path: shown.clone(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_DESCRIPTION_LEN + 1).read_to_end(&mut bytes).map_err(failed)?;
    let wrong = |line: usize, reason: &str| AuditError::Description {
        path: shown.clone(),
        line,
        column: 1,
        reason: reason.to_owned(),
    };
    if bytes.len() as u64 > MAX_DESCRIPTION_LEN {
        return Err(wrong(1, "longer than 4 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        wrong(line, "not UTF-8")
    })
}

/// Runs every check.
pub fn audit(source: &str, tables: &[Table], document: &Document) -> Report {
    let mut found = Found::default();
    for (index, table) in tables.iter().enumerate() {
        cells::check(table, &mut found);
        stamps::check(table, &mut found);
        no_values(table, &mut found);
        for limit in &table.limits {
            found.cannot_tell(limit.code, &table.name, limit.reason.clone());
        }
        printed::check(table, &table.footers, &mut found);
        summaries::check(table, &mut found);
        if let Some(described) = document.tables.get(index) {
            printed::check(table, &described.printed, &mut found);
            if let Some(speed) = described.ranging {
                ranging::check(table, speed, &mut found);
            }
        }
        clusters::check(table, &mut found);
        schedule::check(table, &mut found);
        dependence::check(table, &mut found);
        counts::within(table, &mut found);
        percentiles(table, &mut found);
    }
    tick::check(tables, &mut found);
    if document.compare {
        counts::between(tables, document, &mut found);
    }
    document.derived.iter().for_each(|derived| derived::column(tables, derived, &mut found));
    document.results.iter().for_each(|result| derived::result(tables, result, &mut found));
    formulas::check(&document.formulas, &mut found);
    // Serious findings first; a stable sort keeps the order of tables and checks.
    found.findings.sort_by_key(|finding| finding.severity);
    Report {
        schema: Report::SCHEMA,
        source: source.to_owned(),
        title: document.title.clone(),
        serious: found.findings.iter().filter(|finding| finding.is_serious()).count(),
        tables: tables.iter().map(TableSummary::of).collect(),
        findings: found.findings,
        cannot_tell: found.cannot_tell,
    }
}

/// States that a table has no values, so that no finding means nothing.
fn no_values(table: &Table, found: &mut Found) {
    let reason = if table.columns.is_empty() {
        return;
    } else if table.rows == 0 {
        "the table has no rows".to_owned()
    } else if table.main().is_some_and(|column| column.totals.count > 0) {
        return;
    } else {
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        format!(
            "no column has measured values ({}); name one with --columns \"latency='NAME':UNIT\"",
            names.join(", ")
        )
    };
    found.cannot_tell("no-values", &table.name, reason);
}

/// States which usual percentiles the rows do not determine.
fn percentiles(table: &Table, found: &mut Found) {
    let Some(column) = table.main() else { return };
    let n = column.totals.count;
    let unsupported: Vec<&str> = [("p90", 10), ("p95", 20), ("p99", 100), ("p99.9", 1_000)]
        .into_iter()
        .filter(|(_, needed)| n < *needed)
        .map(|(name, _)| name)
        .collect();
    if n > 0 && !unsupported.is_empty() {
        let text = format!("{n} values do not determine {}", unsupported.join(", "));
        found.cannot_tell("percentile", &table.name, text);
    }
}
