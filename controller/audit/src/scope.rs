//! Columns of tables as values of expressions.

use std::rc::Rc;

use crate::expression::{Bounds, Scope, Values};
use crate::table::{Column, Content, Role, Table};
use crate::unit::Unit;

/// Columns of the tables of an audit.
pub(crate) struct TableScope<'a> {
    pub(crate) tables: &'a [Table],
    /// The table of columns without one.
    pub(crate) table: Option<&'a Table>,
    /// Unit of time to which columns are converted.
    pub(crate) unit: Option<Unit>,
}

impl<'a> TableScope<'a> {
    /// Returns an error if a column does not exist.
    pub(crate) fn check(&self, table: Option<&str>, name: &str) -> Result<(), String> {
        self.find(table, name).map(drop)
    }

    fn find(&self, table: Option<&str>, name: &str) -> Result<(&'a Table, &'a Column), String> {
        let table = match table {
            Some(wanted) => {
                self.tables.iter().find(|table| table.name == wanted).ok_or_else(|| {
                    let known: Vec<&str> =
                        self.tables.iter().map(|table| table.name.as_str()).collect();
                    format!("no table '{wanted}'; known: {}", known.join(", "))
                })?
            }
            None => self
                .table
                .or_else(|| only(self.tables))
                .ok_or_else(|| format!("name the table of '{name}', as in TABLE.{name}"))?,
        };
        let column = table.column(name).ok_or_else(|| {
            let known: Vec<&str> =
                table.columns.iter().map(|column| column.name.as_str()).collect();
            format!("no column '{name}' in {}; known: {}", table.name, known.join(", "))
        })?;
        Ok((table, column))
    }
}

fn only(tables: &[Table]) -> Option<&Table> {
    match tables {
        [table] => Some(table),
        _ => None,
    }
}

impl Scope for TableScope<'_> {
    fn column(&self, table: Option<&str>, name: &str) -> Result<Values, String> {
        let (table, column) = self.find(table, name)?;
        if column.content == Content::Text {
            return Err(format!("column '{name}' is text"));
        }
        if !table.is_whole() {
            return Err(format!("{} has too many rows for a formula", table.name));
        }
        let factor = match (column.unit, self.unit) {
            (Some(from), Some(to)) => from.to(to),
            // Times without a wanted unit are in that of the latency, or in seconds.
            (Some(from), None) if column.content == Content::Time => {
                let latency = table.by_role(Role::Latency).and_then(|latency| latency.unit);
                from.to(latency.unwrap_or(Unit::Seconds))
            }
            _ => 1.0,
        };
        let step = rounding_step(column);
        let bounds = column.values.iter().map(|value| Bounds {
            low: (value - step / 2.0) * factor,
            high: (value + step) * factor,
        });
        Ok(Rc::new(bounds.collect()))
    }
}

/// Step to which the values were rounded; 0 for counts, which are exact.
fn rounding_step(column: &Column) -> f64 {
    let step = column.totals.coarse_step();
    let is_count = column.content == Content::Number
        && column.unit.is_none()
        && step >= 1.0
        && column.role != Role::Latency;
    if is_count { 0.0 } else { step }
}
