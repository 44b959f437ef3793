//! Findings about relays: node delay by mode, processing delay by our definition and that of Miya
//! 2020, NLR, and the line through node delay against packet size.

use dwell_stats::Quantile;

use super::finding::Finding;
use crate::analysis::condition::{Condition, Links};
use crate::analysis::group::Group;
use crate::analysis::{fits, nlr};
use crate::model::axes::{RELAY, axis_words};
use crate::model::quantity::{capital, delay, listed, share, three_digits};
use crate::model::{RunData, TrialData, metric};

/// Returns nothing for a run without a relay.
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

/// Parts of a run by relay mode; empty if the mode does not vary.
fn by_mode(run: &RunData) -> Vec<(String, RunData)> {
    run.modes().iter().map(|mode| (mode.clone(), run.only(RELAY, mode))).collect()
}

fn node_delay(run: &RunData) -> Option<String> {
    let metric = metric::node_delay(run)?;
    let condition = Condition::of(run, metric, Links::Unlimited);
    let here = run.at(&condition.levels());
    let medians = |metric: &str| -> Vec<String> {
        let median = |(mode, part): (String, RunData)| {
            let all = Group::new(String::new(), part.finished_trials().collect(), metric);
            let [p50, p95] = [Quantile::P50, Quantile::P95].map(|q| all.quantile(q));
            Some(format!("{} ({}) at {mode}", delay(p50?), delay(p95?)))
        };
        by_mode(&here).into_iter().filter_map(median).collect()
    };
    let of_claims = run.claims.as_ref().and_then(|claims| claims.node_delay);
    let of_claims = of_claims.filter(|claims| claims.metric != metric).and_then(|claims| {
        let found = Some(medians(claims.metric)).filter(|found| !found.is_empty())?;
        let place = capital(claims.words);
        Some(format!(" {place} and its claims are judged: {}.", listed(&found)))
    });
    let (noun, medians) = (metric::words(metric), medians(metric));
    (!medians.is_empty()).then(|| {
        format!(
            "{}, median (95th percentile): {}.{} Figures compare modes at these timestamps.{}",
            capital(noun),
            listed(&medians),
            fixed_parameters(&condition),
            of_claims.unwrap_or_default()
        )
    })
}

/// Condition as a sentence with a leading space: ` Fixed: size 1000B, rate 200pps.`.
fn fixed_parameters(condition: &Condition) -> String {
    condition.words().map_or_else(String::new, |words| format!(" Fixed: {words}."))
}

fn processing(run: &RunData) -> Option<String> {
    let both = |part: &RunData| {
        let median = |metric: &str| {
            let all = Group::new(String::new(), part.finished_trials().collect(), metric);
            all.quantile(Quantile::P50).map(delay)
        };
        Some((median("processing_ns")?, median("processing_s0_ns")?))
    };
    if run.modes().is_empty() {
        let (ours, s0) = both(run)?;
        return Some(format!(
            "Processing in the relay program: median {ours}. {AS_MIYA_2020} {s0}; {}",
            sending(run)
        ));
    }
    let condition = Condition::of(run, metric::node_delay(run)?, Links::Unlimited);
    let here = run.at(&condition.levels());
    let found: Vec<_> = (by_mode(&here).into_iter())
        .filter_map(|(mode, part)| Some((mode, both(&part)?)))
        .collect();
    let ours: Vec<String> =
        found.iter().map(|(mode, (ours, _))| format!("{ours} at {mode}")).collect();
    let s0: Vec<String> = found.iter().map(|(mode, (_, s0))| format!("{s0} at {mode}")).collect();
    (!found.is_empty()).then(|| {
        format!(
            "Processing in the relay program, median: {}.{} {AS_MIYA_2020} {}; {}",
            listed(&ours),
            fixed_parameters(&condition),
            listed(&s0),
            sending(&here)
        )
    })
}

const AS_MIYA_2020: &str = "With the second timestamp after the send call, as in Miya 2020, it is";

/// Explains the timestamp after the send call. Over a link without a rate inside one machine, the
/// packet reaches the receiver's stack before the call returns.
fn sending(run: &RunData) -> String {
    let bare = run.finished_trials().any(|trial| nlr::transmission_ns(trial).is_none());
    let far_end = if bare && run.one_machine {
        "; over a bare link inside one machine it includes the receive path of the far end"
    } else {
        ""
    };
    format!("the difference is the kernel's send path, not processing{far_end}.")
}

fn nlr(run: &RunData) -> Option<String> {
    let conditions = nlr::NlrConditions::of(run);
    let parts = by_mode(run);
    let mut each = Vec::new();
    let mut used: Vec<(&str, &TrialData)> = Vec::new();
    for (mode, part) in &parts {
        let trials: Vec<_> =
            part.finished_trials().filter(|trial| conditions.is_valid(trial)).collect();
        let Some(ratio) = nlr::typical(&trials, |trial| conditions.of_trial(trial)) else {
            continue;
        };
        each.push(format!("{} at {mode}", share(ratio)));
        used.extend(trials.into_iter().map(|trial| (mode.as_str(), trial)));
    }
    let all: Vec<&TrialData> = run.finished_trials().filter(|trial| nlr::is_idle(trial)).collect();
    let slow = conditions.slow_links(&all);
    if each.is_empty() {
        return (!slow.is_empty()).then(|| slow.trim_start().to_owned());
    }
    let metric_names = nlr::node_delay_names(
        used.iter().filter_map(|(mode, t)| Some((*mode, nlr::node_delay_metric(t)?))),
    );
    let trials: Vec<&TrialData> = used.iter().map(|(_, trial)| *trial).collect();
    Some(format!(
        "NLR over links with a rate, without load: {}. It compares 95th percentiles of the {metric_names}, \
         where the links end; geometric mean per mode.{}{slow}",
        listed(&each),
        nlr::transmission_comparison(&trials).unwrap_or_default()
    ))
}

fn encrypt(run: &RunData) -> Option<String> {
    let of = |fit: &fits::Fit| fit.relay.as_deref() == Some("encrypt") && fit.axis == "size";
    let line = fits::fits(run).into_iter().find(of)?;
    let held: Vec<String> =
        line.held.iter().map(|(axis, value)| format!("{} {value}", axis_words(axis))).collect();
    let held = match held.is_empty() {
        true => String::new(),
        false => format!(" Fixed: {}.", held.join(", ")),
    };
    let noun = metric::words(&line.metric);
    let slope = line.slope_ns_per_unit;
    let [value, low, high] = [slope.value, slope.low, slope.high].map(three_digits);
    let r2 = line.r_squared.map_or_else(|| "-".to_owned(), three_digits);
    let together = fits::SIMULTANEOUS;
    Some(if slope.low <= 0.0 && slope.high >= 0.0 {
        format!(
            "Encryption: cannot tell whether size changes the median {noun}: {low} to {high} ns per byte \
             (95 % CI, R2 = {r2}).{held} {together}"
        )
    } else {
        format!(
            "Encryption: median {noun} = {} + {value} ns x bytes (slope {low} to {high}, 95 % CI, \
             R2 = {r2}).{held} {together}",
            delay(line.intercept_ns.value)
        )
    })
}
