//! Messages of Chung 2021: the client sends `request`, the server sends `acknowledge`. They carry
//! no id. A line end after them is accepted.

/// Message of the client.
pub const REQUEST: &[u8] = b"request";

/// Message of the server.
pub const ACKNOWLEDGE: &[u8] = b"acknowledge";

/// Whether a datagram is `word`, with or without a line end.
pub fn is(word: &[u8], datagram: &[u8]) -> bool {
    datagram
        .strip_prefix(word)
        .is_some_and(|rest| rest.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)))
}

/// Finds whole words in a stream that arrives in pieces. Stores only the matched length, so nothing
/// is buffered. Bytes that are neither word nor line end are counted and skipped.
///
/// ```
/// use dwell_wire::text::{REQUEST, WordScanner};
///
/// let mut scanner = WordScanner::new(REQUEST);
/// let words = b"request\nreq?request".iter().filter(|byte| scanner.take(**byte)).count();
/// assert_eq!((words, scanner.strays), (2, 4));
/// ```
#[derive(Clone, Debug)]
pub struct WordScanner {
    word: &'static [u8],
    seen: usize,
    /// Bytes that belong to no word.
    pub strays: u64,
}

impl WordScanner {
    /// Creates a scanner for this word.
    pub fn new(word: &'static [u8]) -> Self {
        Self { word, seen: 0, strays: 0 }
    }

    /// Takes the next byte. Returns whether it completes a word.
    pub fn take(&mut self, byte: u8) -> bool {
        if byte == self.word[self.seen] {
            self.seen += 1;
            if self.seen == self.word.len() {
                self.seen = 0;
                return true;
            }
            return false;
        }
        // No proper prefix of either word is also its suffix, so a mismatch restarts the match.
        self.strays += self.seen as u64;
        self.seen = usize::from(byte == self.word[0]);
        self.strays += u64::from(self.seen == 0 && !matches!(byte, b'\r' | b'\n' | 0));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pieces: &[&[u8]]) -> (usize, u64) {
        let mut scanner = WordScanner::new(ACKNOWLEDGE);
        let found =
            pieces.iter().flat_map(|p| p.iter()).filter(|byte| scanner.take(**byte)).count();
        (found, scanner.strays)
    }

    #[test]
    fn line_end_after_a_word_is_accepted() {
        assert!(is(REQUEST, b"request"));
        assert!(is(REQUEST, b"request\r\n"));
        assert!(!is(REQUEST, b"requests"));
        assert!(!is(REQUEST, b"req"));
    }

    #[test]
    fn words_are_found_in_any_pieces() {
        assert_eq!(words(&[b"acknow", b"ledge\r\nacknowledgeack"]), (2, 0));
        assert_eq!(words(&[b"xxacknowleacknowledge"]), (1, 2 + 8));
        assert_eq!(words(&[b""]), (0, 0));
    }
}
