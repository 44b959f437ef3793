//! What other programs and the hypervisor took of the processors while trials were measured.

use dwell_record::{CpuUse, Summary};

use crate::data::{HostSeries, Quantity, RunData, TrialData};
use crate::group;
use crate::quantity::share;

/// CPU use of a machine that is worth a warning where dwell's own part of it is unknown: a trial that
/// polls may keep one CPU of two busy by itself.
const TOTAL_LIMIT: f64 = 0.6;

/// Whether a trial says how much of the processors other programs used.
pub(crate) fn is_known(summary: &Summary) -> bool {
    summary.trust.host.is_some_and(|used| used.others_ratio.is_some())
}

/// Warnings of a run whose summaries do not have the use of the processors, from the host samples of
/// the trial that figures show.
pub(crate) fn warnings_of_samples(run: &RunData) -> Vec<String> {
    let Some(host) = &run.host else { return Vec::new() };
    let trial = group::finished(run).find(|trial| trial.trial == host.wanted.trial);
    let Some(trial) = trial.filter(|it| !it.summary.as_ref().is_some_and(is_known)) else {
        return Vec::new();
    };
    host.series.iter().filter_map(|series| warning(trial, series)).collect()
}

fn warning(trial: &TrialData, series: &HostSeries) -> Option<String> {
    let HostSeries { quantity, node, lowest, highest, .. } = series;
    let mean = mean(series)?;
    let (limit, note) = match quantity {
        // A declared load is not a surprise.
        Quantity::CpuUse if trial.loads.is_empty() => {
            (TOTAL_LIMIT, "; how much of it was dwell's own is not known")
        }
        Quantity::Steal => (CpuUse::STEAL_LIMIT, ""),
        Quantity::OwnRunQueueWait => (CpuUse::RUN_QUEUE_WAIT_LIMIT, ""),
        _ => return None,
    };
    (mean >= limit).then(|| {
        format!(
            "{} of {node} was {} on average in trial {} ({} to {}){note}",
            quantity.words(),
            quantity.said(mean),
            trial.trial,
            quantity.said(*lowest),
            quantity.said(*highest)
        )
    })
}

fn mean(series: &HostSeries) -> Option<f64> {
    let values = series.points.iter().map(|(_, value)| value);
    (!series.points.is_empty()).then(|| values.sum::<f64>() / series.points.len() as f64)
}

/// What ran beside the measurement in trials without a load of the plan.
pub(crate) fn beside<'a>(trials: impl Iterator<Item = &'a TrialData>) -> String {
    let used = |trial: &TrialData| {
        let used = trial.summary.as_ref().and_then(|summary| summary.trust.host);
        used.and_then(|used| used.others_ratio)
    };
    let all: Vec<Option<f64>> = trials.map(used).collect();
    let most = all.iter().flatten().copied().fold(0.0, f64::max);
    let least = all.iter().flatten().copied().fold(1.0, f64::min);
    if most >= CpuUse::OTHERS_LIMIT {
        let span = match (share(least), share(most)) {
            (least, most) if least == most => most,
            (least, most) => format!("{least} to {most}"),
        };
        return format!("no load of the plan; other programs used {span} of the CPU time");
    }
    if all.is_empty() || all.contains(&None) {
        return "no load of the plan; whether other programs ran is not known".to_owned();
    }
    "nothing ran beside the measurement".to_owned()
}
