//! A trace of gaps as text: one gap a line, a time such as `1.6us` or whole nanoseconds without a
//! unit; `#` begins a comment.

use dwell_units::Nanos;
use thiserror::Error;

use super::MOST_PACKETS;

/// So much of a wrong line is repeated, in characters.
const SHOWN: usize = 40;

/// Why a text is no trace of gaps; lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GapsLineError {
    /// A line has something else on it.
    #[error("line {line}: '{text}' is no gap; write one as 1600 (nanoseconds) or 1.6us")]
    NoGap {
        /// The line.
        line: usize,
        /// What stands on it; its beginning when it is long.
        text: String,
    },
    /// A line has a gap below nothing.
    #[error("line {line}: a gap of {gap}; packets of a trace are in order of time")]
    Negative {
        /// The line.
        line: usize,
        /// The gap.
        gap: Nanos,
    },
    /// There are too many packets to send.
    #[error("line {line}: more gaps than {most} packets have between them")]
    TooMany {
        /// The first line that is too many.
        line: usize,
        /// How many packets there may be.
        most: usize,
    },
    /// There is nothing to replay.
    #[error("no gap on any line; write one a line, as 1600 (nanoseconds) or 1.6us")]
    None,
}

/// Reads the gaps of a trace, in their order.
pub fn read_gaps(text: &str) -> Result<Vec<Nanos>, GapsLineError> {
    read_at_most(text, MOST_PACKETS)
}

/// Reads the gaps between at most `most` packets.
fn read_at_most(text: &str, most: usize) -> Result<Vec<Nanos>, GapsLineError> {
    let mut gaps = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let content = text.split_once('#').map_or(text, |(content, _)| content).trim();
        if content.is_empty() {
            continue;
        }
        let gap = content.parse().map(Nanos).or_else(|_| content.parse());
        let gap = gap.map_err(|_| GapsLineError::NoGap { line, text: beginning(content) })?;
        if gap < Nanos::ZERO {
            return Err(GapsLineError::Negative { line, gap });
        }
        if gaps.len() + 1 >= most {
            return Err(GapsLineError::TooMany { line, most });
        }
        gaps.push(gap);
    }
    if gaps.is_empty() {
        return Err(GapsLineError::None);
    }
    Ok(gaps)
}

fn beginning(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrong(text: &str) -> String {
        read_gaps(text).unwrap_err().to_string()
    }

    #[test]
    fn a_gap_a_line_is_read_with_and_without_a_unit() {
        let text = "# of a router\n1600\n\n 1.6us # the second\r\n0\n2ms\n";
        assert_eq!(read_gaps(text), Ok([1_600, 1_600, 0, 2_000_000].map(Nanos).to_vec()));
    }

    #[test]
    fn what_is_no_gap_is_told_by_its_line() {
        assert_eq!(
            wrong("1\n#\n1.5\n"),
            "line 3: '1.5' is no gap; write one as 1600 (nanoseconds) or 1.6us"
        );
        assert_eq!(
            wrong("1\n-3us"),
            "line 2: a gap of -3us; packets of a trace are in order of time"
        );
        assert!(wrong(&"ü".repeat(9_000)).len() < 200);
        assert!(wrong("\n# nothing\n").contains("no gap on any line"));
    }

    #[test]
    fn a_trace_of_more_packets_than_can_be_sent_ends_where_it_is_too_long() {
        let read = |text| read_at_most(text, 4);
        assert_eq!(read("1\n1\n1").unwrap().len(), 3);
        assert_eq!(read("1\n1\n#\n1\n1"), Err(GapsLineError::TooMany { line: 5, most: 4 }));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            gaps in proptest::collection::vec((0..=i64::MAX, any::<bool>()), 1..50),
        ) {
            let line = |&(gap, unit): &(i64, bool)| match unit {
                true => format!("{}\n", Nanos(gap)),
                false => format!("{gap}\n"),
            };
            let text: String = gaps.iter().map(line).collect();
            let expected = gaps.into_iter().map(|(gap, _)| Nanos(gap)).collect();
            prop_assert_eq!(read_gaps(&text), Ok(expected));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "(\\PC|\n|[0-9.#-]|ns|us)*") {
            let _ = read_gaps(&text);
        }
    }
}
