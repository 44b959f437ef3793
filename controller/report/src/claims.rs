//! Published claims, held against a run: each passes, fails, or cannot be told of here, with the
//! value found beside the published one. A claim that fails is a finding about this machine.

mod evidence;
mod s0;

use serde::Serialize;

use self::evidence::Evidence;
use crate::data::RunData;
use crate::quantity::things;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The run shows it.
    Pass,
    /// The run shows that it is not so here.
    Fail,
    /// What was measured does not decide it.
    CannotTell,
    /// The run did not measure what it is about.
    NotRun,
}

impl ClaimVerdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::CannotTell => "cannot tell",
            Self::NotRun => "not run",
        }
    }
}

/// A claim and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The line of the document, such as `S0.18`; with a word behind it where a line says several
    /// things.
    pub id: String,
    /// What it says, and what was found here.
    pub text: String,
    /// What became of it.
    pub verdict: ClaimVerdict,
    /// What was found, in the unit that the text names; null where nothing was.
    pub value: Option<f64>,
    /// The published value, or the limit that it is held against.
    pub limit: Option<f64>,
}

/// The claims that the run's plan names, each judged; none where it names none.
pub fn claims(run: &RunData) -> Vec<Claim> {
    match run.claims.as_deref() {
        Some("s0") => s0::judge(run),
        _ => Vec::new(),
    }
}

/// Which trials claims leave out and other sentences do not, for their stress was another than was
/// asked for; `None` without claims or such trials.
pub(crate) fn left_out(run: &RunData) -> Option<String> {
    run.claims.as_deref()?;
    let all = Evidence::of(run);
    let missed = all.left_out() as u64;
    let lost = match all.lost() {
        none if none.is_empty() => String::new(),
        lost => format!(", all of those at {} among them", lost.join("; at ")),
    };
    (missed > 0).then(|| {
        format!(
            "The stress of {missed} of {} missed what was asked by more than 3 points{lost}: claims leave \
             these trials out, other sentences and figures have them under the name of their load.",
            things(missed + all.trials.len() as u64, "trial")
        )
    })
}
