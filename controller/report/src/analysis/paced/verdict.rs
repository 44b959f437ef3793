//! Largest rate that each sender keeps accurately.

use std::collections::BTreeMap;
use std::iter;

use dwell_record::Train;
use dwell_sample::TimestampSource;
use dwell_stats::RealInterval;
use dwell_stats::accuracy::{
    Accuracy, EngineRate, LargestRate, NoVerdictReason, Tolerance, TrainAccuracy, largest_rate,
};
use dwell_stats::departures::TrainRequest;
use dwell_units::{BitRate, Bytes};
use serde::Serialize;

use super::trial::{PacedTrial, Sender, paced};
use crate::model::{RunData, TrialState};

/// Verdict on one engine of a node, for one packet size and number of cross-traffic flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateVerdict {
    /// Sending node.
    pub node: String,
    /// Engine.
    pub engine: String,
    /// Size of the IP packet in bytes.
    pub ip_size: u64,
    /// Number of cross-traffic flows from the same node.
    pub flows: u32,
    /// Values of the other varied parameters.
    pub parameters: BTreeMap<String, String>,
    /// Verdict.
    pub verdict: RateVerdictKind,
    /// Largest rate in bit/s such that it and all smaller ones tried are accurate: 0 if none is,
    /// `None` if undecided.
    pub largest_rate_bps: Option<u64>,
    /// Why it is not larger, or why it is undecided.
    pub reason: Option<String>,
    #[serde(skip)]
    pub(crate) largest: LargestRate,
}

/// Kind of verdict on a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateVerdictKind {
    /// A largest accurate rate was found.
    Rate,
    /// Not even the smallest rate tried is accurate.
    None,
    /// Undecided.
    CannotTell,
    /// The node does not support the engine.
    NotRun,
}

/// Returns the largest rates of the engines that ran.
pub(super) fn engine_rates<'a>(
    verdicts: impl Iterator<Item = &'a RateVerdict>,
) -> Vec<EngineRate<'a>> {
    let ran = verdicts.filter(|verdict| verdict.verdict != RateVerdictKind::NotRun);
    let rate = |verdict: &'a RateVerdict| EngineRate {
        engine: &verdict.engine,
        ip_size: Bytes(verdict.ip_size),
        flows: verdict.flows,
        largest: verdict.largest,
    };
    ran.map(rate).collect()
}

/// Definition of accurate: from the command line, else from the plan, else the default.
pub fn tolerance(run: &RunData) -> Tolerance {
    let plan = run.plan().and_then(|plan| plan.measurement.pace()?.accurate).unwrap_or_default();
    let set = run.accurate.unwrap_or_default().or(plan);
    let usual = Tolerance::default();
    Tolerance {
        rate: set.rate.map_or(usual.rate, |share| share.as_f64()),
        gap: set.gap.map_or(usual.gap, |share| share.as_f64()),
        trains: set.trains.map_or(usual.trains, |trains| trains as usize),
        confidence: set.confidence.map_or(usual.confidence, |share| share.as_f64()),
    }
}

/// Verdicts of a run of trains, ordered by node, other parameters, engine, flows and size.
pub fn verdicts(run: &RunData) -> Vec<RateVerdict> {
    let trains: Vec<PacedTrial> =
        paced(run).into_iter().filter(|paced| paced.rate.is_some()).collect();
    let tolerance = tolerance(run);
    let mut senders: Vec<&Sender> = Vec::new();
    for paced in &trains {
        if !senders.contains(&&paced.sender) {
            senders.push(&paced.sender);
        }
    }
    let mut all: Vec<RateVerdict> = senders
        .into_iter()
        .map(|sender| {
            let of: Vec<&PacedTrial> =
                trains.iter().filter(|paced| paced.sender == *sender).collect();
            verdict(sender, &of, &tolerance)
        })
        .collect();
    let engines = engines(run, &all);
    let place = |engine: &String| engines.iter().position(|known| known == engine);
    all.sort_by(|a, b| {
        let key = |of: &RateVerdict| (of.flows, of.ip_size);
        (&a.node, &a.parameters, place(&a.engine), key(a)).cmp(&(
            &b.node,
            &b.parameters,
            place(&b.engine),
            key(b),
        ))
    });
    all
}

/// Engines in the order of the plan, then others.
fn engines(run: &RunData, all: &[RateVerdict]) -> Vec<String> {
    let axis = run.axes.iter().find(|axis| ["engine", "pace.engine"].contains(&axis.name.as_str()));
    let mut engines = axis.map_or_else(Vec::new, |axis| axis.values.clone());
    for verdict in all {
        if !engines.contains(&verdict.engine) {
            engines.push(verdict.engine.clone());
        }
    }
    engines
}

