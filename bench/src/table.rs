//! Plain-text tables: first column left-aligned, the others right-aligned.

use std::fmt;

/// A heading and rows of cells.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.map(str::to_owned).to_vec()] }
    }

    /// Adds a row with one cell per heading.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|i| self.rows.iter().filter_map(|row| row.get(i)).map(|c| c.chars().count()).max())
            .map(|width| width.unwrap_or(0))
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line += &match i {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["case", "mean"]);
        table.row(["idle".to_owned(), "7.1".to_owned()]);
        table.row(["network load".to_owned(), "123.4".to_owned()]);
        assert_eq!(
            table.to_string(),
            "case           mean\nidle            7.1\nnetwork load  123.4\n"
        );
    }
}
