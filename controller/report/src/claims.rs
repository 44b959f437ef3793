//! Published claims, held against a run: each passes, fails, or cannot be told of here, with the
//! value found beside the published one. A claim that fails is a finding about this machine.

mod evidence;
mod s0;

use serde::Serialize;

use self::evidence::Evidence;
use crate::data::RunData;
use crate::quantity::{delay, share, things, three_digits};

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

/// In what the value and the limit of a claim are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimUnit {
    /// A factor.
    Times,
    /// A ratio, said as a percentage.
    Share,
    /// A number without a unit, such as R2.
    Number,
    /// Nanoseconds.
    Ns,
    /// Nanoseconds per byte.
    NsPerByte,
}

impl ClaimUnit {
    /// With the unit, as a person reads it.
    pub fn said(self, value: f64) -> String {
        match self {
            Self::Times => format!("{} times", three_digits(value)),
            Self::Share => share(value),
            Self::Number => three_digits(value),
            Self::Ns => delay(value),
            Self::NsPerByte => format!("{} ns per byte", three_digits(value)),
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
    /// What was found; null where nothing was.
    pub value: Option<f64>,
    /// What that is held against: the published value, or else dwell's own limit for the words.
    pub limit: Option<f64>,
    /// The number that the document itself has; null where it has words only.
    pub published: Option<f64>,
    /// In what these numbers are.
    pub unit: ClaimUnit,
}

impl Claim {
    /// What was found, what was published and, where that has no number, dwell's own limit, each with
    /// its unit; `-` where there is none.
    pub fn numbers(&self) -> [String; 3] {
        let own = self.limit.filter(|_| self.published.is_none());
        [self.value, self.published, own]
            .map(|number| number.map_or_else(|| "-".to_owned(), |number| self.unit.said(number)))
    }
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
