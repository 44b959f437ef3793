//! Node-to-link delay ratio, NLR (Miya 2020, S0.15): 95th percentile of the node delay over that of
//! both links together. Findings, figures and claims share this definition.
//!
//! A link slower than its rate makes any node look fast. Emulated links become slow under CPU load
//! and with small packets, so an NLR needs a trial without load and packets that the links carry in
//! about their transmission time.

use std::collections::{BTreeMap, BTreeSet};

use dwell_stats::{Quantile, blocked_level};

use crate::analysis::group::percentile_of;
use crate::model::metric::{self, NODE_DELAY_METRICS};
use crate::model::quantity::{delay, listed, three_digits};
use crate::model::{RunData, TrialData};

/// Delay of both links together.
pub const LINK_DELAY_METRIC: &str = "link_delay_ns";

/// Maximum of the median link delay over the transmission time for an NLR.
const MAX_LINK_SLOWDOWN: f64 = 2.0;

/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS_BYTES: f64 = 14.0 + 20.0 + 8.0;

/// Payload size in bytes and link rate in bit/s.
type Packets = (u64, u64);

/// Which trials of a run have a valid NLR.
#[derive(Clone, Debug)]
pub struct NlrConditions {
    /// Median link delay over the transmission time, where it exceeds [`MAX_LINK_SLOWDOWN`].
    slow: BTreeMap<Packets, f64>,
}

impl NlrConditions {
    /// Judges links over all relay modes together, because all modes use the same links.
    pub fn of(run: &RunData) -> Self {
        let mut each: BTreeMap<Packets, Vec<&TrialData>> = BTreeMap::new();
        for trial in run.finished_trials().filter(|trial| is_idle(trial)) {
            if let Some(kind) = packets(trial) {
                each.entry(kind).or_default().push(trial);
            }
        }
        let times = |trial: &TrialData| {
            let median = percentile_of(trial, LINK_DELAY_METRIC, Quantile::P50)? as f64;
            Some(median / transmission_ns(trial)?)
        };
        let typical = |(kind, trials): (Packets, Vec<&TrialData>)| {
            let times = self::typical(&trials, times)?;
            (times > MAX_LINK_SLOWDOWN).then_some((kind, times))
        };
        Self { slow: each.into_iter().filter_map(typical).collect() }
    }

    /// Whether the trial has a valid NLR.
    pub fn is_valid(&self, trial: &TrialData) -> bool {
        packets(trial).is_some_and(|kind| is_idle(trial) && !self.slow.contains_key(&kind))
    }

    /// NLR of a trial; `None` if it is not valid.
    pub fn of_trial(&self, trial: &TrialData) -> Option<f64> {
        of_trial(trial).filter(|_| self.is_valid(trial))
    }

    /// Sentence, with a leading space, about packet sizes of these trials that the links carried
    /// too slowly; empty without any.
    pub fn slow_links(&self, trials: &[&TrialData]) -> String {
        let here: BTreeSet<Packets> = trials.iter().filter_map(|trial| packets(trial)).collect();
        let slow = self.slow.iter().filter(|(kind, _)| here.contains(kind));
        let each: Vec<String> = slow
            .map(|((bytes, _), times)| format!("{bytes} B ({}x)", three_digits(*times)))
            .collect();
        if each.is_empty() {
            return String::new();
        }
        format!(
            " No NLR for {}. In brackets: the median link delay over the transmission time, more than \
             the link rate explains.",
            listed(&each)
        )
    }
}

/// Whether the trial ran without any load.
pub fn is_idle(trial: &TrialData) -> bool {
    trial.loads.is_empty() && trial.parameters.get("load").is_none_or(|load| load == "none")
}

/// Transmission time of a packet over both links, without the bytes that encryption adds; `None`
/// without a link rate.
pub(crate) fn transmission_ns(trial: &TrialData) -> Option<f64> {
    let (payload, rate) = packets(trial)?;
    (rate > 0).then(|| 2.0 * (payload as f64 + HEADERS_BYTES) * 8e9 / rate as f64)
}

/// Sentence, with a leading space, that compares the link delay with the transmission time.
pub fn transmission_comparison(trials: &[&TrialData]) -> Option<String> {
    let of_links = |quantile| {
        let one = move |trial: &TrialData| {
            Some(percentile_of(trial, LINK_DELAY_METRIC, quantile)? as f64)
        };
        typical(trials, one).map(delay)
    };
    Some(format!(
        " Both links together: median {}, p95 {}; transmission alone {}.",
        of_links(Quantile::P50)?,
        of_links(Quantile::P95)?,
        delay(typical(trials, transmission_ns)?)
    ))
}

fn packets(trial: &TrialData) -> Option<Packets> {
    let number = |name| trial.summary.as_ref()?.number(name);
    Some((number("payload_bytes")? as u64, number("link_rate_bps")? as u64))
}

/// NLR of one trial; `None` without a link rate or without the timestamps.
fn of_trial(trial: &TrialData) -> Option<f64> {
    trial.summary.as_ref()?.number("link_rate_bps")?;
    let p95 = |metric: &str| percentile_of(trial, metric, Quantile::P95).map(|ns| ns as f64);
    let node = p95(node_delay_metric(trial)?)?;
    Some(node / p95(LINK_DELAY_METRIC).filter(|link| *link > 0.0)?)
}

/// Node-delay metric at whose timestamps the trial's links begin and end. Node and links together
/// make up the path only at this level, so relay modes may differ in it.
pub fn node_delay_metric(trial: &TrialData) -> Option<&'static str> {
    NODE_DELAY_METRICS
        .into_iter()
        .find(|metric| percentile_of(trial, metric, Quantile::P95).is_some())
}

/// Lists the node-delay metrics of relay modes, with the modes in brackets if they differ.
pub fn node_delay_names<'a>(each: impl IntoIterator<Item = (&'a str, &'static str)>) -> String {
    let mut of: Vec<(&str, Vec<String>)> = Vec::new();
    for (mode, node_delay_metric) in each {
        let mode = mode.to_owned();
        match of.iter_mut().find(|(known, _)| *known == node_delay_metric) {
            Some((_, modes)) if modes.contains(&mode) => {}
            Some((_, modes)) => modes.push(mode),
            None => of.push((node_delay_metric, vec![mode])),
        }
    }
    let several = of.len() > 1;
    let said = of.iter().map(|(node_delay_metric, modes)| match several {
        true => format!("{} ({})", metric::words(node_delay_metric), listed(modes)),
        false => metric::words(node_delay_metric).to_owned(),
    });
    listed(&said.collect::<Vec<_>>())
}

/// Geometric mean over combinations of parameters with equal weight, each the mean of its trials.
pub(crate) fn typical(
    trials: &[&TrialData],
    of: impl Fn(&TrialData) -> Option<f64>,
) -> Option<f64> {
    Some(blocked_level(&cells(trials, of), 0.95)?.other)
}

/// Values of trials, grouped by combination of parameters.
pub fn cells(trials: &[&TrialData], of: impl Fn(&TrialData) -> Option<f64>) -> Vec<Vec<f64>> {
    let mut cells: BTreeMap<&BTreeMap<String, String>, Vec<f64>> = BTreeMap::new();
    for trial in trials {
        if let Some(figure) = of(trial) {
            cells.entry(&trial.parameters).or_default().push(figure);
        }
    }
    cells.into_values().collect()
}
