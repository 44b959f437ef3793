//! TABLE.toml: descriptions of tables and of the results printed about them.
//!
//! `docs/audit.md` documents the format. Numbers keep the digits of the file, because the last
//! printed digit limits what a number states.

use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::checks::ranging::LIGHT_SPEED;
use crate::columns::{Mapping, unit_or_error};
use crate::error::AuditError;
use crate::expression::Expression;
use crate::printed::Printed;
use crate::statistic::Statistic;
use crate::table::Role;
use crate::unit::Unit;

/// Maximum length of a description.
pub(crate) const MAX_DESCRIPTION_LEN: u64 = 4 << 20;
/// Maximum number of tables.
const MAX_TABLES: usize = 1_000;

/// A description.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Title.
    pub title: Option<String>,
    /// Whether the tables are compared with each other.
    pub compare: bool,
    /// Tables.
    pub tables: Vec<DescribedTable>,
    /// Results by formulas over tables.
    pub results: Vec<PrintedFormula>,
    /// Columns that follow from others.
    pub derived: Vec<Derived>,
    /// Formulas to compare.
    pub formulas: Vec<Formula>,
}

/// A table of a description.
#[derive(Clone, Debug)]
pub struct DescribedTable {
    /// Name.
    pub name: String,
    /// Where its rows are.
    pub rows: Rows,
    /// Its columns.
    pub columns: Vec<Mapping>,
    /// Statistics printed about it.
    pub printed: Vec<PrintedStatistic>,
    /// Speed of the signal in metres per second, if round trips measure distances.
    pub ranging: Option<f64>,
}

/// Rows of a described table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// A CSV file.
    File(PathBuf),
    /// CSV text.
    Text(String),
    /// None: only printed results.
    None,
}

/// A printed statistic of a column.
#[derive(Clone, Debug)]
pub struct PrintedStatistic {
    /// Column; `None` for the table's main column.
    pub column: Option<String>,
    /// Statistic.
    pub statistic: Statistic,
    /// Printed value.
    pub printed: Printed,
}

/// A printed result with its formula.
#[derive(Clone, Debug)]
pub struct PrintedFormula {
    /// Name of the result.
    pub name: String,
    /// Table of columns without one.
    pub table: Option<String>,
    /// Formula as written.
    pub text: String,
    /// Formula.
    pub expression: Expression,
    /// Printed value.
    pub printed: Printed,
}

/// A column that follows from others in each row.
#[derive(Clone, Debug)]
pub struct Derived {
    /// Table; `None` for the only one.
    pub table: Option<String>,
    /// Column.
    pub column: String,
    /// Formula as written.
    pub text: String,
    /// Formula.
    pub expression: Expression,
}

/// A formula to compare with others.
#[derive(Clone, Debug)]
pub struct Formula {
    /// Name.
    pub name: String,
    /// Meaning that the author gives it.
    pub meaning: Option<String>,
    /// Formula as written.
    pub text: String,
    /// Formula.
    pub expression: Expression,
}

impl Document {
    /// Parses a description; `path` names it in errors.
    ///
    /// # Errors
    /// If it is no TOML, or has unknown keys or values; the error states line and column.
    pub fn parse(text: &str, path: &str) -> Result<Self, AuditError> {
        let failed = |fault: Fault| fault.of_file(text, path);
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            failed(Fault { at, reason: error.message().to_owned() })
        })?;
        let mut document = parse_root(root.get_ref()).map_err(failed)?;
        if document.tables.len() > MAX_TABLES {
            let reason = format!("more than {MAX_TABLES} tables");
            return Err(failed(Fault { at: 0, reason }));
        }
        if document.tables.is_empty() && document.formulas.is_empty() {
            let reason = "no [[table]] and no [[formula]]; write file = \"DATA.csv\" or [[table]]";
            return Err(failed(Fault { at: 0, reason: reason.to_owned() }));
        }
        if let [table] = document.tables.as_mut_slice()
            && table.name.is_empty()
        {
            "table".clone_into(&mut table.name);
        }
        Ok(document)
    }
}

