//! Names of nodes, schedule entries and protocols in records.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum length of a name in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// Name of a node, of a schedule entry or of a protocol: 1 to [`MAX_NAME_LEN`] ASCII letters, digits,
/// `-`, `_`, `.` and `+`, not first `-` or `.`. Names of devices are names of nodes.
///
/// ```
/// use dwell_rollup::Name;
///
/// assert_eq!("site-7.gw".parse::<Name>().unwrap().as_str(), "site-7.gw");
/// assert!("../etc".parse::<Name>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Name(Box<str>);

/// Text that is not a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid name '{0}': use letters, digits, '-', '_', '.' and '+', not first '-' or '.', at most \
     {MAX_NAME_LEN}"
)]
pub struct NameError(String);

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
        let is_name = !text.is_empty()
            && text.len() <= MAX_NAME_LEN
            && text.bytes().all(allowed)
            && !text.starts_with(['-', '.']);
        if is_name {
            return Ok(Self(text.into()));
        }
        // The text may be of any length.
        Err(NameError(text.chars().take(MAX_NAME_LEN + 1).collect()))
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.into()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_limited_to_safe_text() {
        for name in ["n1", "text+udp", "a.b-c_d", &"x".repeat(MAX_NAME_LEN)] {
            assert_eq!(name.parse::<Name>().unwrap().to_string(), name);
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "ä", &"x".repeat(MAX_NAME_LEN + 1)] {
            assert!(name.parse::<Name>().is_err(), "{name}");
        }
        assert!(serde_json::from_str::<Name>("\"a/b\"").is_err());
    }
}
