//! Verdicts on published claims: each passes, fails or is undecided for a run, with the value found
//! beside the published one. A failed claim is a finding about the machines of the run.

mod evidence;
mod s0;

use serde::Serialize;

use self::evidence::Evidence;
use crate::model::RunData;
use crate::model::quantity::{count_noun, delay, share, three_digits};

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The run confirms it.
    Pass,
    /// The run contradicts it.
    Fail,
    /// The measurements do not decide it.
    CannotTell,
    /// The run did not measure its subject.
    NotRun,
}

impl ClaimVerdict {
    /// Name of the verdict.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::CannotTell => "cannot tell",
            Self::NotRun => "not run",
        }
    }
}

/// Unit of the value and limit of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimUnit {
    /// A factor.
    Times,
    /// A ratio, printed as a percentage.
    Share,
    /// A dimensionless number, such as R2.
    Number,
    /// Nanoseconds.
    Ns,
    /// Nanoseconds per byte.
    NsPerByte,
}

impl ClaimUnit {
    /// Formats a value with the unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Times => format!("{}x", three_digits(value)),
            Self::Share => share(value),
            Self::Number => three_digits(value),
            Self::Ns => delay(value),
            Self::NsPerByte => format!("{} ns per byte", three_digits(value)),
        }
    }
}

/// A claim with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Line of the document, such as `S0.18`, with a suffix if the line makes several claims.
    pub id: String,
    /// The claim and what was found.
    pub text: String,
    /// Verdict.
    pub verdict: ClaimVerdict,
    /// Value found; null if none.
    pub value: Option<f64>,
    /// Limit of the verdict: the published number, or dwell's own where the document has none.
    pub limit: Option<f64>,
    /// Number in the document; null if it has none.
    pub published: Option<f64>,
    /// Unit of the numbers.
    pub unit: ClaimUnit,
}

impl Claim {
    /// Value found, published number and, without one, dwell's own limit, each with its unit; `-`
    /// if absent.
    pub fn numbers(&self) -> [String; 3] {
        let own = self.limit.filter(|_| self.published.is_none());
        [self.value, self.published, own]
            .map(|number| number.map_or_else(|| "-".to_owned(), |number| self.unit.text(number)))
    }
}

/// Judges the claims that the plan names; empty if it names none.
pub fn claims(run: &RunData) -> Vec<Claim> {
    match run.claims.as_deref() {
        Some("s0") => s0::judge(run),
        _ => Vec::new(),
    }
}

/// Finding about trials that claims leave out because their load missed the requested level; `None`
/// without claims or such trials.
pub(crate) fn left_out(run: &RunData) -> Option<String> {
    run.claims.as_deref()?;
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
