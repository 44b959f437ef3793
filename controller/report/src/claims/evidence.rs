//! What a run has to say about a claim: values with the bounds between which they lie.

use std::collections::{BTreeMap, BTreeSet};

use dwell_record::{Scalar, Summary};
use dwell_stats::{LineFit, Quantile, grouped_least_squares};

use super::ClaimVerdict;
use crate::data::{RunData, TrialData, TrialState};
use crate::group::Group;

/// The confidence of lines.
const CONFIDENCE: f64 = 0.95;

/// A value and the bounds between which it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Bound {
    /// Against "at least so much".
    pub(super) fn at_least(self, limit: f64) -> ClaimVerdict {
        match self {
            Self { low, .. } if low >= limit => ClaimVerdict::Pass,
            Self { high, .. } if high < limit => ClaimVerdict::Fail,
            _ => ClaimVerdict::CannotTell,
        }
    }

    /// Against "at most so much".
    pub(super) fn at_most(self, limit: f64) -> ClaimVerdict {
        match self {
            Self { high, .. } if high <= limit => ClaimVerdict::Pass,
            Self { low, .. } if low > limit => ClaimVerdict::Fail,
            _ => ClaimVerdict::CannotTell,
        }
    }

    /// Against "about so much": within these bounds.
    pub(super) fn within(self, least: f64, most: f64) -> ClaimVerdict {
        match (self.at_least(least), self.at_most(most)) {
            (ClaimVerdict::Pass, ClaimVerdict::Pass) => ClaimVerdict::Pass,
            (ClaimVerdict::Fail, _) | (_, ClaimVerdict::Fail) => ClaimVerdict::Fail,
            _ => ClaimVerdict::CannotTell,
        }
    }

    /// This in relation to another; `None` where that may be 0.
    pub(super) fn over(self, other: Self) -> Option<Self> {
        (other.low > 0.0).then(|| Self {
            value: self.value / other.value,
            low: self.low / if self.low < 0.0 { other.low } else { other.high },
            high: self.high / other.low,
        })
    }

    /// This less another.
    pub(super) fn less(self, other: Self) -> Self {
        Self {
            value: self.value - other.value,
            low: self.low - other.high,
            high: self.high - other.low,
        }
    }
}

/// Trials as evidence.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence<'a>(pub(super) Vec<&'a TrialData>);

