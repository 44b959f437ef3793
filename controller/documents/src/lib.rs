//! Documents whose claims a run is checked against. Other crates get judged claims as plain data.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod evidence;
mod judgement;
mod miya_2020;

use dwell_report::model::{JudgedClaims, RunData};

/// A document with claims.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// Name in plans.
    pub name: &'static str,
    /// Other names in plans.
    pub aliases: &'static [&'static str],
    /// Author and year, as in docs/references.md.
    pub cite: &'static str,
    /// Judges the claims for a run.
    pub judge: fn(&RunData) -> JudgedClaims,
}

/// All documents.
pub const DOCUMENTS: &[Document] = &[miya_2020::DOCUMENT];

/// Finds a document by its name in plans.
pub fn find(name: &str) -> Option<&'static Document> {
    DOCUMENTS.iter().find(|document| document.name == name || document.aliases.contains(&name))
}

/// Judges the claims of a document, by its name in plans. `None` for an unknown document.
pub fn judge_claims(run: &RunData, name: &str) -> Option<JudgedClaims> {
    find(name).map(|document| (document.judge)(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_found_by_name_and_alias() {
        for name in ["miya-2020", "s0"] {
            assert_eq!(find(name).map(|document| document.cite), Some("Miya 2020"), "{name}");
        }
        assert!(find("other").is_none());
    }
}
