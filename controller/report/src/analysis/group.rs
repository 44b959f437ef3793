//! Groups of trials that are drawn as one: repetitions of a cell, or all cells with one axis value.

use std::collections::BTreeMap;

use dwell_record::{Figures, Packets, Scalar};
use dwell_stats::{MIN_TRIALS, Quantile, blocked_mean};

use crate::model::axes::axis_words;
use crate::model::distribution::SampleDistribution;
use crate::model::quantity::Unit;
use crate::model::{Axis, RunData, TrialData};

/// Maximum number of distributions in one figure.
pub(crate) const MAX_OVERLAID: usize = 6;

/// Group of trials that are drawn as one.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    /// Common parameters, such as `network` or `size 64B, rate 200pps`.
    pub(crate) label: String,
    pub(crate) trials: Vec<&'a TrialData>,
    /// Trials with samples, each with its distribution.
    measured: Vec<(&'a TrialData, SampleDistribution)>,
    metric: String,
    /// Distribution of all samples.
    pub(crate) steps: SampleDistribution,
}

impl<'a> Group<'a> {
    pub(crate) fn new(label: String, trials: Vec<&'a TrialData>, metric: &str) -> Self {
        let measured: Vec<_> = trials
            .iter()
            .filter_map(|trial| {
                let series = trial.series.get(metric)?;
                let steps = SampleDistribution::merged([series.steps.as_slice()]);
                let extremes = figures(trial, metric, &steps).map(|known| (known.min, known.max));
                let steps = match extremes {
                    Some((Some(min), Some(max))) => steps.between(min, max),
                    _ => steps,
                };
                (steps.count() > 0).then_some((*trial, steps))
            })
            .collect();
        let steps = SampleDistribution::merged(measured.iter().map(|(_, steps)| steps.as_slice()));
        Self { label, trials, measured, metric: metric.to_owned(), steps }
    }

    /// Percentile of each trial with enough samples.
    pub(crate) fn over_trials(
        &self,
        quantile: Quantile,
    ) -> impl Iterator<Item = (&'a TrialData, i64)> {
        let of = move |(trial, steps): &(&'a TrialData, SampleDistribution)| {
            Some((*trial, stored(trial, &self.metric, steps, quantile)?))
        };
        self.measured.iter().filter_map(of)
    }

    /// Mean percentile over trials; for one trial, its stored percentile. Every combination of
    /// parameters has equal weight, and the mean is geometric if all values are positive.
    /// Sentences, marks and tables all show this value.
    pub(crate) fn quantile(&self, quantile: Quantile) -> Option<f64> {
        let mut cells: BTreeMap<&BTreeMap<String, String>, Vec<f64>> = BTreeMap::new();
        for (trial, ns) in self.over_trials(quantile) {
            cells.entry(&trial.parameters).or_default().push(ns as f64);
        }
        let cells: Vec<Vec<f64>> = cells.into_values().collect();
        match cells.as_slice() {
            [one] if one.len() == 1 => one.first().copied(),
            cells => blocked_mean(cells),
        }
    }

    /// Kind of mean in [`Self::quantile`]; `None` for one trial.
    pub(crate) fn mean(&self, quantile: Quantile) -> Option<&'static str> {
        let figures: Vec<i64> = self.over_trials(quantile).map(|(_, ns)| ns).collect();
        let is_positive = figures.iter().all(|ns| *ns > 0);
        (figures.len() > 1).then_some(if is_positive { "geometric mean" } else { "mean" })
    }

    /// Whether the group has samples of several trials.
    pub(crate) fn is_pooled(&self) -> bool {
        self.measured.len() > 1
    }

    /// Percentile of all samples, for figures of distributions: as stored for one trial, within 0.1
    /// % for several.
    pub(crate) fn pooled_quantile(&self, quantile: Quantile) -> Option<i64> {
        match self.measured.as_slice() {
            [(trial, steps)] => stored(trial, &self.metric, steps, quantile),
            _ => self.steps.quantile(quantile),
        }
    }

    /// Table cell with [`Self::quantile`] and, for one trial, its interval. Several trials would
    /// need an interval over trials, which verdicts use.
    pub(crate) fn cell(&self, unit: Unit, quantile: Quantile) -> String {
        unit.cell_within(self.quantile(quantile), self.interval(quantile))
    }

    /// Table cell with the percentile of all samples.
    pub(crate) fn pooled_cell(&self, unit: Unit, quantile: Quantile) -> String {
        let pooled = self.pooled_quantile(quantile).map(|ns| ns as f64);
        unit.cell_within(pooled, self.interval(quantile))
    }

    fn interval(&self, quantile: Quantile) -> Option<(f64, f64)> {
        match self.measured.as_slice() {
            [(trial, steps)] => figures(trial, &self.metric, steps)
                .and_then(|_| interval_of(trial, &self.metric, quantile)),
            _ => None,
        }
    }

    /// Packet counts of all trials; `None` if no trial has any.
    pub(crate) fn packets(&self) -> Option<Packets> {
        let counted = self.trials.iter().filter_map(|trial| trial.summary.as_ref()?.packets);
        counted.reduce(|a, b| Packets {
            sent: a.sent.saturating_add(b.sent),
            received: a.received.saturating_add(b.received),
            lost: a.lost.saturating_add(b.lost),
            late: a.late.saturating_add(b.late),
            duplicate: a.duplicate.saturating_add(b.duplicate),
            reordered: a.reordered.saturating_add(b.reordered),
            send_failed: a.send_failed.saturating_add(b.send_failed),
        })
    }
}

