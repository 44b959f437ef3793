//! The summary object `dwell.summary/1`: the one object that `--json` prints, described by
//! `docs/schema/dwell.summary-1.schema.json`.
//!
//! Times are nanoseconds and say so in their names. A value that could not be had is null, never
//! absent and never zero. The order of keys is fixed.

use std::collections::BTreeMap;

use dwell_engine::stamps::Rung;
use dwell_stats::RoundTrip;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::environment::Environment;
use crate::trust::Trust;

/// What one command found out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "dwell.summary/1")]
pub struct Summary {
    /// The command.
    pub kind: Kind,
    /// What was measured, answered or loaded: a URL; of several, all, separated by blanks.
    pub target: String,
    /// What was asked for, by name and with the unit in the name: scalars or lists of them.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// What became of the probes; null for a command that sends none.
    pub packets: Option<Packets>,
    /// Distributions by name; see [`metrics`].
    pub metrics: BTreeMap<String, Figures>,
    /// Scalar results and counters by name; null where not to be had. See [`values`].
    pub values: BTreeMap<String, Option<Scalar>>,
    /// Which stamps the delays are made of.
    pub stamps: Stamps,
    /// What moved the packets, such as `udp` or `icmp-raw`.
    pub engine: String,
    /// Of packets that were to leave on time: each train, in the order in which they left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trains: Vec<Train>,
    /// Reasons to trust the numbers, or not to.
    pub trust: Trust,
    /// The machine it ran on.
    pub environment: Environment,
}

/// The parameter that says of an imported segment that its end is missing.
pub const CUT_SHORT: &str = "cut_short";

/// The command that a summary is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `dwell ping`
    Ping,
    /// `dwell reflect`
    Reflect,
    /// `dwell load`
    Load,
    /// `dwell relay`
    Relay,
    /// `dwell trace`
    Trace,
    /// `dwell pace`
    Pace,
    /// What another program measured, and `dwell import` read.
    Import,
}

/// How punctual the packets of one train were, as the verdict on a rate needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// Bits per second by S2's equation (1); null where a stamp is missing.
    pub rate_bps: Option<f64>,
    /// 95th percentile of |gap - scheduled gap|; null where the gaps are too few.
    pub gap_error_p95_ns: Option<i64>,
    /// There is a hole longer than a gap, which was not caught up with.
    pub holed: bool,
}

/// What became of the probes: sent = received + lost + late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Probes sent, without those of the warm-up.
    pub sent: u64,
    /// Answered within the time-out.
    pub received: u64,
    /// Not answered.
    pub lost: u64,
    /// Answered after the time-out.
    pub late: u64,
    /// Extra replies.
    pub duplicate: u64,
    /// Received ones whose reply came after that of a later probe.
    pub reordered: u64,
    /// Could not be sent; not among the sent.
    pub send_failed: u64,
}

/// A distribution in nanoseconds: whole numbers where observed, null where the count does not
/// support the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How many values there are.
    pub count: u64,
    /// The smallest.
    pub min: Option<i64>,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Sample standard deviation (n - 1).
    pub stddev: Option<f64>,
    /// Nearest-rank percentiles.
    pub p50: Option<i64>,
    /// See `p50`.
    pub p90: Option<i64>,
    /// See `p50`.
    pub p95: Option<i64>,
    /// See `p50`.
    pub p99: Option<i64>,
    /// See `p50`.
    pub p99_9: Option<i64>,
    /// The largest.
    pub max: Option<i64>,
}

/// A scalar result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A number of things.
    Count(u64),
    /// Anything else; not finite is written as null.
    Real(f64),
}

