//! Evidence for a claim: one value per trial, and confidence bounds of the values of conditions.

use std::collections::{BTreeMap, BTreeSet};

use dwell_report::analysis::nlr;
use dwell_report::model::axes::axis_words;
use dwell_report::model::quantity::count_noun;
use dwell_report::model::{ClaimVerdict, RunData, TrialData, TrialState};
use dwell_stats::{
    Block, BlockedShift, LineFit, blocked_difference, blocked_level, blocked_shift,
    grouped_least_squares,
};

/// Maximum deviation of the achieved CPU load from the requested one: three points.
const MAX_LOAD_DEVIATION: f64 = 0.03;

/// Maximum ratio that counts as no increase.
pub(crate) const MAX_UNCHANGED_RATIO: f64 = 1.05;

/// Maximum number of parameters in the name of a lost combination.
const MAX_NAMED_PARAMETERS: usize = 8;

/// A value with its confidence bounds; infinite if repetitions are too few.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Bound {
    fn new(value: f64, found: &BlockedShift) -> Self {
        let (low, high) = found
            .interval
            .map_or((f64::NEG_INFINITY, f64::INFINITY), |interval| (interval.low, interval.high));
        Self { value, low, high }
    }

    /// Whether the bounds are finite.
    pub(crate) fn is_bounded(self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// Verdict on "at least `limit`"; undecided without a limit.
    pub(crate) fn at_least(self, limit: impl Into<Option<f64>>) -> ClaimVerdict {
        let Some(limit) = limit.into() else { return ClaimVerdict::CannotTell };
        match self {
            Self { low, .. } if low >= limit => ClaimVerdict::Pass,
            Self { high, .. } if high < limit => ClaimVerdict::Fail,
            _ => ClaimVerdict::CannotTell,
        }
    }

    /// Verdict on "at most `limit`"; undecided without a limit.
    pub(crate) fn at_most(self, limit: impl Into<Option<f64>>) -> ClaimVerdict {
        let Some(limit) = limit.into() else { return ClaimVerdict::CannotTell };
        match self {
            Self { high, .. } if high <= limit => ClaimVerdict::Pass,
            Self { low, .. } if low > limit => ClaimVerdict::Fail,
            _ => ClaimVerdict::CannotTell,
        }
    }

    /// Verdict on "between `least` and `most`".
    pub(crate) fn within(self, least: f64, most: f64) -> ClaimVerdict {
        match (self.at_least(least), self.at_most(most)) {
            (ClaimVerdict::Pass, ClaimVerdict::Pass) => ClaimVerdict::Pass,
            (ClaimVerdict::Fail, _) | (_, ClaimVerdict::Fail) => ClaimVerdict::Fail,
            _ => ClaimVerdict::CannotTell,
        }
    }

    /// Verdict on "more than 1", where 1 means no effect: a factor that is surely below
    /// [`MAX_UNCHANGED_RATIO`] counts as 1.
    pub(crate) fn rises(self) -> ClaimVerdict {
        match self {
            Self { low, .. } if low > 1.0 => ClaimVerdict::Pass,
            Self { high, .. } if high <= MAX_UNCHANGED_RATIO => ClaimVerdict::Fail,
            _ => ClaimVerdict::CannotTell,
        }
    }

    /// Verdict on "less than 1", likewise.
    pub(crate) fn falls(self) -> ClaimVerdict {
        let Self { value, low, high } = self;
        // The inverse of an unknown upper bound is the smallest factor.
        Self { value: 1.0 / value, low: 1.0 / high, high: 1.0 / low.max(0.0) }.rises()
    }

    /// Ratio of two independent factors, with bounds by MOVER on their logarithms (Zou and Donner
    /// 2008).
    pub(crate) fn over(self, other: Self) -> Self {
        let value = self.value / other.value;
        if !self.is_bounded() || !other.is_bounded() || self.low <= 0.0 || other.low <= 0.0 {
            return Self { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
        }
        let below = (self.value / self.low).ln().hypot((other.high / other.value).ln());
        let above = (self.high / self.value).ln().hypot((other.value / other.low).ln());
        Self { value, low: value * (-below).exp(), high: value * above.exp() }
    }

    /// The factor or its inverse, whichever is at least 1.
    fn either_way(self) -> Self {
        let Self { value, low, high } = self;
        let value = value.max(1.0 / value);
        match self {
            _ if !self.is_bounded() => Self { value, low: 1.0, high: f64::INFINITY },
            _ if low > 1.0 => Self { value, low, high },
            _ if high < 1.0 => Self { value, low: 1.0 / high, high: 1.0 / low },
            _ => Self { value, low: 1.0, high: high.max(1.0 / low) },
        }
    }
}

/// Comparison of two conditions: mean values of both and their ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) factor: Bound,
}

