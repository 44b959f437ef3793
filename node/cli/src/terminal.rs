//! Escapes untrusted text before it is printed: file names and other programs' output must not move
//! the cursor, set colours or reverse a line.
//!
//! Control characters are escaped as in JSON (`\u001b`), so a printed JSON object keeps its
//! meaning.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, StdoutLock, Write};

/// A writer that escapes control characters. Invalid UTF-8 is replaced.
#[derive(Debug)]
pub struct Terminal<W>(W);

/// Locked standard output.
pub fn stdout() -> Terminal<StdoutLock<'static>> {
    Terminal(io::stdout().lock())
}

/// Locked standard output with a buffer, for many lines.
pub fn buffered_stdout() -> Terminal<BufWriter<StdoutLock<'static>>> {
    Terminal(BufWriter::new(io::stdout().lock()))
}

/// Escapes all control characters in `text` except line feeds.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_terminal_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_terminal_control(c) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a terminal acts on `c`: control characters and bidirectional controls (Unicode Annex 9).
fn is_terminal_control(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl<W: Write> Write for Terminal<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(escaped(&String::from_utf8_lossy(bytes)).as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_line_feeds_kept() {
        let mut out = Terminal(Vec::new());
        write!(out, "a\u{1b}[31m\r\u{7}\u{9b}2J\u{202e}\tµ—é\nnext\u{7f}\n").unwrap();
        let shown = String::from_utf8(out.0).unwrap();
        assert_eq!(shown, "a\\u001b[31m\\u000d\\u0007\\u009b2J\\u202e\\u0009µ—é\nnext\\u007f\n");
    }

    /// Any text, including characters that proptest's string strategies omit.
    fn any_text() -> impl Strategy<Value = String> {
        let few = proptest::char::range('\u{2000}', '\u{2070}');
        let one = prop_oneof![any::<char>(), any::<u8>().prop_map(char::from), few];
        proptest::collection::vec(one, 0..40).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn escaped_json_keeps_its_meaning(text in any_text()) {
            let object = serde_json::json!({ "text": text });
            let printed = format!("{object:#}");
            let read: serde_json::Value = serde_json::from_str(&escaped(&printed)).unwrap();
            prop_assert_eq!(read, object);
        }

        #[test]
        fn escaped_text_has_no_control_characters(text in any_text()) {
            prop_assert!(!escaped(&text).contains(|c: char| c.is_control() && c != '\n'));
        }
    }
}
