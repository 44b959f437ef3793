//! Values of a matrix axis: a list, or a range with a step.

use std::collections::HashMap;
use std::fmt;

use dwell_units::{BitRate, Bytes, Nanos, PacketRate, Ratio};
use serde::Deserialize;
use toml::Value;

use crate::path::Path;

/// Maximum number of values per axis.
const MAX_AXIS_VALUES: i128 = 100_000;

/// A quantity in its base unit, so that ranges are exact and figures can show numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// Nanoseconds.
    Time(i64),
    /// Bit/s.
    BitRate(u64),
    /// Packets per 1,000 seconds.
    PacketRate(u64),
    /// Bytes.
    Size(u64),
    /// Parts per million.
    Ratio(u32),
    /// A plain count.
    Count(i64),
}

impl Quantity {
    /// Reads a value of a plan; `None` if it is not a quantity.
    pub fn of(value: &Value) -> Option<Self> {
        let text = match value {
            Value::Integer(count) => return Some(Self::Count(*count)),
            Value::String(text) => text,
            _ => return None,
        };
        // No text matches more than one of these grammars.
        if let Ok(time) = text.parse::<Nanos>() {
            return Some(Self::Time(time.0));
        }
        if let Ok(rate) = text.parse::<PacketRate>() {
            return Some(Self::PacketRate((rate.as_f64() * 1e3).round() as u64));
        }
        if let Ok(rate) = text.parse::<BitRate>() {
            return Some(Self::BitRate(rate.0));
        }
        if let Ok(size) = text.parse::<Bytes>() {
            return Some(Self::Size(size.0));
        }
        let ratio = text.parse::<Ratio>().ok()?;
        Some(Self::Ratio((ratio.as_f64() * 1e6).round() as u32))
    }

    /// The number in the unit of [`Self::unit`].
    pub fn number(self) -> f64 {
        match self {
            Self::Time(ns) => ns as f64,
            Self::BitRate(bps) => bps as f64,
            Self::PacketRate(millipps) => millipps as f64 / 1e3,
            Self::Size(bytes) => bytes as f64,
            Self::Ratio(ppm) => f64::from(ppm) / 1e6,
            Self::Count(count) => count as f64,
        }
    }

    /// The unit of [`Self::number`]; empty for a count.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Time(_) => "ns",
            Self::BitRate(_) => "bit/s",
            Self::PacketRate(_) => "pps",
            Self::Size(_) => "B",
            Self::Ratio(_) => "1",
            Self::Count(_) => "",
        }
    }

    fn base(self) -> i128 {
        match self {
            Self::Time(n) | Self::Count(n) => n.into(),
            Self::BitRate(n) | Self::PacketRate(n) | Self::Size(n) => n.into(),
            Self::Ratio(n) => n.into(),
        }
    }

    /// A value of the same kind as a plan writes it; `None` if it cannot be represented.
    fn with_base(self, base: i128) -> Option<Value> {
        let text = match self {
            Self::Count(_) => return Some(Value::Integer(base.try_into().ok()?)),
            Self::Time(_) => Nanos(base.try_into().ok()?).to_string(),
            Self::BitRate(_) => BitRate(base.try_into().ok()?).to_string(),
            Self::PacketRate(_) => PacketRate::from_millipps(base.try_into().ok()?).to_string(),
            Self::Size(_) => Bytes(base.try_into().ok()?).to_string(),
            Self::Ratio(_) => format!("{}%", base as f64 / 1e4),
        };
        Some(Value::String(text))
    }
}

/// The values of one axis, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisValues {
    /// Name in the plan, also the parameter name in results.
    pub name: String,
    /// Path of the field that it sets.
    pub(crate) path: Path,
    /// The values, as TOML.
    pub values: Vec<Value>,
    /// Values from the plan that an override replaced.
    pub(crate) replaced: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: Value,
    to: Value,
    step: Value,
}

impl AxisValues {
    /// Reads a list or a `{ from, to, step }`.
    ///
    /// # Errors
    /// If the value is not a valid axis.
    pub(crate) fn read(name: &str, path: Path, value: &Value) -> Result<Self, AxisError> {
        let values = match value {
            Value::Array(values) if values.is_empty() => {
                let empty = "the axis is empty; add a value or remove the axis";
                return Err(empty.to_owned().into());
            }
            Value::Array(values) => values.clone(),
            Value::Table(table) => {
                let range: Range = table.clone().try_into().map_err(|_| {
                    "a range has from, to and step, like { from = \"100B\", to = \"1400B\", \
                     step = \"100B\" }"
                        .to_owned()
                })?;
                range.values()?
            }
            _ => {
                let kinds = "an axis is a list, like [\"64B\", \"1400B\"], or a range, like \
                             { from = \"100B\", to = \"1400B\", step = \"100B\" }";
                return Err(kinds.to_owned().into());
            }
        };
        let mut seen = HashMap::new();
        for (number, value) in values.iter().enumerate() {
            let written = label(value);
            if let Some(first) = seen.insert(CanonicalValue::of(value), written.clone()) {
                let message = match first == written {
                    true => format!("{first} is listed twice; remove one"),
                    false => format!("{first} and {written} are the same; remove one"),
                };
                return Err(AxisError { element: Some(number), message });
            }
        }
        Ok(Self { name: name.to_owned(), path, values, replaced: Vec::new() })
    }

