//! JSON objects and lists read one element at a time, so that files need not fit into memory.

use std::fmt;
use std::io::BufRead;
use std::marker::PhantomData;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor,
};

use crate::{Format, ImportError};

/// Deserialises a list by passing each element to a closure.
pub(crate) struct Each<F, T>(F, PhantomData<T>);

impl<F: FnMut(T), T> Each<F, T> {
    pub(crate) fn new(each: F) -> Self {
        Self(each, PhantomData)
    }
}

impl<'de, F: FnMut(T), T: DeserializeOwned> DeserializeSeed<'de> for Each<F, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(T), T: DeserializeOwned> Visitor<'de> for Each<F, T> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<T>()? {
            (self.0)(element);
        }
        Ok(())
    }
}

/// Receives the fields of an object.
pub(crate) trait Fields {
    /// The object, as named in errors.
    const OBJECT: &'static str;

    /// Reads the value of `key` from `map`.
    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Deserialises an object by passing each field to `Fields`.
pub(crate) struct Object<'f, F>(pub(crate) &'f mut F);

impl<'de, F: Fields> DeserializeSeed<'de> for Object<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for Object<'_, F> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(F::OBJECT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.0.field(&key, &mut map)?;
        }
        Ok(())
    }
}

/// Reads one JSON object to the end of the input.
pub(crate) fn read(
    format: Format,
    input: &mut dyn BufRead,
    fields: &mut impl Fields,
) -> Result<(), ImportError> {
    let mut json = serde_json::Deserializer::from_reader(input);
    Object(fields)
        .deserialize(&mut json)
        .and_then(|()| json.end())
        .map_err(|error| failure(format, error))
}

/// Converts an error of the JSON reader.
pub(crate) fn failure(format: Format, error: serde_json::Error) -> ImportError {
    match error.is_io() {
        true => ImportError::Read(error.into()),
        false => ImportError::Malformed { format, reason: error.to_string() },
    }
}

/// Converts a number in units of 10^`scale` nanoseconds to nanoseconds; `None` on overflow.
pub(crate) fn nanos(value: f64, scale: i32) -> Option<i64> {
    let ns = (value * 10_f64.powi(scale)).round();
    // Integers up to 2^53 are exact.
    (ns.abs() < 9e15).then_some(ns as i64)
}

/// Accepts a number or a number as text: versions of a program differ in this.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    struct Number;

    impl Visitor<'_> for Number {
        type Value = Option<f64>;

        fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
            out.write_str("a number")
        }

        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Some(value as f64))
        }

        fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
            Ok(Some(value as f64))
        }

        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            Ok(Some(value))
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            let text = text.trim().trim_end_matches('%');
            Ok(Some(text.parse().map_err(|_| E::custom("not a number"))?))
        }
    }

    deserializer.deserialize_any(Number)
}