/// Largest factor between values of a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    pub(crate) factor: Bound,
    /// The two values of the parameter; `None` if nothing is comparable.
    pub(crate) ends: Option<Ends>,
}

/// Two values of a parameter, with the mean level at each over otherwise equal trials.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) values: [String; 2],
    pub(crate) levels: [f64; 2],
}

impl Spread {
    /// The larger factor, with bounds that cover both.
    fn or(self, other: Self) -> Self {
        let (low, high) =
            (self.factor.low.max(other.factor.low), self.factor.high.max(other.factor.high));
        let wider = if other.factor.value > self.factor.value || self.ends.is_none() {
            other
        } else {
            self
        };
        Self { factor: Bound { low, high, ..wider.factor }, ..wider }
    }
}

/// Line through values of trials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) fit: LineFit,
    /// Smallest and largest x.
    pub(crate) ends: (f64, f64),
    /// Number of trials minus the number of combinations of the other parameters.
    pub(crate) free: usize,
}

/// Trials as evidence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence<'a> {
    pub(crate) trials: Vec<&'a TrialData>,
    /// Excluded trials, whose load missed the requested level.
    missed: Vec<&'a TrialData>,
}

impl<'a> Evidence<'a> {
    /// Finished trials with the requested load.
    pub(crate) fn of(run: &'a RunData) -> Self {
        let finished = run.trials.iter().filter(|trial| trial.state == TrialState::Finished);
        let (missed, trials) = finished.partition(|trial| missed_load(trial));
        Self { trials, missed }
    }

