//! Units of time.

use std::fmt;

/// A unit of time, as in column names and printed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanos,
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Unit {
    /// All units, shortest first.
    pub const ALL: [Self; 6] =
        [Self::Nanos, Self::Micros, Self::Millis, Self::Seconds, Self::Minutes, Self::Hours];

    /// Finds a unit by its symbol or English name; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.trim().to_lowercase().as_str() {
            "ns" | "nsec" | "nsecs" | "nanos" | "nanosecond" | "nanoseconds" => Self::Nanos,
            "us" | "\u{b5}s" | "\u{3bc}s" | "usec" | "usecs" | "micros" | "microsecond"
            | "microseconds" => Self::Micros,
            "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => Self::Millis,
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Seconds,
            "min" | "mins" | "minute" | "minutes" => Self::Minutes,
            "h" | "hour" | "hours" => Self::Hours,
            _ => return None,
        })
    }

    /// Symbol of the unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanos => "ns",
            Self::Micros => "us",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Minutes => "min",
            Self::Hours => "h",
        }
    }

    /// Nanoseconds per unit.
    pub const fn nanos(self) -> f64 {
        match self {
            Self::Nanos => 1.0,
            Self::Micros => 1e3,
            Self::Millis => 1e6,
            Self::Seconds => 1e9,
            Self::Minutes => 60e9,
            Self::Hours => 3_600e9,
        }
    }

    /// Factor from this unit to another.
    pub fn to(self, other: Self) -> f64 {
        self.nanos() / other.nanos()
    }

    /// Symbols of all units, for error messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_symbol_is_parsed_and_foreign_units_are_not() {
        for unit in Unit::ALL {
            assert_eq!(Unit::parse(unit.name()), Some(unit));
        }
        assert_eq!(Unit::parse("\u{b5}s"), Some(Unit::Micros));
        assert_eq!(Unit::parse("parsec"), None);
        assert_eq!(Unit::Seconds.to(Unit::Millis), 1e3);
    }
}
