//! Stored rows: the outcome of the probes of one stream in one interval.

use dwell_rollup::{ClockQuality, DelayRollup, Incarnation, ProbeCounts, Rollup, RollupMetric};

/// Number of a stream in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub i64);

/// Number of a node in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i64);

/// A record of a node, without the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// Start of the agent.
    pub incarnation: Incarnation,
    /// Number of the record.
    pub sequence: u64,
}

impl RecordKey {
    /// Key of rows that the hub computes.
    pub const COMPUTED: Self = Self { incarnation: Incarnation(0), sequence: 0 };
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The stream.
    pub stream: StreamId,
    /// Start of the interval in nanoseconds since 1970.
    pub start_ns: i64,
    /// The record, or [`RecordKey::COMPUTED`].
    pub key: RecordKey,
    /// Sum of the intervals of its records in nanoseconds.
    pub duration_ns: u64,
    /// Version of the schedule; the newest if rows of several were merged.
    pub schedule_version: u64,
    /// Number of probes by outcome.
    pub counts: ProbeCounts,
    /// The clock of the sender.
    pub clock: ClockQuality,
    /// Delays of received probes, in ascending order of the metric.
    pub delays: Vec<(RollupMetric, DelayRollup)>,
}

impl Row {
    /// Returns the row of a record that was measured at `start_ns`.
    pub fn of(rollup: Rollup, stream: StreamId, start_ns: i64, key: RecordKey) -> Self {
        let Rollup { schedule_version, duration_ns, counts, delays, clock, .. } = rollup;
        Self { stream, start_ns, key, duration_ns, schedule_version, counts, clock, delays }
    }

    /// Delays of a metric.
    pub fn delays(&self, metric: RollupMetric) -> Option<&DelayRollup> {
        self.delays.iter().find(|(of, _)| *of == metric).map(|(_, delays)| delays)
    }

    /// Merges rows of one stream into a row of the interval that starts at `start_ns`; `None` without
    /// rows. The result does not depend on their order.
    pub fn merge<'a>(rows: impl IntoIterator<Item = &'a Self>, start_ns: i64) -> Option<Self> {
        let mut rows = rows.into_iter();
        let first = rows.next()?;
        let mut merged = Self { start_ns, key: RecordKey::COMPUTED, ..first.clone() };
        for row in rows {
            merged.duration_ns = merged.duration_ns.saturating_add(row.duration_ns);
            merged.schedule_version = merged.schedule_version.max(row.schedule_version);
            merged.counts.add(&row.counts);
            merged.clock.merge(&row.clock);
            for (metric, delays) in &row.delays {
                match merged.delays.binary_search_by_key(metric, |(of, _)| *of) {
                    Ok(at) => merged.delays[at].1.merge(delays),
                    Err(at) => merged.delays.insert(at, (*metric, delays.clone())),
                }
            }
        }
        Some(merged)
    }
}
