//! Claims of Mok 2015 about senders (S2.6, S2.8), judged for the sender of a run. Mok's boards are in
//! the tables beside it; a claim about a board is judged for this sender against the best board's.
//!
//! Mok 2015 sends with one engine, in the kernel; a run has several. Verdicts and the highest rate
//! are those of the best engine, the effect of cross traffic is that over all engines.

use std::collections::BTreeMap;

use dwell_report::analysis::paced::{VerdictCard, verdict_cards};
use dwell_report::model::quantity::{share, three_digits};
use dwell_report::model::{ClaimUnit, ClaimVerdict, JudgedClaims, RunData, TrialData};
use dwell_stats::median;
use dwell_units::BitRate;

use super::CITE;
use crate::evidence::{Comparison, Evidence, number, value};
use crate::judgement::{ClaimSpec, Judgement, Limit, between, nothing};
use crate::published::of_claim;

/// Largest requested rate, in bit/s.
const TOP_RATE: f64 = 1e9;

/// Size of the IP packet in a frame of 1,514 B.
const FULL_SIZE: f64 = 1_500.0;

/// Axis of the number of cross-traffic flows.
const FLOWS: &str = "flows";

/// Axis of engines.
const ENGINE: &str = "engine";

/// Maximum relative difference of two formulas that count as one.
const MAX_EQUAL_DIFFERENCE: f64 = 1e-3;

/// Error probability of each claim: 5 % shared by all claims of a run.
const ERROR_PROBABILITY: f64 = 0.05 / CLAIMS.len() as f64;

/// A claim and its check.
type SenderClaim = ClaimSpec<fn(&Senders) -> Judgement>;

/// A run of packet trains.
struct Senders<'a> {
    cards: Vec<VerdictCard>,
    trains: Evidence<'a>,
}

const CLAIMS: [SenderClaim; 6] = [
    ClaimSpec {
        id: "S2.6-literal",
        claim: "The variability j of equation (2) is the mean gap and nothing else (found in the formula \
                itself; here the ratio of both in every trial).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| literal(&of.trains),
    },
    ClaimSpec {
        id: "S2.8-all-sizes",
        claim: "A small machine measures links of up to 50 Mbit/s with packets of every size (ECS LIVA, \
                the best of four boards).",
        limit: Limit::Published,
        unit: ClaimUnit::BitsPerSecond,
        judge: |of| at_least(&of.cards, |card| card.all_sizes_bps, "S2.8-all-sizes"),
    },
    ClaimSpec {
        id: "S2.8-large-packets",
        claim: "A small machine measures links of up to 100 Mbit/s with large packets (ECS LIVA).",
        limit: Limit::Published,
        unit: ClaimUnit::BitsPerSecond,
        judge: |of| at_least(&of.cards, |card| card.large_packets_bps, "S2.8-large-packets"),
    },
    ClaimSpec {
        id: "S2.8-small-packets",
        claim: "Small packets lower the largest rate that is paced accurately (all four boards but Pi I).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| small_packets(&of.cards),
    },
    ClaimSpec {
        id: "S2.8-top-rate",
        claim: "At 1 Gbit/s with full-size packets, the rate stays below the requested one (ECS LIVA: 760 \
                of 1,000 Mbit/s).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Share,
        judge: |of| top_rate(&of.trains),
    },
    ClaimSpec {
        id: "S2.8-cross-traffic",
        claim: "25 flows of cross traffic lower the rate at 1 Gbit/s with full-size packets (ECS LIVA: 430 \
                over 760 Mbit/s).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| cross_traffic(&of.trains),
    },
];

/// Ids and limits of the claims.
#[cfg(test)]
pub(crate) fn limits() -> Vec<(&'static str, Limit)> {
    CLAIMS.iter().map(ClaimSpec::id_and_limit).collect()
}

/// Judges the claims.
pub(super) fn judge(run: &RunData) -> JudgedClaims {
    let all = Evidence::of(run);
    let trains = all.filter(|trial| number(trial, "rate_bps").is_some());
    let node = run.plan().and_then(|plan| Some(plan.measurement.pace()?.from.to_string()));
    let cards = verdict_cards(run, node.as_deref().unwrap_or("this node"));
    let senders = Senders { cards, trains };
    JudgedClaims {
        cite: CITE,
        claims: CLAIMS.iter().map(|claim| claim.judged(|judge| judge(&senders))).collect(),
        node_delay: None,
        left_out: all.left_out_text(),
    }
}

fn literal(trains: &Evidence) -> Judgement {
    if trains.is_empty() {
        return nothing(&[trains], "No trains were measured.");
    }
    let ratio = |trial: &TrialData| {
        let mean = trial.summary.as_ref()?.metrics.get("gap_ns")?.mean?;
        Some(value(trial, "j_literal_ns")? / mean)
    };
    let Some(level) = trains.level(ratio, ERROR_PROBABILITY) else {
        return Judgement::cannot_tell("Here: no trial has gaps.");
    };
    let words = format!(
        "Here: j is {}x the mean gap{}.",
        three_digits(level.value),
        between(level, three_digits)
    );
    let verdict = level.within(1.0 - MAX_EQUAL_DIFFERENCE, 1.0 + MAX_EQUAL_DIFFERENCE);
    Judgement::new(verdict, level.value, words).with_bound(level, &[trains])
}

