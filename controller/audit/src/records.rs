//! Rows of a CSV file: lines, where a quoted cell may have line feeds (RFC 4180).

/// Maximum length of a quoted cell with line feeds; longer ones are stray quotes.
const MAX_QUOTED_LEN: usize = 64 << 10;

/// End of the row at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Length of the row with its line feed.
    At(usize),
    /// The bytes end within the row.
    Open,
}

/// Length of the row at the start, with its line feed. A quoted cell that is never closed ends with
/// its line.
pub(crate) fn row_len(bytes: &[u8]) -> usize {
    match end_of_row(bytes, true) {
        End::At(len) => len,
        End::Open => bytes.len(),
    }
}

/// Length of the whole rows at the start; `None` without any.
pub(crate) fn whole_rows_len(bytes: &[u8]) -> Option<usize> {
    if !bytes.contains(&b'"') {
        return bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
    }
    let mut at = 0;
    while let End::At(len) = end_of_row(&bytes[at..], false) {
        at += len;
    }
    (at > 0).then_some(at)
}

/// Position after the quote that closes a quoted cell; `bytes` start after the one that opens it.
/// `None` without such a quote, or if text follows it.
pub(crate) fn closing_quote(bytes: &[u8], is_delimiter: impl Fn(u8) -> bool) -> Option<usize> {
    let within = &bytes[..bytes.len().min(MAX_QUOTED_LEN)];
    let mut at = 0;
    loop {
        at += within[at..].iter().position(|byte| *byte == b'"')? + 1;
        if bytes.get(at) == Some(&b'"') {
            at += 1;
            continue;
        }
        let next = bytes[at..].iter().find(|byte| **byte != b' ');
        return next
            .is_none_or(|next| matches!(next, b'\n' | b'\r') || is_delimiter(*next))
            .then_some(at);
    }
}

/// Finds the end of the first row. `is_all` states that no bytes follow.
fn end_of_row(bytes: &[u8], is_all: bool) -> End {
    let mut from = 0;
    loop {
        let Some(line) = bytes[from..].iter().position(|byte| *byte == b'\n') else {
            return End::Open;
        };
        let end = from + line;
        let Some(open) = open_quote(&bytes[from..end]) else { return End::At(end + 1) };
        let inside = from + open + 1;
        match closing_quote(&bytes[inside..], is_any_delimiter) {
            Some(len) => from = inside + len,
            None if is_all || bytes.len() - inside > MAX_QUOTED_LEN => return End::At(end + 1),
            // The quote may be closed by bytes that follow, unless text follows it here.
            None if bytes[end..].contains(&b'"') => return End::At(end + 1),
            None => return End::Open,
        }
    }
}

/// Position of a quote that opens a cell and is not closed in this part of a line.
fn open_quote(part: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut is_start = true;
    while at < part.len() {
        match part[at] {
            b'"' if is_start => match closing_quote(&part[at + 1..], is_any_delimiter) {
                Some(len) => at += len,
                None => return Some(at),
            },
            byte if is_any_delimiter(byte) => is_start = true,
            b' ' => {}
            _ => is_start = false,
        }
        at += 1;
    }
    None
}

const fn is_any_delimiter(byte: u8) -> bool {
    matches!(byte, b',' | b';' | b'\t' | b'|')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_line_feeds_are_part_of_a_row() {
        let text = b"1,\"a\nb \"\"c\"\"\n\",2\n3,x,4\n";
        assert_eq!(row_len(text), 17);
        assert_eq!(row_len(&text[17..]), 6);
        assert_eq!(whole_rows_len(text), Some(text.len()));
        // The block ends within a quoted cell.
        assert_eq!(whole_rows_len(b"1,x\n2,\"a\nb"), Some(4));
    }

    #[test]
    fn stray_quotes_end_with_their_line() {
        for text in
            [&b"1,5\" disk,2\n3,\"x\",4\n"[..], b"1,\"open,2\n3,4,5\n", b"1,\"a\" b,2\n3,c,4\n"]
        {
            let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            assert_eq!(row_len(text), first, "{}", String::from_utf8_lossy(text));
        }
    }
}