/// A fault at a byte of the description.
struct Fault {
    at: usize,
    reason: String,
}

impl Fault {
    fn of_file(self, text: &str, path: &str) -> AuditError {
        let before = &text.as_bytes()[..self.at.min(text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        AuditError::Description { path: path.to_owned(), line, column, reason: self.reason }
    }
}

type Entry<'e, 'i> = &'e Spanned<DeValue<'i>>;

fn fault<T>(entry: Entry<'_, '_>, reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at: entry.span().start, reason: reason.into() })
}

const ROOT_KEYS: &[&str] = &[
    "title", "source", "note", "compare", "table", "printed", "derived", "formula", "name", "file",
    "rows", "columns", "unit", "ranging", "result",
];
const TABLE_KEYS: &[&str] = &[
    "name", "title", "source", "note", "file", "rows", "columns", "printed", "unit", "ranging",
    "derived",
];

fn parse_root(root: &DeTable<'_>) -> Result<Document, Fault> {
    check_keys(root, ROOT_KEYS)?;
    let mut document = Document { compare: true, ..Document::default() };
    if let Some(compare) = root.get("compare") {
        let Some(value) = compare.get_ref().as_bool() else {
            return fault(compare, "expected true or false");
        };
        document.compare = value;
    }
    document.title = root.get("title").map(text).transpose()?;
    // A single table may be written without [[table]].
    let has_own = ["file", "rows", "columns"].iter().any(|key| root.contains_key(*key))
        || root.get("printed").is_some_and(|printed| printed.get_ref().is_table());
    if has_own {
        document.tables.push(parse_table(root, true)?);
    }
    for entry in list(root, "table")? {
        let Some(table) = entry.get_ref().as_table() else {
            return fault(entry, "expected a table: [[table]]");
        };
        check_keys(table, TABLE_KEYS)?;
        let mut parsed = parse_table(table, false)?;
        if parsed.name.is_empty() {
            parsed.name = format!("table{}", document.tables.len() + 1);
        }
        if document.tables.iter().any(|other| other.name == parsed.name) {
            return fault(entry, format!("two tables are named '{}'", parsed.name));
        }
        for derived in list(table, "derived")? {
            let mut derived = parse_derived(derived, &document)?;
            derived.table = Some(parsed.name.clone());
            document.derived.push(derived);
        }
        document.tables.push(parsed);
    }
    for key in ["printed", "result"] {
        let is_statistics = root.get(key).is_some_and(|printed| printed.get_ref().is_table());
        if !is_statistics {
            for entry in list(root, key)? {
                parse_printed_entry(entry, &mut document)?;
            }
        }
    }
    for entry in list(root, "derived")? {
        let derived = parse_derived(entry, &document)?;
        document.derived.push(derived);
    }
    for entry in list(root, "formula")? {
        let formula = parse_formula(entry, document.formulas.len() + 1)?;
        document.formulas.push(formula);
    }
    Ok(document)
}

fn parse_table(table: &DeTable<'_>, is_root: bool) -> Result<DescribedTable, Fault> {
    let rows = match (table.get("file"), table.get("rows")) {
        (Some(_), Some(rows)) => return fault(rows, "a table has a file or rows, not both"),
        (Some(file), None) => Rows::File(PathBuf::from(text(file)?)),
        (None, Some(rows)) => Rows::Text(text(rows)?),
        (None, None) => Rows::None,
    };
    let default_name = match &rows {
        Rows::File(path) => {
            path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned())
        }
        _ => String::new(),
    };
    let name = table.get("name").map(text).transpose()?.unwrap_or(default_name);
    let unit = table.get("unit").map(unit).transpose()?;
    let mut columns = match table.get("columns") {
        Some(columns) => parse_columns(columns)?,
        None => Vec::new(),
    };
    if let Some(unit) = unit {
        match columns.iter_mut().find(|mapping| mapping.role == Some(Role::Latency)) {
            Some(latency) => latency.unit = latency.unit.or(Some(unit)),
            None => columns.push(Mapping { role: None, name: String::new(), unit: Some(unit) }),
        }
    }
    let printed = match table.get("printed") {
        Some(printed) if is_root && !printed.get_ref().is_table() => Vec::new(),
        Some(printed) => parse_statistics(printed, None, None)?,
        None => Vec::new(),
    };
    let ranging = table.get("ranging").map(ranging).transpose()?.flatten();
    Ok(DescribedTable { name, rows, columns, printed, ranging })
}

