//! Which delay a report is about, and what it is called in plain words.

use crate::data::{RunData, Series};

/// A name in results, and how a sentence says it.
const WORDS: [(&str, &str); 17] = [
    ("rtt_ns", "round-trip delay"),
    ("node_delay_ns", "node delay"),
    ("end_to_end_ns", "end-to-end delay"),
    ("one_way_forward_ns", "one-way delay there"),
    ("one_way_backward_ns", "one-way delay back"),
    ("rtt_kernel_ns", "round-trip delay seen by the kernel"),
    ("rtt_hw_ns", "round-trip delay seen by the network card"),
    ("processing_ns", "processing delay"),
    ("processing_s0_ns", "processing delay with the send call"),
    ("residence_ns", "residence in the reflector"),
    ("link_delay_ns", "link delay"),
    ("queueing_in_ns", "queueing delay on arrival"),
    ("queueing_out_ns", "queueing delay on departure"),
    ("qdisc_ns", "delay in the queueing discipline"),
    ("gap_ns", "gap between packets"),
    ("ipdv_ns", "delay variation between successive packets"),
    ("schedule_error_ns", "schedule error"),
];

/// The name of the delay that most figures of a run are about: the first in the order of
/// [`WORDS`] that has samples, else whatever has.
pub(crate) fn main_metric(run: &RunData) -> Option<&str> {
    let known = WORDS.iter().map(|(name, _)| *name).find(|name| has_samples(run, name));
    known.or_else(|| {
        let all = run.trials.iter().flat_map(|trial| &trial.series);
        all.filter(|(_, series)| any(series)).map(|(name, _)| name.as_str()).min()
    })
}

/// Whether any trial has samples of this metric.
pub(crate) fn has_samples(run: &RunData, metric: &str) -> bool {
    run.trials.iter().any(|trial| trial.series.get(metric).is_some_and(any))
}

/// The metric as a sentence says it.
pub(crate) fn words(metric: &str) -> &str {
    WORDS.iter().find(|(name, _)| *name == metric).map_or(metric, |(_, words)| words)
}

fn any(series: &Series) -> bool {
    series.steps.iter().any(|step| step.count > 0)
}
