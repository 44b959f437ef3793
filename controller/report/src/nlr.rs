//! Node delay in relation to link delay, NLR (S0.15). One definition for findings, figures and claims:
//! S0 stacked 95th percentiles, so it is that of the node delay over that of both links together.

use std::collections::BTreeMap;

use dwell_stats::{Quantile, blocked_level};

use crate::data::TrialData;
use crate::group::percentile_of;

/// The rungs of a node delay, from the one that sees most of the node.
pub(crate) const NODE: [&str; 3] =
    ["node_delay_ns", "node_delay_driver_ns", "node_delay_netfilter_ns"];

/// That of one trial; `None` over bare links, which hold no packet, and without the stamps for it.
pub(crate) fn of_trial(trial: &TrialData) -> Option<f64> {
    trial.summary.as_ref()?.parameters.get("link_rate_bps")?.as_f64()?;
    let p95 = |metric: &str| percentile_of(trial, metric, Quantile::P95).map(|ns| ns as f64);
    let node = p95(rung(trial)?)?;
    Some(node / p95("link_delay_ns").filter(|link| *link > 0.0)?)
}

/// The rung of node delay of a trial at which its links begin and end: with it alone node and links
/// make up the way, so that modes may differ in it.
pub(crate) fn rung(trial: &TrialData) -> Option<&'static str> {
    NODE.into_iter().find(|metric| percentile_of(trial, metric, Quantile::P95).is_some())
}

/// What is typical of trials: the geometric mean over combinations of parameters, each of equal weight
/// and the mean of its trials.
pub(crate) fn typical(trials: &[&TrialData]) -> Option<f64> {
    Some(blocked_level(&cells(trials, of_trial), 0.95)?.other)
}

/// A figure of each trial, by what was measured alike.
pub(crate) fn cells(
    trials: &[&TrialData],
    of: impl Fn(&TrialData) -> Option<f64>,
) -> Vec<Vec<f64>> {
    let mut cells: BTreeMap<&BTreeMap<String, String>, Vec<f64>> = BTreeMap::new();
    for trial in trials {
        if let Some(figure) = of(trial) {
            cells.entry(&trial.parameters).or_default().push(figure);
        }
    }
    cells.into_values().collect()
}
