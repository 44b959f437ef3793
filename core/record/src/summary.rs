//! The summary object `dwell.summary/1`, printed by `--json` and described by
//! `docs/schema/dwell.summary-1.schema.json`.
//!
//! Times are in nanoseconds, and their names say so. An unavailable value is null, never omitted
//! and never zero. The order of keys is fixed.

use std::collections::BTreeMap;

use dwell_sample::TimestampSource;
use dwell_stats::{ComponentFigures, RoundTrip};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::driver_stamps::DriverStamps;
use crate::environment::Environment;
use crate::spikes::Spikes;
use crate::trust::Trust;

/// Result of one command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "dwell.summary/1")]
pub struct Summary {
    /// The command.
    pub kind: Kind,
    /// URL that was measured, answered or loaded; several URLs are separated by spaces.
    pub target: String,
    /// Requested parameters by name, including the unit: scalars or lists of scalars.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Probe counts; null for a command that sends no probes.
    pub packets: Option<Packets>,
    /// Distributions by name; see [`metrics`].
    pub metrics: BTreeMap<String, Figures>,
    /// Scalar results and counters by name; null if unavailable. See [`values`].
    pub values: BTreeMap<String, Option<Scalar>>,
    /// Timestamps that delays are computed from.
    pub stamps: Stamps,
    /// Engine that moved the packets, such as `udp` or `icmp-raw`.
    pub engine: String,
    /// Paced sending: figures of each train, in order of departure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trains: Vec<Train>,
    /// Round trips above a limit and their causes, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spikes: Option<Spikes>,
    /// Timestamps of replies in the network driver, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverStamps>,
    /// Information on the reliability of the numbers.
    pub trust: Trust,
    /// The machine it ran on.
    pub environment: Environment,
}

impl Summary {
    /// Numeric parameter; `None` if it is missing or not a number.
    pub fn number(&self, parameter: &str) -> Option<f64> {
        self.parameters.get(parameter)?.as_f64()
    }

    /// Parameter that is a text; `None` if it is missing or not a text.
    pub fn text(&self, parameter: &str) -> Option<&str> {
        self.parameters.get(parameter)?.as_str()
    }

    /// Scalar result; `None` if it is missing or unavailable.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.map(Scalar::as_f64)
    }
}

/// Engine of a summary that was imported from a segment.
pub const SEGMENT: &str = "segment";

/// Parameter of an imported segment whose end is missing.
pub const CUT_SHORT: &str = "cut_short";

/// The command that produced a summary.
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
    /// `dwell import`: results of another program.
    Import,
}

/// Send-time accuracy of one train, as needed for the verdict on a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// Bits per second by equation (1) of Mok 2015; null if a timestamp is missing.
    pub rate_bps: Option<f64>,
    /// 95th percentile of |gap - scheduled gap|; null with too few gaps.
    pub gap_error_p95_ns: Option<i64>,
    /// The train has a hole longer than a gap that was not caught up.
    pub holed: bool,
}

/// Probe counts: sent = received + lost + late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Probes sent, without warm-up.
    pub sent: u64,
    /// Answered within the time-out.
    pub received: u64,
    /// Not answered.
    pub lost: u64,
    /// Answered after the time-out.
    pub late: u64,
    /// Additional replies.
    pub duplicate: u64,
    /// Received probes whose reply arrived after the reply to a later probe.
    pub reordered: u64,
    /// Probes that could not be sent; not included in `sent`.
    pub send_failed: u64,
}

/// A distribution in nanoseconds: integers for observed values, null for figures that the count
/// does not support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Number of values.
    pub count: u64,
    /// The smallest value.
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
    /// The largest value.
    pub max: Option<i64>,
}

/// A scalar result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A count.
    Count(u64),
    /// Any other number; non-finite values are written as null.
    Real(f64),
}

/// Source of the timestamps in delays: the closest to the wire that was delivered, null if none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps {
    /// The deepest timestamps of sent packets.
    #[serde(serialize_with = "source_name", deserialize_with = "source_named")]
    pub tx: Option<TimestampSource>,
    /// The deepest timestamps of received packets.
    #[serde(serialize_with = "source_name", deserialize_with = "source_named")]
    pub rx: Option<TimestampSource>,
    /// Local timestamps in metrics that also use the far end's: one-way delay, IPDV by direction,
    /// round trip without residence.
    #[serde(serialize_with = "source_name", deserialize_with = "source_named")]
    pub near: Option<TimestampSource>,
}

impl Summary {
    /// A summary without results. Of the machine, only the version of dwell is known.
    pub fn new(kind: Kind, target: impl Into<String>, engine: impl Into<String>) -> Self {
        Self {
            kind,
            target: target.into(),
            parameters: BTreeMap::new(),
            packets: None,
            metrics: BTreeMap::new(),
            values: BTreeMap::new(),
            stamps: Stamps::default(),
            engine: engine.into(),
            trains: Vec::new(),
            spikes: None,
            driver: None,
            trust: Trust::default(),
            environment: Environment::default(),
        }
    }

    /// Formats the object as multi-line text ending in a line feed.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("string keys and plain values serialise");
        text.push('\n');
        text
    }

    /// Parses an object. Rejects other objects and newer versions.
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

    /// Whether the summary was imported from a segment, which states more than files of other
    /// programs.
    pub fn is_imported_segment(&self) -> bool {
        self.kind == Kind::Import && self.engine == SEGMENT
    }

    /// Samples lost between the timing thread and the record. `None` if unknown: in files of other
    /// programs, and in a segment without its last frame, which contains the number.
    pub fn ring_dropped(&self) -> Option<u64> {
        let is_known = match self.kind {
            Kind::Import => self.is_imported_segment() && !self.parameters.contains_key(CUT_SHORT),
            _ => true,
        };
        is_known.then_some(self.trust.ring_dropped)
    }

    /// The name and version of the format.
    pub const SCHEMA: &'static str = "dwell.summary/1";
}

impl Scalar {
    /// Converts to `f64`.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Real(real) => real,
        }
    }
}

/// A text that is not a summary.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum SummaryError {
    #[error("not a summary")]
    Malformed(#[source] serde_json::Error),
    #[error("'{0}' is not {expected}", expected = Summary::SCHEMA)]
    Schema(String),
}

/// Makes the names of parameters, metrics or values owned.
pub fn by_name<'n, V>(all: impl IntoIterator<Item = (&'n str, V)>) -> BTreeMap<String, V> {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `metrics` of a round-trip measurement; those without values are omitted.
pub fn metrics(measured: &RoundTrip) -> BTreeMap<String, Figures> {
    by_name(measured.metrics().map(|(metric, figures)| (metric.name(), figures.into())))
}

/// `metrics` of the delays at one machine; those without values are omitted.
pub fn component_metrics(components: &ComponentFigures) -> BTreeMap<String, Figures> {
    by_name(components.figures().map(|(component, figures)| (component.name(), figures.into())))
}

/// `values` of a round-trip measurement.
pub fn values(measured: &RoundTrip) -> BTreeMap<String, Option<Scalar>> {
    let values = measured.values().into_iter();
    by_name(values.map(|(name, value)| (name, value.map(Scalar::Real))))
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

fn source_name<S: Serializer>(
    timestamp_source: &Option<TimestampSource>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    timestamp_source.map(TimestampSource::name).serialize(serializer)
}

fn source_named<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<TimestampSource>, D::Error> {
    let Some(name) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let timestamp_source = TimestampSource::named(&name);
    timestamp_source
        .map(Some)
        .ok_or_else(|| de::Error::custom(format!("unknown timestamp source '{name}'")))
}
