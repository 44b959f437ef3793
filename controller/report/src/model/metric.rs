//! Main delay metric of a report, and readable names of metrics.

use dwell_record::series::Series;

use crate::model::run::RunData;

/// Metrics and their readable names, in order of preference as the main metric.
const METRIC_NAMES: [(&str, &str); 25] = [
    ("rtt_ns", "round-trip delay"),
    ("node_delay_ns", "node delay"),
    ("node_delay_netfilter_ns", "node delay between netfilter's hooks"),
    ("node_delay_driver_ns", "node delay between the drivers"),
    ("end_to_end_ns", "end-to-end delay"),
    ("one_way_forward_ns", "forward one-way delay"),
    ("one_way_backward_ns", "backward one-way delay"),
    ("rtt_kernel_ns", "round-trip delay by kernel timestamps"),
    ("rtt_driver_ns", "round-trip delay by driver timestamps"),
    ("rtt_hw_ns", "round-trip delay by hardware timestamps"),
    ("processing_ns", "processing delay"),
    ("processing_s0_ns", "processing delay with the send call"),
    ("residence_ns", "residence time in the reflector"),
    ("link_delay_ns", "link delay"),
    ("queueing_in_ns", "queueing delay on arrival"),
    ("queueing_out_ns", "queueing delay on departure"),
    ("qdisc_ns", "delay in the queueing discipline"),
    ("sender_out_ns", "delay in the sender"),
    ("link_in_ns", "delay of the link to the node"),
    ("link_out_ns", "delay of the link from the node"),
    ("receiver_in_ns", "delay in the receiver"),
    ("gap_error_ns", "gap error"),
    ("gap_ns", "gap between packets"),
    ("ipdv_ns", "delay variation between successive packets"),
    ("schedule_error_ns", "schedule error"),
];

/// Round trip between timestamps of the driver.
pub const RTT_DRIVER: &str = "rtt_driver_ns";

/// Metrics of node delay by timestamp level, from the one that covers most of the node. A trial has
/// some of them: a node that routes in the kernel has no socket timestamps.
pub const NODE_DELAY_METRICS: [&str; 3] =
    ["node_delay_ns", "node_delay_driver_ns", "node_delay_netfilter_ns"];

/// Node-delay metric that most trials have, to compare trials of different modes; `None` without
/// any.
pub(crate) fn node_delay(run: &RunData) -> Option<&'static str> {
    let has = |name: &&str| {
        run.trials.iter().filter(|trial| trial.series.get(*name).is_some_and(any)).count()
    };
    // `max_by_key` returns the last of equal elements: the first metric.
    NODE_DELAY_METRICS.into_iter().rev().max_by_key(has).filter(|name| has_samples(run, name))
}

/// Returns the metric that most figures of a run show: the round-trip delay, else the node delay
/// that most trials have, else the first of `METRIC_NAMES` with samples, else any with samples.
pub fn main_metric(run: &RunData) -> Option<&str> {
    if !has_samples(run, "rtt_ns")
        && let Some(node) = node_delay(run)
    {
        return Some(node);
    }
    let known = METRIC_NAMES.iter().map(|(name, _)| *name).find(|name| has_samples(run, name));
    known.or_else(|| {
        let all = run.trials.iter().flat_map(|trial| &trial.series);
        all.filter(|(_, series)| any(series)).map(|(name, _)| name.as_str()).min()
    })
}

/// Whether any trial has samples of this metric.
pub(crate) fn has_samples(run: &RunData, metric: &str) -> bool {
    run.trials.iter().any(|trial| trial.series.get(metric).is_some_and(any))
}

/// Readable name of a metric.
pub fn words(metric: &str) -> &str {
    METRIC_NAMES.iter().find(|(name, _)| *name == metric).map_or(metric, |(_, words)| words)
}

fn any(series: &Series) -> bool {
    series.steps.iter().any(|step| step.count > 0)
}
