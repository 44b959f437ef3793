//! The text of a plan and the positions of everything in it.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::error::{PlanError, Position};

/// A plan as text, with what was set from outside put in. Fields are named by their path in TOML,
/// like `ping.size` or `loads.network.traffic[0].rate`.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    table: Table,
    /// Where the values (and the keys of tables) stand.
    spans: BTreeMap<String, Range<usize>>,
    /// What was set from outside, by path.
    set: BTreeMap<String, String>,
}

impl Source {
    /// Reads the text.
    ///
    /// # Errors
    /// It is not TOML.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let wrong = |error: toml::de::Error| PlanError {
            at: error.span().map(|span| Position::of(text, span)),
            field: String::new(),
            message: error.message().trim().to_owned(),
        };
        let spanned = DeTable::parse(text).map_err(wrong)?;
        let mut spans = BTreeMap::new();
        note_table(spanned.get_ref(), "", &mut spans);
        let table = toml::from_str(text).map_err(wrong)?;
        Ok(Self { text: text.to_owned(), table, spans, set: BTreeMap::new() })
    }

    /// The text, as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What was set from outside, as `PATH=VALUE`.
    pub fn settings(&self) -> impl Iterator<Item = String> + '_ {
        self.set.iter().map(|(path, value)| format!("{path}={value}"))
    }

    /// Puts a value in from outside: `PATH=VALUE`, the value as TOML or, where it is not, as a
    /// text: `topology.link.rate=10Mbit/s`. Tables on the way are made.
    ///
    /// # Errors
    /// There is no `=`, or the path leads through something that is no table.
    pub fn set(&mut self, assignment: &str) -> Result<(), PlanError> {
        let wrong = |message: String| PlanError { at: None, field: String::new(), message };
        let (path, text) =
            assignment.split_once('=').filter(|(path, _)| !path.trim().is_empty()).ok_or_else(
                || wrong(format!("'{assignment}' is not PATH=VALUE, like ping.count=1000")),
            )?;
        let (path, text) = (path.trim(), text.trim());
        let value = toml::from_str::<Table>(&format!("value = {text}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| Value::String(text.to_owned()));
        put(&mut self.table, path, value).map_err(wrong)?;
        self.set.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    /// The plan as a tree.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// An error about the field at `path`, or about the nearest thing around it that has a place.
    pub(crate) fn error(&self, path: &str, message: impl Into<String>) -> PlanError {
        let message = message.into();
        let message = match self.set.get(path) {
            Some(value) => format!("{message} (set to {value} on the command line)"),
            None => message,
        };
        let mut around = path;
        let span = loop {
            if let Some(span) = self.spans.get(around) {
                break Some(span.clone());
            }
            match around.rfind(['.', '[']) {
                Some(cut) => around = &around[..cut],
                None => break None,
            }
        };
        let at = span.filter(|_| !self.set.contains_key(path));
        PlanError {
            at: at.map(|span| Position::of(&self.text, span)),
            field: path.to_owned(),
            message,
        }
    }

    /// Reads `table` as a `T`; an error is placed by the path of the field.
    pub(crate) fn read<T: DeserializeOwned>(&self, table: Table) -> Result<T, PlanError> {
        serde_path_to_error::deserialize(table).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            self.error(&path, plain(&error.into_inner()))
        })
    }
}

/// The message without its trailing line feed, which the TOML crate adds for spans.
fn plain(error: &toml::de::Error) -> String {
    let text = error.message().trim();
    // serde says "unknown field `x`, expected one of `a`, `b`": quotation marks as everywhere here.
    text.replace('`', "'")
}

/// Puts `value` at `path` into `table`, making tables on the way.
pub(crate) fn put(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let Some((first, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), value);
        return Ok(());
    };
    let below = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
    match below {
        Value::Table(below) => put(below, rest, value),
        _ => Err(format!("'{first}' is no table, so it has no '{rest}'")),
    }
}

fn note_table(table: &DeTable<'_>, path: &str, spans: &mut BTreeMap<String, Range<usize>>) {
    for (key, value) in table {
        let name = key.get_ref();
        let below = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        // A table is pointed at by its key, for its value may be lines of text.
        let span = if value.get_ref().is_table() { key.span() } else { value.span() };
        spans.insert(below.clone(), span);
        note_value(value, &below, spans);
    }
}

fn note_value(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    spans: &mut BTreeMap<String, Range<usize>>,
) {
    match value.get_ref() {
        DeValue::Table(table) => note_table(table, path, spans),
        DeValue::Array(array) => {
            for (number, element) in array.iter().enumerate() {
                let below = format!("{path}[{number}]");
                spans.insert(below.clone(), element.span());
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
    fn what_is_set_from_outside_goes_before_the_file_and_needs_no_quotes() {
        let mut source = Source::parse("[ping]\ncount = 5\n").unwrap();
        source.set("ping.count=7").unwrap();
        source.set("topology.link.rate = 10Mbit/s").unwrap();
        assert_eq!(source.table()["ping"]["count"].as_integer(), Some(7));
        assert_eq!(source.table()["topology"]["link"]["rate"].as_str(), Some("10Mbit/s"));
        assert!(source.set("ping.count.more=1").is_err());
        assert!(source.set("ping.count").is_err());
    }

    #[test]
    fn an_error_is_placed_at_the_field_or_at_the_nearest_thing_around_it() {
        let source = Source::parse("a = 1\n[ping]\nsize = \"ten\"\n").unwrap();
        let at = source.error("ping.size", "x").at.unwrap();
        assert_eq!((at.line, at.column, at.width), (3, 8, 5));
        assert_eq!(source.error("ping.other", "x").at.unwrap().line, 2);
        assert_eq!(source.error("nothing", "x").at, None);
    }

    #[test]
    fn what_is_no_toml_is_placed_too() {
        let error = Source::parse("a = 1\nb = = 2\n").unwrap_err();
        assert_eq!(error.at.unwrap().line, 2);
    }
}