    /// Finished trials, also those with less than the requested load, for documents whose load takes
    /// all that it gets: a level of 100 % is never reached beside a prober.
    pub(crate) fn of_any_load(run: &'a RunData) -> Self {
        let finished = run.trials.iter().filter(|trial| trial.state == TrialState::Finished);
        Self { trials: finished.collect(), missed: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.trials.is_empty()
    }

    /// Number of trials excluded because of their load.
    pub(crate) fn left_out(&self) -> usize {
        self.missed.len()
    }

    /// Combinations of parameters without a remaining trial, each named by as few parameters as
    /// possible: `load most, rate 1200pps` if that holds at every size. Empty if no trial remains
    /// at all.
    pub(crate) fn lost(&self) -> Vec<String> {
        if self.trials.is_empty() {
            return Vec::new();
        }
        let left: BTreeSet<_> = self.trials.iter().map(|trial| &trial.parameters).collect();
        let missed: BTreeSet<_> = self.missed.iter().map(|trial| &trial.parameters).collect();
        let mut open: Vec<_> = missed.difference(&left).copied().collect();
        let names: Vec<&String> =
            open.iter().flat_map(|one| one.keys()).collect::<BTreeSet<_>>().into_iter().collect();
        let mut sets: Vec<Vec<&String>> = (1..1_usize << names.len().min(MAX_NAMED_PARAMETERS))
            .map(|bits| (0..names.len()).filter(|n| bits >> n & 1 == 1).map(|n| names[n]).collect())
            .collect();
        sets.sort_by_key(Vec::len);
        let mut said = Vec::new();
        for set in sets {
            let of = |all: &BTreeMap<String, String>| -> Vec<Option<String>> {
                set.iter().map(|name| all.get(*name).cloned()).collect()
            };
            let kept: BTreeSet<_> = left.iter().map(|one| of(one)).collect();
            let lost: BTreeSet<_> =
                open.iter().map(|one| of(one)).filter(|one| !kept.contains(one)).collect();
            open.retain(|one| !lost.contains(&of(one)));
            said.extend(lost.iter().map(|one| {
                let each = set.iter().zip(one).map(|(name, value)| {
                    format!("{} {}", axis_words(name), value.as_deref().unwrap_or("-"))
                });
                each.collect::<Vec<_>>().join(", ")
            }));
        }
        said
    }

    pub(crate) fn filter(&self, keep: impl Fn(&TrialData) -> bool) -> Self {
        let kept =
            |all: &[&'a TrialData]| all.iter().copied().filter(|trial| keep(trial)).collect();
        Self { trials: kept(&self.trials), missed: kept(&self.missed) }
    }

    /// Union of both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.trials.extend(other.trials);
        self.missed.extend(other.missed);
        self
    }

    /// Sentence about the trials that are left out because their load missed the requested level;
    /// `None` without any.
    pub(crate) fn left_out_text(&self) -> Option<String> {
        let missed = self.left_out() as u64;
        let lost = match self.lost() {
            none if none.is_empty() => String::new(),
            lost => format!(" All trials at {} missed it.", lost.join("; at ")),
        };
        (missed > 0).then(|| {
            format!(
                "In {missed} of {}, the load missed the requested level by more than 3 points.{lost} Claims \
                 leave these trials out; other findings and figures include them.",
                count_noun(missed + self.trials.len() as u64, "trial")
            )
        })
    }

    /// Trials of one relay mode.
    pub(crate) fn mode(&self, mode: &str) -> Self {
        let is = |trial: &TrialData| {
            let summary = trial.summary.as_ref();
            summary.and_then(|s| s.text("relay")) == Some(mode)
        };
        self.filter(is)
    }

    /// Trials over links with a rate.
    pub(crate) fn linked(&self) -> Self {
        self.filter(|trial| number(trial, "link_rate_bps").is_some())
    }

    /// Trials without load.
    pub(crate) fn idle(&self) -> Self {
        self.filter(nlr::is_idle)
    }

    /// Trials over links without a rate, if there are any: in a lab, emulated links use the same
    /// CPUs.
    pub(crate) fn bare(&self) -> Self {
        let bare = self.filter(|trial| number(trial, "link_rate_bps").is_none());
        if bare.is_empty() && bare.left_out() == 0 { self.clone() } else { bare }
    }

    /// Whether any trial has samples of the metric.
    pub(crate) fn has(&self, metric: &str) -> bool {
        self.trials.iter().any(|trial| {
            trial.series.get(metric).is_some_and(|s| s.steps.iter().any(|step| step.count > 0))
        })
    }

    /// Mean level over cells; `None` if no trial has the value.
    pub(crate) fn level(
        &self,
        of: impl Fn(&TrialData) -> Option<f64>,
        alpha: f64,
    ) -> Option<Bound> {
        let found = blocked_level(&nlr::cells(&self.trials, of), 1.0 - alpha)?;
        Some(Bound::new(found.other, &found))
    }

    /// Ratio of these trials to `others`, compared within trials that differ only in `parameter`.
    /// `None` if nothing is comparable, or if a value is not positive.
    pub(crate) fn ratio_to(
        &self,
        others: &Self,
        parameter: &str,
        of: impl Fn(&TrialData) -> Option<f64>,
        alpha: f64,
    ) -> Option<Comparison> {
        self.ratio_across(others, &[parameter], of, alpha)
    }

    /// As [`Self::ratio_to`], with several parameters that differ.
    pub(crate) fn ratio_across(
        &self,
        others: &Self,
        parameters: &[&str],
        of: impl Fn(&TrialData) -> Option<f64>,
        alpha: f64,
    ) -> Option<Comparison> {
        let found = blocked_shift(&blocks(others, self, parameters, of), 1.0 - alpha)?;
        let (from, to) = (found.baseline, found.other);
        found.relative.then(|| Comparison { from, to, factor: Bound::new(to / from, &found) })
    }

    /// Difference of these trials to `others`, compared in the same way.
    pub(crate) fn difference_to(
        &self,
        others: &Self,
        parameter: &str,
        of: impl Fn(&TrialData) -> Option<f64>,
        alpha: f64,
    ) -> Option<Bound> {
        let found = blocked_difference(&blocks(others, self, &[parameter], of), 1.0 - alpha)?;
        Some(Bound::new(found.other - found.baseline, &found))
    }

    /// Largest ratio between any two values of a parameter. `None` with fewer than two values.
    pub(crate) fn spread(
        &self,
        parameter: &str,
        of: impl Fn(&TrialData) -> Option<f64>,
        alpha: f64,
    ) -> Option<Spread> {
        let value = |trial: &'a TrialData| trial.parameters.get(parameter).map(String::as_str);
        let values: BTreeSet<&str> = self.trials.iter().filter_map(|trial| value(trial)).collect();
        let groups: Vec<(&str, Self)> = values
            .into_iter()
            .map(|wanted| (wanted, self.filter(|t| t.is_at(parameter, wanted))))
            .collect();
        let pairs = groups.len() * groups.len().saturating_sub(1) / 2;
        let mut widest: Option<Spread> = None;
        for (i, (first, one)) in groups.iter().enumerate() {
            for (second, other) in &groups[i + 1..] {
                let found = other.ratio_to(one, parameter, &of, alpha / pairs as f64);
                let unknown = Bound { value: 1.0, low: 1.0, high: f64::INFINITY };
                let factor = found.map_or(unknown, |ratio| ratio.factor.either_way());
                let ends = found.map(|ratio| Ends {
                    values: [(*first).to_owned(), (*second).to_owned()],
                    levels: [ratio.from, ratio.to],
                });
                let pair = Spread { factor, ends };
                widest = Some(match widest {
                    None => pair,
                    Some(widest) => widest.or(pair),
                });
            }
        }
        widest
    }

    /// Line through a value of each trial against a number of the trial, with the effect of the
    /// other parameters removed. `None` below three different numbers.
    pub(crate) fn line(
        &self,
        against: &str,
        of: impl Fn(&TrialData) -> Option<f64>,
        alpha: f64,
    ) -> Option<Line> {
        let mut others: Vec<Vec<(&str, &str)>> = Vec::new();
        let mut points = Vec::new();
        for trial in &self.trials {
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
        let (fit, _) = grouped_least_squares(&points, 1.0 - alpha)?;
        let each = || points.iter().map(|(_, x, _)| *x);
        let ends = (each().fold(f64::MAX, f64::min), each().fold(f64::MIN, f64::max));
        Some(Line { fit, ends, free: points.len() - others.len() })
    }

    /// Number of packets sent, and number lost or late.
    pub(crate) fn losses(&self) -> (u64, u64) {
        let packets = self.trials.iter().filter_map(|trial| trial.summary.as_ref()?.packets);
        packets.fold((0, 0), |(sent, lost), one| (sent + one.sent, lost + one.lost + one.late))
    }

    /// Number of trials with a lost or late packet.
    pub(crate) fn lossy_trials(&self) -> u64 {
        let lossy = self.filter(|trial| {
            let packets = trial.summary.as_ref().and_then(|summary| summary.packets);
            packets.is_some_and(|packets| packets.lost + packets.late > 0)
        });
        lossy.trials.len() as u64
    }
}

/// Numeric parameter of a trial.
pub(crate) fn number(trial: &TrialData, parameter: &str) -> Option<f64> {
    trial.summary.as_ref()?.number(parameter)
}

/// Scalar result of a trial.
pub(crate) fn value(trial: &TrialData, name: &str) -> Option<f64> {
    trial.summary.as_ref()?.value(name)
}

/// Sum of the CPU load that was requested in a trial.
pub(crate) fn requested_load(trial: &TrialData) -> f64 {
    trial.loads.iter().filter_map(|load| load.value("asked_ratio")).sum()
}

fn missed_load(trial: &TrialData) -> bool {
    trial.loads.iter().any(|load| {
        let both = load.value("asked_ratio").zip(load.value("burnt_ratio"));
        both.is_some_and(|(asked, burnt)| (asked - burnt).abs() > MAX_LOAD_DEVIATION + 1e-9)
    })
}

/// Values of the trials of two conditions, grouped by all other parameters.
fn blocks(
    a: &Evidence,
    b: &Evidence,
    parameters: &[&str],
    of: impl Fn(&TrialData) -> Option<f64>,
) -> Vec<Block> {
    let key = |trial: &TrialData| {
        let mut alike = trial.parameters.clone();
        parameters.iter().for_each(|parameter| drop(alike.remove(*parameter)));
        alike
    };
    let mut blocks: BTreeMap<BTreeMap<String, String>, Block> = BTreeMap::new();
    for trial in &a.trials {
        blocks.entry(key(trial)).or_default().a.extend(of(trial));
    }
    for trial in &b.trials {
        blocks.entry(key(trial)).or_default().b.extend(of(trial));
    }
    blocks.into_values().collect()
}
