//! Node delay in relation to link delay, NLR (S0.15). One definition for findings, figures and claims:
//! S0 stacked 95th percentiles, so it is that of the node delay over that of both links together.
//!
//! A link that is slower than its rate makes any node look fast, and an emulated one is: under stress,
//! and with small packets. So an NLR is told of trials without stress, and of packets that links carry
//! in about the time of their transmission.

use std::collections::{BTreeMap, BTreeSet};

use dwell_record::Summary;
use dwell_stats::{Quantile, blocked_level};

use crate::data::{RunData, TrialData};
use crate::group::{self, percentile_of};
use crate::metric;
use crate::quantity::{delay, listed, three_digits};

/// The rungs of a node delay, from the one that sees most of the node.
pub(crate) const NODE: [&str; 3] =
    ["node_delay_ns", "node_delay_driver_ns", "node_delay_netfilter_ns"];

/// Both links together.
pub(crate) const LINKS: &str = "link_delay_ns";

/// Links whose median is more than so many times the time of transmission are no links of their rate.
const SLOW: f64 = 2.0;

/// What a link carries of a packet besides its payload: Ethernet, IPv4 and UDP.
const HEADERS_BYTES: f64 = 14.0 + 20.0 + 8.0;

/// Links of this kind carried packets too slowly: payload in bytes, bits per second.
type Packets = (u64, u64);

/// Of which trials of a run an NLR is told.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// How many times the time of transmission links took, where that is too much.
    slow: BTreeMap<Packets, f64>,
}

impl Terms {
    /// Links are judged over all modes of relaying together, for they are the same ones.
    pub(crate) fn of(run: &RunData) -> Self {
        let mut each: BTreeMap<Packets, Vec<&TrialData>> = BTreeMap::new();
        for trial in group::finished(run).filter(|trial| is_idle(trial)) {
            if let Some(kind) = packets(trial) {
                each.entry(kind).or_default().push(trial);
            }
        }
        let times = |trial: &TrialData| {
            let median = percentile_of(trial, LINKS, Quantile::P50)? as f64;
            Some(median / transmission_ns(trial)?)
        };
        let typical = |(kind, trials): (Packets, Vec<&TrialData>)| {
            let times = self::typical(&trials, times)?;
            (times > SLOW).then_some((kind, times))
        };
        Self { slow: each.into_iter().filter_map(typical).collect() }
    }

    /// Whether an NLR is told of it.
    pub(crate) fn hold(&self, trial: &TrialData) -> bool {
        packets(trial).is_some_and(|kind| is_idle(trial) && !self.slow.contains_key(&kind))
    }

    /// The NLR of a trial that these terms let in.
    pub(crate) fn of_trial(&self, trial: &TrialData) -> Option<f64> {
        of_trial(trial).filter(|_| self.hold(trial))
    }

    /// Packets of these trials that are out because links carried them too slowly, as a sentence behind
    /// another one; empty where there are none.
    pub(crate) fn slow_links(&self, trials: &[&TrialData]) -> String {
        let here: BTreeSet<Packets> = trials.iter().filter_map(|trial| packets(trial)).collect();
        let slow = self.slow.iter().filter(|(kind, _)| here.contains(kind));
        let each: Vec<String> = slow
            .map(|((bytes, _), times)| format!("{bytes} B ({} times)", three_digits(*times)))
            .collect();
        if each.is_empty() {
            return String::new();
        }
        format!(
            " There is no NLR of {}: the median of the link delay is so many times the time of \
             transmission, more than the link's rate explains.",
            listed(&each)
        )
    }
}

/// Whether nothing but the packets themselves kept the machines busy.
pub(crate) fn is_idle(trial: &TrialData) -> bool {
    trial.loads.is_empty() && trial.parameters.get("load").is_none_or(|load| load == "none")
}

/// What both links would take of a packet by their rate alone, without what enciphering adds to it;
/// `None` over bare links.
pub(crate) fn transmission_ns(trial: &TrialData) -> Option<f64> {
    let (payload, rate) = packets(trial)?;
    (rate > 0).then(|| 2.0 * (payload as f64 + HEADERS_BYTES) * 8e9 / rate as f64)
}

/// How long links took beside the time of transmission, as a sentence behind another one.
pub(crate) fn beside_transmission(trials: &[&TrialData]) -> Option<String> {
    let of_links = |quantile| {
        let one = move |trial: &TrialData| Some(percentile_of(trial, LINKS, quantile)? as f64);
        typical(trials, one).map(delay)
    };
    Some(format!(
        " Both links take {} (median; 95th percentile {}), where transmission alone takes {}.",
        of_links(Quantile::P50)?,
        of_links(Quantile::P95)?,
        delay(typical(trials, transmission_ns)?)
    ))
}

fn packets(trial: &TrialData) -> Option<Packets> {
    let number = |name| number(trial.summary.as_ref()?, name);
    Some((number("payload_bytes")? as u64, number("link_rate_bps")? as u64))
}

fn number(summary: &Summary, parameter: &str) -> Option<f64> {
    summary.parameters.get(parameter)?.as_f64()
}

/// That of one trial; `None` over bare links, which hold no packet, and without the stamps for it.
fn of_trial(trial: &TrialData) -> Option<f64> {
    number(trial.summary.as_ref()?, "link_rate_bps")?;
    let p95 = |metric: &str| percentile_of(trial, metric, Quantile::P95).map(|ns| ns as f64);
    let node = p95(rung(trial)?)?;
    Some(node / p95(LINKS).filter(|link| *link > 0.0)?)
}

/// The rung of node delay of a trial at which its links begin and end: with it alone node and links
/// make up the way, so that modes may differ in it.
pub(crate) fn rung(trial: &TrialData) -> Option<&'static str> {
    NODE.into_iter().find(|metric| percentile_of(trial, metric, Quantile::P95).is_some())
}

/// Which rung the node delay of each mode is of: one for all, or of each its own in brackets.
pub(crate) fn rungs<'a>(each: impl IntoIterator<Item = (&'a str, &'static str)>) -> String {
    let mut of: Vec<(&str, Vec<String>)> = Vec::new();
    for (mode, rung) in each {
        let mode = mode.to_owned();
        match of.iter_mut().find(|(known, _)| *known == rung) {
            Some((_, modes)) if modes.contains(&mode) => {}
            Some((_, modes)) => modes.push(mode),
            None => of.push((rung, vec![mode])),
        }
    }
    let several = of.len() > 1;
    let said = of.iter().map(|(rung, modes)| match several {
        true => format!("{} ({})", metric::words(rung), listed(modes)),
        false => metric::words(rung).to_owned(),
    });
    listed(&said.collect::<Vec<_>>())
}

/// What is typical of trials: the geometric mean over combinations of parameters, each of equal weight
/// and the mean of its trials.
pub(crate) fn typical(
    trials: &[&TrialData],
    of: impl Fn(&TrialData) -> Option<f64>,
) -> Option<f64> {
    Some(blocked_level(&cells(trials, of), 0.95)?.other)
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
