//! A table of text cells.

use serde::Serialize;

/// Table of text cells; the headings contain the units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Headings.
    pub columns: Vec<String>,
    /// Rows, each with one cell per heading.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { columns: columns.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.to_vec());
    }

    /// Adds "(95 % interval)" to the heading of each column whose cells have intervals.
    pub(crate) fn label_intervals(mut self) -> Self {
        for (i, column) in self.columns.iter_mut().enumerate() {
            let mut cells = self.rows.iter().filter_map(|row| row.get(i));
            if cells.any(|cell| without_interval(cell).is_some()) {
                column.push_str(" (95 % interval)");
            }
        }
        self
    }
}

/// Value of a cell with an interval (see [`cell_within`](crate::model::quantity::Unit::cell_within)); `None` without an interval.
pub(crate) fn without_interval(cell: &str) -> Option<&str> {
    let (value, interval) = cell.strip_suffix(')')?.split_once(" (")?;
    let (low, high) = interval.split_once(" to ")?;
    [value, low, high].iter().all(|text| text.parse::<f64>().is_ok()).then_some(value)
}
