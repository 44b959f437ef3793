//! Claims of a document, judged for a run.

use dwell_units::BitRate;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::model::quantity::{delay, share, three_digits};

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
    /// Bits per second.
    BitsPerSecond,
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
            Self::BitsPerSecond => BitRate(value.round() as u64).to_string(),
        }
    }
}

/// Claims of a document, judged for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedClaims {
    /// Author and year, as in docs/references.md.
    pub cite: &'static str,
    /// Claims in the order of the document.
    pub claims: Vec<Claim>,
    /// Node delay by the timestamps of the document.
    pub node_delay: Option<ClaimMetric>,
    /// Sentence about trials that the claims leave out.
    pub left_out: Option<String>,
}

/// Metric of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimMetric {
    /// Name of the metric.
    pub metric: &'static str,
    /// Place of the timestamps, as a clause.
    pub words: &'static str,
}

/// A claim with its verdict. Serialised with one text, and without the interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Line of the document, such as `S0.18`, with a suffix if the line makes several claims.
    pub id: String,
    /// The claim.
    pub claim: String,
    /// The findings, in sentences.
    pub found: String,
    /// Why it failed, if the measurements show it.
    pub why: Option<String>,
    /// Verdict.
    pub verdict: ClaimVerdict,
    /// Value found; `None` if none.
    pub value: Option<f64>,
    /// Bounds of the value; `None` with too few repetitions.
    pub interval: Option<(f64, f64)>,
    /// Limit of the verdict: the published number, or dwell's own where the document has none, or where
    /// its number is no limit.
    pub limit: Option<f64>,
    /// Number in the document; `None` if it has none.
    pub published: Option<f64>,
    /// Unit of the numbers.
    pub unit: ClaimUnit,
}

impl Claim {
    /// The claim, what was found, and why it failed.
    pub fn text(&self) -> String {
        let why = self.why.as_ref().map_or_else(String::new, |why| format!(" Why: {why}."));
        format!("{} {}{why}", self.claim, self.found)
    }

    /// Value found, published number and, if it is another one, dwell's own limit, each with its unit;
    /// `-` if absent.
    pub fn numbers(&self) -> [String; 3] {
        let own = self.limit.filter(|limit| self.published != Some(*limit));
        [self.value, self.published, own]
            .map(|number| number.map_or_else(|| "-".to_owned(), |number| self.unit.text(number)))
    }

    /// Published number and dwell's own limit in words, without those that do not exist.
    pub fn against(&self) -> String {
        let [_, published, own] = self.numbers();
        let words = [("published", published), ("own limit", own)];
        let words = words.into_iter().filter(|(_, number)| number != "-");
        let words: Vec<String> = words.map(|(what, number)| format!("{what} {number}")).collect();
        words.join(", ")
    }
}

impl Serialize for Claim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Claim", 7)?;
        object.serialize_field("id", &self.id)?;
        object.serialize_field("text", &self.text())?;
        object.serialize_field("verdict", &self.verdict)?;
        object.serialize_field("value", &self.value)?;
        object.serialize_field("limit", &self.limit)?;
        object.serialize_field("published", &self.published)?;
        object.serialize_field("unit", &self.unit)?;
        object.end()
    }
}
