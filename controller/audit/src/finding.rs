//! Findings of an audit.

use serde::Serialize;

use crate::unit::Unit;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A printed number contradicts its rows, or a cell is malformed.
    Serious,
    /// A property of the data that limits what may be concluded.
    Note,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Kind of the finding; docs/audit.md lists all.
    pub code: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Table; empty if it concerns several or none.
    pub table: String,
    /// Column, if it concerns one.
    pub column: Option<String>,
    /// Rows concerned, from 1 after the header; at most [`crate::MAX_LISTED_ROWS`].
    pub rows: Vec<u64>,
    /// The correct or characteristic value; its meaning depends on the code.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: Option<&'static str>,
    /// The printed value that is contradicted.
    pub printed: Option<f64>,
    /// One or two sentences.
    pub message: String,
}

impl Finding {
    /// A finding without rows and value.
    pub fn new(code: &'static str, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            code,
            severity,
            table: String::new(),
            column: None,
            rows: Vec::new(),
            value: None,
            unit: None,
            printed: None,
            message: message.into(),
        }
    }

    /// A serious finding.
    pub fn serious(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Serious, message)
    }

    /// A note.
    pub fn note(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, message)
    }

    /// Adds rows.
    #[must_use]
    pub fn rows(mut self, rows: impl IntoIterator<Item = u64>) -> Self {
        self.rows.extend(rows.into_iter().take(crate::MAX_LISTED_ROWS));
        self
    }

    /// Adds a value and its unit. Not a number becomes no value.
    #[must_use]
    pub fn value(mut self, value: f64, unit: &'static str) -> Self {
        self.value = Some(significant(value)).filter(|value| value.is_finite());
        self.unit = Some(unit).filter(|unit| !unit.is_empty());
        self
    }

    /// Adds the printed value.
    #[must_use]
    pub fn printed(mut self, printed: f64) -> Self {
        self.printed = Some(printed).filter(|printed| printed.is_finite());
        self
    }

    /// Adds the column.
    #[must_use]
    pub fn column(mut self, name: &str) -> Self {
        self.column = Some(name.to_owned());
        self
    }

    /// Adds the table.
    #[must_use]
    pub fn table(mut self, name: &str) -> Self {
        self.table = name.to_owned();
        self
    }
}

/// A check that the data do not permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CannotTell {
    /// The check, named after its finding.
    pub code: &'static str,
    /// Table; empty if it concerns several.
    pub table: String,
    /// The reason.
    pub message: String,
}

/// Rounds to nine significant digits, which hides errors of floating-point arithmetic.
pub(crate) fn significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = 8 - value.abs().log10().floor() as i32;
    let rounded = if exponent >= 0 {
        let scale = 10_f64.powi(exponent);
        (value * scale).round() / scale
    } else {
        let scale = 10_f64.powi(-exponent);
        (value / scale).round() * scale
    };
    if rounded.is_finite() { rounded } else { value }
}

/// Formats a value for a message: up to `digits` decimals, without trailing zeros.
pub(crate) fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a value with about five significant digits and its unit. Times that are short or long in
/// their unit are shown in another.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    const SHOWN: std::ops::Range<f64> = 1e-2..1e5;
    if let Some(own) = Unit::parse(unit).filter(|_| value != 0.0 && !SHOWN.contains(&value.abs())) {
        let shown = |other: &Unit| (1.0..1e3).contains(&(value * own.to(*other)).abs());
        let seconds = [Unit::Nanos, Unit::Micros, Unit::Millis, Unit::Seconds];
        if let Some(other) = seconds.into_iter().find(shown).filter(|other| *other != own) {
            return quantity(value * own.to(other), other.name());
        }
    }
    let digits = match value.abs() {
        magnitude if magnitude >= 10_000.0 || magnitude == 0.0 => 1,
        magnitude => (4 - magnitude.log10().floor() as i32).clamp(0, 12) as usize,
    };
    let text = number(value, digits);
    if unit.is_empty() { text } else { format!("{text} {unit}") }
}

/// Formats rows: `row 3`, `rows 3, 5 and 9`, `rows 3, 5, 9 and 12 more`.
pub(crate) fn row_list(rows: &[u64]) -> String {
    const MAX_SHOWN: usize = 6;
    match rows {
        [] => "no row".to_owned(),
        [row] => format!("row {row}"),
        rows if rows.len() <= MAX_SHOWN => {
            let (last, first) = rows.split_last().expect("at least two rows");
            let first: Vec<String> = first.iter().map(u64::to_string).collect();
            format!("rows {} and {last}", first.join(", "))
        }
        rows => {
            let first: Vec<String> = rows[..MAX_SHOWN].iter().map(u64::to_string).collect();
            format!("rows {} and {} more", first.join(", "), rows.len() - MAX_SHOWN)
        }
    }
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(count: u64, singular: &str) -> String {
    if count == 1 { format!("1 {singular}") } else { format!("{count} {singular}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_few_digits() {
        assert_eq!(quantity(496.0, "ms"), "496 ms");
        assert_eq!(quantity(46.348_21, "ms"), "46.348 ms");
        assert_eq!(quantity(0.000_281_354, "s"), "281.35 us");
        assert_eq!(quantity(22_494.0, ""), "22494");
        assert_eq!(significant(0.1 + 0.2), 0.3);
    }

    #[test]
    fn many_rows_are_shortened() {
        assert_eq!(row_list(&[3]), "row 3");
        assert_eq!(row_list(&[3, 5, 9]), "rows 3, 5 and 9");
        assert_eq!(row_list(&[1, 2, 3, 4, 5, 6, 7, 8]), "rows 1, 2, 3, 4, 5, 6 and 2 more");
    }
}
