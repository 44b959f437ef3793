//! Warnings of a run: those of its trials by code, and limits that their numbers break.

use std::collections::BTreeMap;
use std::fmt;

use dwell_record::{Figures, Severity, Summary, TrustWarning, UNCLASSIFIED, Warning};

use crate::analysis::contention;
use crate::model::quantity::{count_noun, delay_ns};
use crate::model::{RunData, TrialData};

/// Maximum schedule error (actual minus intended send time) without a warning: delays in a local
/// network start at a tenth of a millisecond.
const SCHEDULE_ERROR_LIMIT_NS: i64 = 100_000;

/// A warning of a run, with the trials that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunWarning {
    /// Stable name.
    pub code: String,
    /// Effect on the numbers.
    pub severity: Severity,
    /// Text of the first trial.
    pub text: String,
    /// Number of trials with the warning, and of all measured trials.
    pub trials: [u64; 2],
    /// Whether other trials have other numbers.
    pub varies: bool,
}

impl fmt::Display for RunWarning {
    /// Writes the text with the number of trials, if there are several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let [trials, all] = self.trials;
        if all > 1 {
            let numbers = if self.varies { ", numbers vary" } else { "" };
            write!(f, " (in {trials} of {}{numbers})", count_noun(all, "trial"))?;
        }
        Ok(())
    }
}

/// Warnings of nodes and loads, and broken limits, the most severe first. Warnings of one code about
/// one node, load or interface are merged.
pub fn warnings(run: &RunData) -> Vec<RunWarning> {
    let all = run.summaries().count() as u64;
    let mut warnings: Vec<RunWarning> = Vec::new();
    // Place in the list, and the last trial counted.
    let mut known: BTreeMap<(String, Option<String>, String), (usize, u32)> = BTreeMap::new();
    for trial in run.finished_trials() {
        for warning in warnings_of_trial(trial) {
            // An unclassified warning has nothing but its text.
            let is_classified = warning.code != UNCLASSIFIED;
            let text = if is_classified { String::new() } else { warning.text.clone() };
            let key = (warning.code.to_string(), warning.on.clone(), text);
            if let Some((at, last)) = known.get_mut(&key) {
                let merged = &mut warnings[*at];
                merged.varies |= merged.text != warning.text;
                merged.trials[0] += u64::from(*last != trial.trial);
                *last = trial.trial;
            } else {
                known.insert(key, (warnings.len(), trial.trial));
                warnings.push(RunWarning {
                    severity: warning.severity(),
                    code: warning.code.into_owned(),
                    text: warning.text,
                    trials: [1, all],
                    varies: false,
                });
            }
        }
    }
    let of_host = contention::warnings_of_samples(run).into_iter().map(|warning| RunWarning {
        code: warning.code().to_owned(),
        severity: warning.severity(),
        text: warning.to_string(),
        // The text names the trial.
        trials: [1, 1],
        varies: false,
    });
    warnings.extend(of_host);
    warnings.sort_by_key(|warning| std::cmp::Reverse(warning.severity));
    warnings
}

fn warnings_of_trial(trial: &TrialData) -> Vec<TrustWarning> {
    let Some(summary) = &trial.summary else { return Vec::new() };
    let own = &summary.trust.warnings;
    // A load below its requested level mislabels its cell.
    let loads = trial.loads.iter().flat_map(|load| {
        let name = format!("load {}", load.target);
        load.trust.warnings.iter().map(move |warning| warning.clone().about(&name))
    });
    // The summary of a flow contains the warnings of all its machines.
    let cards = trial.machines.iter().flat_map(|machine| {
        let of_machine = |warning| TrustWarning::from(warning).about(&machine.node);
        machine.summary.trust.nic_warnings().map(of_machine)
    });
    let is_new = |limit: &Warning| own.iter().all(|warning| warning.code != limit.code());
    let limits = broken_limits(summary).into_iter().filter(is_new).map(TrustWarning::from);
    own.iter().cloned().chain(limits).chain(loads).chain(cards).collect()
}

/// Limits that the numbers of a trial break.
fn broken_limits(summary: &Summary) -> Vec<Warning> {
    let trust = &summary.trust;
    let stepped = trust.clock_step_ns.is_some() || trust.void > 0;
    let late = trust.schedule_error_ns.as_ref().and_then(late);
    let limits = [
        (trust.ring_dropped > 0).then_some(Warning::RingOverflow(trust.ring_dropped)),
        stepped.then(|| Warning::ClockStepped("the affected samples are void".to_owned())),
        late.map(|late| Warning::LateDepartures(late, delay_ns(SCHEDULE_ERROR_LIMIT_NS))),
    ];
    limits.into_iter().flatten().collect()
}

/// How many probes were late, if more than 1 in 100. Fewer than 100 probes have no 99th percentile;
/// then one late probe is too many.
fn late(figures: &Figures) -> Option<&'static str> {
    let late = |ns: Option<i64>| ns.is_some_and(|ns| ns > SCHEDULE_ERROR_LIMIT_NS);
    let words = [
        (figures.p50, "at least half of the probes"),
        (figures.p90, "more than 1 in 10 probes"),
        (figures.p99, "more than 1 in 100 probes"),
        (figures.max.filter(|_| figures.p99.is_none()), "some of fewer than 100 probes"),
    ];
    words.into_iter().find(|(ns, _)| late(*ns)).map(|(_, words)| words)
}
