//! Messages of Chung 2021: the client sends `request`, the server sends `acknowledge`. They carry
//! no id. A line end after them is accepted.
//!
//! A request may have room for two times of a device (`docs/firmware.md`), which the reply then has: of
//! receipt and of the reply, in nanoseconds since the start of the device.
//!
//! ```text
//! request 0000000000000000 0000000000000000
//! acknowledge 00000001d4c3f8a8 00000001d4c41c50
//! ```

/// Message of the client.
pub const REQUEST: &[u8] = b"request";

/// Message of the server.
pub const ACKNOWLEDGE: &[u8] = b"acknowledge";

/// Request with room for the times of a device.
pub const TIMED_REQUEST: &[u8] = b"request 0000000000000000 0000000000000000";

/// Length in bytes of the times after a word.
pub const TIMES_LEN: usize = TIMED_REQUEST.len() - REQUEST.len();

/// Times of a device, in nanoseconds since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTimes {
    /// Receipt of the request.
    pub received: u64,
    /// Sending of the reply.
    pub sent: u64,
}

impl DeviceTimes {
    /// Reads the times after a word: two spaces, each with 16 hexadecimal digits. `None` for anything
    /// else.
    ///
    /// ```
    /// use dwell_wire::text::DeviceTimes;
    ///
    /// let times = DeviceTimes::parse(b" 00000000000000ff 0000000000000100");
    /// assert_eq!(times, Some(DeviceTimes { received: 255, sent: 256 }));
    /// ```
    pub fn parse(text: &[u8]) -> Option<Self> {
        const DIGITS: usize = TIMES_LEN / 2 - 1;
        if text.len() != TIMES_LEN {
            return None;
        }
        let number = |part: &[u8]| {
            let digits = part.strip_prefix(b" ")?;
            digits.iter().try_fold(0, |value, digit| {
                Some(value << 4 | u64::from((*digit as char).to_digit(16)?))
            })
        };
        let (first, second) = text.split_at(1 + DIGITS);
        Some(Self { received: number(first)?, sent: number(second)? })
    }
}

/// Reads a reply: the times of the device are `None` in a plain one. Returns `None` for anything else.
pub fn acknowledgement(datagram: &[u8]) -> Option<Option<DeviceTimes>> {
    if is(ACKNOWLEDGE, datagram) {
        return Some(None);
    }
    let (times, end) = datagram.strip_prefix(ACKNOWLEDGE)?.split_at_checked(TIMES_LEN)?;
    is(b"", end).then(|| DeviceTimes::parse(times)).flatten().map(Some)
}

/// Whether a datagram is a request with room for times.
pub fn is_timed_request(datagram: &[u8]) -> bool {
    let times = datagram.strip_prefix(REQUEST).and_then(|rest| rest.split_at_checked(TIMES_LEN));
    times.is_some_and(|(times, end)| DeviceTimes::parse(times).is_some() && is(b"", end))
}

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
    fn times_of_a_device_are_read() {
        let timed = b"acknowledge 0000000000000010 00000000000000fF\n";
        let times = DeviceTimes { received: 16, sent: 255 };
        assert_eq!(acknowledgement(timed), Some(Some(times)));
        assert_eq!(acknowledgement(b"acknowledge\n"), Some(None));
        for wrong in [
            "acknowledge 0000000000000010 00000000000000f",
            "acknowledge 0000000000000010 00000000000000fg",
            "acknowledge 0000000000000010-00000000000000ff",
            "acknowledge 0000000000000010 00000000000000ff0",
            "acknowledge +000000000000010 00000000000000ff",
            "request",
        ] {
            assert_eq!(acknowledgement(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(is_timed_request(TIMED_REQUEST));
        assert!(!is_timed_request(REQUEST) && !is_timed_request(timed));
    }

    #[test]
    fn words_are_found_in_any_pieces() {
        assert_eq!(words(&[b"acknow", b"ledge\r\nacknowledgeack"]), (2, 0));
        assert_eq!(words(&[b"xxacknowleacknowledge"]), (1, 2 + 8));
        assert_eq!(words(&[b""]), (0, 0));
    }
}
