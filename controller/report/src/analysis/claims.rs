//! Verdicts on published claims: each passes, fails or is undecided for a run, with the value found
//! beside the published one. A failed claim is a finding about the machines of the run.

mod evidence;
mod s0;

use self::evidence::Evidence;
use crate::model::quantity::count_noun;
use crate::model::{JudgedClaims, RunData};

/// Judges the claims of a document, by its name in plans. `None` for an unknown document.
pub fn judge_claims(run: &RunData, document: &str) -> Option<JudgedClaims> {
    match document {
        "s0" => Some(JudgedClaims {
            cite: "Miya 2020",
            claims: s0::judge(run),
            left_out: left_out(run),
        }),
        _ => None,
    }
}

/// Finding about trials that claims leave out because their load missed the requested level; `None`
/// without such trials.
fn left_out(run: &RunData) -> Option<String> {
    let all = Evidence::of(run);
    let missed = all.left_out() as u64;
    let lost = match all.lost() {
        none if none.is_empty() => String::new(),
        lost => format!(" (all trials at {})", lost.join("; at ")),
    };
    (missed > 0).then(|| {
        format!(
            "In {missed} of {}, the load missed the requested level by more than 3 points{lost}. Claims \
             leave these trials out; other findings and figures include them.",
            count_noun(missed + all.trials.len() as u64, "trial")
        )
    })
}
