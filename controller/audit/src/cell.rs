//! Cells of a row.

use crate::decimal::{self, Decimal};
use crate::unit::Unit;

/// A cell of a column of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Empty, or a word for a missing value.
    Missing,
    Value(Decimal),
    Malformed,
}

/// How a column writes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberStyle {
    /// Decimal point.
    pub(crate) point: u8,
    /// Separator of thousands.
    pub(crate) thousands: Option<u8>,
    /// Unit after each number.
    pub(crate) suffix: Option<Unit>,
}

impl Default for NumberStyle {
    fn default() -> Self {
        Self { point: b'.', thousands: None, suffix: None }
    }
}

impl NumberStyle {
    /// Infers the style from cells of a column.
    pub(crate) fn infer<'c>(delimiter: u8, cells: impl Iterator<Item = &'c [u8]> + Clone) -> Self {
        let mut style = Self {
            suffix: cells.clone().filter(|cell| !is_missing(cell)).find_map(suffix),
            ..Self::default()
        };
        let separated = |separator: u8| {
            let parts = cells.clone().map(number_part);
            let with = parts.filter(|cell| cell.contains(&separator));
            let (with, grouped) = with.fold((0, 0), |(with, grouped), cell| {
                (with + 1, grouped + usize::from(is_grouped_by(cell, separator)))
            });
            separator != delimiter && with > 0 && grouped * 10 >= with * 9
        };
        if let Some(separator) = [b'\'', b' ', b'_'].into_iter().find(|byte| separated(*byte)) {
            let has_comma = cells.clone().map(number_part).any(|cell| cell.contains(&b','));
            style.thousands = Some(separator);
            style.point = if has_comma { b',' } else { b'.' };
            return style;
        }
        let commas = cells.clone().map(number_part).filter(|cell| cell.contains(&b','));
        let has_both = commas.clone().find(|cell| cell.contains(&b'.'));
        if let Some(cell) = has_both {
            let last = cell.iter().rfind(|byte| matches!(byte, b',' | b'.'));
            (style.point, style.thousands) =
                if last == Some(&b',') { (b',', Some(b'.')) } else { (b'.', Some(b',')) };
        } else if commas.clone().next().is_some() {
            let all_thousands = commas.clone().all(is_grouped);
            let has_points = cells.clone().map(number_part).any(|cell| cell.contains(&b'.'));
            // "22,494" in a comma-separated file, or beside numbers below 1,000 without a comma.
            let plain_small = cells.clone().map(number_part).any(|cell| {
                !cell.contains(&b',')
                    && cell.len() <= 3
                    && cell.iter().all(u8::is_ascii_digit)
                    && !cell.is_empty()
            });
            let grouped = all_thousands && (has_points || delimiter == b',' || plain_small);
            (style.point, style.thousands) =
                if grouped { (b'.', Some(b',')) } else { (b',', None) };
        }
        style
    }
}

/// The cell without a unit after it.
fn number_part(cell: &[u8]) -> &[u8] {
    let cell = plain(cell);
    let end = cell.iter().rposition(u8::is_ascii_digit).map_or(cell.len(), |at| at + 1);
    &cell[..end]
}

fn suffix(cell: &[u8]) -> Option<Unit> {
    let cell = plain(cell);
    let rest = &cell[number_part(cell).len()..];
    if !cell.first().is_some_and(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.')) {
        return None;
    }
    Unit::parse(std::str::from_utf8(rest).ok()?)
}

/// Whether digits are in groups of three after the first.
fn is_grouped(cell: &[u8]) -> bool {
    let cell = cell.strip_prefix(b"-").unwrap_or(cell);
    let mut groups = cell.split(|byte| *byte == b',');
    let first = groups.next().unwrap_or_default();
    (1..=3).contains(&first.len())
        && first != b"0"
        && groups.all(|group| group.len() == 3 && group.iter().all(u8::is_ascii_digit))
}

/// Whether the whole part of a number is in groups of three digits with this separator.
fn is_grouped_by(cell: &[u8], separator: u8) -> bool {
    let whole = cell.split(|byte| matches!(byte, b'.' | b',')).next().unwrap_or_default();
    let as_commas: Vec<u8> =
        whole.iter().map(|byte| if *byte == separator { b',' } else { *byte }).collect();
    as_commas.contains(&b',') && is_grouped(&as_commas)
}