impl<'a> Evidence<'a> {
    /// The trials that were measured.
    pub(super) fn of(run: &'a RunData) -> Self {
        let finished = |trial: &&TrialData| trial.state == TrialState::Finished;
        Self(run.trials.iter().filter(finished).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn filter(&self, keep: impl Fn(&TrialData) -> bool) -> Self {
        Self(self.0.iter().copied().filter(|trial| keep(trial)).collect())
    }

    /// The trials of one mode of relaying.
    pub(super) fn mode(&self, mode: &str) -> Self {
        let is = |trial: &TrialData| {
            let summary = trial.summary.as_ref();
            summary.and_then(|s| s.parameters.get("relay")?.as_str()) == Some(mode)
        };
        self.filter(is)
    }

    /// What both were measured with: the same values of everything but the mode.
    pub(super) fn paired(&self, other: &Self) -> (Self, Self) {
        let both = |one: &Self| one.0.iter().map(|trial| beside(trial)).collect::<BTreeSet<_>>();
        let (ours, theirs) = (both(self), both(other));
        let shared = |trial: &TrialData| {
            let key = beside(trial);
            ours.contains(&key) && theirs.contains(&key)
        };
        (self.filter(shared), other.filter(shared))
    }

    /// Over links that hold packets for their transmission time; over bare ones, if there are such.
    pub(super) fn linked(&self) -> Self {
        self.filter(|trial| number(trial, "link_rate_bps").is_some())
    }

    /// Over bare links where there are such, for links take time of the same CPUs in a lab.
    pub(super) fn bare(&self) -> Self {
        let bare = self.filter(|trial| number(trial, "link_rate_bps").is_none());
        if bare.is_empty() { self.clone() } else { bare }
    }

    /// Whether any of them has samples of the metric.
    pub(super) fn has(&self, metric: &str) -> bool {
        self.0.iter().any(|trial| {
            trial.series.get(metric).is_some_and(|s| s.steps.iter().any(|step| step.count > 0))
        })
    }

    /// The median; `None` where too few samples bound it.
    pub(super) fn median(&self, metric: &str) -> Option<Bound> {
        let group = Group::new(String::new(), self.0.clone(), metric);
        let (low, high) = group.interval(500_000)?;
        let value = group.steps.quantile(Quantile::P50)? as f64;
        Some(Bound { value, low: low as f64, high: high as f64 })
    }

    /// By how much the medians over the values of a parameter differ: the largest over the smallest.
    /// `None` with fewer than two values.
    pub(super) fn spread(&self, parameter: &str, metric: &str) -> Option<Bound> {
        let mut values: BTreeMap<&str, Vec<&'a TrialData>> = BTreeMap::new();
        for trial in &self.0 {
            values.entry(trial.parameters.get(parameter)?).or_default().push(trial);
        }
        let medians: Vec<Bound> = values
            .into_values()
            .map(|trials| Evidence(trials).median(metric))
            .collect::<Option<_>>()?;
        let most = medians.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
        let least = medians.iter().min_by(|a, b| a.value.total_cmp(&b.value))?;
        let (low, high) = medians
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(one.low), high.max(one.high)));
        let surely = (most.low / least.high).max(1.0);
        (medians.len() > 1 && low > 0.0).then(|| Bound {
            value: most.value / least.value,
            low: surely,
            high: high / low,
        })
    }

    /// A line through what `of` says of each trial against a parameter that is a number; what the
    /// other parameters do is taken out. `None` below three different numbers.
    pub(super) fn line(
        &self,
        against: &str,
        of: impl Fn(&TrialData) -> Option<f64>,
    ) -> Option<LineFit> {
        let mut others: Vec<Vec<(&str, &str)>> = Vec::new();
        let mut points = Vec::new();
        for trial in &self.0 {
            let (Some(x), Some(y)) = (number(trial, against), of(trial)) else { continue };
            let axis = if against == "payload_bytes" { "size" } else { "rate" };
            let rest = trial.parameters.iter().filter(|(name, _)| *name != axis);
            let key: Vec<_> = rest.map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let place = others.iter().position(|other| *other == key).unwrap_or_else(|| {
                others.push(key);
                others.len() - 1
            });
            points.push((place, x, y));
        }
        let numbers: BTreeSet<u64> = points.iter().map(|(_, x, _)| x.to_bits()).collect();
        if numbers.len() < 3 {
            return None;
        }
        Some(grouped_least_squares(&points, CONFIDENCE)?.0)
    }

    /// Packets sent and lost.
    pub(super) fn losses(&self) -> (u64, u64) {
        let packets = self.0.iter().filter_map(|trial| trial.summary.as_ref()?.packets);
        packets.fold((0, 0), |(sent, lost), one| (sent + one.sent, lost + one.lost + one.late))
    }
}

/// A number that a trial was measured with.
pub(super) fn number(trial: &TrialData, parameter: &str) -> Option<f64> {
    trial.summary.as_ref()?.parameters.get(parameter)?.as_f64()
}

/// A scalar of a trial's results.
pub(super) fn value(trial: &TrialData, name: &str) -> Option<f64> {
    let summary: &Summary = trial.summary.as_ref()?;
    summary.values.get(name).copied().flatten().map(Scalar::as_f64)
}

/// Everything but the mode that a trial was measured with, and its repetition.
fn beside(trial: &TrialData) -> (Vec<(&str, &str)>, u32) {
    let others = trial.parameters.iter().filter(|(name, _)| *name != "relay");
    (others.map(|(k, v)| (k.as_str(), v.as_str())).collect(), trial.repetition)
}
