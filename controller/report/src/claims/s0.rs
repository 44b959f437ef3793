//! What S0 found about relays on a Pi Zero (S0.18 to S0.27), judged for the machine of this run.

use dwell_stats::{Quantile, share_interval};

use super::evidence::{Bound, Evidence, number, value};
use super::{Claim, ClaimVerdict};
use crate::data::{RunData, TrialData};
use crate::metric;
use crate::quantity::{delay, share, three_digits};
use crate::steps::Steps;

/// Medians within a quarter of each other are flat: below what repetitions of S0's own differ by.
const FLAT: f64 = 1.25;

/// A straight line explains so much of the variance.
const LINEAR: f64 = 0.9;

/// S0 stamped packets between netfilter's hooks (S0.6): the first rung that both modes have.
const RUNGS: [&str; 3] = ["node_delay_netfilter_ns", "node_delay_driver_ns", "node_delay_ns"];

/// For a mode by itself, the rung that sees most of the node.
const WIDEST: [&str; 3] = ["node_delay_ns", "node_delay_driver_ns", "node_delay_netfilter_ns"];

/// What a claim comes to.
struct Found {
    verdict: ClaimVerdict,
    value: Option<f64>,
    words: String,
}

impl Found {
    fn cannot_tell(why: impl Into<String>) -> Self {
        Self { verdict: ClaimVerdict::CannotTell, value: None, words: why.into() }
    }

    fn not_run(what: impl Into<String>) -> Self {
        Self { verdict: ClaimVerdict::NotRun, value: None, words: what.into() }
    }

    fn new(verdict: ClaimVerdict, value: f64, words: String) -> Self {
        Self { verdict, value: Some(value), words }
    }
}

/// Every claim.
pub(super) fn judge(run: &RunData) -> Vec<Claim> {
    let all = Evidence::of(run);
    let (route, translate) = (all.mode("route"), all.mode("translate"));
    let encrypt = all.mode("encrypt");
    let mut claims = Vec::new();
    let mut say = |id: &str, says: &str, limit: Option<f64>, found: Found| {
        let text = format!("{says} {}", found.words);
        let (verdict, value) = (found.verdict, found.value);
        claims.push(Claim { id: id.to_owned(), text, verdict, value, limit });
    };
    say(
        "S0.18",
        "At the node, a program that relays takes at least 10 times as long as routing in the kernel.",
        Some(10.0),
        crossing(&route, &translate),
    );
    say(
        "S0.19-route",
        "Of a packet that the kernel routes, the node delay is less than 5 % of the link delay (NLR).",
        Some(0.05),
        nlr(&route, |bound| bound.at_most(0.05)),
    );
    say(
        "S0.19-translate",
        "Of a packet that a program relays, the node delay is about 30 % of the link delay (NLR), \
         here taken as 15 to 60 %.",
        Some(0.3),
        nlr(&translate, |bound| bound.within(0.15, 0.6)),
    );
    say(
        "S0.20",
        "Of enciphered packets above 1,200 B, the node delay is more than the link delay.",
        Some(1.0),
        nlr(
            &encrypt.filter(|t| number(t, "payload_bytes").is_some_and(|b| b > 1_200.0)),
            |bound| bound.at_least(1.0),
        ),
    );
    for (name, trials) in [("route", &route), ("translate", &translate)] {
        for (axis, what) in [("rate", "packet rate"), ("load", "stress on the node")] {
            say(
                &format!("S0.21-{name}-{axis}"),
                &format!(
                    "The node delay of {name} does not depend on the {what}: its medians are within \
                     a factor of 1.25."
                ),
                Some(FLAT),
                flat(trials, axis),
            );
        }
    }
    say(
        "S0.22-linear",
        "The node delay of enciphered packets is linear in their size: a line that rises explains \
         90 % of the variance (R2).",
        Some(LINEAR),
        linear(&encrypt),
    );
    say(
        "S0.22-order",
        "The node delay of enciphered packets is of the order of milliseconds (median, ns).",
        Some(1e6),
        order(&encrypt),
    );
    say(
        "S0.23",
        "Crossing to user space and back costs more than 100 us (S0 said so of a Pi Zero; judged \
         for this machine, ns).",
        Some(1e5),
        cost(&route, &translate),
    );
    say(
        "S0.24",
        "Jitter grows with the size only where packets are enciphered (slope in ns per byte).",
        Some(0.0),
        jitter(&route, &translate, &encrypt),
    );
    say(
        "S0.25",
        "Packets are lost only where they are enciphered, at 200 packets/s and more.",
        Some(0.0),
        loss(&route, &translate, &encrypt),
    );
    say(
        "S0.26",
        "The higher the packet rate, the lower the average node delay (slope in ns per packet/s).",
        Some(0.0),
        rate(&all),
    );
    say(
        "S0.27",
        "Balancing load between nodes pays: the node delay of programs is longer on a node under \
         stress (median under the highest over that under none).",
        Some(1.0),
        balance(&translate, &encrypt),
    );
    claims
}

