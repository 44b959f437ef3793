//! Formatting of delays, counts and shares for readers.

/// The unit of a figure or a table column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 1 ns.
    Nanosecond,
    /// 1,000 ns.
    Microsecond,
    /// 10^6 ns.
    Millisecond,
    /// 10^9 ns.
    Second,
}

impl Unit {
    /// Returns the unit that suits a typical value of this size.
    pub fn fitting(typical_ns: f64) -> Self {
        match typical_ns.abs() {
            size if size < 1e3 => Self::Nanosecond,
            size if size < 1e6 => Self::Microsecond,
            size if size < 1e9 => Self::Millisecond,
            _ => Self::Second,
        }
    }

    /// Symbol of the unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanosecond => "ns",
            Self::Microsecond => "us",
            Self::Millisecond => "ms",
            Self::Second => "s",
        }
    }

    /// Nanoseconds per unit.
    pub const fn nanos(self) -> f64 {
        match self {
            Self::Nanosecond => 1.0,
            Self::Microsecond => 1e3,
            Self::Millisecond => 1e6,
            Self::Second => 1e9,
        }
    }

    /// Converts a value to this unit, rounded to six significant digits to keep the page small.
    pub fn of(self, ns: f64) -> f64 {
        significant(ns / self.nanos(), 6)
    }

    /// Table cell with three decimals; `-` if unknown.
    pub(crate) fn cell(self, ns: Option<f64>) -> String {
        ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", self.of(ns)))
    }

    /// Table cell with an interval: `281.354 (280.912 to 282.003)`.
    pub(crate) fn cell_within(self, ns: Option<f64>, interval: Option<(f64, f64)>) -> String {
        let cell = self.cell(ns);
        match interval {
            Some((low, high)) if ns.is_some() => {
                format!("{cell} ({:.3} to {:.3})", self.of(low), self.of(high))
            }
            _ => cell,
        }
    }
}

/// Delay with its unit, to three significant digits.
pub fn delay(ns: f64) -> String {
    // Rounded first, so that 999.9 us is 1 ms and not "1000 us".
    let ns = significant(ns, 3);
    let unit = if ns == 0.0 { Unit::Microsecond } else { Unit::fitting(ns) };
    format!("{} {}", three_digits(unit.of(ns)), unit.name())
}

/// The same for whole nanoseconds.
pub(crate) fn delay_ns(ns: i64) -> String {
    delay(ns as f64)
}

/// Count with a thousands separator.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Count with its noun: `1 probe`, `2 probes`.
pub fn count_noun(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Ratio as a percentage, to three significant digits.
pub fn share(ratio: f64) -> String {
    format!("{} %", three_digits(ratio * 100.0))
}

/// Number to three significant digits.
pub fn three_digits(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let rounded = significant(value, 3);
    let size = rounded.abs();
    if size != 0.0 && !(1e-6..1e15).contains(&size) {
        return format!("{rounded:e}");
    }
    // Shortest representation, without trailing zeros.
    format!("{rounded}")
}

/// Change from `from` to `to`: a factor (`3x`) from 1.5 on, a percentage (`+4.2 %`, `-12 %`) below,
/// and `1/1,600` below a tenth. `None` unless both are positive.
pub(crate) fn compared(from: f64, to: f64) -> Option<String> {
    let ratio = to / from;
    if from <= 0.0 || ratio <= 0.0 || !ratio.is_finite() {
        return None;
    }
    let percent = significant((ratio - 1.0).abs() * 100.0, 2);
    Some(match ratio {
        1.0..1.5 => format!("+{percent} %"),
        0.1..1.0 => format!("-{percent} %"),
        ..0.1 => format!("1/{}", count(significant(1.0 / ratio, 2) as u64)),
        ratio => format!("{}x", significant(ratio, 2)),
    })
}

/// Enumeration: `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Capitalises the first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Rounds to `digits` significant digits.
pub(crate) fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let decimals = digits - 1 - value.abs().log10().floor() as i32;
    // Negative powers of ten are not exact: divide instead of multiplying by a fraction.
    if decimals >= 0 {
        let scale = 10f64.powi(decimals.min(300));
        (value * scale).round() / scale
    } else {
        let scale = 10f64.powi(-decimals);
        (value / scale).round() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_rounds_before_choosing_unit() {
        let texts = [
            (0.0, "0 us"),
            (85.0, "85 ns"),
            (281_354.2, "281 us"),
            (999_400.0, "999 us"),
            (999_600.0, "1 ms"),
            (3_256_449.0, "3.26 ms"),
            (12_267_000.0, "12.3 ms"),
            (1.5e9, "1.5 s"),
            (-4_210.0, "-4.21 us"),
        ];
        for (ns, text) in texts {
            assert_eq!(delay(ns), text);
        }
    }

    #[test]
    fn counts_shares_and_changes_are_formatted() {
        assert_eq!([count(0), count(999), count(50_000)], ["0", "999", "50,000"]);
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(share(0.00123456), "0.123 %");
        assert_eq!(share(1.0), "100 %");
        assert_eq!(count_noun(1, "probe"), "1 probe");
        assert_eq!(compared(334.0, 1010.0).as_deref(), Some("3x"));
        assert_eq!(compared(100.0, 104.2).as_deref(), Some("+4.2 %"));
        assert_eq!(compared(100.0, 88.0).as_deref(), Some("-12 %"));
        assert_eq!(compared(137.0, 0.0863).as_deref(), Some("1/1,600"));
        assert_eq!(compared(100.0, 30.0).as_deref(), Some("-70 %"));
        assert_eq!(compared(0.0, 5.0), None);
    }
}
