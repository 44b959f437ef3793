//! Escaping and tables. Templates escape all text from outside with [`PageText`].

use std::fmt::{self, Write};

use askama::Template;
use askama::filters::Escaper;
use serde_json::Value;

use crate::model::table::{Table, without_interval};

/// Escapes text for HTML elements and quoted attributes. Control characters, which HTML forbids,
/// become the replacement character.
#[derive(Clone, Copy)]
pub(crate) struct PageText;

impl Escaper for PageText {
    fn write_escaped_str<W: Write>(&self, mut html: W, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '&' => html.write_str("&amp;"),
            '<' => html.write_str("&lt;"),
            '>' => html.write_str("&gt;"),
            '"' => html.write_str("&quot;"),
            '\'' => html.write_str("&#39;"),
            '\n' | '\t' => html.write_char(c),
            c if c.is_control() => html.write_char('\u{fffd}'),
            c => html.write_char(c),
        })
    }
}

/// JSON for a script element, escaped so that no text can end the element or start a comment.
pub(crate) fn json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Table in a scrollable box, reachable by keyboard. Columns of numbers, also with intervals, are
/// right-aligned.
#[derive(Template)]
#[template(path = "table.html")]
pub(crate) struct TableView<'a> {
    table: &'a Table,
    caption: &'a str,
    /// Whether each column has numbers only.
    numeric: Vec<bool>,
}

impl<'a> TableView<'a> {
    pub(crate) fn new(table: &'a Table, caption: &'a str) -> Self {
        let numeric = (0..table.columns.len()).map(|i| is_numeric(table, i)).collect();
        Self { table, caption, numeric }
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.table.rows.len()
    }
}

fn is_numeric(table: &Table, column: usize) -> bool {
    let mut cells = table.rows.iter().filter_map(|row| row.get(column));
    cells.all(|cell| {
        let value = without_interval(cell).unwrap_or(cell);
        value == "-" || value.replace([',', '%', ' '], "").parse::<f64>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_stays_in_its_element() {
        let mut html = String::new();
        PageText.write_escaped_str(&mut html, "<b a='\"'>&\u{7}").unwrap();
        assert_eq!(html, "&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
        let hostile = Value::from("</script><!-- & -->");
        let text = json(&hostile);
        assert!(!text.contains(['<', '>', '&']));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), hostile);
    }
}