    /// Reduces the axis to this single value.
    pub(crate) fn with_single_value(self, value: Value) -> Self {
        Self { values: vec![value], replaced: self.values, ..self }
    }

    /// The values as text.
    pub fn labels(&self) -> Vec<String> {
        self.values.iter().map(label).collect()
    }

    /// Returns whether it sets a field of this table of the plan.
    pub fn sets_table(&self, table: &str) -> bool {
        self.path.first() == table
    }

    /// The values as numbers with their unit, if all are quantities of the same kind.
    pub fn numbers(&self) -> Option<(Vec<f64>, &'static str)> {
        let quantities: Vec<_> = self.values.iter().map(Quantity::of).collect::<Option<_>>()?;
        let unit = quantities.first()?.unit();
        let same = quantities.iter().all(|quantity| quantity.unit() == unit);
        same.then(|| (quantities.into_iter().map(Quantity::number).collect(), unit))
    }
}

/// Error while reading an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AxisError {
    /// Index of the wrong list element; `None` for the axis as a whole.
    pub(crate) element: Option<usize>,
    /// The problem and a valid alternative.
    pub(crate) message: String,
}

impl From<String> for AxisError {
    fn from(message: String) -> Self {
        Self { element: None, message }
    }
}

/// A value independent of its notation: 1kB equals 1000B.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CanonicalValue {
    /// Unit, and number in the smallest unit.
    Quantity(&'static str, i128),
    /// TOML text.
    Other(String),
}

impl CanonicalValue {
    pub(crate) fn of(value: &Value) -> Self {
        match Quantity::of(value) {
            Some(quantity) => Self::Quantity(quantity.unit(), quantity.base()),
            None => Self::Other(value.to_string()),
        }
    }
}

/// Display text of a value.
pub(crate) fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Range {
    fn values(&self) -> Result<Vec<Value>, String> {
        let read = |name: &str, value: &Value| {
            Quantity::of(value).ok_or_else(|| {
                format!("{name} = {value}: not a quantity, like \"100B\", \"200pps\" or 5")
            })
        };
        let (from, to) = (read("from", &self.from)?, read("to", &self.to)?);
        let step = read("step", &self.step)?;
        if from.unit() != to.unit() || from.unit() != step.unit() {
            return Err(format!(
                "from {}, to {} and step {} have different units",
                self.from, self.to, self.step
            ));
        }
        if step.base() <= 0 {
            return Err(format!("step {} must be above 0", self.step));
        }
        if to.base() < from.base() {
            return Err(format!(
                "from {} is above to {}, so the range is empty",
                self.from, self.to
            ));
        }
        let count = (to.base() - from.base()) / step.base() + 1;
        if count > MAX_AXIS_VALUES {
            return Err(format!(
                "the range has {count} values; at most {MAX_AXIS_VALUES} are possible"
            ));
        }
        (0..count)
            .map(|n| from.with_base(from.base() + n * step.base()))
            .collect::<Option<_>>()
            .ok_or_else(|| "the range has values that cannot be represented".into())
    }
}

impl fmt::Display for AxisValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.labels().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str) -> Result<AxisValues, AxisError> {
        let table: toml::Table = toml::from_str(&format!("x = {text}")).unwrap();
        AxisValues::read("x", Path::of("ping.x").unwrap(), &table["x"])
    }

    #[test]
    fn range_includes_both_ends_and_keeps_its_unit() {
        let sizes = axis(r#"{ from = "100B", to = "1400B", step = "100B" }"#).unwrap();
        assert_eq!(sizes.values.len(), 14);
        assert_eq!(sizes.labels()[0], "100B");
        assert_eq!(sizes.numbers().unwrap().0[13], 1400.0);
        let rates = axis(r#"{ from = "200pps", to = "1200pps", step = "200pps" }"#).unwrap();
        assert_eq!(rates.labels(), ["200pps", "400pps", "600pps", "800pps", "1kpps", "1.2kpps"]);
        let times = axis(r#"{ from = "1ms", to = "2ms", step = "300us" }"#).unwrap();
        assert_eq!(times.numbers().unwrap().0, [1e6, 1.3e6, 1.6e6, 1.9e6]);
        assert_eq!(axis("{ from = 1, to = 3, step = 1 }").unwrap().labels(), ["1", "2", "3"]);
    }

    #[test]
    fn invalid_axis_reports_a_valid_form() {
        for (text, word) in [
            ("[]", "empty"),
            ("5", "list"),
            (r#"{ from = "1B", to = "5B" }"#, "step"),
            (r#"{ from = "1B", to = "5ms", step = "1B" }"#, "different units"),
            (r#"{ from = "1B", to = "5B", step = "0B" }"#, "above 0"),
            (r#"{ from = "9B", to = "5B", step = "1B" }"#, "above to"),
            (r#"{ from = "1ns", to = "1s", step = "1ns" }"#, "at most"),
            (r#"["a", "b", "a"]"#, "twice"),
            (r#"["1000B", "1kB"]"#, "1000B and 1kB are the same"),
            (r#"["1000us", "1ms"]"#, "the same"),
        ] {
            let error = axis(text).unwrap_err().message;
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn axis_of_names_has_no_numbers() {
        assert_eq!(axis(r#"["none", "network"]"#).unwrap().numbers(), None);
        assert_eq!(axis(r#"["1ms", "10B"]"#).unwrap().numbers(), None);
    }
}