/// The cell without spaces and quotes around it.
pub(crate) fn plain(cell: &[u8]) -> &[u8] {
    let cell = cell.trim_ascii();
    match cell {
        [b'"', inside @ .., b'"'] => inside.trim_ascii(),
        _ => cell,
    }
}

/// Words for a missing value.
const MISSING: &[&str] = &[
    "",
    "nan",
    "na",
    "n/a",
    "null",
    "none",
    "nil",
    "-",
    "--",
    "\u{2013}",
    "\u{2014}",
    "?",
    "*",
    "lost",
    "loss",
    "timeout",
    "time-out",
    "timed out",
    "missing",
    "#n/a",
    "<na>",
];

/// Whether a cell says that its value is missing.
pub(crate) fn is_missing(cell: &[u8]) -> bool {
    let cell = plain(cell);
    if cell.is_empty() {
        return true;
    }
    cell.len() <= 9
        && std::str::from_utf8(cell)
            .is_ok_and(|text| MISSING.contains(&text.to_lowercase().as_str()))
}

/// Reads a number.
pub(crate) fn number(cell: &[u8], style: &NumberStyle) -> Cell {
    let cell = plain(cell);
    if let Some(decimal) = decimal::parse(cell, style.point) {
        return Cell::Value(decimal);
    }
    if is_missing(cell) {
        return Cell::Missing;
    }
    let mut text = cell;
    // Powers of ten from the cell's unit to that of the column.
    let mut power = 0;
    if let Some(unit) = style.suffix {
        let end = number_part(cell).len();
        let own = std::str::from_utf8(&cell[end..]).ok().and_then(Unit::parse);
        let scale = own.and_then(|own| power_of_ten_between(own, unit));
        if let Some(scale) = scale {
            text = cell[..end].trim_ascii();
            power = scale;
        }
    }
    let ungrouped: Vec<u8>;
    if let Some(separator) = style.thousands.filter(|separator| text.contains(separator)) {
        let whole = text.split(|byte| *byte == style.point).next().unwrap_or_default();
        let as_commas: Vec<u8> =
            whole.iter().map(|byte| if *byte == separator { b',' } else { *byte }).collect();
        if !is_grouped(&as_commas) {
            return Cell::Malformed;
        }
        ungrouped = text.iter().copied().filter(|byte| *byte != separator).collect();
        text = &ungrouped;
    }
    let Some(decimal) = decimal::parse(text, style.point) else { return Cell::Malformed };
    let value = match power {
        0 => decimal.value,
        power if power < 0 => decimal.value / decimal::power_of_ten(-power),
        power => decimal.value * decimal::power_of_ten(power),
    };
    let exponent = (i32::from(decimal.exponent) + power).clamp(-100, 100) as i8;
    Cell::Value(Decimal { value, exponent })
}

/// The power of ten from one unit to another; `None` if it is no power of ten, as from hours.
fn power_of_ten_between(from: Unit, to: Unit) -> Option<i32> {
    let exponent = from.to(to).log10();
    let power = exponent.round();
    ((exponent - power).abs() < 1e-9).then_some(power as i32)
}

/// Reads a time that is a number of `unit`, digit by digit. Returns nanoseconds and the exponent of
/// the last digit in nanoseconds.
pub(crate) fn count(cell: &[u8], unit: Unit) -> Option<(i64, i8)> {
    let text = plain(cell);
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mut mantissa, mut decimals, mut seen_point, mut any) = (0_i128, 0_i32, false, false);
    for byte in digits {
        match byte {
            b'0'..=b'9' if mantissa < 10_i128.pow(30) => {
                mantissa = mantissa * 10 + i128::from(byte - b'0');
                decimals += i32::from(seen_point);
                any = true;
            }
            b'.' if !seen_point => seen_point = true,
            _ => {
                // An exponent, or no number at all.
                let decimal = decimal::parse(text, b'.')?;
                let nanos = decimal.value * unit.nanos();
                let step = (decimal.step() * unit.nanos()).log10().round();
                return (nanos.abs() < 9e18)
                    .then_some((nanos as i64, step.clamp(-100.0, 100.0) as i8));
            }
        }
    }
    if !any {
        return None;
    }
    // Whole nanoseconds per unit, times the mantissa, over a power of ten.
    let scaled = mantissa.checked_mul(unit.nanos() as i128)?;
    let power = 10_i128.checked_pow(decimals as u32)?;
    let nanos = i64::try_from((scaled + power / 2) / power).ok()?;
    let exponent = match unit {
        Unit::Nanos => 0,
        Unit::Micros => 3,
        Unit::Millis => 6,
        // The step of minutes and hours is rounded up to a power of ten.
        Unit::Seconds => 9,
        Unit::Minutes => 11,
        Unit::Hours => 13,
    };
    Some((if negative { -nanos } else { nanos }, (exponent - decimals).max(-100) as i8))
}

