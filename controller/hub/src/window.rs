//! Figures of each stream's last hour and last day, kept at ingest, so that a page of many pairs merges
//! nothing.

use dwell_rollup::{Bin, ClockQuality, ProbeCounts, RollupMetric};
use dwell_stats::Quantile;
use dwell_units::Nanos;

use crate::error::HubError;
use crate::period::{DAY_NS, Resolution};
use crate::row::Row;

dwell_units::named! {
    /// A time span that ends with the newest interval of a stream.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Window {
        /// 1 h.
        Hour = "1h",
        /// The hour of the newest interval and the 23 h before it.
        Day = "24h",
    }
}

/// Percentiles of a window, with their names.
pub const WINDOW_QUANTILES: [(&str, Quantile); 3] =
    [("p50", Quantile::P50), ("p95", Quantile::P95), ("p99", Quantile::P99)];

/// Figures of one stream in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowFigures {
    /// Start in nanoseconds since 1970.
    pub from_ns: i64,
    /// End of the newest interval of 5 min, in nanoseconds since 1970.
    pub to_ns: i64,
    /// Sum of the intervals with records, in nanoseconds.
    pub covered_ns: u64,
    /// Number of probes by outcome.
    pub counts: ProbeCounts,
    /// The clock of the sender.
    pub clock: ClockQuality,
    /// Delays, in ascending order of the metric.
    pub delays: Vec<(RollupMetric, WindowDelays)>,
}

/// Delays of one metric in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowDelays {
    /// Number of delays.
    pub n: u64,
    /// Smallest delay in nanoseconds.
    pub min_ns: i64,
    /// Largest delay in nanoseconds.
    pub max_ns: i64,
    /// Bounds in nanoseconds of the bin of each percentile of [`WINDOW_QUANTILES`]; `None` if `n` does
    /// not support it.
    pub percentiles: [Option<(i64, i64)>; WINDOW_QUANTILES.len()],
}

impl WindowDelays {
    /// The bin of a percentile of [`WINDOW_QUANTILES`], without its count.
    pub fn bin(&self, at: usize) -> Option<Bin> {
        let (low, high) = self.percentiles.get(at).copied().flatten()?;
        Some(Bin { low: Nanos(low), high: Nanos(high), count: 0 })
    }
}

/// [`WindowFigures`] as they are stored: a JSON array.
type Stored = (i64, i64, u64, [u64; 7], StoredClock, Vec<StoredDelays>);

/// Synchronised, stepped, one clock, bound.
type StoredClock = (bool, bool, bool, Option<u64>);

/// Metric, number, minimum, maximum, percentiles.
type StoredDelays = (String, u64, i64, i64, [Option<(i64, i64)>; WINDOW_QUANTILES.len()]);

impl WindowFigures {
    /// Returns the figures of merged rows.
    pub(crate) fn of(row: &Row, from_ns: i64, to_ns: i64) -> Self {
        let delays = row.delays.iter().filter_map(|(metric, delays)| {
            let bins = WINDOW_QUANTILES.map(|(_, quantile)| delays.quantile(quantile));
            let delays = WindowDelays {
                n: delays.count(),
                min_ns: delays.min()?.0,
                max_ns: delays.max()?.0,
                percentiles: bins.map(|bin| bin.map(|bin| (bin.low.0, bin.high.0))),
            };
            Some((*metric, delays))
        });
        let (covered_ns, delays) = (row.duration_ns, delays.collect());
        Self { from_ns, to_ns, covered_ns, counts: row.counts, clock: row.clock, delays }
    }

    /// Delays of a metric.
    pub fn delays(&self, metric: RollupMetric) -> Option<&WindowDelays> {
        self.delays.iter().find(|(of, _)| *of == metric).map(|(_, delays)| delays)
    }

    /// Returns the text that a database stores.
    pub fn to_json(&self) -> String {
        let ProbeCounts { sent, received, lost, late, duplicate, reordered, send_failed } =
            self.counts;
        let ClockQuality { is_synchronised, was_stepped, is_one_clock, bound_ns } = self.clock;
        let delays = self.delays.iter().map(|(metric, of)| {
            (metric.name().to_owned(), of.n, of.min_ns, of.max_ns, of.percentiles)
        });
        let stored: Stored = (
            self.from_ns,
            self.to_ns,
            self.covered_ns,
            [sent, received, lost, late, duplicate, reordered, send_failed],
            (is_synchronised, was_stepped, is_one_clock, bound_ns),
            delays.collect(),
        );
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Reads the text of [`Self::to_json`].
    ///
    /// # Errors
    /// It is another text.
    pub fn from_json(text: &str) -> Result<Self, HubError> {
        let stored: Stored =
            serde_json::from_str(text).map_err(|error| HubError::stored("window", error))?;
        let (from_ns, to_ns, covered_ns, counts, clock, delays) = stored;
        let [sent, received, lost, late, duplicate, reordered, send_failed] = counts;
        let (is_synchronised, was_stepped, is_one_clock, bound_ns) = clock;
        let delays = delays.into_iter().filter_map(|(name, n, min_ns, max_ns, percentiles)| {
            Some((RollupMetric::named(&name)?, WindowDelays { n, min_ns, max_ns, percentiles }))
        });
        Ok(Self {
            from_ns,
            to_ns,
            covered_ns,
            counts: ProbeCounts { sent, received, lost, late, duplicate, reordered, send_failed },
            clock: ClockQuality { is_synchronised, was_stepped, is_one_clock, bound_ns },
            delays: delays.collect(),
        })
    }
}

impl Window {
    /// Maximum length in nanoseconds.
    pub const fn length_ns(self) -> i64 {
        match self {
            Self::Hour => Resolution::Hour.length_ns(),
            Self::Day => DAY_NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_round_trips() {
        let delays = WindowDelays {
            n: 150,
            min_ns: -5,
            max_ns: 7_000_000,
            percentiles: [Some((1, 2)), Some((-3, -2)), None],
        };
        let figures = WindowFigures {
            from_ns: 10,
            to_ns: 20,
            covered_ns: 5,
            counts: ProbeCounts { sent: 9, received: 5, lost: 3, late: 1, ..Default::default() },
            clock: ClockQuality { bound_ns: Some(4), was_stepped: true, ..Default::default() },
            delays: vec![(RollupMetric::Rtt, delays)],
        };
        assert_eq!(WindowFigures::from_json(&figures.to_json()).unwrap(), figures);
        assert!(WindowFigures::from_json("[1]").is_err());
    }
}
