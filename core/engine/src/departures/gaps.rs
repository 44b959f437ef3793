//! Reader of gap traces: one gap per line, either a time such as `1.6us` or whole nanoseconds
//! without a unit. `#` begins a comment.

use dwell_units::Nanos;
use thiserror::Error;

use super::MAX_PACKETS;

/// Maximum number of characters of an invalid line that an error message quotes.
const MAX_QUOTED_CHARS: usize = 40;

/// Error in a gap trace. Line numbers start at 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GapsLineError {
    /// The line is not a gap.
    #[error("line {line}: '{text}' is not a gap; write it like 1600 (nanoseconds) or 1.6us")]
    InvalidGap {
        /// Line number.
        line: usize,
        /// Content of the line, shortened if long.
        text: String,
    },
    /// The gap is negative.
    #[error("line {line}: gap {gap} is negative; packets must be in order of time")]
    Negative {
        /// Line number.
        line: usize,
        /// The gap.
        gap: Nanos,
    },
    /// The trace has too many gaps.
    #[error("line {line}: too many gaps; a trace has at most {max_packets} packets")]
    TooMany {
        /// Line of the first gap beyond the maximum.
        line: usize,
        /// Maximum number of packets.
        max_packets: usize,
    },
    /// The trace contains no gap.
    #[error("the trace contains no gaps; write one per line, like 1600 (nanoseconds) or 1.6us")]
    None,
}

/// Reads the gaps of a trace in order.
pub fn read_gaps(text: &str) -> Result<Vec<Nanos>, GapsLineError> {
    read_at_most(text, MAX_PACKETS)
}

/// Reads the gaps of a trace of at most `max_packets` packets.
fn read_at_most(text: &str, max_packets: usize) -> Result<Vec<Nanos>, GapsLineError> {
    let mut gaps = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let content = text.split_once('#').map_or(text, |(content, _)| content).trim();
        if content.is_empty() {
            continue;
        }
        let gap = content.parse().map(Nanos).or_else(|_| content.parse());
        let gap = gap.map_err(|_| GapsLineError::InvalidGap { line, text: shortened(content) })?;
        if gap < Nanos::ZERO {
            return Err(GapsLineError::Negative { line, gap });
        }
        if gaps.len() + 1 >= max_packets {
            return Err(GapsLineError::TooMany { line, max_packets });
        }
        gaps.push(gap);
    }
    if gaps.is_empty() {
        return Err(GapsLineError::None);
    }
    Ok(gaps)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error_text(text: &str) -> String {
        read_gaps(text).unwrap_err().to_string()
    }

    #[test]
    fn trace_is_parsed_with_and_without_units() {
        let text = "# of a router\n1600\n\n 1.6us # the second\r\n0\n2ms\n";
        assert_eq!(read_gaps(text), Ok([1_600, 1_600, 0, 2_000_000].map(Nanos).to_vec()));
    }

    #[test]
    fn invalid_gap_is_reported_with_its_line() {
        assert_eq!(
            error_text("1\n#\n1.5\n"),
            "line 3: '1.5' is not a gap; write it like 1600 (nanoseconds) or 1.6us"
        );
        assert_eq!(
            error_text("1\n-3us"),
            "line 2: gap -3us is negative; packets must be in order of time"
        );
        assert!(error_text(&"ü".repeat(9_000)).len() < 200);
        assert!(error_text("\n# nothing\n").contains("the trace contains no gaps"));
    }

    #[test]
    fn too_long_trace_is_refused_at_the_first_excess_line() {
        let read = |text| read_at_most(text, 4);
        assert_eq!(read("1\n1\n1").unwrap().len(), 3);
        assert_eq!(read("1\n1\n#\n1\n1"), Err(GapsLineError::TooMany { line: 5, max_packets: 4 }));
    }

    proptest! {
        #[test]
        fn printed_quantity_is_parsed_back(
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
        fn any_text_is_parsed_without_panic(text in "(\\PC|\n|[0-9.#-]|ns|us)*") {
            let _ = read_gaps(&text);
        }
    }
}
