//! Parses blocks of whole lines into columns of cells.

use crate::cell::{self, Cell};
use crate::layout::{ColumnLayout, Format, Layout};
use crate::printed::Printed;
use crate::records::{closing_quote, row_len};
use crate::statistic::Statistic;
use crate::timestamp::{self, TimestampFault};

/// Cells of a block of rows.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) rows: usize,
    /// Indexed like the layout's columns; empty for text.
    pub(crate) columns: Vec<BlockColumn>,
    pub(crate) malformed: Vec<BlockFault>,
    /// Number of malformed cells beyond [`MAX_FAULTS`].
    pub(crate) more_malformed: u64,
    pub(crate) odd_times: Vec<BlockOddTime>,
    /// Rows that state statistics of the rows above, such as `mean,,491`.
    pub(crate) footers: Vec<Footer>,
    /// First rows with fewer cells than the header.
    pub(crate) short_rows: u64,
}

/// Cells of one column.
#[derive(Debug, Default)]
pub(crate) struct BlockColumn {
    /// Values; NaN for missing and malformed cells.
    pub(crate) values: Vec<f64>,
    /// Exponents of ten of the last printed digits.
    pub(crate) exponents: Vec<i8>,
    /// Number of times that end in 0.
    pub(crate) trailing_zeros: u64,
}

/// A malformed cell or row.
#[derive(Debug)]
pub(crate) struct BlockFault {
    /// Index of the row within the block.
    pub(crate) row: usize,
    pub(crate) column: Option<usize>,
    pub(crate) text: String,
    pub(crate) reason: String,
}

/// A row that states a statistic of the rows above.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) statistic: Statistic,
    /// Index of the column and printed value.
    pub(crate) cells: Vec<(usize, Printed)>,
}

/// A time with an unusual number of decimals.
#[derive(Debug)]
pub(crate) struct BlockOddTime {
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) exponent: i8,
    pub(crate) text: String,
}

/// Maximum number of faults listed per block.
const MAX_FAULTS: usize = 1_000;
/// Maximum number of footers per block.
const MAX_FOOTERS: usize = 100;
/// Maximum length of the name of a statistic.
const MAX_LABEL_LEN: usize = 24;
/// Maximum length of a cell's text in a fault.
const MAX_TEXT_LEN: usize = 60;

impl Block {
    /// Parses whole rows; the last one may lack its line feed.
    pub(crate) fn parse(bytes: &[u8], layout: &Layout) -> Self {
        let capacity = bytes.len() / (layout.columns.len() * 6).max(8);
        let column = |layout: &ColumnLayout| match layout.format {
            Format::Text => BlockColumn::default(),
            _ => BlockColumn {
                values: Vec::with_capacity(capacity),
                exponents: Vec::with_capacity(capacity),
                trailing_zeros: 0,
            },
        };
        let columns = layout.columns.iter().map(column).collect();
        let mut block = Self { columns, ..Self::default() };
        let mut at = 0;
        while at < bytes.len() {
            at = block.parse_row(bytes, at, layout);
        }
        block
    }

    /// Parses the row that starts at `at`. Returns the start of the next one.
    fn parse_row(&mut self, bytes: &[u8], start: usize, layout: &Layout) -> usize {
        match bytes[start] {
            b'\n' => return start + 1,
            b'\r' if bytes.get(start + 1).is_none_or(|next| *next == b'\n') => {
                return (start + 2).min(bytes.len());
            }
            b'#' => return start + line_len(&bytes[start..]),
            first
                if !first.is_ascii_digit()
                    && layout.columns[0].format != Format::Text
                    && self.footers.len() < MAX_FOOTERS =>
            {
                let line = &bytes[start..start + row_len(&bytes[start..])];
                if let Some(footer) = footer(line, layout) {
                    self.footers.push(footer);
                    return start + line.len();
                }
            }
            _ => {}
        }
        let mut at = start;
        let mut ended = false;
        for index in 0..layout.columns.len() {
            if ended {
                self.push(index, &layout.columns[index], b"");
                continue;
            }
            let after = self.parse_cell(bytes, at, index, layout);
            ended = after >= bytes.len() || bytes[after] == b'\n';
            at = after + 1;
            if ended && index + 1 < layout.columns.len() {
                let line = bytes[start..after].trim_ascii();
                if line.is_empty() && index == 0 {
                    // A line of spaces is no row.
                    self.undo_cell(index, &layout.columns[index]);
                    return at;
                }
                self.short_rows += 1;
            }
        }
        if !ended {
            let rest = &bytes[at..at + row_len(&bytes[at..])];
            if rest.iter().any(|byte| !byte.is_ascii_whitespace() && *byte != layout.delimiter) {
                let line = bytes[start..at + rest.len()].trim_ascii_end();
                let cells = cell::split(line, layout.delimiter).len();
                let reason =
                    format!("has {cells} cells; the header names {}", layout.columns.len());
                self.fault(None, line, reason);
            }
            at += rest.len();
        }
        self.rows += 1;
        at
    }

