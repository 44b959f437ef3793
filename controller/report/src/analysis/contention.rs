//! CPU contention during trials: use by other programs and by the hypervisor.

use dwell_record::{CpuUse, Summary, Warning};

use crate::model::quantity::share;
use crate::model::{HostSeries, Quantity, RunData, TrialData};

/// Minimum total CPU use for a warning if dwell's own share is unknown: polling alone may keep one
/// of two CPUs busy.
const TOTAL_LIMIT: f64 = 0.6;

/// Whether the CPU use of other programs is known.
pub(crate) fn is_known(summary: &Summary) -> bool {
    summary.trust.host.is_some_and(|used| used.others_ratio.is_some())
}

/// Warnings from the host samples of the displayed trial, for runs whose summaries lack the CPU
/// use.
pub(crate) fn warnings_of_samples(run: &RunData) -> Vec<Warning> {
    let Some(host) = &run.host else { return Vec::new() };
    let trial = run.finished_trials().find(|trial| trial.trial == host.wanted.trial);
    let Some(trial) = trial.filter(|it| !it.summary.as_ref().is_some_and(is_known)) else {
        return Vec::new();
    };
    host.series.iter().filter_map(|series| warning(trial, series)).collect()
}

fn warning(trial: &TrialData, series: &HostSeries) -> Option<Warning> {
    let HostSeries { quantity, node, lowest, highest, .. } = series;
    let mean = mean(series)?;
    let (limit, note) = match quantity {
        // A declared load needs no warning.
        Quantity::CpuUse if trial.loads.is_empty() => {
            (TOTAL_LIMIT, "; dwell's own share is unknown")
        }
        Quantity::Steal => (CpuUse::STEAL_LIMIT, ""),
        Quantity::OwnRunQueueWait => (CpuUse::RUN_QUEUE_WAIT_LIMIT, ""),
        _ => return None,
    };
    (mean >= limit).then(|| {
        let [mean, lowest, highest] = [mean, *lowest, *highest].map(|value| quantity.text(value));
        let name = quantity.words();
        Warning::BusyHost(name, node.clone(), mean, trial.trial, lowest, highest, note)
    })
}

fn mean(series: &HostSeries) -> Option<f64> {
    let values = series.points.iter().map(|(_, value)| value);
    (!series.points.is_empty()).then(|| values.sum::<f64>() / series.points.len() as f64)
}

/// Describes other activity in trials without a planned load.
pub(crate) fn background_load<'a>(trials: impl Iterator<Item = &'a TrialData>) -> String {
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
        return format!("no planned load; other programs used {span} of the CPU time");
    }
    if all.is_empty() || all.contains(&None) {
        return "no planned load; CPU use of other programs unknown".to_owned();
    }
    "nothing ran beside the measurement".to_owned()
}
