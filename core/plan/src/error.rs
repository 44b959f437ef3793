//! Errors in a plan, with their position.

use std::fmt;
use std::ops::Range;

/// An error in a plan. Displayed as `line 12, column 8: ping.size: ...` followed by the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Position in the text; `None` if unknown, such as for a field missing from the whole file.
    pub at: Option<Position>,
    /// Field, like `ping.size`; empty for the file as a whole.
    pub field: String,
    /// The problem and a valid alternative.
    pub message: String,
}

/// A position in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Number of characters to mark.
    pub width: usize,
    /// Text of the line.
    pub text: String,
}

impl Position {
    /// Position of the byte range `span` in `text`.
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

/// The character boundary at or before this byte.
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
