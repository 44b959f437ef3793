//! Documents with claims that a run is checked against, and with values that a report shows beside
//! those of a run. Other crates get both as plain data.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod chung_2021;
mod evidence;
mod judgement;
mod lines;
mod miya_2020;
mod miya_2020_idle;
mod mok_2015;
mod published;
mod ramstetter;
mod replay;
mod roedlach_vock;

use dwell_report::model::{Claim, JudgedClaims, Published, PublishedSender, RunData};

pub use self::lines::{LINES, Line, Status, lines_of};
pub use self::replay::{LabProgram, REPLAYS, Replay, ReplayCase, ReplayPlan};

/// A document with claims or values.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// Name in plans.
    pub name: &'static str,
    /// Other names in plans.
    pub aliases: &'static [&'static str],
    /// Author and year, as in docs/references.md.
    pub cite: &'static str,
    /// Judges the claims for a run; `None` without claims.
    pub judge: Option<fn(&RunData) -> JudgedClaims>,
    /// Values for a run; empty for other kinds of runs.
    pub published: fn(&RunData) -> Published,
}

/// All documents.
pub const DOCUMENTS: &[Document] = &[
    miya_2020::DOCUMENT,
    miya_2020_idle::DOCUMENT,
    mok_2015::DOCUMENT,
    ramstetter::DOCUMENT,
    chung_2021::DOCUMENT,
    roedlach_vock::DOCUMENT,
];

/// Documents with claims.
pub fn with_claims() -> impl Iterator<Item = &'static Document> {
    DOCUMENTS.iter().filter(|document| document.judge.is_some())
}

/// Finds a document with claims by its name in plans.
pub fn find(name: &str) -> Option<&'static Document> {
    with_claims().find(|document| document.name == name || document.aliases.contains(&name))
}

/// Judges the claims of a document, by its name in plans. `None` for an unknown document.
pub fn judge_claims(run: &RunData, name: &str) -> Option<JudgedClaims> {
    find(name)?.judge.map(|judge| judge(run))
}

/// Claims of a document, by its name in plans, for an experiment that was not run. Empty for an unknown
/// document.
pub fn claims_not_run(name: &str, reason: &str) -> Vec<Claim> {
    let claims = judge_claims(&RunData::default(), name).map_or_else(Vec::new, |all| all.claims);
    let found = format!("Not run: {reason}.");
    claims.into_iter().map(|claim| Claim { found: found.clone(), ..claim }).collect()
}

/// Returns the values of all documents that apply to a run.
pub fn published(run: &RunData) -> Published {
    let mut all = Published::default();
    DOCUMENTS.iter().for_each(|document| all.extend((document.published)(run)));
    all
}

/// Returns the boards of Mok 2015 with their verdicts, for comparison with devices.
pub fn published_boards() -> Vec<PublishedSender> {
    mok_2015::senders()
}

/// Ids and limits of all claims.
#[cfg(test)]
fn claim_limits() -> Vec<(&'static str, judgement::Limit)> {
    let documents = [
        miya_2020::limits(),
        miya_2020_idle::limits(),
        mok_2015::claims::limits(),
        ramstetter::limits(),
        chung_2021::limits(),
        roedlach_vock::limits(),
    ];
    documents.concat()
}

#[cfg(test)]
mod tests {
    use dwell_report::model::ClaimVerdict;

    use super::*;

    #[test]
    fn experiment_that_was_not_run_has_every_claim() {
        let mut ids = Vec::new();
        for document in with_claims() {
            for claim in claims_not_run(document.name, "no board") {
                assert_eq!(claim.verdict, ClaimVerdict::NotRun, "{}", claim.id);
                assert_eq!(claim.value, None, "{}", claim.id);
                assert_eq!(claim.found, "Not run: no board.", "{}", claim.id);
                ids.push(claim.id);
            }
        }
        let missing: Vec<&str> = claim_limits().into_iter().map(|(id, _)| id).collect();
        let missing: Vec<_> = missing.iter().filter(|id| !ids.iter().any(|it| it == *id)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(claims_not_run("other", "no board"), Vec::new());
    }

    #[test]
    fn documents_are_found_by_name_and_alias() {
        for name in ["miya-2020", "s0"] {
            assert_eq!(find(name).map(|document| document.cite), Some("Miya 2020"), "{name}");
        }
        assert!(find("other").is_none());
    }
}
