//! Packet size with its measure in one text, so that one axis of a plan can hold the sizes of Mok
//! 2015: `"200B"` and `"576B"` are IP packets, `"frame:1514B"` is a frame.

use std::fmt;
use std::str::FromStr;

use dwell_units::{BitRate, Bytes};
use dwell_wire::size::SizeMeasure;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A size as written in plans: `200B` or `ip:200B`, `payload:172B`, `frame:1514B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedSize {
    /// The part of the packet that the size counts.
    pub measure: SizeMeasure,
    /// Its size.
    pub bytes: Bytes,
}

/// A text that is not a packet size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid packet size '{0}'; write it like \"200B\" (IP packet), \"payload:172B\" or \
     \"frame:1514B\""
)]
pub struct NamedSizeError(String);

impl FromStr for NamedSize {
    type Err = NamedSizeError;

    fn from_str(text: &str) -> Result<Self, NamedSizeError> {
        let (name, bytes) = text.split_once(':').unwrap_or((SizeMeasure::Ip.name(), text));
        let bytes = bytes.trim().parse().ok();
        let size = SizeMeasure::named(name).zip(bytes);
        let (measure, bytes) = size.ok_or_else(|| NamedSizeError(text.to_owned()))?;
        Ok(Self { measure, bytes })
    }
}

impl fmt::Display for NamedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.measure {
            SizeMeasure::Ip => self.bytes.fmt(f),
            measure => write!(f, "{}:{}", measure.name(), self.bytes),
        }
    }
}

impl Serialize for NamedSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NamedSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = NamedSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a packet size in quotes, like \"200B\" or \"frame:1514B\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<NamedSize, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Reads bits per second. `"none"` allows pairs on an axis of rates; jobs write null.
pub(super) fn rate_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BitRate>, D::Error> {
    struct RateOrNone;

    impl Visitor<'_> for RateOrNone {
        type Value = Option<BitRate>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a rate with a unit in quotes, like \"10Mbit/s\", or \"none\"")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            if text == "none" { Ok(None) } else { text.parse().map(Some).map_err(E::custom) }
        }
    }

    deserializer.deserialize_any(RateOrNone)
}
