//! Result of an audit, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::finding::{CannotTell, Finding, Severity, quantity, significant};
use crate::table::{Column, Content, Table};

/// Result of an audit; serialised as `dwell.audit/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name and version of the schema.
    pub schema: &'static str,
    /// Audited file or run.
    pub source: String,
    /// Title of the description.
    pub title: Option<String>,
    /// Number of serious findings.
    pub serious: usize,
    /// Tables.
    pub tables: Vec<TableSummary>,
    /// Findings, serious ones first.
    pub findings: Vec<Finding>,
    /// Checks that the data do not permit.
    pub cannot_tell: Vec<CannotTell>,
}

/// A table and its columns.
#[derive(Clone, Debug, Serialize)]
pub struct TableSummary {
    /// Name.
    pub name: String,
    /// File or run.
    pub source: String,
    /// Number of rows.
    pub rows: u64,
    /// Columns.
    pub columns: Vec<ColumnSummary>,
}

/// A column and its figures.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnSummary {
    /// Name in the header.
    pub name: String,
    /// Meaning that the audit uses.
    pub role: &'static str,
    /// Unit of time; of times that of the figures.
    pub unit: Option<&'static str>,
    /// Number of values.
    pub count: u64,
    /// Number of cells without a value.
    pub missing: u64,
    /// Smallest value; null for times and text.
    pub min: Option<f64>,
    /// Mean; null for times and text.
    pub mean: Option<f64>,
    /// Largest value; null for times and text.
    pub max: Option<f64>,
}

impl Report {
    /// Name and version of the schema.
    pub const SCHEMA: &'static str = "dwell.audit/1";

    /// Whether a finding is serious.
    pub fn is_serious(&self) -> bool {
        self.serious > 0
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(title) = &self.title {
            let _ = writeln!(text, "{title}");
        }
        for table in &self.tables {
            table.write(&mut text);
        }
        let many_tables = self.tables.len() > 1;
        for finding in &self.findings {
            let word = match finding.severity {
                Severity::Serious => "SERIOUS",
                Severity::Note => "note",
            };
            let place = place(&finding.table, many_tables);
            let _ = writeln!(text, "{word:7}  {}: {place}{}", finding.code, finding.message);
        }
        for one in &self.cannot_tell {
            let place = place(&one.table, many_tables);
            let _ = writeln!(text, "cannot tell  {}: {place}{}", one.code, one.message);
        }
        let notes = self.findings.len() - self.serious;
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let _ = write!(
            text,
            "{} serious finding{}, {notes} note{}",
            self.serious,
            plural(self.serious),
            plural(notes)
        );
        text
    }
}

fn place(table: &str, many_tables: bool) -> String {
    if many_tables && !table.is_empty() { format!("{table}: ") } else { String::new() }
}

impl Finding {
    /// Whether the finding is serious.
    pub fn is_serious(&self) -> bool {
        self.severity == Severity::Serious
    }
}

impl TableSummary {
    pub(crate) fn of(table: &Table) -> Self {
        Self {
            name: table.name.clone(),
            source: table.source.clone(),
            rows: table.rows,
            columns: table.columns.iter().map(ColumnSummary::of).collect(),
        }
    }

    fn write(&self, text: &mut String) {
        let rows = if self.rows == 1 { "row" } else { "rows" };
        let _ = writeln!(text, "{} ({}): {} {rows}", self.name, self.source, self.rows);
        for column in &self.columns {
            let Some(((min, mean), max)) = column.min.zip(column.mean).zip(column.max) else {
                let _ = writeln!(text, "  {} [{}]", column.name, column.role);
                continue;
            };
            let unit = column.unit.unwrap_or("");
            let _ = writeln!(
                text,
                "  {} [{}]: {} values, min {}, mean {}, max {}",
                column.name,
                column.role,
                column.count,
                quantity(min, ""),
                quantity(mean, ""),
                quantity(max, unit)
            );
        }
    }
}

impl ColumnSummary {
    fn of(column: &Column) -> Self {
        let totals = &column.totals;
        let is_number = column.content == Content::Number;
        let figure = |value: Option<f64>| value.filter(|_| is_number).map(significant);
        Self {
            name: column.name.clone(),
            role: column.role.name(),
            unit: column.unit.map(crate::unit::Unit::name),
            count: totals.count,
            missing: totals.missing,
            min: figure(totals.min.map(|min| min.value)),
            mean: figure(totals.mean()),
            max: figure(totals.max.map(|max| max.value)),
        }
    }
}
