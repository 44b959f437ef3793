//! A finding.

use serde::Serialize;

/// One or a few sentences about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject: `delay`, `effect-<axis>`, `loss`, `failed`, `trust` ...
    pub id: String,
    /// Plain text without markup.
    pub text: String,
}