fn verdict(sender: &Sender, trials: &[&PacedTrial], tolerance: &Tolerance) -> RateVerdict {
    let mut rates: Vec<BitRate> = trials.iter().filter_map(|paced| paced.rate).collect();
    rates.sort_unstable();
    rates.dedup();
    let judged: Vec<(BitRate, Accuracy)> = rates
        .into_iter()
        .map(|rate| {
            let at: Vec<&PacedTrial> =
                trials.iter().copied().filter(|paced| paced.rate == Some(rate)).collect();
            (rate, accuracy(&at, tolerance))
        })
        .collect();
    let not_run = trials.iter().all(|paced| paced.trial.state == TrialState::NotRun);
    let largest = largest_rate(judged.iter().copied());
    let (verdict, reason) = if not_run {
        let first = trials.first().and_then(|paced| paced.trial.reason.as_deref());
        // The node is in a field of its own.
        let of_job = format!("pace on {}: ", sender.node);
        let reason = first.map(|text| text.strip_prefix(&of_job).unwrap_or(text).to_owned());
        (RateVerdictKind::NotRun, reason)
    } else {
        let limit = judged.iter().find(|(_, accuracy)| *accuracy != Accuracy::Accurate);
        let reason = limit.map(|(rate, accuracy)| format!("{rate}: {accuracy}"));
        let verdict = match largest {
            LargestRate::Rate { .. } => RateVerdictKind::Rate,
            LargestRate::NoneTried => RateVerdictKind::None,
            LargestRate::CannotTell => RateVerdictKind::CannotTell,
        };
        (verdict, reason)
    };
    let Sender { node, engine, ip_size, flows, others } = sender.clone();
    RateVerdict {
        node,
        engine,
        ip_size,
        flows,
        parameters: others,
        verdict,
        largest_rate_bps: largest.bps(),
        reason,
        largest,
    }
}

/// Accuracy of a sender at one rate, over the trains of all its trials. The least accurate
/// timestamp source counts, and the trains of a failed trial are unknown.
fn accuracy(trials: &[&PacedTrial], tolerance: &Tolerance) -> Accuracy {
    let summaries = || trials.iter().filter_map(|paced| paced.summary);
    let mut trains: Vec<TrainAccuracy> =
        summaries().flat_map(|summary| &summary.trains).map(of_train).collect();
    let trains_per_trial = summaries().map(|summary| summary.trains.len()).max().unwrap_or(0);
    let failed = trials.iter().filter(|paced| paced.trial.state == TrialState::Failed).count();
    let few = Accuracy::CannotTell {
        why: NoVerdictReason::FewTrains { trains: trains.len(), least: tolerance.trains },
    };
    // Trains of failed trials do not count towards the minimum.
    if trains.len() >= tolerance.trains {
        trains.extend(iter::repeat_n(UNKNOWN_TRAIN, failed * trains_per_trial));
    }
    if summaries().any(|summary| summary.parameters.get("limit_unseen") == Some(&true.into())) {
        return Accuracy::CannotTell { why: NoVerdictReason::LimitUnseen };
    }
    let Some(source) =
        summaries().map(|summary| summary.stamps.tx.unwrap_or(TimestampSource::User)).min()
    else {
        return few;
    };
    let request = summaries().find_map(|summary| {
        let (rate, gap) = (summary.number("rate_bps")?, summary.number("gap_ns")?);
        (rate > 0.0 && gap > 0.0).then(|| TrainRequest {
            bits: rate * gap / 1e9,
            gap,
            deadline: None,
            same_clock: true,
        })
    });
    request.map_or(few, |request| tolerance.judge(&request, source, &trains).accuracy)
}

/// Interval of an unknown value.
const UNKNOWN_INTERVAL: RealInterval = RealInterval { low: 0.0, high: f64::INFINITY };
const UNKNOWN_TRAIN: TrainAccuracy =
    TrainAccuracy { rate_bps: UNKNOWN_INTERVAL, gap_error_p95: UNKNOWN_INTERVAL };

fn of_train(train: &Train) -> TrainAccuracy {
    let span = |value: Option<f64>| {
        value.map_or(UNKNOWN_INTERVAL, |value| RealInterval { low: value, high: value })
    };
    TrainAccuracy {
        rate_bps: span(train.rate_bps),
        gap_error_p95: span(train.gap_error_p95_ns.map(|ns| ns as f64)),
    }
}
