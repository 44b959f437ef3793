//! Warnings as results store them, and the macro that declares warnings.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Warning;

/// Effect of a warning on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A property of the experiment.
    Note,
    /// Read before quoting a number.
    Warning,
    /// The numbers must not be quoted.
    Invalid,
}

impl Severity {
    /// Name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Invalid => "invalid",
        }
    }
}

/// Code of warnings that were stored as text only, by dwell 0.2.0 and older.
pub const UNCLASSIFIED: &str = "unclassified";

/// A warning as written and stored: `{"code": ..., "text": ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredWarning")]
pub struct TrustWarning {
    /// Stable name.
    pub code: Cow<'static, str>,
    /// Sentence for readers, which may change between versions.
    pub text: String,
    /// Node, load or interface that the warning is about; distinguishes warnings of one code when
    /// trials are merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

/// A warning as read.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredWarning {
    /// Written by dwell 0.2.0 or older.
    Text(String),
    Coded {
        code: String,
        text: String,
        #[serde(default)]
        on: Option<String>,
    },
}

impl From<StoredWarning> for TrustWarning {
    fn from(stored: StoredWarning) -> Self {
        match stored {
            StoredWarning::Text(text) => Self { code: UNCLASSIFIED.into(), text, on: None },
            StoredWarning::Coded { code, text, on } => Self { code: code.into(), text, on },
        }
    }
}

impl TrustWarning {
    /// Severity of the code. A code that is not in [`Warning::CODES`] is a warning.
    pub fn severity(&self) -> Severity {
        let row = Warning::CODES.iter().find(|(code, _)| *code == self.code);
        row.map_or(Severity::Warning, |(_, severity)| *severity)
    }

    /// Returns the warning as one about a node or a load of several: its name precedes the text,
    /// and `on` includes it.
    #[must_use]
    pub fn about(self, name: &str) -> Self {
        let on = self.on.map_or_else(|| name.to_owned(), |on| format!("{name} {on}"));
        Self { code: self.code, text: format!("{name}: {}", self.text), on: Some(on) }
    }
}

impl fmt::Display for TrustWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Declares an enum of warnings. A row states the variant, its data, the datum that the warning is
/// about (`on`, a string), the code, the severity and the text with the data as inline arguments.
///
/// The enum gets `code`, `severity`, [`Display`](std::fmt::Display) with the text, the list
/// `CODES`, and a conversion to [`TrustWarning`]. The text is also the documentation.
#[macro_export]
macro_rules! warnings {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $(
                $variant:ident $(($($field:ident: $type:ty),+))? $(on $subject:ident)?
                    = $code:literal, $severity:ident, $text:literal;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $(#[doc = $text] $variant $(($($type),+))?,)+
        }

        impl $name {
            /// All codes with their severities, in the order of the rows.
            pub const CODES: &'static [(&'static str, $crate::Severity)] =
                &[$(($code, $crate::Severity::$severity)),+];

            /// Stable name.
            pub const fn code(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $code,)+ }
            }

            /// Effect on the numbers.
            pub const fn severity(&self) -> $crate::Severity {
                match self { $(Self::$variant { .. } => $crate::Severity::$severity,)+ }
            }

            /// The datum that the warning is about.
            #[expect(unused_variables, reason = "most data are used in the text only")]
            fn subject(&self) -> Option<&str> {
                match self {
                    $(Self::$variant $(($($field),+))? => $crate::warnings!(@on $($subject)?),)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self { $(Self::$variant $(($($field),+))? => write!(f, $text),)+ }
            }
        }

        impl From<$name> for $crate::TrustWarning {
            fn from(warning: $name) -> Self {
                let on = warning.subject().map(str::to_owned);
                Self { code: warning.code().into(), text: warning.to_string(), on }
            }
        }
    };
    (@on) => { None };
    (@on $subject:ident) => { Some(&**$subject) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_is_written_with_code_text_and_subject() {
        let drops = TrustWarning::from(Warning::NicDrops("eth0".to_owned()));
        assert_eq!((&*drops.code, drops.on.as_deref()), ("nic-drops", Some("eth0")));
        let of_node = drops.clone().about("n2");
        assert_eq!(of_node.text, format!("n2: {drops}"));
        assert_eq!(of_node.on.as_deref(), Some("n2 eth0"));
        let late = TrustWarning::from(Warning::LateReplies(3));
        let json = serde_json::to_value(&late).unwrap();
        assert_eq!(json, serde_json::json!({"code": "late-replies", "text": late.text}));
        for warning in [drops, of_node, late] {
            let json = serde_json::to_string(&warning).unwrap();
            assert_eq!(serde_json::from_str::<TrustWarning>(&json).unwrap(), warning);
        }
    }

    #[test]
    fn warning_stored_as_text_is_unclassified() {
        let read: TrustWarning = serde_json::from_str("\"a queue was long\"").unwrap();
        assert_eq!((&*read.code, read.to_string().as_str()), (UNCLASSIFIED, "a queue was long"));
        assert_eq!(read.severity(), Severity::Warning);
        assert!(serde_json::from_str::<TrustWarning>("{\"text\": \"no code\"}").is_err());
    }

    #[test]
    fn severity_follows_from_the_code() {
        let severity = |warning: Warning| {
            let severity = warning.severity();
            assert_eq!(TrustWarning::from(warning).severity(), severity);
            severity
        };
        assert_eq!(severity(Warning::OneSidedTrace), Severity::Note);
        assert_eq!(severity(Warning::LateReplies(1)), Severity::Warning);
        assert_eq!(severity(Warning::TaiMoved), Severity::Invalid);
        assert!(Severity::Note < Severity::Warning && Severity::Warning < Severity::Invalid);
    }

    #[test]
    fn codes_are_distinct_words_with_hyphens() {
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        for (at, (code, _)) in Warning::CODES.iter().enumerate() {
            assert!(code.split('-').all(is_word), "{code}");
            assert!(Warning::CODES[..at].iter().all(|(other, _)| other != code), "{code} twice");
            assert_ne!(*code, UNCLASSIFIED);
        }
    }
}
