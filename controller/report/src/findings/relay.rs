//! What a run says of relays: node delay by mode on one rung, processing as S0 stamped it beside
//! ours, node delay in relation to links, the line through node delay against size.

use dwell_stats::Quantile;

use super::Finding;
use crate::condition::{self, Condition, Links};
use crate::data::{RunData, TrialData};
use crate::figures::{RELAY, modes};
use crate::fits;
use crate::group::{self, Group};
use crate::metric;
use crate::nlr;
use crate::quantity::{delay, listed, share, three_digits};

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

/// The parts of a run by mode of relaying; none where no mode varies.
fn by_mode(run: &RunData) -> Vec<(String, RunData)> {
    modes(run).iter().map(|mode| (mode.clone(), run.only(RELAY, mode))).collect()
}

fn node_delay(run: &RunData) -> Option<String> {
    let metric = metric::node_delay(run)?;
    let condition = Condition::of(run, metric, Links::Bare);
    let here = run.at(&condition.levels());
    let medians = |metric: &str| -> Vec<String> {
        let median = |(mode, part): (String, RunData)| {
            let all = Group::new(String::new(), group::finished(&part).collect(), metric);
            let [p50, p95] = [Quantile::P50, Quantile::P95].map(|q| all.quantile(q));
            Some(format!("{} ({}) at {mode}", delay(p50?), delay(p95?)))
        };
        by_mode(&here).into_iter().filter_map(median).collect()
    };
    let of_s0 = match medians(HOOKS) {
        found if found.is_empty() || metric == HOOKS || run.claims.is_none() => String::new(),
        found => format!(
            " Between netfilter's hooks, where S0 stamped and where its claims are judged: {}.",
            listed(&found)
        ),
    };
    let (noun, medians) = (metric::words(metric), medians(metric));
    (!medians.is_empty()).then(|| {
        format!(
            "Median {noun} (in brackets the 95th percentile){}: {}. Figures compare modes on this rung \
             of stamps.{of_s0}",
            held(&condition),
            listed(&medians)
        )
    })
}

/// The rung of S0 (S0.6).
const HOOKS: &str = "node_delay_netfilter_ns";

/// Under what something was found, as a clause: `, at size 1000B, rate 200pps`.
fn held(condition: &Condition) -> String {
    condition.words().map_or_else(String::new, |words| format!(", at {words}"))
}

fn processing(run: &RunData) -> Option<String> {
    let both = |part: &RunData| {
        let median = |metric: &str| {
            let all = Group::new(String::new(), group::finished(part).collect(), metric);
            all.quantile(Quantile::P50).map(delay)
        };
        Some((median("processing_ns")?, median("processing_s0_ns")?))
    };
    if modes(run).is_empty() {
        let (ours, s0) = both(run)?;
        return Some(format!(
            "In the relaying program a packet spent {ours} (median). {AS_S0} {s0}: {}",
            sending(run)
        ));
    }
    let condition = Condition::of(run, metric::node_delay(run)?, Links::Bare);
    let here = run.at(&condition.levels());
    let found: Vec<_> = (by_mode(&here).into_iter())
        .filter_map(|(mode, part)| Some((mode, both(&part)?)))
        .collect();
    let ours: Vec<String> =
        found.iter().map(|(mode, (ours, _))| format!("{ours} at {mode}")).collect();
    let s0: Vec<String> = found.iter().map(|(mode, (_, s0))| format!("{s0} at {mode}")).collect();
    (!found.is_empty()).then(|| {
        format!(
            "In the relaying program a packet spent {} (medians{}). {AS_S0} {}: {}",
            listed(&ours),
            held(&condition),
            listed(&s0),
            sending(&here)
        )
    })
}

const AS_S0: &str = "Stamped after the send call, as S0 did, that would be";

/// What the stamp after the send call has more. A bare link within one machine hands a packet to the far
/// end's stack before the call returns.
fn sending(run: &RunData) -> String {
    let bare = group::finished(run).any(|trial| nlr::transmission_ns(trial).is_none());
    let far_end = if bare {
        "; over a bare link within one machine, the far end receives in the same call"
    } else {
        ""
    };
    format!("the difference is the kernel's sending, and no processing{far_end}.")
}

fn nlr(run: &RunData) -> Option<String> {
    let terms = nlr::Terms::of(run);
    let parts = by_mode(run);
    let mut each = Vec::new();
    let mut used: Vec<(&str, &TrialData)> = Vec::new();
    for (mode, part) in &parts {
        let trials: Vec<_> = group::finished(part).filter(|trial| terms.hold(trial)).collect();
        let Some(ratio) = nlr::typical(&trials, |trial| terms.of_trial(trial)) else { continue };
        each.push(format!("{} at {mode}", share(ratio)));
        used.extend(trials.into_iter().map(|trial| (mode.as_str(), trial)));
    }
    let all: Vec<&TrialData> = group::finished(run).filter(|trial| nlr::is_idle(trial)).collect();
    let slow = terms.slow_links(&all);
    if each.is_empty() {
        return (!slow.is_empty()).then(|| slow.trim_start().to_owned());
    }
    let rungs = nlr::rungs(used.iter().filter_map(|(mode, t)| Some((*mode, nlr::rung(t)?))));
    let trials: Vec<&TrialData> = used.iter().map(|(_, trial)| *trial).collect();
    Some(format!(
        "Over links with a rate and without stress, the node takes {} of link delay (NLR, of 95th \
         percentiles of the {rungs}, where the links end; geometric mean over all that was so \
         measured of a mode).{}{slow}",
        listed(&each),
        nlr::beside_transmission(&trials).unwrap_or_default()
    ))
}

fn encrypt(run: &RunData) -> Option<String> {
    let of = |fit: &fits::Fit| fit.relay.as_deref() == Some("encrypt") && fit.axis == "size";
    let line = fits::fits(run).into_iter().find(of)?;
    let held: Vec<String> = (line.held.iter())
        .map(|(axis, value)| format!(", {} {value}", condition::axis_words(axis)))
        .collect();
    let (held, noun) = (held.concat(), metric::words(&line.metric));
    let slope = line.slope_ns_per_unit;
    let [value, low, high] = [slope.value, slope.low, slope.high].map(three_digits);
    let r2 = line.r_squared.map_or_else(|| "-".to_owned(), three_digits);
    Some(if slope.low <= 0.0 && slope.high >= 0.0 {
        format!(
            "Enciphering{held}: cannot tell whether size matters to the median {noun}: between {low} and \
             {high} ns per byte (R2 = {r2})."
        )
    } else {
        format!(
            "Enciphering{held}: median {noun} = {} + {value} ns x bytes (slope between {low} and {high}, \
             R2 = {r2}).",
            delay(line.intercept_ns.value)
        )
    })
}
