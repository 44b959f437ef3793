//! Shift of a percentile between two conditions, if repetitions decide it. A trial is one
//! observation: see `dwell_stats::blocked_shift`.

use std::collections::{BTreeMap, BTreeSet};

use dwell_stats::{Block, BlockedShift, Quantile, RealInterval, blocked_shift};

use crate::analysis::group::Group;
use crate::model::TrialData;
use crate::model::quantity::{compared, delay};

/// Difference of a percentile between two groups of trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shift {
    /// Significantly different.
    Differs(Change),
    /// Equal within 5 %, significantly.
    Same,
    /// The trials scatter too much to decide.
    CannotTell(Change),
    /// Too few repetitions for an interval; `repetitions` is the maximum per condition and block.
    TooFew {
        from: f64,
        to: f64,
        repetitions: usize,
        /// Kind of mean over trials; `None` for one trial each.
        mean: Option<&'static str>,
    },
    /// Nothing is comparable.
    Unknown,
}

/// Mean percentiles of both groups, with the interval of their ratio or difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Percentile of the first group in nanoseconds.
    pub(crate) from: f64,
    /// Percentile of the second group.
    pub(crate) to: f64,
    interval: RealInterval,
    /// Whether the interval is that of a ratio; else of a difference in nanoseconds.
    relative: bool,
}

impl Change {
    /// Kind of mean over trials.
    pub(crate) fn mean(&self) -> &'static str {
        mean(self.relative)
    }

    /// Absolute logarithm of the ratio of the percentiles.
    pub(crate) fn size(&self) -> f64 {
        size(self.from, self.to)
    }

    /// Ratio of the percentiles: `3x`, `-12 %`, `1/1,600`; `None` for a difference.
    pub(crate) fn compared(&self) -> Option<String> {
        compared(self.from, self.to).filter(|_| self.relative)
    }

    /// Size of the change after "rose" or "fell": ` 3x`, ` 12 %`, ` to 1/1,600`; empty for a
    /// difference.
    pub(crate) fn ratio(&self) -> String {
        let ratio = self.compared().unwrap_or_default();
        match ratio.trim_start_matches(['+', '-']) {
            "" => String::new(),
            inverse if inverse.starts_with("1/") => format!(" to {inverse}"),
            size => format!(" {size}"),
        }
    }

    /// Interval: `95 % CI 2x to 4x`. 95 % is the confidence of all intervals of a run together; the
    /// caller says so.
    pub(crate) fn interval_text(&self) -> String {
        let RealInterval { low, high } = self.interval;
        if self.relative {
            let [low, high] = [low, high].map(|ratio| compared(1.0, ratio).unwrap_or_default());
            format!("95 % CI {low} to {high}")
        } else {
            format!("95 % CI of the difference {} to {}", delay(low), delay(high))
        }
    }
}

impl Shift {
    /// Compares a percentile over the trials of both groups. Trials form a block if their
    /// parameters except `axis` are equal; if each group has a single cell, all trials are one
    /// block. `alpha` is the probability of a false difference.
    pub(crate) fn between(
        first: &Group,
        second: &Group,
        quantile: Quantile,
        axis: Option<&str>,
        alpha: f64,
    ) -> Self {
        let blocks = blocks(first, second, quantile, axis);
        let Some(found) = blocked_shift(&blocks, 1.0 - alpha) else { return Self::Unknown };
        let BlockedShift { baseline: from, other: to, relative, .. } = found;
        let Some(interval) = found.interval else {
            let repetitions = blocks.iter().map(|block| block.a.len().min(block.b.len()));
            let repetitions = repetitions.max().unwrap_or_default();
            let mean = (found.trials != [1, 1]).then(|| mean(relative));
            return Self::TooFew { from, to, repetitions, mean };
        };
        let change = Change { from, to, interval, relative };
        match found.shift {
            dwell_stats::Shift::Rises | dwell_stats::Shift::Falls => Self::Differs(change),
            dwell_stats::Shift::CannotTell
                if relative && interval.low > 1.0 / 1.05 && interval.high < 1.05 =>
            {
                Self::Same
            }
            dwell_stats::Shift::CannotTell => Self::CannotTell(change),
        }
    }

    /// Percentiles of both groups, if reported.
    pub(crate) fn ends(self) -> Option<(f64, f64)> {
        match self {
            Self::Differs(Change { from, to, .. })
            | Self::CannotTell(Change { from, to, .. })
            | Self::TooFew { from, to, .. } => Some((from, to)),
            Self::Same | Self::Unknown => None,
        }
    }

    /// Absolute logarithm of the ratio of the percentiles.
    pub(crate) fn size(self) -> f64 {
        self.ends().map_or(0.0, |(from, to)| size(from, to))
    }
}

fn size(from: f64, to: f64) -> f64 {
    if from > 0.0 && to > 0.0 { (to / from).ln().abs() } else { f64::MAX }
}

/// Kind of mean; values compared by ratio have a geometric mean (see `BlockedShift::baseline`).
fn mean(relative: bool) -> &'static str {
    if relative { "geometric mean" } else { "mean" }
}

fn blocks(first: &Group, second: &Group, quantile: Quantile, axis: Option<&str>) -> Vec<Block> {
    let cells = |group: &Group| {
        let parameters = group.trials.iter().map(|trial| &trial.parameters);
        parameters.collect::<BTreeSet<_>>().len()
    };
    let single = cells(first) < 2 && cells(second) < 2;
    let key = |trial: &TrialData| {
        let mut alike = if single { BTreeMap::new() } else { trial.parameters.clone() };
        axis.and_then(|axis| alike.remove(axis));
        alike
    };
    let mut blocks: BTreeMap<BTreeMap<String, String>, Block> = BTreeMap::new();
    for (trial, ns) in first.over_trials(quantile) {
        blocks.entry(key(trial)).or_default().a.push(ns as f64);
    }
    for (trial, ns) in second.over_trials(quantile) {
        blocks.entry(key(trial)).or_default().b.push(ns as f64);
    }
    blocks.into_values().collect()
}