/// The first rung of which both have samples.
fn rung(rungs: [&'static str; 3], both: &[&Evidence]) -> Option<&'static str> {
    rungs.into_iter().find(|metric| both.iter().all(|one| one.has(metric)))
}

/// The medians of two modes on the same rung.
fn medians(a: &Evidence, b: &Evidence) -> Result<(Bound, Bound, &'static str), Found> {
    if a.is_empty() || b.is_empty() {
        return Err(Found::not_run("Both modes were not measured."));
    }
    let (a, b) = a.bare().paired(&b.bare());
    let Some(metric) = rung(RUNGS, &[&a, &b]) else {
        let why = "Here: both modes have no rung of stamps in common; tracing needs root.";
        return Err(Found::cannot_tell(why));
    };
    match (a.median(metric), b.median(metric)) {
        (Some(a), Some(b)) => Ok((a, b, metric::words(metric))),
        _ => Err(Found::cannot_tell("Here: too few samples.")),
    }
}

fn crossing(route: &Evidence, translate: &Evidence) -> Found {
    let (kernel, program, noun) = match medians(route, translate) {
        Ok(medians) => medians,
        Err(found) => return found,
    };
    let Some(ratio) = program.over(kernel) else {
        return Found::cannot_tell("Here: routing took no time that the clock could see.");
    };
    let words = format!(
        "Here: {} against {} ({noun}, median), {} times.",
        delay(program.value),
        delay(kernel.value),
        three_digits(ratio.value)
    );
    Found::new(ratio.at_least(10.0), ratio.value, words)
}

fn cost(route: &Evidence, translate: &Evidence) -> Found {
    match medians(route, translate) {
        Ok((kernel, program, noun)) => {
            let more = program.less(kernel);
            let words = format!("Here: {} more ({noun}, median).", delay(more.value));
            Found::new(more.at_least(1e5), more.value, words)
        }
        Err(found) => found,
    }
}

fn nlr(trials: &Evidence, verdict: impl Fn(Bound) -> ClaimVerdict) -> Found {
    if trials.is_empty() {
        return Found::not_run("This mode, or this size, was not measured.");
    }
    let linked = trials.linked();
    if linked.is_empty() {
        let why = "Here: links are bare, and hold no packet for its transmission time; give them a \
                   rate (topology.link.rate).";
        return Found::cannot_tell(why);
    }
    let node = rung(WIDEST, &[&linked]).and_then(|metric| linked.median(metric));
    let (Some(node), Some(link)) = (node, linked.median("link_delay_ns")) else {
        return Found::cannot_tell("Here: too few packets have the stamps for it.");
    };
    let Some(ratio) = node.over(link) else {
        return Found::cannot_tell("Here: links took no time that the clock could see.");
    };
    let rates: Vec<f64> = linked.0.iter().filter_map(|t| number(t, "link_rate_bps")).collect();
    let rate = rates.iter().copied().fold(f64::MAX, f64::min) / 1e6;
    let words = format!(
        "Here: {} of {} over two links of {} Mbit/s (medians), {}.",
        delay(node.value),
        delay(link.value),
        three_digits(rate),
        share(ratio.value)
    );
    Found::new(verdict(ratio), ratio.value, words)
}

fn flat(trials: &Evidence, axis: &str) -> Found {
    if trials.is_empty() {
        return Found::not_run("This mode was not measured.");
    }
    let bare = trials.bare();
    let Some(metric) = rung(WIDEST, &[&bare]) else {
        return Found::cannot_tell("Here: the node was not stamped.");
    };
    if bare.0.iter().any(|trial| !trial.parameters.contains_key(axis)) {
        return Found::not_run(format!("The run has no axis {axis}."));
    }
    match bare.spread(axis, metric) {
        Some(spread) => {
            let words = format!(
                "Here: a factor of {} ({}).",
                three_digits(spread.value),
                metric::words(metric)
            );
            Found::new(spread.at_most(FLAT), spread.value, words)
        }
        None => Found::cannot_tell("Here: too few samples, or one value only."),
    }
}

/// The median node delay of one trial.
fn median_of(trial: &TrialData, metric: &str) -> Option<f64> {
    let steps = Steps::merged([trial.series.get(metric)?.steps.as_slice()]);
    steps.quantile(Quantile::P50).map(|ns| ns as f64)
}

fn linear(encrypt: &Evidence) -> Found {
    if encrypt.is_empty() {
        return Found::not_run("Enciphering was not measured.");
    }
    let bare = encrypt.bare();
    let Some(metric) = rung(WIDEST, &[&bare]) else {
        return Found::cannot_tell("Here: the node was not stamped.");
    };
    let Some(line) = bare.line("payload_bytes", |trial| median_of(trial, metric)) else {
        return Found::cannot_tell("Here: a line needs three sizes.");
    };
    let r2 = line.r_squared.unwrap_or(0.0);
    let slope = line.slope;
    let words = format!(
        "Here: {} + {} ns per byte (between {} and {}), R2 = {}.",
        delay(line.intercept.value),
        three_digits(slope.value),
        three_digits(slope.interval.low),
        three_digits(slope.interval.high),
        three_digits(r2)
    );
    let verdict = if slope.interval.low > 0.0 && r2 >= LINEAR {
        ClaimVerdict::Pass
    } else if slope.interval.low <= 0.0 && slope.interval.high > 0.0 {
        ClaimVerdict::CannotTell
    } else {
        ClaimVerdict::Fail
    };
    Found::new(verdict, r2, words)
}

fn order(encrypt: &Evidence) -> Found {
    if encrypt.is_empty() {
        return Found::not_run("Enciphering was not measured.");
    }
    let bare = encrypt.bare();
    match rung(WIDEST, &[&bare]).and_then(|metric| bare.median(metric)) {
        Some(median) => {
            let words = format!("Here: {}.", delay(median.value));
            Found::new(median.at_least(1e6), median.value, words)
        }
        None => Found::cannot_tell("Here: the node was not stamped, or too few samples."),
    }
}

fn jitter(route: &Evidence, translate: &Evidence, encrypt: &Evidence) -> Found {
    let modes = [("route", route), ("translate", translate), ("encrypt", encrypt)];
    if modes.iter().any(|(_, trials)| trials.is_empty()) {
        return Found::not_run("All three modes were not measured.");
    }
    let mut slopes = Vec::new();
    for (name, trials) in modes {
        let line = trials.bare().line("payload_bytes", |t| value(t, "jitter_rfc3550_ns"));
        let Some(line) = line else {
            return Found::cannot_tell("Here: a line needs three sizes.");
        };
        slopes.push((name, line.slope));
    }
    let grows: Vec<bool> = slopes.iter().map(|(_, slope)| slope.interval.low > 0.0).collect();
    let verdict = match grows.as_slice() {
        [false, false, true] => ClaimVerdict::Pass,
        // Where nothing is seen to grow, more repetitions may show it.
        [false, false, false] => ClaimVerdict::CannotTell,
        _ => ClaimVerdict::Fail,
    };
    let each: Vec<String> = slopes
        .iter()
        .map(|(name, slope)| {
            let (low, high) = (three_digits(slope.interval.low), three_digits(slope.interval.high));
            format!("{name} {low} to {high}")
        })
        .collect();
    let words = format!("Here: {} (95 % intervals of RFC 3550 jitter).", each.join(", "));
    Found::new(verdict, slopes[2].1.value, words)
}

fn loss(route: &Evidence, translate: &Evidence, encrypt: &Evidence) -> Found {
    if route.is_empty() || translate.is_empty() || encrypt.is_empty() {
        return Found::not_run("All three modes were not measured.");
    }
    let fast = |trial: &TrialData| number(trial, "rate_pps").is_some_and(|pps| pps >= 200.0);
    let (high, low) = (encrypt.filter(fast), encrypt.filter(|trial| !fast(trial)));
    if high.is_empty() {
        return Found::not_run("No rate of 200 packets/s and more was measured.");
    }
    let (sent, lost) = high.losses();
    let others = [route, translate, &low].map(Evidence::losses);
    let (other_sent, other_lost) =
        others.iter().fold((0, 0), |(s, l), (sent, lost)| (s + sent, l + lost));
    let ratio = if sent == 0 { 0.0 } else { lost as f64 / sent as f64 };
    let most = share_interval(lost, sent, 0.95).map_or(1.0, |interval| interval.high);
    let verdict = match (lost, other_lost) {
        (0, 0) | (_, 1..) => ClaimVerdict::Fail,
        _ => ClaimVerdict::Pass,
    };
    let why = match (lost, other_lost) {
        (0, 0) => {
            format!(" No packet was lost at all (at most {}): this node keeps up.", share(most))
        }
        _ => String::new(),
    };
    let words = format!(
        "Here: {lost} of {sent} were lost there, and {other_lost} of {other_sent} elsewhere.{why}"
    );
    Found::new(verdict, ratio, words)
}

fn rate(all: &Evidence) -> Found {
    let bare = all.bare();
    let Some(metric) = rung(RUNGS, &[&bare]) else {
        return Found::cannot_tell("Here: the node was not stamped.");
    };
    let mean = |trial: &TrialData| trial.summary.as_ref()?.metrics.get(metric)?.mean;
    let Some(line) = bare.line("rate_pps", mean) else {
        return Found::not_run("A line needs three packet rates.");
    };
    let slope = line.slope;
    let verdict = if slope.interval.high < 0.0 {
        ClaimVerdict::Pass
    } else if slope.interval.low > 0.0 {
        ClaimVerdict::Fail
    } else {
        ClaimVerdict::CannotTell
    };
    let words = format!(
        "Here: {} (between {} and {}, {}).",
        three_digits(slope.value),
        three_digits(slope.interval.low),
        three_digits(slope.interval.high),
        metric::words(metric)
    );
    Found::new(verdict, slope.value, words)
}

fn balance(translate: &Evidence, encrypt: &Evidence) -> Found {
    let mut programs = translate.bare();
    programs.0.extend(encrypt.bare().0);
    if programs.is_empty() {
        return Found::not_run("No program relayed.");
    }
    // What was asked for says which load is the highest, not its name.
    let asked = |trial: &TrialData| -> f64 {
        let shares = trial.loads.iter().filter_map(|load| {
            let value = load.values.get("asked_ratio").copied().flatten();
            value.map(dwell_record::Scalar::as_f64)
        });
        shares.sum()
    };
    let loaded = |trial: &TrialData| trial.parameters.get("load").is_some_and(|l| l != "none");
    let most = programs.0.iter().map(|trial| asked(trial)).fold(0.0, f64::max);
    let idle = programs.filter(|trial| trial.parameters.get("load").is_some_and(|l| l == "none"));
    let busy = programs.filter(|trial| loaded(trial) && asked(trial) >= 0.9 * most);
    if idle.is_empty() || busy.is_empty() {
        return Found::not_run("The run has no axis load with and without stress.");
    }
    let metric = rung(WIDEST, &[&idle, &busy]);
    let medians = metric.and_then(|m| Some((idle.median(m)?, busy.median(m)?)));
    let Some(ratio) = medians.and_then(|(idle, busy)| busy.over(idle)) else {
        return Found::cannot_tell("Here: too few samples.");
    };
    let words = format!("Here: {} times.", three_digits(ratio.value));
    let verdict = match ratio.at_most(1.0) {
        ClaimVerdict::Pass => ClaimVerdict::Fail,
        ClaimVerdict::Fail => ClaimVerdict::Pass,
        other => other,
    };
    Found::new(verdict, ratio.value, words)
}
