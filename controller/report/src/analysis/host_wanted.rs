//! Trial whose host activity a page shows.

use dwell_stats::Quantile;

use crate::analysis::host_correlation::MAX_WINDOWS;
use crate::analysis::subject::Subject;
use crate::analysis::timeline_trials::timeline_trials;
use crate::model::distribution::SampleDistribution;
use crate::model::{HostWanted, RunData};

/// Minimum window width, for a few readings per window: a machine is read five times a second.
const MIN_WINDOW_NS: i64 = 500_000_000;

/// Minimum mean number of samples per window; a 99th percentile needs 100.
const MIN_SAMPLES_PER_WINDOW: u64 = 120;

/// Returns the trial with the highest p99 among those in the timeline; `None` if nothing was
/// measured.
pub(crate) fn host_wanted(run: &RunData) -> Option<HostWanted> {
    let subject = Subject::of(run)?;
    let (trials, _) = timeline_trials(&subject);
    // `max_by_key` returns the last of equal elements: the first trial.
    let (_, trial, started_ns) = trials
        .into_iter()
        .rev()
        .filter_map(|trial| {
            let steps =
                SampleDistribution::merged([trial.series.get(subject.metric)?.steps.as_slice()]);
            let slow = steps.quantile(Quantile::P99).or(steps.max())?;
            Some((slow, trial, trial.started_ns?))
        })
        .max_by_key(|(slow, ..)| *slow)?;
    let bins = &trial.series.get(subject.metric)?.bins;
    let length_ns = bins.last()?.to_ns.max(1);
    let samples = bins.iter().fold(0_u64, |sum, bin| sum.saturating_add(bin.count));
    let windows =
        (samples / MIN_SAMPLES_PER_WINDOW).min((length_ns / MIN_WINDOW_NS) as u64).min(MAX_WINDOWS);
    Some(HostWanted {
        trial: trial.trial,
        metric: subject.metric.to_owned(),
        window_ns: length_ns / windows.max(1) as i64,
        started_ns,
        length_ns,
    })
}