/// Columns: `ROLE = "NAME"`, `ROLE = { name = "NAME", unit = "ms" }`, or the text of `--columns`.
fn parse_columns(entry: Entry<'_, '_>) -> Result<Vec<Mapping>, Fault> {
    if entry.get_ref().is_str() {
        return Mapping::parse_list(&text(entry)?).or_else(|error| fault(entry, error.to_string()));
    }
    let Some(table) = entry.get_ref().as_table() else {
        return fault(entry, "expected a table such as { latency = \"RTT (ms)\" }");
    };
    let mut mappings = Vec::new();
    for (key, value) in table {
        let role = Role::parse(key.get_ref());
        let mut add = |value: Entry<'_, '_>| -> Result<(), Fault> {
            match value.get_ref().as_table() {
                Some(described) => {
                    check_keys(described, &["name", "unit"])?;
                    let name = described.get("name").map(text).transpose()?;
                    let unit = described.get("unit").map(unit).transpose()?;
                    let name = name.unwrap_or_else(|| key.get_ref().to_string());
                    mappings.push(Mapping { role, name, unit });
                }
                // With a role the value is a name, else the key is the name and the value a unit.
                None if role.is_some() => {
                    mappings.push(Mapping { role, name: text(value)?, unit: None });
                }
                None => {
                    let unit = Some(unit(value)?);
                    mappings.push(Mapping { role, name: key.get_ref().to_string(), unit });
                }
            }
            Ok(())
        };
        match value.get_ref().as_array() {
            Some(array) => array.iter().try_for_each(&mut add)?,
            None => add(value)?,
        }
    }
    Ok(mappings)
}

/// Printed statistics: `mean = 491`, or `"COLUMN" = { mean = 491 }`; `unit = "us"` applies to all.
fn parse_statistics(
    entry: Entry<'_, '_>,
    column: Option<&str>,
    outer_unit: Option<Unit>,
) -> Result<Vec<PrintedStatistic>, Fault> {
    let Some(table) = entry.get_ref().as_table() else {
        return fault(entry, "expected a table such as { mean = 491, count = 13 }");
    };
    let unit = table.get("unit").map(unit).transpose()?.or(outer_unit);
    let mut statistics = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if matches!(name, "unit" | "source" | "note") {
            continue;
        }
        if value.get_ref().is_table() && column.is_none() {
            // "p99.9 = 12" without quotes is a table named p99.
            if let Some(inner) = dotted_percentile(name, value) {
                let printed = printed(inner.1, unit, inner.0.dimension())?;
                statistics.push(PrintedStatistic { column: None, statistic: inner.0, printed });
                continue;
            }
            statistics.extend(parse_statistics(value, Some(name), unit)?);
            continue;
        }
        let Some(statistic) = Statistic::parse(name) else {
            let reason = format!(
                "unknown statistic '{name}'; known: count, lost, loss, sum, mean, median, min, max, range, \
                 sd, variance, se, cv, iqr, pNN (\"p99.9\"); for another result use [[printed]] with a formula"
            );
            return Err(Fault { at: key.span().start, reason });
        };
        let printed = printed(value, unit, statistic.dimension())?;
        statistics.push(PrintedStatistic { column: column.map(str::to_owned), statistic, printed });
    }
    Ok(statistics)
}