    /// Parses the cell that starts at `at`. Returns the position of its delimiter, line feed or the
    /// end.
    fn parse_cell(&mut self, bytes: &[u8], at: usize, index: usize, layout: &Layout) -> usize {
        let column = &layout.columns[index];
        let fast = match column.format {
            Format::Number => fast_number(bytes, at, column.number.point, layout.delimiter),
            Format::Clock if !column.dated => fast_clock(bytes, at, layout.delimiter),
            _ => None,
        };
        if let Some((value, exponent, end)) = fast
            && (column.format == Format::Number || exponent == column.typical_exponent)
        {
            let into = &mut self.columns[index];
            into.values.push(value);
            into.exponents.push(exponent);
            return end;
        }
        let rest = &bytes[at.min(bytes.len())..];
        let len = cell_len(rest, layout.delimiter);
        if column.format != Format::Text {
            self.push(index, column, &rest[..len]);
        }
        at + len
    }

    /// Adds a cell to a column.
    fn push(&mut self, index: usize, column: &ColumnLayout, text: &[u8]) {
        let missing = (f64::NAN, 0);
        let (value, exponent) = match column.format {
            Format::Text => return,
            Format::Number => match cell::number(text, &column.number) {
                Cell::Value(decimal) => (decimal.value, decimal.exponent),
                Cell::Missing => missing,
                Cell::Malformed => {
                    self.fault(Some(index), text, "is not a number".to_owned());
                    missing
                }
            },
            Format::Count(unit) => match cell::count(text, unit) {
                Some((nanos, exponent)) => (relative(nanos, column.origin), exponent),
                None if cell::is_missing(text) => missing,
                None => {
                    self.fault(Some(index), text, "is not a number".to_owned());
                    missing
                }
            },
            Format::Clock => self.clock(index, column, text).unwrap_or(missing),
        };
        let into = &mut self.columns[index];
        into.values.push(value);
        into.exponents.push(exponent);
    }

    fn clock(&mut self, index: usize, column: &ColumnLayout, text: &[u8]) -> Option<(f64, i8)> {
        let plain = cell::plain(text);
        match timestamp::parse(plain) {
            Ok(time) if time.dated == column.dated => {
                let exponent = 9 - time.decimals.min(30) as i8;
                let step = 10_i64.pow(exponent.clamp(0, 9) as u32);
                self.columns[index].trailing_zeros +=
                    u64::from(time.decimals > 0 && time.nanos / step % 10 == 0);
                if exponent != column.typical_exponent && self.odd_times.len() < MAX_FAULTS {
                    self.odd_times.push(BlockOddTime {
                        row: self.rows,
                        column: index,
                        exponent,
                        text: shortened(plain),
                    });
                }
                Some((relative(time.nanos, column.origin), exponent))
            }
            Ok(_) => {
                let reason = if column.dated { "has no date" } else { "has a date" };
                self.fault(
                    Some(index),
                    text,
                    format!("{reason}, unlike other times of the column"),
                );
                None
            }
            Err(TimestampFault::NotATime) if cell::is_missing(text) => None,
            Err(fault) => {
                self.fault(Some(index), text, fault.text());
                None
            }
        }
    }

    fn undo_cell(&mut self, index: usize, column: &ColumnLayout) {
        if column.format != Format::Text {
            self.columns[index].values.pop();
            self.columns[index].exponents.pop();
        }
    }

    fn fault(&mut self, column: Option<usize>, text: &[u8], reason: String) {
        if self.malformed.len() < MAX_FAULTS {
            let text = shortened(text.trim_ascii());
            self.malformed.push(BlockFault { row: self.rows, column, text, reason });
        } else {
            self.more_malformed += 1;
        }
    }
}

/// Reads a row whose first cell names a statistic, if that column has numbers or times.
fn footer(line: &[u8], layout: &Layout) -> Option<Footer> {
    // A cheap test first: names of statistics are short words.
    if !line.iter().take(MAX_LABEL_LEN).any(u8::is_ascii_alphabetic) {
        return None;
    }
    let cells = cell::split(line.trim_ascii_end(), layout.delimiter);
    let label = cells.iter().take(layout.columns.len()).position(|cell| !cell.is_empty())?;
    let name = std::str::from_utf8(&cells[label]).ok()?.trim_end_matches([':', '=']).trim();
    let is_text = layout.columns[label].format == Format::Text;
    let statistic = Statistic::parse(name).filter(|_| !is_text && name.len() <= MAX_LABEL_LEN)?;
    let value = |(index, text): (usize, &Vec<u8>)| {
        let column = layout.columns.get(index).filter(|column| column.format == Format::Number)?;
        let text = std::str::from_utf8(text).ok()?;
        // In the style of the column: a comma may be its decimal point.
        let plain = match cell::number(text.as_bytes(), &column.number) {
            Cell::Value(_) if column.number.point == b',' => {
                text.replace('.', "").replace(',', ".")
            }
            _ => text.to_owned(),
        };
        Some((index, Printed::parse(&plain)?))
    };
    let values: Vec<_> = cells.iter().enumerate().skip(label + 1).filter_map(value).collect();
    (!values.is_empty()).then_some(Footer { statistic, cells: values })
}

