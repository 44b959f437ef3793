//! Escaping and tables. All text from outside reaches a page through this module.

use std::fmt::Write as _;

use serde_json::Value;

use crate::model::table::{Table, without_interval};

/// Escapes text for HTML elements and quoted attributes. Control characters, which HTML forbids,
/// become the replacement character.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON for a script element, escaped so that no text can end the element or start a comment.
pub(crate) fn json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Table in a scrollable box, reachable by keyboard. Columns of numbers, also with intervals, are
/// right-aligned.
pub(crate) fn table(table: &Table, caption: &str) -> String {
    let caption = escape(caption);
    let mut html = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\">\
         <table><caption>{caption}</caption><thead><tr>"
    );
    let numeric: Vec<bool> = (0..table.columns.len()).map(|i| is_numeric(table, i)).collect();
    let class = |i: usize| if numeric.get(i) == Some(&true) { " class=\"number\"" } else { "" };
    for (i, column) in table.columns.iter().enumerate() {
        let _ = write!(html, "<th scope=\"col\"{}>{}</th>", class(i), escape(column));
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            let _ = match i {
                0 => write!(html, "<th scope=\"row\"{}>{cell}</th>", class(0)),
                i => write!(html, "<td{}>{cell}</td>", class(i)),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
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
        assert_eq!(escape("<b a='\"'>&\u{7}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
        let hostile = Value::from("</script><!-- & -->");
        let text = json(&hostile);
        assert!(!text.contains(['<', '>', '&']));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), hostile);
    }
}