/// `p99.9 = 12`, which TOML reads as the key 9 of a table p99.
fn dotted_percentile<'e, 'i>(
    name: &str,
    value: Entry<'e, 'i>,
) -> Option<(Statistic, Entry<'e, 'i>)> {
    let table = value.get_ref().as_table().filter(|table| table.len() == 1)?;
    let (key, inner) = table.iter().next()?;
    let digits: &str = key.get_ref().as_ref();
    let is_percentile = name.starts_with('p') && name[1..].parse::<u8>().is_ok();
    if !is_percentile || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((Statistic::parse(&format!("{name}.{digits}"))?, inner))
}

/// `[[printed]]`: a statistic of a column, or a result with a formula.
fn parse_printed_entry(entry: Entry<'_, '_>, document: &mut Document) -> Result<(), Fault> {
    let Some(table) = entry.get_ref().as_table() else {
        return fault(entry, "expected a table: [[printed]]");
    };
    check_keys(
        table,
        &[
            "name",
            "table",
            "column",
            "statistic",
            "formula",
            "value",
            "unit",
            "tolerance",
            "source",
            "note",
        ],
    )?;
    let Some(value) = table.get("value") else { return fault(entry, "value is missing") };
    let unit = table.get("unit").map(unit).transpose()?;
    let of_table = table.get("table").map(text).transpose()?;
    if let Some(name) = &of_table
        && !document.tables.iter().any(|table| table.name == *name)
    {
        return fault(table.get("table").unwrap_or(entry), format!("no table is named '{name}'"));
    }
    let tolerance = match table.get("tolerance") {
        Some(tolerance) => number(tolerance)?,
        None => 0.0,
    };
    let widen = |mut printed: Printed| {
        printed
            .readings
            .iter_mut()
            .for_each(|reading| reading.tolerance = reading.tolerance.max(tolerance));
        printed
    };
    match (table.get("formula"), table.get("statistic")) {
        (Some(formula), None) => {
            let (text_of, expression) = parse_expression(formula)?;
            let name = table.get("name").map(text).transpose()?;
            document.results.push(PrintedFormula {
                name: name.unwrap_or_else(|| "result".to_owned()),
                table: of_table,
                text: text_of,
                expression,
                printed: widen(printed(value, unit, 1)?),
            });
            Ok(())
        }
        (None, Some(statistic)) => {
            let name = text(statistic)?;
            let Some(parsed) = Statistic::parse(&name) else {
                return fault(statistic, format!("unknown statistic '{name}'"));
            };
            let column = table.get("column").map(text).transpose()?;
            let printed = widen(printed(value, unit, parsed.dimension())?);
            let of = PrintedStatistic { column, statistic: parsed, printed };
            let found = match &of_table {
                Some(name) => document.tables.iter_mut().find(|table| table.name == *name),
                None if document.tables.len() == 1 => document.tables.first_mut(),
                None => None,
            };
            match found {
                Some(table) => table.printed.push(of),
                None => return fault(entry, "table is missing: name the table of the statistic"),
            }
            Ok(())
        }
        _ => fault(entry, "write formula = \"...\" or statistic = \"mean\""),
    }
}

fn parse_derived(entry: Entry<'_, '_>, document: &Document) -> Result<Derived, Fault> {
    let Some(table) = entry.get_ref().as_table() else {
        return fault(entry, "expected a table: [[derived]]");
    };
    check_keys(table, &["table", "column", "formula", "source", "note"])?;
    let (Some(column), Some(formula)) = (table.get("column"), table.get("formula")) else {
        return fault(entry, "write column = \"NAME\" and formula = \"...\"");
    };
    let (formula_text, expression) = parse_expression(formula)?;
    let of_table = table.get("table").map(text).transpose()?;
    if let Some(name) = &of_table
        && !document.tables.iter().any(|table| table.name == *name)
    {
        return fault(table.get("table").unwrap_or(entry), format!("no table is named '{name}'"));
    }
    Ok(Derived { table: of_table, column: text(column)?, text: formula_text, expression })
}