fn relative(nanos: i64, origin: i64) -> f64 {
    (i128::from(nanos) - i128::from(origin)) as f64
}

fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if text.chars().count() <= MAX_TEXT_LEN {
        return text.into_owned();
    }
    text.chars().take(MAX_TEXT_LEN).chain("...".chars()).collect()
}

/// Length of a line with its line feed.
fn line_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1)
}

/// Length of a cell, without the delimiter or the line feed. A quoted cell may contain both.
fn cell_len(bytes: &[u8], delimiter: u8) -> usize {
    if bytes.first() == Some(&b'"')
        && let Some(len) = closing_quote(&bytes[1..], |byte| byte == delimiter)
    {
        let end = 1 + len;
        let is_end = |byte: &u8| *byte == b'\n' || *byte == delimiter;
        return bytes[end..].iter().position(is_end).map_or(bytes.len(), |at| end + at);
    }
    let mut quoted = false;
    for (at, byte) in bytes.iter().enumerate() {
        match *byte {
            b'\n' => return at,
            b'"' => quoted = !quoted,
            byte if byte == delimiter && !quoted => return at,
            _ => {}
        }
    }
    bytes.len()
}

/// Whether a cell ends at `at`; returns the position of the delimiter or line feed.
#[inline(always)]
fn end_of_cell(bytes: &[u8], at: usize, delimiter: u8) -> Option<usize> {
    match bytes.get(at) {
        None | Some(b'\n') => Some(at),
        Some(byte) if *byte == delimiter => Some(at),
        Some(b'\r') if bytes.get(at + 1).is_none_or(|next| *next == b'\n') => Some(at + 1),
        _ => None,
    }
}

/// Reads a plain number of at most 15 digits, which is most of them.
#[inline(always)]
fn fast_number(bytes: &[u8], start: usize, point: u8, delimiter: u8) -> Option<(f64, i8, usize)> {
    let mut at = start;
    while bytes.get(at) == Some(&b' ') {
        at += 1;
    }
    let negative = bytes.get(at) == Some(&b'-');
    at += usize::from(negative);
    let first = at;
    let mut mantissa = 0_u64;
    while let Some(digit) = digit(bytes, at) {
        mantissa = mantissa * 10 + digit;
        at += 1;
        if at - first > 15 {
            return None;
        }
    }
    let whole = at - first;
    let mut decimals = 0;
    if bytes.get(at) == Some(&point) && point != delimiter {
        at += 1;
        let from = at;
        while let Some(digit) = digit(bytes, at) {
            mantissa = mantissa * 10 + digit;
            at += 1;
            if at - from + whole > 15 {
                return None;
            }
        }
        decimals = at - from;
    }
    if whole + decimals == 0 {
        return None;
    }
    let end = end_of_cell(bytes, at, delimiter)?;
    let magnitude = mantissa as f64 / crate::decimal::power_of_ten(decimals as i32);
    Some((if negative { -magnitude } else { magnitude }, -(decimals as i8), end))
}

/// Reads `HH:MM:SS.fff` with up to nine decimals.
#[inline(always)]
fn fast_clock(bytes: &[u8], at: usize, delimiter: u8) -> Option<(f64, i8, usize)> {
    let field = bytes.get(at..at + 8)?;
    if field[2] != b':' || field[5] != b':' {
        return None;
    }
    let two = |at: usize| Some(digit(field, at)? * 10 + digit(field, at + 1)?);
    let (hour, minute, second) = (two(0)?, two(3)?, two(6)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = (hour * 60 + minute) * 60 + second;
    let mut end = at + 8;
    let (mut fraction, mut decimals) = (0, 0);
    if bytes.get(end) == Some(&b'.') {
        end += 1;
        while let Some(digit) = digit(bytes, end) {
            fraction = fraction * 10 + digit;
            decimals += 1;
            end += 1;
            if decimals > 9 {
                return None;
            }
        }
        // A last digit of 0 is counted by the slow path.
        if decimals == 0 || fraction % 10 == 0 {
            return None;
        }
    }
    let end = end_of_cell(bytes, end, delimiter)?;
    let nanos = seconds * 1_000_000_000 + fraction * 10_u64.pow(9 - decimals);
    Some((nanos as f64, 9 - decimals as i8, end))
}

#[inline(always)]
fn digit(bytes: &[u8], at: usize) -> Option<u64> {
    let digit = bytes.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}
