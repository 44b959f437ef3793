//! One metric of one data set, summarised for views: nothing here grows with the number of samples.

use serde::{Deserialize, Serialize};

/// One metric of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Values in rising order and how often each came; at most some thousands, true to 0.1 %.
    pub steps: Vec<Step>,
    /// The samples over time; at most a few hundred.
    pub bins: Vec<TimeBin>,
    /// Single samples to show: all of them if they are few, else the extreme ones and some at even
    /// spaces. In order of time.
    pub points: Vec<Point>,
    /// Outliers by Hampel's filter.
    pub hampel: Option<Hampel>,
}

/// A value and how often it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Nanoseconds.
    pub value_ns: i64,
    /// How many samples had it.
    pub count: u64,
}

/// What happened within a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeBin {
    /// Its beginning, in nanoseconds since the trial's first sample.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// Samples with a value.
    pub count: u64,
    /// Probes lost.
    pub lost: u64,
    /// Figures of the values; `None` where there are too few.
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
    /// In nanoseconds since the trial's first sample.
    pub at_ns: i64,
    /// The value in nanoseconds.
    pub value_ns: i64,
    /// Hampel's filter marks it.
    pub outlier: bool,
}

/// What Hampel's filter found among the samples of a trial, and how it was set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hampel {
    /// Samples on each side of the one that is judged.
    pub half_window: u32,
    /// Beyond how many scaled median absolute deviations a sample is an outlier.
    pub sigmas: f64,
    /// How many samples were judged, evenly spread stretches of them; `None` when all were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<u64>,
    /// Upper outliers among those judged.
    pub upper: u64,
    /// Lower outliers among those judged.
    pub lower: u64,
}
