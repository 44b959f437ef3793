//! What is wrong with a plan, and where.

use std::fmt;
use std::ops::Range;

/// An error in a plan. Prints as `line 12, column 8: ping.size: ...` with the line below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Line and column from 1, and the line's text; `None` for what stands in no line, such as
    /// a field that is missing from the whole file.
    pub at: Option<Position>,
    /// The field, like `ping.size`; empty for the file as a whole.
    pub field: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters are meant.
    pub width: usize,
    /// The line.
    pub text: String,
}

impl Position {
    /// Where `span` (of bytes) lies in `text`.
    pub(crate) fn of(text: &str, span: Range<usize>) -> Self {
        let start = floor_boundary(text, span.start.min(text.len()));
        let end = floor_boundary(text, span.end.clamp(start, text.len()));
        let begin = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[begin..].find('\n').map_or(text.len(), |newline| begin + newline);
        let meant = &text[start..end.min(line_end).max(start)];
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[begin..start].chars().count() + 1,
            width: meant.chars().count().max(1),
            text: text[begin..line_end].trim_end_matches('\r').to_owned(),
        }
    }
}

/// The boundary between characters at or before this byte.
pub(crate) fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl std::error::Error for PlanError {}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "line {}, column {}: ", at.line, at.column)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if let Some(Position { line, column, width, text }) = &self.at {
            let margin = line.to_string().len();
            let (pad, marks) = (column - 1, "^".repeat(*width));
            write!(f, "\n {line} | {text}\n {:margin$} | {:pad$}{marks}", "", "")?;
        }
        Ok(())
    }
}
