//! The round-trip CSV of Roedlach/Vock (S4.2): `%10d,%11.9lf`, seconds, NaN for a failed cycle.
//!
//! Nearly all rows have 23 bytes and fixed columns. They are parsed eight digits at a time; other
//! rows go through a parser that accepts any number format. A general CSV reader would miss the goal
//! for the speed of an import (docs/performance.md).

use std::io::{self, BufRead};

use dwell_record::{Batch, Column};
use dwell_sample::State;

use crate::decimal::scaled;
use crate::sink::{FlowNumber, MAX_BATCH_ROWS, Sink};
use crate::{ImportError, Imported};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let flow = sink.only_flow();
    let mut rows = Rows::new(flow);
    let mut buffer = vec![0; BUFFER_LEN];
    // Filled bytes of the buffer, and lines read so far.
    let (mut filled, mut lines) = (0, 0_u64);
    let mut overlong = false;
    loop {
        let count = match input.read(&mut buffer[filled..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count.map_err(ImportError::Read)?,
        };
        filled += count;
        let mut rest = &buffer[..filled];
        if overlong && let Some(end) = line_end(rest) {
            (rest, overlong) = (&rest[end + 1..], false);
        }
        if overlong {
            rest = &[];
        }
        loop {
            if lines > 0 {
                let read = rows.fixed(rest, &mut sink)?;
                rest = &rest[read * ROW_LEN..];
                lines += read as u64;
            }
            let Some(end) = line_end(rest) else { break };
            rows.line(lines + 1, &rest[..end], &mut sink)?;
            rest = &rest[end + 1..];
            lines += 1;
        }
        if count == 0 {
            if !rest.is_empty() {
                rows.line(lines + 1, rest, &mut sink)?;
            }
            break;
        }
        if rest.len() == BUFFER_LEN {
            rows.line(lines + 1, rest, &mut sink)?;
            (rest, overlong) = (&[], true);
            lines += 1;
        }
        let start = filled - rest.len();
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
    rows.hand_over(&mut sink)?;
    sink.finish()
}

/// Bytes read at a time; small enough for a CPU cache.
const BUFFER_LEN: usize = 128 * 1024;

/// Length of a row with its line end.
const ROW_LEN: usize = 23;

fn line_end(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == b'\n')
}

/// Rows of the next batch.
struct Rows {
    flow: FlowNumber,
    ids: Vec<u64>,
    states: Vec<State>,
    times: Vec<i64>,
}

impl Rows {
    fn new(flow: FlowNumber) -> Self {
        Self { flow, ids: Vec::new(), states: Vec::new(), times: Vec::new() }
    }

    /// Parses fixed-column rows from the beginning of `text`. Returns their number.
    fn fixed(&mut self, text: &[u8], sink: &mut Sink) -> Result<usize, ImportError> {
        let mut read = 0;
        let (rows, _) = text.as_chunks::<ROW_LEN>();
        while read < rows.len() {
            if self.ids.len() == MAX_BATCH_ROWS {
                self.hand_over(sink)?;
            }
            let before = self.ids.len();
            self.room();
            let mut last = Id::default();
            for row in &rows[read..rows.len().min(read + MAX_BATCH_ROWS - before)] {
                let Some((id, time)) = fixed(row, &mut last) else { break };
                self.ids.push(id);
                self.times.push(time.unwrap_or(Batch::ABSENT));
                if time.is_none() {
                    self.states.resize(self.ids.len() - 1, State::Received);
                    self.states.push(State::Lost);
                }
            }
            self.states.resize(self.ids.len(), State::Received);
            let new = self.ids.len() - before;
            read += new;
            if before + new < MAX_BATCH_ROWS {
                break;
            }
        }
        Ok(read)
    }

    /// Appends a row. `None` is a failed cycle.
    fn push(&mut self, id: u64, time: Option<i64>, sink: &mut Sink) -> Result<(), ImportError> {
        if self.ids.len() == MAX_BATCH_ROWS {
            self.hand_over(sink)?;
        }
        self.room();
        self.ids.push(id);
        self.states.push(if time.is_some() { State::Received } else { State::Lost });
        self.times.push(time.unwrap_or(Batch::ABSENT));
        Ok(())
    }

    /// Reserves memory for a whole batch before its first row.
    fn room(&mut self) {
        if self.ids.capacity() == 0 {
            self.ids.reserve_exact(MAX_BATCH_ROWS);
            self.states.reserve_exact(MAX_BATCH_ROWS);
            self.times.reserve_exact(MAX_BATCH_ROWS);
        }
    }

    /// Parses a line of any format.
    #[cold]
    fn line(&mut self, number: u64, line: &[u8], sink: &mut Sink) -> Result<(), ImportError> {
        let line = line.trim_ascii();
        if line.is_empty() || (number == 1 && line == HEADER) {
            return Ok(());
        }
        match free(line) {
            Some((id, time)) => self.push(id, time, sink),
            None => {
                sink.skip(number, line);
                Ok(())
            }
        }
    }

    fn hand_over(&mut self, sink: &mut Sink) -> Result<(), ImportError> {
        let mut batch = Batch::default();
        (batch.reordered, batch.void) = (vec![false; self.ids.len()], vec![false; self.ids.len()]);
        (batch.id, batch.state) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.states));
        batch.set_column(Column::Rtt, std::mem::take(&mut self.times));
        sink.batch(self.flow, batch)
    }
}

const HEADER: &[u8] = b"id,roundtrip_time [s]";

/// The previous id as text and number. The next id usually follows it.
#[derive(Clone, Copy, Default)]
struct Id {
    high: u16,
    low: u64,
    number: u64,
}

