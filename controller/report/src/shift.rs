//! Whether trials of one condition are slower than those of another, and by how much, or that
//! nobody can tell. A trial is one observation: see `dwell_stats::blocked_shift`.

use std::collections::{BTreeMap, BTreeSet};

use dwell_stats::{Block, BlockedShift, Quantile, RealInterval, blocked_shift};

use crate::data::TrialData;
use crate::group::Group;
use crate::quantity::{compared, delay, significant};

/// How a percentile differs between two groups of trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shift {
    /// Beyond what trials measured alike differ by.
    Differs(Change),
    /// Within a twentieth, beyond doubt.
    Same,
    /// Trials measured alike differ by too much, as here.
    CannotTell(Change),
    /// Too few were measured alike to know how much these differ; so many of each condition in a
    /// block of trials, at most.
    TooFew {
        from: f64,
        to: f64,
        repetitions: usize,
        /// Which mean over trials they are; `None` of one trial each.
        mean: Option<&'static str>,
    },
    /// Nothing to compare.
    Unknown,
}

/// Typical percentiles of trials, and where their relation lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Of the first group, in nanoseconds.
    pub(crate) from: f64,
    /// Of the second.
    pub(crate) to: f64,
    interval: RealInterval,
    /// How sure it is that the interval holds the truth, as a share.
    confidence: f64,
    /// Whether the interval is one of a ratio, else of a difference in nanoseconds.
    relative: bool,
}

impl Change {
    /// Which mean over trials the two percentiles are.
    pub(crate) fn mean(&self) -> &'static str {
        mean(self.relative)
    }

    /// By how much, and within which interval: ` (3 times; 98.5 % interval: 2 to 4 times)`.
    pub(crate) fn by(&self) -> String {
        let RealInterval { low, high } = self.interval;
        let sure = confidence(self.confidence);
        let said = if self.relative {
            let [low, high] = [low, high].map(|ratio| compared(1.0, ratio).unwrap_or_default());
            let by = compared(self.from, self.to).unwrap_or_default();
            format!("{by}; {sure} interval: {low} to {high}")
        } else {
            format!("{sure} interval of the difference: {} to {}", delay(low), delay(high))
        };
        format!(" ({said})")
    }
}

impl Shift {
    /// Compares the percentile over the trials of each group. Trials are measured alike if their
    /// parameters are the same but for that of `axis`; where each group has one cell only, all are.
    /// `doubt` is the probability of a difference where there is none.
    pub(crate) fn between(
        first: &Group,
        second: &Group,
        quantile: Quantile,
        axis: Option<&str>,
        doubt: f64,
    ) -> Self {
        let blocks = blocks(first, second, quantile, axis);
        let confidence = 1.0 - doubt;
        let Some(found) = blocked_shift(&blocks, confidence) else { return Self::Unknown };
        let BlockedShift { baseline: from, other: to, relative, .. } = found;
        let Some(interval) = found.interval else {
            let repetitions = blocks.iter().map(|block| block.a.len().min(block.b.len()));
            let repetitions = repetitions.max().unwrap_or_default();
            let mean = (found.trials != [1, 1]).then(|| mean(relative));
            return Self::TooFew { from, to, repetitions, mean };
        };
        let change = Change { from, to, interval, confidence, relative };
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

    /// The two typical percentiles, where they are told.
    pub(crate) fn ends(self) -> Option<(f64, f64)> {
        match self {
            Self::Differs(Change { from, to, .. })
            | Self::CannotTell(Change { from, to, .. })
            | Self::TooFew { from, to, .. } => Some((from, to)),
            Self::Same | Self::Unknown => None,
        }
    }

    /// How far apart the typical percentiles are, as the size of a logarithm.
    pub(crate) fn size(self) -> f64 {
        match self.ends() {
            Some((from, to)) if from > 0.0 && to > 0.0 => (to / from).ln().abs(),
            Some(_) => f64::MAX,
            None => 0.0,
        }
    }
}

/// Figures that are compared by ratio have a geometric mean: see `BlockedShift::baseline`.
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

/// A confidence as a percentage that is not rounded up to certainty: two digits of the doubt.
fn confidence(share: f64) -> String {
    let doubt = significant((1.0 - share) * 100.0, 2);
    let decimals = if doubt > 0.0 { (1.0 - doubt.log10().floor()).max(0.0) as usize } else { 0 };
    let text = format!("{:.decimals$}", 100.0 - doubt);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confidence_is_said_as_it_is() {
        let texts =
            [(0.95, "95 %"), (0.985, "98.5 %"), (0.99, "99 %"), (1.0 - 0.03 / 12.0, "99.75 %")];
        for (share, text) in texts {
            assert_eq!(confidence(share), text);
        }
        assert_eq!(confidence(1.0 - 0.02 / 36.0), "99.944 %");
    }
}
