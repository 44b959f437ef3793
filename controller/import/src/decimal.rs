//! Decimal numbers as integers of a smaller unit, without floating point.

/// Returns `text` times 10^`scale`, rounded to the nearest integer (halves away from zero). Accepts
/// an optional sign, digits with at most one point, and an optional exponent. Returns `None` for
/// other text and on overflow.
pub(crate) fn scaled(text: &[u8], scale: i32) -> Option<i64> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let mut mantissa: i128 = 0;
    let mut shift = scale;
    let (mut digits, mut point) = (0_u32, false);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'0'..=b'9' if mantissa < MAX_MANTISSA => {
                mantissa = mantissa * 10 + i128::from(byte - b'0');
                shift = shift.checked_sub(i32::from(point))?;
                digits += 1;
            }
            // This digit cannot change the rounding. Before the point, the number cannot fit.
            b'0'..=b'9' if point => digits += 1,
            b'.' if !point => point = true,
            b'e' | b'E' if digits > 0 => break,
            _ => return None,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    if at < text.len() {
        shift = shift.checked_add(std::str::from_utf8(&text[at + 1..]).ok()?.parse().ok()?)?;
    }
    let value = shifted(mantissa, shift)?;
    i64::try_from(if negative { -value } else { value }).ok()
}

/// Larger than any 64-bit number, with room for one more digit in 128 bits.
const MAX_MANTISSA: i128 = 10_i128.pow(36);

fn shifted(mantissa: i128, shift: i32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    if shift >= 0 {
        return mantissa.checked_mul(10_i128.checked_pow(shift as u32)?);
    }
    // Less than half a unit, whatever the number of digits.
    let Some(unit) = 10_i128.checked_pow(shift.unsigned_abs()) else { return Some(0) };
    Some(mantissa / unit + i128::from(mantissa % unit >= unit - unit / 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimal_seconds_convert_exactly_to_nanoseconds() {
        assert_eq!(scaled(b"0.005618705", 9), Some(5_618_705));
        assert_eq!(scaled(b"1795247657.123456789", 9), Some(1_795_247_657_123_456_789));
        assert_eq!(scaled(b"-0.000000001", 9), Some(-1));
        assert_eq!(scaled(b"1.2e-05", 9), Some(12_000));
        assert_eq!(scaled(b"123", 6), Some(123_000_000));
        assert_eq!(scaled(b".5", 0), Some(1));
        assert_eq!(scaled(b"7.", 1), Some(70));
    }

    #[test]
    fn digits_beyond_the_unit_round_to_nearest() {
        assert_eq!(scaled(b"0.0000000014999", 9), Some(1));
        assert_eq!(scaled(b"0.0000000015", 9), Some(2));
        assert_eq!(scaled(b"-0.0000000015", 9), Some(-2));
        assert_eq!(scaled(b"0.00000000149999999999999999999999999999999999999999999", 9), Some(1));
        assert_eq!(scaled(b"3e-999", 9), Some(0));
    }

    #[test]
    fn invalid_or_too_large_number_is_refused() {
        for text in ["", "-", ".", "e5", "1e", "1.2.3", "1,5", " 1", "NaN", "inf", "0x10", "1e9999"]
        {
            assert_eq!(scaled(text.as_bytes(), 9), None, "{text}");
        }
        assert_eq!(scaled(b"9223372036.854775808", 9), None);
        assert_eq!(scaled(b"9223372036.854775807", 9), Some(i64::MAX));
        assert_eq!(scaled(&[b'9'; 400], 0), None);
    }

    proptest! {
        #[test]
        fn whole_nanoseconds_survive_being_written_as_seconds(ns in any::<i64>()) {
            let sign = if ns < 0 { "-" } else { "" };
            let ns_abs = ns.unsigned_abs();
            let text = format!("{sign}{}.{:09}", ns_abs / 1_000_000_000, ns_abs % 1_000_000_000);
            prop_assert_eq!(scaled(text.as_bytes(), 9), Some(ns));
        }

        #[test]
        fn any_bytes_are_read_without_panic(text: Vec<u8>, scale in -40..40_i32) {
            let _ = scaled(&text, scale);
        }
    }
}