fn parse_formula(entry: Entry<'_, '_>, number: usize) -> Result<Formula, Fault> {
    let Some(table) = entry.get_ref().as_table() else {
        return fault(entry, "expected a table: [[formula]]");
    };
    check_keys(table, &["name", "meaning", "formula", "source", "note"])?;
    let Some(formula) = table.get("formula") else {
        return fault(entry, "formula is missing, such as formula = \"sum(x) / count(x)\"");
    };
    let (text_of, expression) = parse_expression(formula)?;
    let name = table.get("name").map(text).transpose()?;
    let meaning = table.get("meaning").map(text).transpose()?;
    let name = name.unwrap_or_else(|| format!("formula {number}"));
    Ok(Formula { name, meaning, text: text_of, expression })
}

fn parse_expression(entry: Entry<'_, '_>) -> Result<(String, Expression), Fault> {
    let written = text(entry)?;
    match Expression::parse(&written) {
        Ok(expression) => Ok((written, expression)),
        Err(reason) => fault(entry, format!("formula '{written}': {reason}")),
    }
}

fn check_keys(table: &DeTable<'_>, known: &[&str]) -> Result<(), Fault> {
    for key in table.keys() {
        let name: &str = key.get_ref().as_ref();
        if !known.contains(&name) {
            let reason = format!("unknown key '{name}'; known: {}", known.join(", "));
            return Err(Fault { at: key.span().start, reason });
        }
    }
    Ok(())
}

/// The entries of an array of tables; a single table counts as one.
fn list<'e, 'i>(table: &'e DeTable<'i>, key: &str) -> Result<Vec<Entry<'e, 'i>>, Fault> {
    let Some(entry) = table.get(key) else { return Ok(Vec::new()) };
    match entry.get_ref() {
        DeValue::Array(array) => Ok(array.iter().collect()),
        DeValue::Table(_) => Ok(vec![entry]),
        _ => fault(entry, format!("expected [[{key}]]")),
    }
}

fn text(entry: Entry<'_, '_>) -> Result<String, Fault> {
    match entry.get_ref().as_str() {
        Some(text) => Ok(text.to_owned()),
        None => fault(entry, "expected a text in quotes"),
    }
}

fn unit(entry: Entry<'_, '_>) -> Result<Unit, Fault> {
    unit_or_error(&text(entry)?).or_else(|reason| fault(entry, reason))
}

fn number(entry: Entry<'_, '_>) -> Result<f64, Fault> {
    match written(entry).and_then(|text| text.replace('_', "").parse::<f64>().ok()) {
        Some(number) if number.is_finite() => Ok(number),
        _ => fault(entry, "expected a number"),
    }
}

/// A number or text as it stands in the file.
fn written(entry: Entry<'_, '_>) -> Option<String> {
    match entry.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// A printed result; `unit` applies if the text has none.
fn printed(entry: Entry<'_, '_>, unit: Option<Unit>, dimension: i32) -> Result<Printed, Fault> {
    let parsed = written(entry).and_then(|text| Printed::parse(&text.replace('_', "")));
    match parsed {
        Some(mut printed) => {
            if dimension != 0 {
                printed.unit = printed.unit.or(unit);
            }
            Ok(printed)
        }
        None => fault(
            entry,
            "expected a printed number, such as 491, \"1,303.5 ms\" or \"491 \u{b1} 40\"",
        ),
    }
}

/// `ranging = true` (light), or the speed of the signal in metres per second.
fn ranging(entry: Entry<'_, '_>) -> Result<Option<f64>, Fault> {
    match entry.get_ref() {
        DeValue::Boolean(true) => Ok(Some(LIGHT_SPEED)),
        DeValue::Boolean(false) => Ok(None),
        DeValue::String(text) if matches!(text.as_ref(), "c" | "light" | "radio") => {
            Ok(Some(LIGHT_SPEED))
        }
        _ => match number(entry) {
            Ok(speed) if speed > 0.0 => Ok(Some(speed)),
            _ => fault(entry, "expected true, or the speed of the signal in metres per second"),
        },
    }
}
