//! Decimal numbers as printed: a value and the step of its last digit.

/// A printed number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decimal {
    /// Value.
    pub value: f64,
    /// Exponent of ten of the last printed digit; -2 for `12.25`.
    pub exponent: i8,
}

impl Decimal {
    /// Value of one unit of the last printed digit.
    pub(crate) fn step(self) -> f64 {
        power_of_ten(i32::from(self.exponent))
    }
}

/// Digits of a mantissa; more digits cannot change a floating-point number.
const MAX_DIGITS: u32 = 18;

const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Ten to the power `exponent`.
pub(crate) fn power_of_ten(exponent: i32) -> f64 {
    match POWERS.get(exponent.unsigned_abs() as usize) {
        Some(power) if exponent >= 0 => *power,
        Some(power) => 1.0 / power,
        None => 10_f64.powi(exponent),
    }
}

/// Parses an optional sign, digits with at most one `point`, and an optional exponent. Returns
/// `None` for other text and for numbers beyond 1e100.
#[inline]
pub(crate) fn parse(text: &[u8], point: u8) -> Option<Decimal> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let (mut mantissa, mut count, mut used) = (0_u64, 0_u32, 0_u32);
    let (mut exponent, mut seen_point, mut at) = (0_i32, false, 0);
    while let Some(&byte) = digits.get(at) {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            count += 1;
            if used < MAX_DIGITS {
                mantissa = mantissa * 10 + u64::from(digit);
                used += u32::from(mantissa > 0);
                exponent -= i32::from(seen_point);
            } else {
                exponent += i32::from(!seen_point);
            }
        } else if byte == point && !seen_point {
            seen_point = true;
        } else if matches!(byte, b'e' | b'E') && count > 0 {
            break;
        } else {
            return None;
        }
        at += 1;
    }
    if count == 0 {
        return None;
    }
    if at < digits.len() {
        let power: i32 = std::str::from_utf8(&digits[at + 1..]).ok()?.parse().ok()?;
        exponent = exponent.checked_add(power)?;
    }
    if !(-100..=100).contains(&exponent) {
        return None;
    }
    // Dividing by an exact power rounds once, so the value is the nearest floating-point number.
    let magnitude = mantissa as f64;
    let value = match exponent {
        0 => magnitude,
        e if (-22..0).contains(&e) => magnitude / POWERS[e.unsigned_abs() as usize],
        e => magnitude * power_of_ten(e),
    };
    Some(Decimal { value: if negative { -value } else { value }, exponent: exponent as i8 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Option<(f64, i8)> {
        parse(text.as_bytes(), b'.').map(|decimal| (decimal.value, decimal.exponent))
    }

    #[test]
    fn values_have_the_step_of_their_last_digit() {
        assert_eq!(number("12.50"), Some((12.5, -2)));
        assert_eq!(number("-0.000802946"), Some((-0.000_802_946, -9)));
        assert_eq!(number("1.2e3"), Some((1_200.0, 2)));
        assert_eq!(number("+7"), Some((7.0, 0)));
        assert_eq!(parse(b"1,5", b',').map(|d| d.value), Some(1.5));
        for bad in ["", "-", ".", "1.2.3", "e5", "1e", "12ms", "1e999", "0x10", "--1"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn value_equals_that_of_the_standard_library(value in -1e12..1e12_f64, digits in 0_usize..9) {
            let text = format!("{value:.digits$}");
            let (found, wanted) = (number(&text).unwrap().0, text.parse::<f64>().unwrap());
            // Beyond 2^53 the digits are rounded twice.
            prop_assert!((found - wanted).abs() <= wanted.abs() * 2.3e-16, "{found} {wanted}");
        }
    }
}