/// Percentile of one trial; `None` with too few samples.
pub fn percentile_of(trial: &TrialData, metric: &str, quantile: Quantile) -> Option<i64> {
    let series = trial.series.get(metric)?;
    let steps = SampleDistribution::merged([series.steps.as_slice()]);
    stored(trial, metric, &steps, quantile)
}

/// Returns the 95 % confidence interval of a percentile of a trial in nanoseconds, with the
/// autocorrelation of samples taken into account. It was computed at ingest, for whole delays
/// (`rtt_ns`, `end_to_end_ns`) at p50, p95 and p99; `None` otherwise, or with too few samples.
pub fn interval_of(trial: &TrialData, metric: &str, quantile: Quantile) -> Option<(f64, f64)> {
    let called = match quantile {
        Quantile::P50 => "p50",
        Quantile::P95 => "p95",
        Quantile::P99 => "p99",
        _ => return None,
    };
    let values = &trial.summary.as_ref()?.values;
    let end = |end: &str| {
        let name = format!("{}_{called}_{end}_ns", metric.trim_end_matches("_ns"));
        match values.get(&name)?.as_ref()? {
            Scalar::Real(ns) => Some(*ns),
            Scalar::Count(ns) => Some(*ns as f64),
        }
    };
    Some((end("low")?, end("high")?))
}

/// Stored figures of a metric, if they cover the same samples as the steps.
fn figures<'a>(
    trial: &'a TrialData,
    metric: &str,
    steps: &SampleDistribution,
) -> Option<&'a Figures> {
    let figures = trial.summary.as_ref()?.metrics.get(metric)?;
    (figures.count == steps.count()).then_some(figures)
}

/// Stored percentile of a trial, which is exact, if it covers the same samples as the steps; else
/// the percentile of the steps.
fn stored(
    trial: &TrialData,
    metric: &str,
    steps: &SampleDistribution,
    quantile: Quantile,
) -> Option<i64> {
    let known = figures(trial, metric, steps).and_then(|figures| match quantile {
        Quantile::P50 => figures.p50,
        Quantile::P90 => figures.p90,
        Quantile::P95 => figures.p95,
        Quantile::P99 => figures.p99,
        Quantile::P99_9 => figures.p99_9,
        _ => None,
    });
    known.or_else(|| steps.quantile(quantile))
}

/// One group per cell, in the order of the plan, with repetitions merged. Cells without a finished
/// trial are left out.
pub(crate) fn cells<'a>(run: &'a RunData, metric: &str) -> Vec<Group<'a>> {
    let mut cells: BTreeMap<Vec<(usize, &str)>, Vec<&TrialData>> = BTreeMap::new();
    for trial in run.finished_trials() {
        let key = run.axes.iter().map(|axis| place(axis, trial)).collect();
        cells.entry(key).or_default().push(trial);
    }
    let group = |(key, trials): (Vec<(usize, &str)>, Vec<&'a TrialData>)| {
        Group::new(cell_label(run, &key), trials, metric)
    };
    cells.into_iter().map(group).collect()
}

/// One group per value of an axis, in the order of the plan, over all other parameters. Values
/// without a finished trial are left out.
pub(crate) fn by_axis<'a>(run: &'a RunData, metric: &str, axis: &Axis) -> Vec<(usize, Group<'a>)> {
    let mut groups: BTreeMap<usize, Vec<&TrialData>> = BTreeMap::new();
    for trial in run.finished_trials() {
        let (place, _) = place(axis, trial);
        if place < axis.values.len() {
            groups.entry(place).or_default().push(trial);
        }
    }
    let label = |place: usize| value_label(axis, place);
    groups.into_iter().map(|(i, trials)| (i, Group::new(label(i), trials, metric))).collect()
}

