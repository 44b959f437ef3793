//! Linear fits of delay against a parameter (Miya 2020, S0.16).

use std::collections::BTreeMap;

use dwell_stats::{Coefficient, Quantile, RealInterval, grouped_least_squares, theil_sen};
use serde::Serialize;

use crate::analysis::condition::{Condition, Links};
use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::model::axes::RELAY;
use crate::model::{Axis, RunData};

/// Probability that any line of a page is reported to rise or fall although it does not: the part
/// of the page's 5 % that `crate::analysis::effect` leaves.
const ERROR_PROBABILITY: f64 = 0.01;

/// Lines per axis of a run over relay modes: one per mode, and one over all.
const LINES_PER_AXIS: usize = 5;

/// Seed of the Theil-Sen fit, which samples pairs of many points.
const SEED: u64 = 1;

/// Line through the medians of trials: delay = intercept + slope x.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Metric, such as `rtt_ns`.
    pub metric: String,
    /// Statistic of each trial that is fitted.
    pub statistic: &'static str,
    /// Relay mode of the trials, in a run over several modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// Levels of the axes at which all these trials were measured.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, String>,
    /// Axis.
    pub axis: String,
    /// Unit of the axis; empty for a count.
    pub unit: String,
    /// Number of trials.
    pub count: usize,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// Delay at x = 0.
    pub intercept_ns: Estimate,
    /// Nanoseconds per unit of the axis.
    pub slope_ns_per_unit: Estimate,
    /// Share of the variance explained; null if the delay does not vary.
    pub r_squared: Option<f64>,
    /// Theil-Sen slope, which is robust against outliers; null if it cannot be computed.
    pub robust_slope_ns_per_unit: Option<Estimate>,
}

/// Estimate with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    fn new(value: f64, interval: RealInterval) -> Self {
        Self { value, low: interval.low, high: interval.high }
    }
}

impl From<Coefficient> for Estimate {
    fn from(coefficient: Coefficient) -> Self {
        Self::new(coefficient.value, coefficient.interval)
    }
}

/// Lines of a run: one per axis with at least three numbers. In a run over relay modes, one per
/// mode and axis, over trials with one load and one kind of link.
pub fn fits(run: &RunData) -> Vec<Fit> {
    let Some(whole) = Subject::of(run) else { return Vec::new() };
    let modes = run.modes();
    if modes.is_empty() {
        return run.axes.iter().filter_map(|axis| fit(&whole, axis)).collect();
    }
    let condition = Condition::of(run, whole.metric, Links::Unlimited);
    let of_mode = |mode: &String| {
        let lines = run.axes.iter().filter(|axis| axis.name != RELAY).filter_map(|axis| {
            let held = condition.without(&["size", "rate", &axis.name]);
            let mut levels = held.levels();
            levels.push((RELAY, mode));
            let part = run.at(&levels);
            let subject = Subject::about(&part, whole.metric)?;
            let axis = part.axis(&axis.name)?;
            let held = held.levels().into_iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
            Some(Fit { relay: Some(mode.clone()), held: held.collect(), ..fit(&subject, axis)? })
        });
        lines.collect::<Vec<_>>()
    };
    modes.iter().flat_map(of_mode).collect()
}

/// Confidence of each line, such that all lines together keep the confidence of the page.
pub(crate) fn confidence(run: &RunData) -> f64 {
    let numeric = run.axes.iter().filter(|axis| axis.numbers.is_some()).count().max(1);
    // Part of a run may lack the axis of modes, but its trials have the parameter.
    let by_mode = run.trials.iter().any(|trial| trial.parameters.contains_key(RELAY));
    1.0 - ERROR_PROBABILITY / (numeric * if by_mode { LINES_PER_AXIS } else { 1 }) as f64
}

/// Sentence about the intervals of lines.
pub(crate) const SIMULTANEOUS: &str =
    "Interval: 95 % for all lines and comparisons of the run together (Bonferroni).";

pub(crate) fn fit(subject: &Subject, axis: &Axis) -> Option<Fit> {
    let points = medians(subject, axis)?;
    let confidence = confidence(subject.run);
    let (line, adjusted) = grouped_least_squares(&points, confidence)?;
    let robust = theil_sen(&adjusted, confidence, SEED);
    Some(Fit {
        metric: subject.metric.to_owned(),
        statistic: "p50",
        relay: None,
        held: BTreeMap::new(),
        axis: axis.name.clone(),
        unit: axis.unit.clone().unwrap_or_default(),
        count: points.len(),
        confidence,
        intercept_ns: line.intercept.into(),
        slope_ns_per_unit: line.slope.into(),
        r_squared: line.r_squared,
        robust_slope_ns_per_unit: robust
            .and_then(|fit| Some(Estimate::new(fit.slope, fit.slope_interval?))),
    })
}

/// Medians of trials against the numbers of an axis: index of the combination of the other
/// parameters, x, y. `None` unless at least three numbers have samples.
///
/// A trial is one observation, because samples within a trial are correlated. The effect of the
/// other parameters is removed: each combination of them may be offset by a constant.
pub(crate) fn medians(subject: &Subject, axis: &Axis) -> Option<Vec<(usize, f64, f64)>> {
    let numbers = axis.numbers.as_ref()?;
    let mut others: Vec<BTreeMap<&str, &str>> = Vec::new();
    let mut points = Vec::new();
    let mut places = 0;
    for (i, group) in group::by_axis(subject.run, subject.metric, axis) {
        let x = *numbers.get(i)?;
        let before = points.len();
        for trial in &group.trials {
            let one = Group::new(String::new(), vec![trial], subject.metric);
            let Some(median) = one.quantile(Quantile::P50) else { continue };
            let pairs = trial.parameters.iter().filter(|(name, _)| **name != axis.name);
            let key = pairs.map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let place = others.iter().position(|other| *other == key).unwrap_or_else(|| {
                others.push(key);
                others.len() - 1
            });
            points.push((place, x, median));
        }
        places += usize::from(points.len() > before);
    }
    (places >= 3).then_some(points)
}
