//! Reads text line by line in bounded memory.

use std::io::{self, BufRead};

/// Maximum length of a line; the rest is dropped. No format here has rows nearly as long.
const MAX_LINE_LEN: usize = 8_192;

/// The lines of a text.
pub(crate) struct Lines<'a> {
    input: &'a mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(input: &'a mut dyn BufRead) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// Returns the next line and its number from 1, without the line end and trailing spaces.
    /// Longer lines are truncated.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let mut any = false;
        loop {
            let chunk = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = MAX_LINE_LEN - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some((self.number, self.line.trim_ascii_end())))
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_accept_both_line_ends_and_a_missing_one() {
        let mut input = BufReader::with_capacity(3, &b"one\r\n\ntwo\nthree"[..]);
        let mut lines = Lines::of(&mut input);
        let mut seen = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            seen.push((number, String::from_utf8(line.to_vec()).unwrap()));
        }
        let expected = [(1, "one"), (2, ""), (3, "two"), (4, "three")];
        assert_eq!(seen, expected.map(|(number, line)| (number, line.to_owned())));
    }

    #[test]
    fn long_line_takes_bounded_memory() {
        let mut text = vec![b'x'; 1_000_000];
        text.extend_from_slice(b"\nshort\n");
        let mut input = &text[..];
        let mut lines = Lines::of(&mut input);
        assert_eq!(lines.next().unwrap().map(|(_, line)| line.len()), Some(MAX_LINE_LEN));
        assert_eq!(lines.next().unwrap(), Some((2, &b"short"[..])));
        assert_eq!(lines.next().unwrap(), None);
    }
}