/// As [`by_axis`], but only for combinations of the other parameters that have samples at every
/// value, so that a failed trial does not look like an effect of the axis. Of these, only those that
/// an interval uses ([`blocked_shift`](dwell_stats::blocked_shift)). Unrestricted if no combination
/// remains.
pub(crate) fn comparable<'a>(
    run: &'a RunData,
    metric: &str,
    axis: &Axis,
) -> Vec<(usize, Group<'a>)> {
    let mut groups = by_axis(run, metric, axis);
    groups.retain(|(_, group)| group.steps.count() > 0);
    let others = |trial: &TrialData| {
        let mut others = trial.parameters.clone();
        others.remove(&axis.name);
        others
    };
    let has = |trial: &&TrialData| trial.series.get(metric).is_some_and(|s| !s.steps.is_empty());
    // Minimum number of trials per combination over the values of the axis.
    let counts = groups.iter().map(|(_, group)| {
        let mut counts = BTreeMap::<_, usize>::new();
        for trial in group.trials.iter().copied().filter(has) {
            *counts.entry(others(trial)).or_default() += 1;
        }
        counts
    });
    let everywhere = counts.reduce(|a, b| {
        let both = a.into_iter().filter_map(|(key, n)| Some((n.min(*b.get(&key)?), key)));
        both.map(|(n, key)| (key, n)).collect()
    });
    let mut everywhere = everywhere.unwrap_or_default();
    if everywhere.is_empty() {
        return groups;
    }
    let repeated = everywhere.values().filter(|count| **count > 1).count();
    let thrice = everywhere.values().any(|count| *count >= MIN_TRIALS);
    if repeated >= MIN_TRIALS || thrice {
        everywhere.retain(|_, count| *count > 1);
    }
    let kept = |(place, group): (usize, Group<'a>)| {
        let trials = group.trials.into_iter().filter(|t| everywhere.contains_key(&others(t)));
        (place, Group::new(group.label, trials.collect(), metric))
    };
    groups.into_iter().map(kept).collect()
}

/// At most [`MAX_OVERLAID`] groups for one figure. These are the cells; if too many, the values of
/// the first axis with few values; else evenly chosen values of the first axis. Groups other than
/// cells have a note.
pub(crate) fn overlaid<'a>(run: &'a RunData, metric: &str) -> (Vec<Group<'a>>, Option<String>) {
    let with_samples = |groups: Vec<Group<'a>>| -> Vec<Group<'a>> {
        groups.into_iter().filter(|group| group.steps.count() > 0).collect()
    };
    let all = with_samples(cells(run, metric));
    if all.len() <= MAX_OVERLAID {
        return (all, None);
    }
    let few = run.axes.iter().find(|axis| (2..=MAX_OVERLAID).contains(&axis.values.len()));
    let Some(axis) = few.or(run.axes.first()) else { return (all, None) };
    let groups = with_samples(by_axis(run, metric, axis).into_iter().map(|(_, g)| g).collect());
    let shown = evenly(groups, MAX_OVERLAID);
    let note = format!("All trials with one value of {} are merged.", axis.name);
    (shown, Some(note))
}

/// At most `most` evenly chosen items, including the first and the last.
pub(crate) fn evenly<T>(items: Vec<T>, most: usize) -> Vec<T> {
    let n = items.len();
    if n <= most || most < 2 {
        return items;
    }
    let kept: Vec<usize> = (0..most).map(|i| i * (n - 1) / (most - 1)).collect();
    items.into_iter().enumerate().filter(|(i, _)| kept.contains(i)).map(|(_, item)| item).collect()
}

/// Label of a trial: its cell, and its repetition if there are several.
pub(crate) fn trial_label(run: &RunData, trial: &TrialData) -> String {
    let key: Vec<_> = run.axes.iter().map(|axis| place(axis, trial)).collect();
    let cell = cell_label(run, &key);
    let repeated = run.trials.iter().any(|other| other.repetition > 1);
    if repeated { format!("{cell}, repetition {}", trial.repetition) } else { cell }
}

/// Label of an axis value, with the name of the axis.
fn value_label(axis: &Axis, place: usize) -> String {
    let value = axis.values.get(place).map_or("?", String::as_str);
    format!("{} {value}", axis_words(&axis.name))
}

fn cell_label(run: &RunData, key: &[(usize, &str)]) -> String {
    if key.is_empty() {
        return "all samples".to_owned();
    }
    let part =
        |(axis, (_, value)): (&Axis, &(usize, &str))| format!("{} {value}", axis_words(&axis.name));
    run.axes.iter().zip(key).map(part).collect::<Vec<_>>().join(", ")
}

/// Index of the trial's value on the axis and the value; unlisted values come last.
fn place<'a>(axis: &Axis, trial: &'a TrialData) -> (usize, &'a str) {
    let value = trial.parameters.get(&axis.name).map_or("?", String::as_str);
    let place = axis.values.iter().position(|listed| listed == value);
    (place.unwrap_or(axis.values.len()), value)
}
