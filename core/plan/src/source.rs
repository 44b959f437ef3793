//! Text of a plan, with the positions of its fields.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::error::{PlanError, Position, floor_boundary};
use crate::expand::MAX_CELLS;
use crate::fields::field_names;
use crate::lab_file::LabFiles;
use crate::messages::{serde_message, toml_message};
use crate::path::Path;

/// A plan as text, with overrides applied. Fields are named by their TOML path, like `ping.size` or
/// `loads.network.traffic[0].rate`.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    table: Table,
    /// Positions of values and of table keys.
    spans: Spans,
    /// Overrides, in the order given.
    set: Vec<Override>,
    pub(crate) labs: LabFiles,
    /// Maximum number of cells, and of trials.
    pub(crate) max_cells: usize,
}

/// Positions in the text, by path.
#[derive(Clone, Debug, Default)]
struct Spans {
    values: BTreeMap<String, Range<usize>>,
    keys: BTreeMap<String, Range<usize>>,
}

/// An override.
#[derive(Clone, Debug)]
struct Override {
    /// Path without quotation marks.
    path: String,
    /// The text `PATH=VALUE`.
    assignment: String,
    /// Value as written.
    value: String,
    /// Value as TOML.
    toml: Value,
}

impl Source {
    /// Parses the text.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let wrong = |error: toml::de::Error| PlanError {
            at: error.span().map(|span| Position::of(text, span)),
            field: String::new(),
            message: toml_message(error.message(), error.span().map(|span| word(text, span))),
        };
        let spanned = DeTable::parse(text).map_err(wrong)?;
        let mut spans = Spans::default();
        note_table(spanned.get_ref(), "", &mut spans);
        let table = toml::from_str(text).map_err(wrong)?;
        Ok(Self {
            text: text.to_owned(),
            table,
            spans,
            set: Vec::new(),
            labs: LabFiles::default(),
            max_cells: MAX_CELLS,
        })
    }

    /// The original text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Lowers the maximum number of cells and of trials, which bounds the memory and time that
    /// [`expand`](crate::expand()) takes.
    pub fn set_max_cells(&mut self, max: usize) {
        self.max_cells = max.min(MAX_CELLS);
    }

    /// Overrides as `PATH=VALUE`, in the order given.
    pub fn settings(&self) -> impl Iterator<Item = String> + '_ {
        self.set.iter().map(|setting| setting.assignment.clone())
    }

    /// Overrides a field: `PATH=VALUE`. The value is TOML, or a string if it is not:
    /// `topology.link.rate=10Mbit/s`. Missing tables are created; list indices start at 0, and
    /// names with dots are quoted: `matrix."topology.link.rate"=[...]`. Overriding a rate removes
    /// the plan's interval, and the reverse.
    ///
    /// # Errors
    /// If `=` is missing or the path is invalid.
    pub fn set(&mut self, assignment: &str) -> Result<(), PlanError> {
        let wrong = |message: String| PlanError { at: None, field: String::new(), message };
        let (path, rest) = Path::read(assignment.trim_start()).map_err(wrong)?;
        let text = rest.trim_start().strip_prefix('=').ok_or_else(|| {
            wrong(format!("'{assignment}' is not PATH=VALUE, like ping.count=1000"))
        })?;
        let text = text.trim();
        let value = toml::from_str::<Table>(&format!("value = {text}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| Value::String(text.to_owned()));
        path.put(&mut self.table, value.clone()).map_err(wrong)?;
        let name = path.to_string();
        for (one, other) in [("ping.rate", "interval"), ("ping.interval", "rate")] {
            let other = path.sibling(other);
            if name == one && self.setting(&other.to_string()).is_none() {
                other.remove(&mut self.table);
            }
        }
        let assignment = assignment.trim().to_owned();
        self.set.push(Override { path: name, assignment, value: text.to_owned(), toml: value });
        Ok(())
    }

    /// The last override of the field at `path` or of a table that contains it.
    fn setting(&self, path: &str) -> Option<&Override> {
        self.set.iter().rev().find(|setting| {
            path.strip_prefix(&setting.path)
                .is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
        })
    }

    /// The override of exactly the field at `path`, unless its axis, at `axis`, was overridden
    /// later.
    pub(crate) fn override_of(&self, path: &str, axis: &str) -> Option<&Value> {
        let last = self.set.iter().rev().find(|setting| {
            let of_axis = axis.strip_prefix(&setting.path);
            setting.path == path
                || of_axis.is_some_and(|below| below.is_empty() || below.starts_with('.'))
        })?;
        (last.path == path).then_some(&last.toml)
    }

    /// The parsed plan.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Creates an error for the field at `path`, positioned at the nearest enclosing item in the
    /// text.
    pub fn error(&self, path: &str, message: impl Into<String>) -> PlanError {
        let message = message.into();
        let set = self.setting(path);
        let message = match set {
            Some(set) => format!("{message} (set to {} on the command line)", set.value),
            None => message,
        };
        let mut around = path;
        let span = loop {
            if let Some(span) = self.spans.values.get(around) {
                break Some(span.clone());
            }
            match around.rfind(['.', '[']) {
                Some(cut) => around = &around[..cut],
                None => break None,
            }
        };
        let at = span.filter(|_| set.is_none());
        PlanError {
            at: at.map(|span| Position::of(&self.text, span)),
            field: path.to_owned(),
            message,
        }
    }

    /// Deserialises `table`, the whole plan; errors are positioned by the path of the field.
    pub(crate) fn read<T: DeserializeOwned>(&self, table: Table) -> Result<T, PlanError> {
        self.read_at("", table)
    }

    /// Deserialises `table`, found at the path `at`, as two structs: each field goes to the struct
    /// that has it.
    pub(crate) fn read_parts<A: DeserializeOwned, B: DeserializeOwned>(
        &self,
        at: &str,
        table: Table,
    ) -> Result<(A, B), PlanError> {
        let known = [field_names::<A>(), field_names::<B>()].concat();
        if let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) {
            let message =
                format!("unknown field `{unknown}`, expected one of `{}`", known.join("`, `"));
            return Err(self.serde_error(&format!("{at}.{unknown}"), &message));
        }
        let is_second = |key: &str| field_names::<B>().contains(&key);
        let (second, first) = table.into_iter().partition(|(key, _)| is_second(key));
        Ok((self.read_at(at, first)?, self.read_at(at, second)?))
    }

    /// Deserialises `table`, found at the path `at` of the plan; empty for the whole plan.
    pub(crate) fn read_at<T: DeserializeOwned>(
        &self,
        at: &str,
        table: Table,
    ) -> Result<T, PlanError> {
        serde_path_to_error::deserialize(table).map_err(|error| {
            let path = match (at, error.path().to_string().as_str()) {
                (at, ".") => at.to_owned(),
                ("", below) => below.to_owned(),
                (at, below) => format!("{at}.{below}"),
            };
            self.serde_error(&path, error.inner().message())
        })
    }

    /// Creates an error for the field at `path` from a message of serde.
    fn serde_error(&self, path: &str, message: &str) -> PlanError {
        let mut placed = self.error(path, serde_message(message));
        if placed.message.starts_with("unknown field")
            && let (Some(key), Some(_)) = (self.spans.keys.get(path), &placed.at)
        {
            placed.at = Some(Position::of(&self.text, key.clone()));
        }
        if path.is_empty() {
            // A field missing from the whole file is reported at its start.
            placed.at = Some(Position::of(&self.text, 0..0));
        }
        placed
    }
}

