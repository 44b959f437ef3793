//! What a run says of relays: node delay by mode on one rung, processing as S0 stamped it beside
//! ours, node delay in relation to links, the line through node delay against size.

use dwell_stats::Quantile;

use super::Finding;
use crate::condition;
use crate::data::RunData;
use crate::figures::modes;
use crate::fits;
use crate::group::{self, Group};
use crate::metric;
use crate::nlr;
use crate::quantity::{delay, delay_ns, listed, share, three_digits};

/// Nothing where no node was between.
pub(super) fn relays(run: &RunData) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |id: &str, text: Option<String>| {
        findings.extend(text.map(|text| Finding { id: id.to_owned(), text }));
    };
    say("node-delay", node_delay(run));
    say("processing", processing(run));
    say("nlr", nlr(run));
    say("fit-encrypt", encrypt(run));
    findings
}

/// The parts of a run by mode of relaying; all of it where there is one mode only.
fn by_mode(run: &RunData) -> Vec<(String, RunData)> {
    modes(run).iter().map(|mode| (mode.clone(), run.only(crate::figures::RELAY, mode))).collect()
}

fn node_delay(run: &RunData) -> Option<String> {
    let metric = metric::node_delay(run)?;
    let median = |(mode, part): (String, RunData)| {
        let all = Group::new(String::new(), group::finished(&part).collect(), metric);
        let [p50, p95] = [Quantile::P50, Quantile::P95].map(|q| all.steps.quantile(q));
        Some(format!("{} ({}) at {mode}", delay_ns(p50?), delay_ns(p95?)))
    };
    let medians: Vec<String> = by_mode(run).into_iter().filter_map(median).collect();
    let noun = metric::words(metric);
    (!medians.is_empty()).then(|| {
        format!(
            "Median {noun} (in brackets the 95th percentile): {}. Modes are compared on this rung \
             of stamps only.",
            listed(&medians)
        )
    })
}

fn processing(run: &RunData) -> Option<String> {
    let median = |metric: &str| {
        let all = Group::new(String::new(), group::finished(run).collect(), metric);
        all.steps.quantile(Quantile::P50)
    };
    let (ours, s0) = (median("processing_ns")?, median("processing_s0_ns")?);
    Some(format!(
        "In the relaying program a packet spent {} (median). Stamped after the send call, as S0 did, \
         that would be {}: the difference is the kernel's sending, and no processing.",
        delay_ns(ours),
        delay_ns(s0)
    ))
}

fn nlr(run: &RunData) -> Option<String> {
    let of_mode = |(mode, part): (String, RunData)| {
        let trials: Vec<_> = group::finished(&part).collect();
        Some(format!("{} at {mode}", share(nlr::typical(&trials)?)))
    };
    let each: Vec<String> = by_mode(run).into_iter().filter_map(of_mode).collect();
    (!each.is_empty()).then(|| {
        format!(
            "Over links with a rate, node delay is {} of link delay (NLR, of 95th percentiles, typical \
             of trials).",
            listed(&each)
        )
    })
}

fn encrypt(run: &RunData) -> Option<String> {
    let of = |fit: &fits::Fit| fit.relay.as_deref() == Some("encrypt") && fit.axis == "size";
    let line = fits::fits(run).into_iter().find(of)?;
    let held: Vec<String> = (line.held.iter())
        .map(|(axis, value)| format!(", {} {value}", condition::axis_words(axis)))
        .collect();
    Some(format!(
        "Enciphering{}: {} = {} + {} ns x bytes (slope between {} and {}, R2 = {}).",
        held.concat(),
        metric::words(&line.metric),
        delay(line.intercept_ns.value),
        three_digits(line.slope_ns_per_unit.value),
        three_digits(line.slope_ns_per_unit.low),
        three_digits(line.slope_ns_per_unit.high),
        line.r_squared.map_or_else(|| "-".to_owned(), three_digits)
    ))
}
