//! Grammar of quantities: a decimal number followed by a unit, with or without spaces between.
//! Parsing is exact (no floating point) and printing is lossless, so dwell can parse all that it
//! prints.

use thiserror::Error;

/// Error in the text of a quantity. The message follows "invalid value for --flag: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum UnitError {
    #[error("'{text}' has no unit; write it like {example}")]
    NoUnit { text: String, example: &'static str },
    #[error("'{text}' has an unknown unit '{unit}'; write it like {example}")]
    UnknownUnit { text: String, unit: String, example: &'static str },
    #[error("'{text}' is not a number with a unit; write it like {example}")]
    NotANumber { text: String, example: &'static str },
    /// The value is too fine or too large for the quantity, or outside its limits.
    #[error("'{text}' is out of range: {limit}")]
    OutOfRange { text: String, limit: &'static str },
}

/// One unit: its spelling and its size in the quantity's base unit.
pub(crate) type Unit = (&'static str, u64);

/// Parses `text` as a non-negative decimal number and one of `units`, and returns the value in the
/// base unit. A value that is not a whole number of base units is out of range.
pub(crate) fn parse(
    text: &str,
    units: &[Unit],
    example: &'static str,
    limit: &'static str,
) -> Result<u64, UnitError> {
    let owned = || text.to_owned();
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim_start();
    let not_a_number = || UnitError::NotANumber { text: owned(), example };
    if number.is_empty() || number == "." {
        return Err(not_a_number());
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit { text: owned(), example });
    }
    let scale =
        units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(|| {
            UnitError::UnknownUnit { text: owned(), unit: unit.to_owned(), example }
        })?;
    let out_of_range = || UnitError::OutOfRange { text: owned(), limit };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err(not_a_number());
    }
    let fraction = fraction.trim_end_matches('0');
    // 20 digits hold every u64 and keep the products below within 128 bits.
    if whole.trim_start_matches('0').len() > 20 || fraction.len() > 15 {
        return Err(out_of_range());
    }
    let digits = |s: &str| s.bytes().fold(0_u128, |n, d| n * 10 + u128::from(d - b'0'));
    let ten = 10_u128.pow(fraction.len() as u32);
    let scaled = digits(fraction) * u128::from(scale);
    if scaled % ten != 0 {
        return Err(out_of_range());
    }
    let value = digits(whole)
        .checked_mul(u128::from(scale))
        .map(|v| v + scaled / ten)
        .ok_or_else(out_of_range)?;
    u64::try_from(value).map_err(|_| out_of_range())
}

/// Prints `value` (in base units) in the largest of `units` (sorted, largest first) that represents
/// it with at most three decimals, so that nothing is lost.
pub(crate) fn print(value: u64, units: &[Unit]) -> String {
    let (name, scale) = units
        .iter()
        .find(|(_, scale)| value >= *scale && (u128::from(value) * 1_000) % u128::from(*scale) == 0)
        .or_else(|| units.last())
        .expect("every quantity has at least one unit");
    let thousandths = u128::from(value) * 1_000 / u128::from(*scale);
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    if rest == 0 {
        format!("{whole}{name}")
    } else {
        format!("{whole}.{}{name}", format!("{rest:03}").trim_end_matches('0'))
    }
}
