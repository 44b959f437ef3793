//! Explanations of failed claims by the measured components of the delay. Causes that no
//! measurement distinguishes, such as sleeping processors, are not given.

use dwell_record::Kind;
use dwell_report::analysis::nlr::{self, LINK_DELAY_METRIC};
use dwell_report::model::TrialData;
use dwell_report::model::quantity::{delay, three_digits};

use super::{ERROR_PROBABILITY, p95};
use crate::evidence::{Evidence, number};

const PROCESSING: &str = "processing_ns";

/// Mean of the 95th percentiles of trials, by the stored summary for components without a
/// distribution.
fn typical(trials: &Evidence, metric: &'static str) -> Option<f64> {
    let stored =
        |trial: &TrialData| trial.summary.as_ref()?.metrics.get(metric)?.p95.map(|ns| ns as f64);
    let of = |trial: &TrialData| p95(metric)(trial).or_else(|| stored(trial));
    trials.level(of, ERROR_PROBABILITY).map(|level| level.value)
}

/// Time that a packet waits for the program, and time in the program.
pub(super) fn wait(programs: &Evidence) -> Option<String> {
    Some(format!(
        "a packet waits {} in the socket until the program runs, and {} in the program (95th \
         percentiles)",
        delay(typical(programs, "queueing_in_ns")?),
        delay(typical(programs, PROCESSING)?)
    ))
}

/// The same for two named conditions.
pub(super) fn compared([first, second]: [(&str, &Evidence); 2]) -> Option<String> {
    let parts = |programs: &Evidence| {
        Some([delay(typical(programs, "queueing_in_ns")?), delay(typical(programs, PROCESSING)?)])
    };
    let ([waits, takes], [then_waits, then_takes]) = (parts(first.1)?, parts(second.1)?);
    Some(format!(
        "{} a packet waits {waits} in the socket until the program runs, and {takes} in the \
         program; {} {then_waits} and {then_takes} (95th percentiles)",
        first.0, second.0
    ))
}

/// The same for the lowest and the highest packet rate.
pub(super) fn by_rate(trials: &Evidence) -> Option<String> {
    let rates = || trials.trials.iter().filter_map(|trial| number(trial, "rate_pps"));
    let ends = [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)];
    let names = ends.map(|rate| format!("at {} packets/s", three_digits(rate)));
    let alike = ends.map(|rate| trials.filter(|t| number(t, "rate_pps") == Some(rate)));
    compared([0, 1].map(|n| (names[n].as_str(), &alike[n])))
}

/// The same for two values of an axis; without a program, no timestamp splits the node delay.
pub(super) fn by_axis(trials: &Evidence, axis: &str, values: &[String; 2]) -> Option<String> {
    let names = values.each_ref().map(|value| format!("at {axis} {value}"));
    let alike = values.each_ref().map(|v| trials.filter(|t| t.is_at(axis, v)));
    if typical(trials, "queueing_in_ns").is_none() {
        return Some("no timestamp splits the node delay".to_owned());
    }
    compared([0, 1].map(|n| (names[n].as_str(), &alike[n])))
}

/// [`wait`] for an encrypting program, with its AES implementation.
pub(super) fn parts(encrypt: &Evidence) -> Option<String> {
    Some(wait(encrypt)? + &aes_suffix(encrypt))
}

/// Delay of the node and of the links.
pub(super) fn node_and_links(linked: &Evidence) -> Option<String> {
    let node = |trial: &TrialData| p95(nlr::node_delay_metric(trial)?)(trial);
    let own = typical(linked, PROCESSING).map_or_else(String::new, |own| {
        format!("; the program itself takes {}{}", delay(own), aes_suffix(linked))
    });
    Some(format!(
        "the node takes {} and both links {} (95th percentiles){own}",
        delay(linked.level(node, ERROR_PROBABILITY)?.value),
        delay(typical(linked, LINK_DELAY_METRIC)?)
    ))
}

/// Cost of packet size in the program, beside the node delay by `metric`.
pub(super) fn per_byte(encrypt: &Evidence, metric: &'static str) -> Option<String> {
    let line = encrypt.line("payload_bytes", p95(PROCESSING), ERROR_PROBABILITY)?;
    let (slope, (from, to)) = (line.fit.slope, line.ends);
    let [least, found, most] = [slope.interval.low, slope.value, slope.interval.high]
        .map(|per_byte| delay(per_byte * (to - from)));
    let [from, to] = [from, to].map(three_digits);
    let cost = if slope.interval.low <= 0.0 && slope.interval.high >= 0.0 {
        format!(
            "cannot tell the cost of bytes in the program: {least} to {most} more for {to} B than for \
             {from} B"
        )
    } else {
        format!(
            "the program needs {found} more (interval {least} to {most}) for {to} B than for {from} B"
        )
    };
    Some(format!(
        "{cost}{}, of a node delay of {} (95th percentile, geometric mean over trials)",
        aes_suffix(encrypt),
        delay(typical(encrypt, metric)?)
    ))
}

/// AES implementation of the relays.
fn aes_suffix(trials: &Evidence) -> String {
    let relays = trials.trials.iter().flat_map(|trial| &trial.machines);
    let mut relays = relays.filter(|machine| machine.summary.kind == Kind::Relay);
    let aes = relays.find_map(|relay| Some(relay.summary.engine.split_once("AES: ")?.1.to_owned()));
    aes.map_or_else(String::new, |aes| format!(" (AES by {aes})"))
}
