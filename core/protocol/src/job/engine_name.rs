//! Name of a pacing engine in jobs and plans, for `#[serde(with)]`.

use dwell_sample::PaceEngine;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes the engine's name.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(engine: &PaceEngine, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(engine.name())
}

/// Reads an engine by its name.
///
/// # Errors
/// The value is not a text, or not the name of an engine.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PaceEngine, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map_err(|_| D::Error::unknown_variant(&name, &PaceEngine::NAMES))
}
