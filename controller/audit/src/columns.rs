//! Names and units of columns as a user states them.

use crate::error::AuditError;
use crate::table::Role;
use crate::unit::Unit;

/// A column that the user describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Meaning; `None` if only the unit is stated.
    pub role: Option<Role>,
    /// Name in the header, or `#N` for the N-th column.
    pub name: String,
    /// Unit of time.
    pub unit: Option<Unit>,
}

impl Mapping {
    /// Parses `ROLE=NAME[:UNIT]` or `NAME:UNIT`, several separated by commas. Single quotes protect
    /// commas, colons and equal signs in names.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, AuditError> {
        split(text, ',').iter().map(|item| Self::parse(item)).collect()
    }

    fn parse(item: &str) -> Result<Self, AuditError> {
        let wrong =
            |reason: String| AuditError::Columns(format!("invalid column '{item}': {reason}"));
        let parts = split(item, '=');
        let (role, named) = match parts.as_slice() {
            [named] => (None, named),
            [role, named] => {
                let name = role.trim().to_lowercase();
                let role = Role::parse(&name).ok_or_else(|| {
                    wrong(format!("'{name}' is not id, sent, received, latency, value or other"))
                })?;
                (Some(role), named)
            }
            _ => return Err(wrong("write ROLE=NAME or ROLE=NAME:UNIT".to_owned())),
        };
        let mut parts = split(named, ':');
        let unit = match parts.len() {
            1 => None,
            _ => parts.pop(),
        };
        let unit = unit.map(|unit| unit_or_error(&unit)).transpose().map_err(wrong)?;
        let name = unquoted(&parts.join(":"));
        if name.is_empty() || (role.is_none() && unit.is_none()) {
            return Err(wrong("write ROLE=NAME, ROLE=NAME:UNIT or NAME:UNIT".to_owned()));
        }
        Ok(Self { role, name, unit })
    }
}

/// Parses a unit; the error lists all.
pub(crate) fn unit_or_error(text: &str) -> Result<Unit, String> {
    let text = unquoted(text);
    Unit::parse(&text).ok_or_else(|| format!("unknown unit '{text}'; known: {}", Unit::names()))
}

/// Splits at a separator outside single quotes.
fn split(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '\'';
        if c == separator && !quoted {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

fn unquoted(text: &str) -> String {
    text.replace('\'', "").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_have_roles_names_and_units() {
        let parsed = Mapping::parse_list("sent=Start,latency='RTT, all':us,Delay:ms").unwrap();
        let mapping = |role, name: &str, unit| Mapping { role, name: name.to_owned(), unit };
        assert_eq!(
            parsed,
            [
                mapping(Some(Role::Sent), "Start", None),
                mapping(Some(Role::Latency), "RTT, all", Some(Unit::Micros)),
                mapping(None, "Delay", Some(Unit::Millis)),
            ]
        );
    }

    #[test]
    fn wrong_mappings_are_refused_with_the_reason() {
        for (text, words) in [
            ("latency=RTT:parsec", "known: ns, us, ms"),
            ("foo=RTT", "not id, sent"),
            ("RTT", "ROLE=NAME"),
            ("latency=", "ROLE=NAME"),
            ("a=b=c", "ROLE=NAME"),
        ] {
            let error = Mapping::parse_list(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
