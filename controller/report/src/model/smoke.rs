//! Input of a smoke timeline: delays of one pair of nodes over hours to months, by steps.

/// A pair of nodes over time. Times are nanoseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmokeSeries {
    /// Id of the figure: letters, digits and hyphens.
    pub id: String,
    /// Title.
    pub title: String,
    /// What was measured, for the line below the plot.
    pub caption: String,
    /// Start of the first step.
    pub from_ns: i64,
    /// End of the last step.
    pub to_ns: i64,
    /// Steps in ascending order, also those without records.
    pub steps: Vec<SmokeStep>,
    /// Time in which the sender or the reflector was paused, as starts and ends.
    pub pauses: Vec<(i64, i64)>,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmokeStep {
    /// Start.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Start in the table, in UTC.
    pub label: String,
    /// Probes sent, without those that a pause of the reflector explains.
    pub sent: u64,
    /// Probes lost, without those that a pause of the reflector explains.
    pub lost: u64,
    /// Share of due probes that are in the records, from 0 to 1; `None` if unknown.
    pub coverage: Option<f64>,
    /// Whether records of due probes are missing.
    pub is_gap: bool,
    /// Delays; `None` without any.
    pub delays: Option<SmokeDelays>,
}

/// Delays of a step in nanoseconds. A percentile that the number of delays does not support is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmokeDelays {
    /// Number of delays.
    pub n: u64,
    /// Smallest delay.
    pub min_ns: i64,
    /// 5th percentile.
    pub p5_ns: Option<i64>,
    /// 25th percentile.
    pub p25_ns: Option<i64>,
    /// Median.
    pub p50_ns: Option<i64>,
    /// 75th percentile.
    pub p75_ns: Option<i64>,
    /// 95th percentile.
    pub p95_ns: Option<i64>,
    /// 99th percentile.
    pub p99_ns: Option<i64>,
    /// Largest delay.
    pub max_ns: i64,
}
