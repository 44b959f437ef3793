//! Distances as text, with no more digits than their error supports.

/// Formats a distance with its error: the error rounded up to two digits if the first is 1, and to
/// one otherwise, and the distance to the same place. Above 1,000 m in kilometres.
///
/// ```
/// use dwell_stats::range::metres_with_error;
///
/// assert_eq!(metres_with_error(12.3456, 0.0712), "12.35 m +- 0.08 m");
/// assert_eq!(metres_with_error(1_234.5, 101.0), "1.23 km +- 0.11 km");
/// assert_eq!(metres_with_error(3.0, 1_798.0), "0.0 km +- 1.8 km");
/// ```
pub fn metres_with_error(value: f64, error: f64) -> String {
    let error = error.abs();
    if !value.is_finite() || !error.is_finite() {
        return "unknown".to_owned();
    }
    let (size, unit) = if value.abs().max(error) >= 1_000.0 { (1e3, "km") } else { (1.0, "m") };
    let (value, error) = (value / size, error / size);
    let place = place_of(error);
    let error = rounded_up(error, place);
    format!("{} {unit} +- {} {unit}", at_place(value, place), at_place(error, place))
}

/// Formats a length with two digits, such as a bound or a step.
///
/// ```
/// use dwell_stats::range::metres;
///
/// assert_eq!([metres(0.2342), metres(1_798.8), metres(168_234.0)], ["0.23 m", "1.8 km", "170 km"]);
/// ```
pub fn metres(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    let (size, unit) = if value.abs() >= 1_000.0 { (1e3, "km") } else { (1.0, "m") };
    let value = value / size;
    let place = if value == 0.0 { 0 } else { leading_place(value) - 1 };
    // 9.96 becomes 10, which has one decimal less.
    let place = place.max(leading_place(rounded(value, place)) - 1);
    format!("{} {unit}", at_place(value, place))
}

/// Power of ten of the last digit that an error supports. Nanometres at the finest.
fn place_of(error: f64) -> i32 {
    if error == 0.0 {
        return -9;
    }
    let leading = leading_place(error);
    let first_digit = error / 10_f64.powi(leading);
    let place = if first_digit < 2.0 { leading - 1 } else { leading };
    place.max(-9)
}

fn leading_place(value: f64) -> i32 {
    match value.abs() {
        0.0 => 0,
        value => value.log10().floor() as i32,
    }
}

fn rounded(value: f64, place: i32) -> f64 {
    let step = 10_f64.powi(place);
    (value / step).round() * step
}

/// An error is never rounded down. 1 in 10^9 allows for the representation of decimal fractions.
fn rounded_up(value: f64, place: i32) -> f64 {
    let step = 10_f64.powi(place);
    (value / step * (1.0 - 1e-9)).ceil() * step
}

fn at_place(value: f64, place: i32) -> String {
    let decimals = usize::try_from(-place).unwrap_or(0);
    let value = rounded(value, place);
    // No negative zero.
    format!("{:.decimals$}", if value == 0.0 { 0.0 } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digits_end_where_the_error_begins() {
        let cases = [
            ((7.123_456, 0.234), "7.1 m +- 0.3 m"),
            ((7.123_456, 0.117), "7.12 m +- 0.12 m"),
            ((-0.04, 0.3), "0.0 m +- 0.3 m"),
            ((952.0, 31.0), "950 m +- 40 m"),
            ((25.0, 4_100.0), "0 km +- 5 km"),
            ((12.0, 0.2), "12.0 m +- 0.2 m"),
            ((1.0, 0.0), "1.000000000 m +- 0.000000000 m"),
            ((f64::NAN, 1.0), "unknown"),
        ];
        for ((value, error), expected) in cases {
            assert_eq!(metres_with_error(value, error), expected, "{value} {error}");
        }
    }

    #[test]
    fn lengths_have_two_digits() {
        let lengths = [0.0, 0.004_99, 9.96, 0.149_9, 999.0, 1_798.0].map(metres);
        assert_eq!(lengths, ["0 m", "0.0050 m", "10 m", "0.15 m", "1000 m", "1.8 km"]);
    }

    proptest! {
        #[test]
        fn printed_error_is_at_least_the_error(value in -1e6..1e6_f64, error in 1e-6..1e6_f64) {
            let text = metres_with_error(value, error);
            let (_, printed) = text.split_once("+- ").unwrap();
            let (number, unit) = printed.split_once(' ').unwrap();
            let size = if unit == "km" { 1e3 } else { 1.0 };
            let printed = number.parse::<f64>().unwrap() * size;
            prop_assert!(printed >= error * 0.999_999, "{text}");
            prop_assert!(printed <= error * 1.51, "{text}");
        }
    }
}