/// The word around a position, up to a character that ends a value.
fn word(text: &str, span: Range<usize>) -> &str {
    let ends = |c: char| c.is_whitespace() || "=,[]{}#\"'".contains(c);
    let (before, after) = text.split_at(floor_boundary(text, span.start.min(text.len())));
    let from = before.rfind(ends).map_or(0, |end| end + 1);
    let to = before.len() + after.find(ends).unwrap_or(after.len());
    &text[from..to]
}

fn note_table(table: &DeTable<'_>, path: &str, spans: &mut Spans) {
    for (key, value) in table {
        let name = key.get_ref();
        let below = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        // A table is marked at its key, because its value may span many lines.
        let span = if value.get_ref().is_table() { key.span() } else { value.span() };
        spans.values.insert(below.clone(), span);
        spans.keys.insert(below.clone(), key.span());
        note_value(value, &below, spans);
    }
}

fn note_value(value: &Spanned<DeValue<'_>>, path: &str, spans: &mut Spans) {
    match value.get_ref() {
        DeValue::Table(table) => note_table(table, path, spans),
        DeValue::Array(array) => {
            for (number, element) in array.iter().enumerate() {
                let below = format!("{path}[{number}]");
                spans.values.insert(below.clone(), element.span());
                note_value(element, &below, spans);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn override_replaces_the_file_and_needs_no_quotes() {
        let mut source = Source::parse("[ping]\ncount = 5\n").unwrap();
        source.set("ping.count=7").unwrap();
        source.set("topology.link.rate = 10Mbit/s").unwrap();
        assert_eq!(source.table()["ping"]["count"].as_integer(), Some(7));
        assert_eq!(source.table()["topology"]["link"]["rate"].as_str(), Some("10Mbit/s"));
        assert!(source.set("ping.count.more=1").is_err());
        assert!(source.set("ping.count").is_err());
    }

    #[test]
    fn list_elements_and_quoted_names_can_be_set() {
        let mut source = Source::parse("[loads.busy]\ncpu = [{ on = \"n1\" }]\n").unwrap();
        source.set("loads.busy.cpu[0].level=50%").unwrap();
        source.set("matrix.\"topology.link.rate\" = [\"1Mbit/s\"]").unwrap();
        let table = source.table();
        assert_eq!(table["loads"]["busy"]["cpu"][0]["level"].as_str(), Some("50%"));
        assert!(table["matrix"]["topology.link.rate"].is_array());
        assert_eq!(
            source.settings().collect::<Vec<_>>(),
            ["loads.busy.cpu[0].level=50%", "matrix.\"topology.link.rate\" = [\"1Mbit/s\"]"]
        );
        assert!(source.set("loads.busy.cpu[1].level=50%").is_err());
    }

    #[test]
    fn overriding_rate_removes_interval_and_reverse() {
        let mut source = Source::parse("[ping]\nrate = \"5pps\"\n").unwrap();
        source.set("ping.interval=1ms").unwrap();
        assert_eq!(source.table()["ping"].get("rate"), None);
        source.set("ping.rate=10pps").unwrap();
        assert!(source.table()["ping"].get("interval").is_some(), "both were overridden");
    }

    #[test]
    fn error_in_an_override_has_no_position() {
        let mut source = Source::parse("[ping]\nsize = \"10B\"\n").unwrap();
        source.set("ping={ size = 7 }").unwrap();
        let error = source.error("ping.size", "x");
        assert_eq!(error.at, None);
        assert!(error.message.contains("on the command line"), "{error}");
    }

    #[test]
    fn unquoted_text_and_large_numbers_get_a_hint() {
        for (value, words) in [
            ("n2", "'n2' is not a value; put text in quotes: \"n2\""),
            ("t", "'t' is not a value; put text in quotes: \"t\""),
            ("fast # as can be", "'fast' is not a value"),
            ("infinite", "'infinite' is not a value"),
            ("[1, node]", "'node' is not a value"),
            ("hello", "'hello' is not a value"),
            ("1s", "'1s' is not a value; put text in quotes: \"1s\""),
            ("99999999999999999999", "from -9223372036854775808 to 9223372036854775807"),
            ("-99999999999999999999", "from -9223372036854775808 to 9223372036854775807"),
            ("9223372036854775808", "9223372036854775808 is too"),
            ("9999999999999999999999999999999999999999999999", "to 9223372036854775807"),
        ] {
            let error = Source::parse(&format!("[ping]\nto = {value}\n")).unwrap_err();
            assert!(error.message.contains(words), "{value}: {error}");
            assert_eq!(error.at.as_ref().unwrap().line, 2, "{error}");
        }
    }

    #[test]
    fn error_points_at_the_nearest_enclosing_item() {
        let source = Source::parse("a = 1\n[ping]\nsize = \"ten\"\n").unwrap();
        let at = source.error("ping.size", "x").at.unwrap();
        assert_eq!((at.line, at.column, at.width), (3, 8, 5));
        assert_eq!(source.error("ping.other", "x").at.unwrap().line, 2);
        assert_eq!(source.error("nothing", "x").at, None);
    }

    #[test]
    fn unknown_and_missing_fields_have_positions() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only deserialisation is tested")]
        struct Top {
            version: u32,
            ping: Option<Ping>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only deserialisation is tested")]
        struct Ping {
            count: u32,
        }
        for (text, line, column, width, words) in [
            ("version = 1\n[ping]\n  cuont = 10\n", 3, 3, 5, "did you mean 'count'"),
            ("version = 1\npong = { x = 1 }\n", 2, 1, 4, "did you mean 'ping'"),
            ("version = 1\n[ping]\n", 2, 2, 4, "missing field 'count'"),
            ("# a plan\n[ping]\ncount = 1\n", 1, 1, 1, "missing field 'version'"),
            ("version = 1\nping.count = \"x\"\n", 2, 14, 3, "whole number"),
        ] {
            let source = Source::parse(text).unwrap();
            let error = source.read::<Top>(source.table().clone()).unwrap_err();
            let at = error.at.clone().unwrap();
            assert_eq!((at.line, at.column, at.width), (line, column, width), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn invalid_toml_has_a_position() {
        let error = Source::parse("a = 1\nb = = 2\n").unwrap_err();
        assert_eq!(error.at.unwrap().line, 2);
    }
}