/// Parses a fixed-column row.
#[inline]
fn fixed(row: &[u8; ROW_LEN], last: &mut Id) -> Option<(u64, Option<i64>)> {
    if row[10] != b',' || row[22] != b'\n' {
        return None;
    }
    let id = last.next(row.first_chunk()?)?;
    if row[12] == b'.' {
        let (second, last) = (row[11].wrapping_sub(b'0'), row[21].wrapping_sub(b'0'));
        let middle = eight_digits(u64::from_le_bytes(*row[13..].first_chunk()?))?;
        if second > 9 || last > 9 {
            return None;
        }
        let nanos = u64::from(second) * 1_000_000_000 + middle * 10 + u64::from(last);
        return Some((id, Some(nanos as i64)));
    }
    (&row[11..22] == b"        NaN").then_some((id, None))
}

impl Id {
    /// Parses the id of the next row.
    #[inline]
    fn next(&mut self, text: &[u8; 10]) -> Option<u64> {
        /// One in the last column, which is the highest byte.
        const LAST_DIGIT_ONE: u64 = 1 << 56;
        let high = u16::from_le_bytes(*text.first_chunk()?);
        let low = u64::from_le_bytes(*text.last_chunk()?);
        let follows = high == self.high
            && low == self.low.wrapping_add(LAST_DIGIT_ONE)
            && text[9].is_ascii_digit();
        let number = if follows { self.number + 1 } else { padded(text)? };
        *self = Self { high, low, number };
        Some(number)
    }
}

/// Parses a number of ten columns with leading spaces.
#[inline]
fn padded(text: &[u8; 10]) -> Option<u64> {
    let low = u64::from_le_bytes(*text[2..].first_chunk()?);
    // The first column is the lowest byte.
    let blanks = (low ^ BLANKS).trailing_zeros() / 8;
    let high = match [text[0], text[1]] {
        [b' ', b' '] => 0,
        _ if blanks > 0 => return None,
        [b' ', b @ b'0'..=b'9'] => u64::from(b - b'0'),
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => u64::from(a - b'0') * 10 + u64::from(b - b'0'),
        _ => return None,
    };
    if blanks == 8 {
        return None;
    }
    // A space with this bit set is a zero.
    let zeroes = (BLANKS >> 1) & ((1 << (8 * blanks)) - 1);
    Some(high * 100_000_000 + eight_digits(low | zeroes)?)
}

const BLANKS: u64 = 0x2020_2020_2020_2020;

/// Parses eight digits, the first in the lowest byte.
#[inline]
fn eight_digits(text: u64) -> Option<u64> {
    let digits = text ^ 0x3030_3030_3030_3030;
    // Adding 0x76 carries values above nine into the highest bit of their byte.
    if (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    // Combine neighbours into numbers of two, four and eight digits.
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000 << 32 | 1) >> 32)
}

/// Parses `id,seconds` in any number format. Negative times are refused.
fn free(line: &[u8]) -> Option<(u64, Option<i64>)> {
    let comma = line.iter().position(|byte| *byte == b',')?;
    let (id, time) = (line[..comma].trim_ascii(), line[comma + 1..].trim_ascii());
    let id = std::str::from_utf8(id).ok()?.parse().ok()?;
    if time.eq_ignore_ascii_case(b"nan") || time.eq_ignore_ascii_case(b"-nan") {
        return Some((id, None));
    }
    let time = scaled(time, 9).filter(|time| *time >= 0)?;
    Some((id, Some(time)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alone(row: &str) -> Option<(u64, Option<i64>)> {
        fixed(row.as_bytes().first_chunk().unwrap(), &mut Id::default())
    }

    #[test]
    fn misplaced_column_is_left_to_the_slow_parser() {
        let strays = [
            "        1 ,0.000000001\n",
            "     1   2,0.000000001\n",
            "          ,0.000000001\n",
            "1       12,0.000000001\n",
            "        12,0.00000000 \n",
            "        12,0.0000x0001\n",
            "        12, .000000001\n",
            "        12,        nan\n",
            "        12,0,000000001\n",
        ];
        for row in strays {
            assert_eq!(alone(row), None, "{row}");
        }
    }

    proptest! {
        #[test]
        fn both_parsers_read_every_regular_row(id in 0..10_000_000_000_u64, ns in 0..10_000_000_000_i64) {
            let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
            let row = format!("{id:>10},{seconds}.{rest:09}\n");
            prop_assert_eq!(alone(&row), Some((id, Some(ns))));
            prop_assert_eq!(free(row.trim().as_bytes()), Some((id, Some(ns))));
        }

        #[test]
        fn id_parsing_does_not_depend_on_the_previous_row(
            first in 0..10_000_000_000_u64,
            step in 0..12_u64,
            stray in proptest::option::weighted(0.3, (0..10_usize, "[ -~]")),
        ) {
            let mut last = Id::default();
            let first = format!("{first:>10}");
            let number = last.next(first.as_bytes().try_into().unwrap());
            prop_assert_eq!(number, first.trim().parse().ok());
            let mut second = format!("{:>10}", number.unwrap().saturating_add(step));
            if let Some((column, stray)) = stray {
                second.replace_range(column..=column, &stray);
            }
            prop_assume!(second.len() == 10);
            let text = second.as_bytes().try_into().unwrap();
            prop_assert_eq!(last.next(text), padded(text), "{} {}", first, second);
        }

        #[test]
        fn fast_parser_agrees_with_the_slow_one(row in "[ 0-9]{10}[, ][ 0-9.]{2}[0-9 x]{9}\n") {
            let fast = alone(&row);
            prop_assert!(fast.is_none() || fast == free(row.trim().as_bytes()), "{fast:?}");
        }
    }
}
