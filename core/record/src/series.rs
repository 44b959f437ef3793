//! Summary of one metric for plots; its size does not depend on the number of samples.

use serde::{Deserialize, Serialize};

/// One metric of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Values in increasing order with their counts; at most a few thousand, accurate to 0.1 %.
    pub steps: Vec<Step>,
    /// Figures over time; at most a few hundred bins.
    pub bins: Vec<TimeBin>,
    /// Samples to plot, in time order: all of them if they are few, otherwise the extremes and
    /// evenly spaced ones.
    pub points: Vec<Point>,
    /// Outliers found by the Hampel filter.
    pub hampel: Option<Hampel>,
}

/// A value with its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Nanoseconds.
    pub value_ns: i64,
    /// Number of samples with this value.
    pub count: u64,
}

/// Figures of one time interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeBin {
    /// Start, in nanoseconds since the trial's first sample.
    pub from_ns: i64,
    /// End, in nanoseconds since the trial's first sample.
    pub to_ns: i64,
    /// Number of samples with a value.
    pub count: u64,
    /// Number of lost probes.
    pub lost: u64,
    /// The smallest value; figures are `None` with too few values.
    pub min_ns: Option<i64>,
    /// The 1st percentile.
    pub p1_ns: Option<i64>,
    /// The median.
    pub p50_ns: Option<i64>,
    /// The 99th percentile.
    pub p99_ns: Option<i64>,
    /// The largest value.
    pub max_ns: Option<i64>,
}

/// One sample of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Time in nanoseconds since the trial's first sample.
    pub at_ns: i64,
    /// Value in nanoseconds.
    pub value_ns: i64,
    /// Marked by the Hampel filter.
    pub outlier: bool,
}

/// Result and parameters of the Hampel filter for a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hampel {
    /// Number of neighbours on either side.
    pub half_window: u32,
    /// Maximum distance in scaled median absolute deviations.
    pub sigmas: f64,
    /// Number of samples judged, in evenly spaced stretches; `None` if all were judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<u64>,
    /// Upper outliers among the judged samples.
    pub upper: u64,
    /// Lower outliers among the judged samples.
    pub lower: u64,
}