/// Splits a line at delimiters outside double quotes, and removes quotes and surrounding spaces.
pub(crate) fn split(line: &[u8], delimiter: u8) -> Vec<Vec<u8>> {
    let mut cells = vec![Vec::new()];
    let mut quoted = false;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let cell = cells.last_mut().expect("at least one cell");
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                cell.push(b'"');
                bytes.next();
            }
            b'"' if quoted => quoted = false,
            b'"' if cell.iter().all(u8::is_ascii_whitespace) => {
                cell.clear();
                quoted = true;
            }
            byte if byte == delimiter && !quoted => cells.push(Vec::new()),
            byte => cell.push(byte),
        }
    }
    cells.into_iter().map(|cell| cell.trim_ascii().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(delimiter: u8, cells: &[&str]) -> NumberStyle {
        NumberStyle::infer(delimiter, cells.iter().map(|cell| cell.as_bytes()))
    }

    fn value(cell: &str, style: &NumberStyle) -> Option<f64> {
        match number(cell.as_bytes(), style) {
            Cell::Value(decimal) => Some(decimal.value),
            _ => None,
        }
    }

    #[test]
    fn decimal_commas_and_thousands_are_distinguished() {
        let german = style(b';', &["1,5", "1.024,25"]);
        assert_eq!(value("1.024,25", &german), Some(1_024.25));
        let comma = style(b';', &["0,173", "0,499"]);
        assert_eq!(value("0,499", &comma), Some(0.499));
        let grouped = style(b'\t', &["22,494", "712"]);
        assert_eq!(value("22,494", &grouped), Some(22_494.0));
        let quoted = style(b',', &["\"1,024\"", "979"]);
        assert_eq!(value("\"1,024\"", &quoted), Some(1_024.0));
        assert_eq!(value("1,02", &quoted), None, "groups have three digits");
        for (cells, text) in
            [(["1'735", "949"], "1'735"), (["1 735.5", "12"], "1 735"), (["1_735", "8"], "1_735")]
        {
            assert_eq!(value(text, &style(b';', &cells)), Some(1_735.0), "{text}");
        }
    }

    #[test]
    fn units_after_numbers_are_read_and_others_refused() {
        let with_unit = style(b',', &["12.5 ms", "13 ms"]);
        assert_eq!(with_unit.suffix, Some(Unit::Millis));
        assert_eq!(value("13 ms", &with_unit), Some(13.0));
        assert_eq!(value("13 us", &with_unit), Some(0.013), "programs choose the unit per value");
        assert_eq!(value("13 min", &with_unit), None);
        assert_eq!(value("1O24", &NumberStyle::default()), None);
        assert!(is_missing(b" NaN ") && is_missing(b"") && !is_missing(b"abc"));
    }

    #[test]
    fn numeric_times_are_exact() {
        assert_eq!(
            count(b"1700000000.123456789", Unit::Seconds),
            Some((1_700_000_000_123_456_789, 0))
        );
        assert_eq!(
            count(b"1700000000123456789", Unit::Nanos),
            Some((1_700_000_000_123_456_789, 0))
        );
        assert_eq!(count(b"12.5", Unit::Millis), Some((12_500_000, 5)));
        assert_eq!(count(b"abc", Unit::Millis), None);
    }

    #[test]
    fn quoted_cells_keep_delimiters() {
        let cells = split(b"a,\"b,\"\"c\" , d", b',');
        assert_eq!(cells, [b"a".to_vec(), b"b,\"c".to_vec(), b"d".to_vec()]);
    }
}
