//! Verdict card of a sender: the networks that it can measure, as Mok 2015 gives them for boards.

use std::collections::BTreeMap;

use dwell_stats::accuracy::{LargestRate, best_engines, card_sentence};
use dwell_units::Bytes;
use serde::Serialize;

use super::trial::paced;
use super::verdict::{RateVerdict, RateVerdictKind, engine_rates, tolerance, verdicts};
use crate::model::RunData;

/// Verdict card of one node of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictCard {
    /// Name of the run.
    pub run: String,
    /// Start time of the run, RFC 3339.
    pub started: String,
    /// Values of varied parameters other than engine, size, rate and cross traffic.
    pub parameters: BTreeMap<String, String>,
    /// Engines with the best verdicts; empty if no engine is known to keep any tested rate.
    pub engines: Vec<String>,
    /// Verdict in words.
    pub text: String,
    /// Largest rate in bit/s that every tested packet size keeps, with the least cross traffic: 0
    /// without such a rate, `None` if it is undecided.
    pub all_sizes_bps: Option<u64>,
    /// Largest rate in bit/s with the largest packets, likewise.
    pub large_packets_bps: Option<u64>,
    /// Smallest IP packet in bytes from which on all sizes have that rate.
    pub large_packets_from: u64,
    /// Number of measured trials of all engines.
    pub trials: usize,
    /// Definition of an accurate sender.
    pub accurate: String,
}

impl VerdictCard {
    /// Whether a tested rate is known to be accurate or inaccurate.
    pub fn is_decided(&self) -> bool {
        self.all_sizes_bps.or(self.large_packets_bps).is_some()
    }
}

/// Returns the verdict cards of a node: one for each combination of other varied parameters. Empty
/// if the node sent no trains at a constant rate.
pub fn verdict_cards(run: &RunData, node: &str) -> Vec<VerdictCard> {
    let all: Vec<RateVerdict> =
        verdicts(run).into_iter().filter(|verdict| verdict.node == node).collect();
    let mut groups: Vec<&BTreeMap<String, String>> = Vec::new();
    for verdict in &all {
        if !groups.contains(&&verdict.parameters) {
            groups.push(&verdict.parameters);
        }
    }
    let of_group = |parameters: &BTreeMap<String, String>| {
        let of: Vec<&RateVerdict> =
            all.iter().filter(|verdict| verdict.parameters == *parameters).collect();
        let trials = paced(run).into_iter().filter(|paced| {
            let sender = &paced.sender;
            paced.summary.is_some() && sender.node == node && sender.others == *parameters
        });
        card(run, parameters, &of, trials.count())
    };
    groups.into_iter().map(of_group).collect()
}

fn card(
    run: &RunData,
    parameters: &BTreeMap<String, String>,
    verdicts: &[&RateVerdict],
    trials: usize,
) -> VerdictCard {
    let ran = || verdicts.iter().filter(|verdict| verdict.verdict != RateVerdictKind::NotRun);
    let table = engine_rates(verdicts.iter().copied());
    let engines = best_engines(&table);
    let undecided = ran().find(|verdict| verdict.verdict == RateVerdictKind::CannotTell);
    // An undecided engine or size may still have a rate.
    let foremost = undecided.or_else(|| ran().next()).or(verdicts.first());
    let engine = engines.first().copied().or_else(|| foremost.map(|it| it.engine.as_str()));
    let text = match (engines.first(), foremost) {
        (Some(engine), _) => card_sentence(&table, engine),
        (None, Some(verdict)) => {
            let reason = verdict.reason.as_deref().unwrap_or("unknown reason");
            let what = match verdict.verdict {
                RateVerdictKind::NotRun => "no engine was run",
                RateVerdictKind::None => "keeps none of the tested rates",
                RateVerdictKind::Rate | RateVerdictKind::CannotTell => "cannot tell",
            };
            format!("{what} ({}: {reason})", verdict.engine)
        }
        (None, None) => "not measured".to_owned(),
    };
    let least = table.iter().map(|row| row.flows).min();
    let mut by_size: Vec<(Bytes, LargestRate)> = table
        .iter()
        .filter(|row| Some(row.engine) == engine && Some(row.flows) == least)
        .map(|row| (row.ip_size, row.largest))
        .collect();
    by_size.sort_by_key(|(size, _)| *size);
    // No engine is known to keep a rate, but one may.
    let may_keep_more = engines.is_empty() && undecided.is_some();
    let decided = |bps: Option<u64>| bps.filter(|_| !may_keep_more);
    let bps = by_size.iter().map(|(_, largest)| largest.bps());
    // An undecided size leaves the verdict on all sizes undecided, unless another size fails.
    let all_sizes_bps = match bps.clone().flatten().min() {
        Some(0) => Some(0),
        least => least.filter(|_| bps.clone().all(|bps| bps.is_some())),
    };
    let large = by_size.last().map(|(_, largest)| *largest);
    let from = by_size.iter().rev().take_while(|(_, largest)| Some(*largest) == large).last();
    VerdictCard {
        run: run.id.clone(),
        started: run.started.clone(),
        parameters: parameters.clone(),
        engines: engines.into_iter().map(str::to_owned).collect(),
        text,
        all_sizes_bps: decided(all_sizes_bps),
        large_packets_bps: decided(large.and_then(LargestRate::bps)),
        large_packets_from: from.map_or(0, |(size, _)| size.0),
        trials,
        accurate: tolerance(run).to_string(),
    }
}
