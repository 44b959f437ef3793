//! Names of the fields of a plan's tables, from serde's derive.

use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;

/// Names of the fields of a struct that derives `Deserialize`, in the order of their declaration;
/// empty for any other type.
pub(crate) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    T::deserialize(NameReader).err().map_or(&[], |Names(names)| names)
}

/// Fails with the field names of the struct that is deserialised.
struct NameReader;

/// An error that carries field names.
#[derive(Debug)]
struct Names(&'static [&'static str]);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Names {}

impl Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for NameReader {
    type Error = Names;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Names> {
        Err(Names(fields))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Names> {
        Err(Names(&[]))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the names are read")]
    struct Named {
        count: u64,
        #[serde(rename = "ping")]
        renamed: u64,
        #[serde(skip)]
        skipped: u64,
    }

    #[test]
    fn names_are_those_of_the_file() {
        assert_eq!(field_names::<Named>(), ["count", "ping"]);
        assert_eq!(field_names::<u64>(), [""; 0]);
    }
}
