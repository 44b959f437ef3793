//! Printed results: a number with the step of its last digit.

use crate::decimal;
use crate::unit::Unit;

/// A printed result.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// The text as printed.
    pub text: String,
    /// Possible readings: `22,494` is a large number or a small one.
    pub readings: Vec<Reading>,
    /// Unit in the text.
    pub unit: Option<Unit>,
    /// Whether the text has a percent sign.
    pub percent: bool,
}

/// One reading of a printed number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Value.
    pub value: f64,
    /// Step of the last printed digit.
    pub step: f64,
    /// Allowed difference that the author states; at least the rounding.
    pub tolerance: f64,
}

impl Reading {
    /// Whether a value between `low` and `high` may have been printed like this: rounded to the
    /// last digit, or cut off after it.
    pub fn allows(&self, low: f64, high: f64) -> bool {
        let noise = 1e-9 * self.value.abs().max(low.abs()).max(high.abs()) + 1e-15;
        let below = (0.5 * self.step).max(self.tolerance) + noise;
        let cut = (self.step - noise).max(self.tolerance) + noise / 2.0;
        // Cutting off digits moves a number towards 0.
        let (down, up) =
            if self.value >= 0.0 { (below, cut.max(below)) } else { (cut.max(below), below) };
        low <= self.value + up && high >= self.value - down
    }

    /// The reading in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            step: self.step * factor,
            tolerance: self.tolerance * factor,
        }
    }
}

impl Printed {
    /// Parses a printed result such as `491`, `1,303.5 ms`, `491 +- 40`, `~17`, `2.5e-3`, `12 %`.
    /// A margin after a plus-minus sign is not a tolerance of rounding and is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let shown = text.trim().to_owned();
        let mut rest = shown.as_str();
        let mut is_rough = false;
        for mark in ["~", "\u{2248}", "about ", "approx. ", "ca. ", "circa ", "="] {
            if let Some(tail) = rest.strip_prefix(mark) {
                is_rough |= mark != "=";
                rest = tail.trim_start();
            }
        }
        let end = ["\u{b1}", "+-", "+/-"].iter().filter_map(|sign| rest.find(sign)).min();
        let (number, margin) = rest.split_at(end.unwrap_or(rest.len()));
        let number = number.trim();
        let digits_end = number.rfind(|c: char| c.is_ascii_digit())? + 1;
        let (digits, suffix) = number.split_at(digits_end);
        let mut suffix = suffix.trim();
        // "491 ± 40 ms": the unit follows the margin.
        let after_margin =
            margin.rfind(|c: char| c.is_ascii_digit()).map(|at| margin[at + 1..].trim());
        if suffix.is_empty() {
            suffix = after_margin.unwrap_or_default();
        }
        let percent = suffix == "%";
        let unit = Unit::parse(suffix);
        if !suffix.is_empty() && !percent && unit.is_none() {
            return None;
        }
        let mut readings: Vec<Reading> = [(b'.', b','), (b',', b'.')]
            .into_iter()
            .filter_map(|(point, thousands)| reading(digits, point, thousands))
            .map(|decimal| {
                let mut step = decimal.step();
                if is_rough && decimal.exponent == 0 {
                    step = significant_step(decimal.value);
                }
                let tolerance = if is_rough { step } else { 0.0 };
                Reading { value: decimal.value, step, tolerance }
            })
            .collect();
        readings.dedup();
        (!readings.is_empty()).then_some(Self { text: shown, readings, unit, percent })
    }

    /// The first reading, for messages.
    pub fn value(&self) -> f64 {
        self.readings.first().map_or(f64::NAN, |reading| reading.value)
    }
}

/// Step of the last digit that is not 0.
fn significant_step(value: f64) -> f64 {
    let mut step = 1.0;
    while value != 0.0 && value % (step * 10.0) == 0.0 {
        step *= 10.0;
    }
    step
}

/// Reads digits with this point and this separator of thousands, which may be absent.
fn reading(digits: &str, point: u8, thousands: u8) -> Option<decimal::Decimal> {
    let point_char = char::from(point);
    let whole = digits.split(point_char).next()?;
    let separators = [char::from(thousands), ' ', '\'', '\u{a0}', '\u{202f}', '_'];
    let separator = separators.into_iter().find(|separator| whole.contains(*separator));
    let text = match separator {
        Some(separator) => {
            let mut groups = whole.trim_start_matches(['-', '+']).split(separator);
            let first = groups.next()?;
            if first.is_empty() || first.len() > 3 || !groups.all(|group| group.len() == 3) {
                return None;
            }
            digits.replace(separator, "")
        }
        None => digits.to_owned(),
    };
    decimal::parse(text.replace('\u{2212}', "-").as_bytes(), point)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<f64> {
        Printed::parse(text).unwrap().readings.iter().map(|reading| reading.value).collect()
    }

    #[test]
    fn printed_numbers_are_read_as_authors_write_them() {
        assert_eq!(values("491"), [491.0]);
        assert_eq!(values("491 \u{b1} 40 ms"), [491.0]);
        assert_eq!(Printed::parse("491 \u{b1} 40 ms").unwrap().unit, Some(Unit::Millis));
        assert_eq!(values("22,494"), [22_494.0, 22.494]);
        assert_eq!(values("1,303.5"), [1_303.5]);
        assert_eq!(values("1303,5"), [1_303.5]);
        assert_eq!(values("50.000"), [50.0, 50_000.0]);
        assert_eq!(values("2.5e-3"), [0.002_5]);
        assert_eq!(values("12 345.6"), [12_345.6]);
        assert!(Printed::parse("12 %").unwrap().percent);
        assert_eq!(Printed::parse("~1500").unwrap().readings[0].step, 100.0);
        assert!(Printed::parse("fast").is_none() && Printed::parse("5 parsec").is_none());
    }

    #[test]
    fn rounded_and_cut_numbers_are_allowed_and_others_are_not() {
        let reading = |text: &str| Printed::parse(text).unwrap().readings[0];
        let allows = |text: &str, value: f64| reading(text).allows(value, value);
        assert!(allows("1303.5", 1_303.461_5), "rounded");
        assert!(allows("712.4", 712.461_5), "cut off");
        assert!(allows("602", 601.5), "rounded half up");
        assert!(!allows("491", 496.0) && !allows("491", 490.4) && !allows("491", 492.0));
        assert!(allows("-2.5", -2.59) && !allows("-2.5", -2.4));
        assert!(allows("0.1", 0.15), "cut off");
    }
}
