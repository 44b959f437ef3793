//! Why a claim of S0 fails here: what the run says of the parts that the claim is about.

use std::collections::BTreeMap;

use dwell_record::Kind;

use super::super::evidence::Evidence;
use super::{DOUBT, RUNGS, p95, rung};
use crate::data::TrialData;
use crate::nlr;
use crate::quantity::{delay, three_digits};

const PROCESSING: &str = "processing_ns";

/// `None` where the words of the claim say all that there is.
pub(super) fn of(id: &str, all: &Evidence) -> Option<String> {
    let (route, translate) = (all.mode("route"), all.mode("translate"));
    let encrypt = all.mode("encrypt");
    let said = match id {
        "S0.18" | "S0.23" => wait(&translate.bare()),
        "S0.19-route" => way(&route.linked()),
        "S0.19-translate" => way(&translate.linked()),
        "S0.20" => {
            let own = own(&encrypt.linked()).map_or_else(String::new, |own| format!("; {own}"));
            way(&encrypt.linked()).map(|way| way + &own)
        }
        "S0.21-route-rate" => along(&route.bare(), "rate").map(|it| it + ASLEEP),
        "S0.21-translate-rate" => along(&translate.bare(), "rate").map(|it| it + ASLEEP),
        "S0.21-route-load" => along(&route.bare(), "load"),
        "S0.21-translate-load" => along(&translate.bare(), "load"),
        "S0.22-linear" => per_byte(&encrypt.bare()),
        "S0.22-order" => own(&encrypt.bare()),
        "S0.27" => along(&translate.bare().and(encrypt.bare()), "load").map(|it| it + AWAKE),
        _ => None,
    }?;
    Some(format!(" Why: {said}."))
}

/// What S0.26 leaves unexplained; the likely cause on machines of today.
const ASLEEP: &str = "; processors sleep deeper the longer no packet comes, a likely cause (S0.26)";

const AWAKE: &str = "; stress keeps processors awake and their clocks high, a likely cause";

/// What is typical of the 95th percentiles of trials.
fn typical(trials: &Evidence, metric: &'static str) -> Option<f64> {
    trials.level(p95(metric), DOUBT).map(|level| level.value)
}

/// Where a program that only changes addresses spends its time.
fn wait(programs: &Evidence) -> Option<String> {
    Some(format!(
        "a packet waits {} in the socket until the program runs, and {} in the program (95th \
         percentiles)",
        delay(typical(programs, "queueing_in_ns")?),
        delay(typical(programs, PROCESSING)?)
    ))
}

/// What the node takes, and what the links do.
fn way(linked: &Evidence) -> Option<String> {
    let node = |trial: &TrialData| p95(nlr::rung(trial)?)(trial);
    Some(format!(
        "the node takes {} and both links {} (95th percentiles)",
        delay(linked.level(node, DOUBT)?.value),
        delay(typical(linked, "link_delay_ns")?)
    ))
}

/// What enciphering itself takes, and by which instructions.
fn own(encrypt: &Evidence) -> Option<String> {
    let took = delay(typical(encrypt, PROCESSING)?);
    let by = aes(encrypt).map_or_else(String::new, |aes| format!(", AES by {aes}"));
    Some(format!("the program itself has a packet for {took} only (95th percentile{by})"))
}

/// The instructions that the relays of trials enciphered with.
fn aes(trials: &Evidence) -> Option<String> {
    let relays = trials.trials.iter().flat_map(|trial| &trial.machines);
    let mut relays = relays.filter(|machine| machine.summary.kind == Kind::Relay);
    relays.find_map(|relay| Some(relay.summary.engine.split_once("AES: ")?.1.to_owned()))
}

/// The values of a parameter at which the node delay is shortest and longest.
fn along(trials: &Evidence, axis: &str) -> Option<String> {
    let metric = rung(RUNGS, &[trials])?;
    let mut by_value: BTreeMap<&str, Evidence> = BTreeMap::new();
    for trial in &trials.trials {
        let value = trial.parameters.get(axis)?;
        by_value.entry(value).or_default().trials.push(trial);
    }
    let level = |(value, of): (&&str, &Evidence)| Some((value.to_string(), typical(of, metric)?));
    let mut levels: Vec<(String, f64)> = by_value.iter().filter_map(level).collect();
    levels.sort_by(|a, b| a.1.total_cmp(&b.1));
    let [(least, short), .., (most, long)] = levels.as_slice() else { return None };
    Some(format!(
        "it is shortest, {}, at {axis} {least} and longest, {}, at {axis} {most}",
        delay(*short),
        delay(*long)
    ))
}

/// What bytes cost in the program, beside all that the node takes.
fn per_byte(encrypt: &Evidence) -> Option<String> {
    let line = encrypt.line("payload_bytes", p95(PROCESSING), DOUBT)?;
    let (from, to) = line.ends;
    let by = aes(encrypt).map_or_else(String::new, |aes| format!(" (AES by {aes})"));
    Some(format!(
        "the program needs {} more for {} B than for {} B{by}, of a node delay of {} (95th percentile, \
         typical of trials)",
        delay(line.fit.slope.value * (to - from)),
        three_digits(to),
        three_digits(from),
        delay(typical(encrypt, rung(RUNGS, &[encrypt])?)?)
    ))
}
