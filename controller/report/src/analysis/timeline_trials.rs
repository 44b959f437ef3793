//! Trials of the timeline. The host figure chooses among them, so that both show the same.

use crate::analysis::group;
use crate::analysis::subject::Subject;
use crate::model::{Series, TrialData};

/// Maximum number of trials, one panel each.
const MAX_PANELS: usize = 6;

/// First repetition of each cell, or of evenly chosen cells; and the number of cells.
pub(crate) fn timeline_trials<'a>(subject: &Subject<'a>) -> (Vec<&'a TrialData>, usize) {
    let firsts = subject.cells.iter().filter_map(|cell| {
        cell.trials.iter().copied().find(|trial| series(trial, subject).is_some_and(drawable))
    });
    let firsts: Vec<&TrialData> = firsts.collect();
    let of = firsts.len();
    (group::evenly(firsts, MAX_PANELS), of)
}

/// Series of a trial for the metric of the subject.
pub(crate) fn series<'a>(trial: &'a TrialData, subject: &Subject) -> Option<&'a Series> {
    trial.series.get(subject.metric)
}

fn drawable(series: &Series) -> bool {
    !series.points.is_empty() || series.bins.iter().any(|bin| bin.p50_ns.is_some())
}