/// Judges whether the best card reaches the published rate of a claim.
fn at_least(cards: &[VerdictCard], of: fn(&VerdictCard) -> Option<u64>, claim: &str) -> Judgement {
    let Some(card) = cards.first() else {
        return Judgement::not_run("No trains at a constant rate were measured.");
    };
    let rates: Vec<Option<u64>> = cards.iter().map(of).collect();
    let text = format!("Here: {}.", card.text);
    match rates.iter().flatten().max() {
        Some(&best) if of_claim(claim).is_some_and(|published| best as f64 >= published) => {
            Judgement::new(ClaimVerdict::Pass, best as f64, text)
        }
        // An undecided card may still reach it.
        Some(&best) if rates.iter().all(Option::is_some) => {
            Judgement::new(ClaimVerdict::Fail, best as f64, text)
        }
        _ => Judgement::cannot_tell(text),
    }
}

fn small_packets(cards: &[VerdictCard]) -> Judgement {
    let Some(card) = cards.first() else {
        return Judgement::not_run("No trains at a constant rate were measured.");
    };
    let (Some(all), Some(large)) = (card.all_sizes_bps, card.large_packets_bps) else {
        return Judgement::cannot_tell(format!("Here: {}.", card.text));
    };
    if large == 0 {
        return Judgement::cannot_tell("Here: no tested rate is accurate with any size.");
    }
    let factor = all as f64 / large as f64;
    let verdict = if factor < 1.0 { ClaimVerdict::Pass } else { ClaimVerdict::Fail };
    let [all, large] = [all, large].map(BitRate);
    let words = format!("Here: {all} with packets of every size, {large} with large ones.");
    Judgement::new(verdict, factor, words)
}

/// Trials at the top rate with packets of full size.
fn at_top<'a>(trains: &Evidence<'a>) -> Evidence<'a> {
    trains.filter(|trial| {
        number(trial, "rate_bps") == Some(TOP_RATE)
            && number(trial, "size_bytes").is_some_and(|size| size >= FULL_SIZE)
    })
}

/// Median rate of the trains of a trial, in bit/s.
fn measured_bps(trial: &TrialData) -> Option<f64> {
    let trains = &trial.summary.as_ref()?.trains;
    median(&trains.iter().filter_map(|train| train.rate_bps).collect::<Vec<_>>())
}

fn flows(trial: &TrialData) -> &str {
    trial.parameters.get(FLOWS).map_or("0", String::as_str)
}

fn top_rate(trains: &Evidence) -> Judgement {
    let top = at_top(trains).filter(|trial| flows(trial) == "0");
    if top.is_empty() {
        return nothing(&[&top], "No trains of full-size packets at 1 Gbit/s were measured.");
    }
    let mut engines: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for trial in &top.trials {
        let engine = trial.parameters.get(ENGINE).map_or("", String::as_str);
        engines.entry(engine).or_default().extend(measured_bps(trial));
    }
    let medians = engines.into_iter().filter_map(|(engine, rates)| Some((engine, median(&rates)?)));
    let Some((best, _)) = medians.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Judgement::cannot_tell("Here: no train has enough timestamps.");
    };
    let best_trials =
        top.filter(|trial| trial.parameters.get(ENGINE).is_none_or(|engine| engine == best));
    let achieved = |trial: &TrialData| Some(measured_bps(trial)? / TOP_RATE);
    let Some(level) = best_trials.level(achieved, ERROR_PROBABILITY) else {
        return Judgement::cannot_tell("Here: no train has enough timestamps.");
    };
    let words = format!(
        "Here: {} of the requested rate{} with the fastest engine{}.",
        share(level.value),
        between(level, share),
        if best.is_empty() { String::new() } else { format!(", {best}") },
    );
    Judgement::new(level.falls(), level.value, words).with_bound(level, &[&best_trials])
}

fn cross_traffic(trains: &Evidence) -> Judgement {
    let top = at_top(trains);
    let (without, with) =
        (top.filter(|trial| flows(trial) == "0"), top.filter(|trial| flows(trial) == "25"));
    if without.is_empty() || with.is_empty() {
        return nothing(
            &[&without, &with],
            "Not both 0 and 25 flows were measured at 1 Gbit/s with full-size packets.",
        );
    }
    let found = with.ratio_to(&without, FLOWS, measured_bps, ERROR_PROBABILITY);
    let Some(Comparison { from, to, factor }) = found else {
        return Judgement::cannot_tell("Here: no engine has rates with and without cross traffic.");
    };
    let [to, from] = [to, from].map(|bps| format!("{:.0} Mbit/s", bps / 1e6));
    let words = format!(
        "Here: {}x{} over all engines: {to} against {from}.",
        three_digits(factor.value),
        between(factor, three_digits),
    );
    Judgement::new(factor.falls(), factor.value, words).with_bound(factor, &[&without, &with])
}
