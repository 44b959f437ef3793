//! Serialisation of quantities as text, such as `"10ms"`, never as bare numbers.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{BitRate, Bytes, Nanos, PacketRate, Rate, Ratio, TimeRange};

/// Visitor for text; on any other value the error shows the expected form.
struct Text<T> {
    example: &'static str,
    read: fn(&str) -> Result<T, crate::UnitError>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a quantity with a unit in quotes, like \"{}\"", self.example)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).map_err(E::custom)
    }
}

macro_rules! as_text {
    ($($quantity:ty: $example:literal),+) => {$(
        impl Serialize for $quantity {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text { example: $example, read: <$quantity>::from_str })
            }
        }
    )+};
}

as_text!(
    Nanos: "10ms",
    BitRate: "100Mbit/s",
    PacketRate: "200pps",
    Rate: "100Mbit/s",
    Bytes: "1400B",
    Ratio: "50%",
    TimeRange: "20ms..40ms"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_is_text_and_bare_number_is_refused() {
        assert_eq!(serde_json::to_string(&Nanos::from_millis(10)).unwrap(), "\"10ms\"");
        assert_eq!(serde_json::from_str::<Rate>("\"200pps\"").unwrap().to_string(), "200pps");
        let error = serde_json::from_str::<Nanos>("10").unwrap_err().to_string();
        assert!(error.contains("\"10ms\""), "{error}");
        let error = serde_json::from_str::<Bytes>("\"ten\"").unwrap_err().to_string();
        assert!(error.contains("ten"), "{error}");
    }
}