/// Which stamps the delays are made of: the rung at which each was delivered, null for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps {
    /// The deepest stamps of packets sent.
    #[serde(serialize_with = "rung_name", deserialize_with = "rung_named")]
    pub tx: Option<Rung>,
    /// The deepest stamps of packets received.
    #[serde(serialize_with = "rung_name", deserialize_with = "rung_named")]
    pub rx: Option<Rung>,
    /// The rung of our own stamps in the metrics that also use the far end's: one-way delay, IPDV
    /// by direction, round trip without residence.
    #[serde(serialize_with = "rung_name", deserialize_with = "rung_named")]
    pub near: Option<Rung>,
}

impl Summary {
    /// The object as text on several lines, with a line feed at its end.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("string keys and plain values serialise");
        text.push('\n');
        text
    }

    /// Reads an object back. Refuses another kind of object, and a version that is newer than this.
    pub fn from_json(text: &[u8]) -> Result<Self, SummaryError> {
        #[derive(Deserialize)]
        struct Header {
            schema: String,
        }
        let Header { schema } = serde_json::from_slice(text).map_err(SummaryError::Malformed)?;
        if schema != Self::SCHEMA {
            return Err(SummaryError::Schema(schema));
        }
        serde_json::from_slice(text).map_err(SummaryError::Malformed)
    }

    /// Samples lost between the timing thread and the record; `None` where nobody told: in files of
    /// other programs, and in a segment whose end is missing, which is where it says.
    pub fn ring_dropped(&self) -> Option<u64> {
        let is_told = match (self.kind, self.engine.as_str()) {
            (Kind::Import, "segment") => !self.parameters.contains_key(CUT_SHORT),
            (Kind::Import, _) => false,
            _ => true,
        };
        is_told.then_some(self.trust.ring_dropped)
    }

    /// The name and version of the format.
    pub const SCHEMA: &'static str = "dwell.summary/1";
}

impl Scalar {
    /// As a number.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Real(real) => real,
        }
    }
}

/// A text that is no summary.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// Not JSON, or not these fields.
    #[error("not a summary")]
    Malformed(#[source] serde_json::Error),
    /// Another format.
    #[error("'{0}' is not {expected}", expected = Summary::SCHEMA)]
    Schema(String),
}

/// `metrics` of a round-trip measurement: those of which anything is known.
pub fn metrics(measured: &RoundTrip) -> BTreeMap<String, Figures> {
    measured.metrics().map(|(metric, figures)| (metric.name().to_owned(), figures.into())).collect()
}

/// `values` of a round-trip measurement.
pub fn values(measured: &RoundTrip) -> BTreeMap<String, Option<Scalar>> {
    let values = measured.values().into_iter();
    values.map(|(name, value)| (name.to_owned(), value.map(Scalar::Real))).collect()
}

impl From<dwell_stats::Packets> for Packets {
    fn from(packets: dwell_stats::Packets) -> Self {
        Self {
            sent: packets.sent(),
            received: packets.received,
            lost: packets.lost,
            late: packets.late,
            duplicate: packets.duplicate,
            reordered: packets.reordered,
            send_failed: packets.send_failed,
        }
    }
}

impl From<dwell_stats::Figures> for Figures {
    fn from(figures: dwell_stats::Figures) -> Self {
        Self {
            count: figures.count,
            min: figures.min.map(|v| v.0),
            mean: figures.mean,
            stddev: figures.stddev,
            p50: figures.p50.map(|v| v.0),
            p90: figures.p90.map(|v| v.0),
            p95: figures.p95.map(|v| v.0),
            p99: figures.p99.map(|v| v.0),
            p99_9: figures.p99_9.map(|v| v.0),
            max: figures.max.map(|v| v.0),
        }
    }
}

fn rung_name<S: Serializer>(rung: &Option<Rung>, serializer: S) -> Result<S::Ok, S::Error> {
    rung.map(Rung::name).serialize(serializer)
}

fn rung_named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rung>, D::Error> {
    let Some(name) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let rung = Rung::named(&name);
    rung.map(Some).ok_or_else(|| de::Error::custom(format!("'{name}' is no rung of stamps")))
}
