//! Claims of Miya 2020 about relays on a Pi Zero (S0.18 to S0.27), judged for the machines of a run
//! by the statistic of the paper: 95th percentiles (S0.13, S0.15, S0.17), or means where it speaks
//! of an average. A trial is one observation.

mod explanation;
mod jitter;
mod loss;
mod ratio;

use dwell_report::analysis::group::percentile_of;
use dwell_report::analysis::nlr::NlrConditions;
use dwell_report::model::axes::RELAY;
use dwell_report::model::metric::{self, NODE_DELAY_METRICS};
use dwell_report::model::quantity::{delay, share, three_digits};
use dwell_report::model::{ClaimUnit, ClaimVerdict, JudgedClaims, RunData, TrialData};
use dwell_stats::Quantile;

use crate::Document;
use crate::evidence::{Bound, Evidence, number, requested_load};
use crate::judgement::{Judgement, Limit, nothing};

const CITE: &str = "Miya 2020";

/// The document.
pub(crate) const DOCUMENT: Document =
    Document { name: "miya-2020", aliases: &["s0"], cite: CITE, judge };

/// Maximum ratio of 95th percentiles that counts as flat; repetitions in the paper differ by more.
const MAX_FLAT_RATIO: f64 = 1.25;

/// Minimum R2 of a linear relation.
const MIN_LINEAR_R2: f64 = 0.9;

/// Maximum ratio under load that counts as no increase.
const MAX_UNCHANGED_RATIO: f64 = 1.05;

/// Node-delay metrics in order of preference. The paper timestamped packets between netfilter's
/// hooks (S0.6); a claim uses the first metric that its trials have, and names it.
const PREFERRED_METRICS: [&str; 3] =
    [NODE_DELAY_METRICS[2], NODE_DELAY_METRICS[1], NODE_DELAY_METRICS[0]];

/// Error probability of each claim: 5 % shared by all claims of a run.
const ERROR_PROBABILITY: f64 = 0.05 / CLAIMS.len() as f64;

/// A claim and its check.
struct ClaimSpec {
    id: &'static str,
    claim: &'static str,
    limit: Limit,
    unit: ClaimUnit,
    judge: fn(&RelayEvidence) -> Judgement,
}

/// Trials of a run by relay mode, and where an NLR is valid.
struct RelayEvidence<'a> {
    all: Evidence<'a>,
    route: Evidence<'a>,
    translate: Evidence<'a>,
    encrypt: Evidence<'a>,
    nlr: NlrConditions,
}

/// The claims in the order of the paper.
const CLAIMS: [ClaimSpec; 15] = [
    ClaimSpec {
        id: "S0.18",
        claim: "Relaying in a program takes at least 10x the node delay of kernel routing (95th percentiles).",
        limit: Limit::Published(10.0),
        unit: ClaimUnit::Times,
        judge: |of| crossing(&of.route, &of.translate),
    },
    ClaimSpec {
        id: "S0.19-route",
        claim: "Routed packets: the node delay is below 5 % of the link delay (NLR).",
        limit: Limit::Published(0.05),
        unit: ClaimUnit::Share,
        judge: |of| ratio::judge(&of.route, &of.nlr, |bound| bound.at_most(0.05)),
    },
    ClaimSpec {
        id: "S0.19-translate",
        claim: "Packets relayed by a program: the node delay is about 30 % of the link delay (NLR), taken \
                here as 15 to 60 %.",
        limit: Limit::Published(0.3),
        unit: ClaimUnit::Share,
        judge: |of| ratio::judge(&of.translate, &of.nlr, |bound| bound.within(0.15, 0.6)),
    },
    ClaimSpec {
        id: "S0.20",
        claim: "Encrypted packets above 1,200 B: the node delay exceeds the link delay.",
        limit: Limit::Published(1.0),
        unit: ClaimUnit::Share,
        judge: |of| {
            let large =
                |trial: &TrialData| number(trial, "payload_bytes").is_some_and(|b| b > 1_200.0);
            ratio::judge(&of.encrypt.filter(large), &of.nlr, |bound| bound.at_least(1.0))
        },
    },
    ClaimSpec {
        id: "S0.21-route-rate",
        claim: "The node delay of route does not depend on the packet rate: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| flat(&of.route, "rate"),
    },
    ClaimSpec {
        id: "S0.21-route-load",
        claim: "The node delay of route does not depend on the load of the node: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| flat(&of.route, "load"),
    },
    ClaimSpec {
        id: "S0.21-translate-rate",
        claim: "The node delay of translate does not depend on the packet rate: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| flat(&of.translate, "rate"),
    },
    ClaimSpec {
        id: "S0.21-translate-load",
        claim: "The node delay of translate does not depend on the load of the node: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| flat(&of.translate, "load"),
    },
    ClaimSpec {
        id: "S0.22-linear",
        claim: "The node delay of encrypted packets is linear in their size: a rising line through the 95th \
                percentiles explains at least 90 % of the variance (R2).",
        limit: Limit::Own(MIN_LINEAR_R2),
        unit: ClaimUnit::Number,
        judge: |of| linear(&of.encrypt),
    },
    ClaimSpec {
        id: "S0.22-order",
        claim: "The node delay of encrypted packets is of the order of milliseconds (95th percentile), \
                taken here as 1 ms or more.",
        limit: Limit::Own(1e6),
        unit: ClaimUnit::Ns,
        judge: |of| order(&of.encrypt),
    },
    ClaimSpec {
        id: "S0.23",
        claim: "Crossing to user space and back costs more than 100 us (claimed for a Pi Zero; judged for \
                this machine, 95th percentile).",
        limit: Limit::Published(1e5),
        unit: ClaimUnit::Ns,
        judge: |of| cost(&of.route, &of.translate),
    },
    ClaimSpec {
        id: "S0.24",
        claim: "Jitter grows with the packet size only for encrypted packets (slopes).",
        limit: Limit::Own(0.0),
        unit: ClaimUnit::NsPerByte,
        judge: |of| jitter::judge(&of.route, &of.translate, &of.encrypt),
    },
    ClaimSpec {
        id: "S0.25",
        claim: "Packets are lost only if encrypted and sent at 200 packets/s or more.",
        limit: Limit::Own(0.0),
        unit: ClaimUnit::Share,
        judge: |of| loss::judge(&of.route, &of.translate, &of.encrypt),
    },
    ClaimSpec {
        id: "S0.26",
        claim: "The higher the packet rate, the lower the average node delay (change per additional 1,000 \
                packets/s).",
        limit: Limit::Own(0.0),
        unit: ClaimUnit::Share,
        judge: |of| rate(&of.all),
    },
    ClaimSpec {
        id: "S0.27",
        claim: "Load balancing between nodes pays: the node delay of programs is longer on a loaded node \
                (95th percentile under the highest load over that without load).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| balance(&of.translate, &of.encrypt),
    },
];

fn judge(run: &RunData) -> JudgedClaims {
    let all = Evidence::of(run);
    let left_out = all.left_out_text();
    let [route, translate, encrypt] = ["route", "translate", "encrypt"].map(|mode| all.mode(mode));
    let evidence = RelayEvidence { all, route, translate, encrypt, nlr: NlrConditions::of(run) };
    let judged = |spec: &ClaimSpec| {
        (spec.judge)(&evidence).into_claim(spec.id, spec.claim, spec.limit, spec.unit)
    };
    JudgedClaims { cite: CITE, claims: CLAIMS.iter().map(judged).collect(), left_out }
}

/// First metric of which all have samples.
fn common_metric(metrics: [&'static str; 3], all: &[&Evidence]) -> Option<&'static str> {
    metrics.into_iter().find(|metric| all.iter().all(|one| one.has(metric)))
}

/// 95th percentile of a trial.
fn p95(metric: &'static str) -> impl Fn(&TrialData) -> Option<f64> {
    move |trial| percentile_of(trial, metric, Quantile::P95).map(|ns| ns as f64)
}

/// `, interval a to b`; empty if repetitions are too few.
fn between(bound: Bound, said: impl Fn(f64) -> String) -> String {
    if !bound.is_bounded() {
        return String::new();
    }
    format!(", interval {} to {}", said(bound.low), said(bound.high))
}

/// Two modes over links without a rate, and their common node-delay metric.
fn modes<'a>(
    a: &Evidence<'a>,
    b: &Evidence<'a>,
) -> Result<(Evidence<'a>, Evidence<'a>, &'static str), Judgement> {
    let (a, b) = (a.bare(), b.bare());
    if a.is_empty() || b.is_empty() {
        return Err(nothing(&[&a, &b], "Not both modes were measured."));
    }
    match common_metric(PREFERRED_METRICS, &[&a, &b]) {
        Some(metric) => Ok((a, b, metric)),
        None => Err(Judgement::cannot_tell(
            "Here: the modes share no timestamp level; tracing needs root.",
        )),
    }
}

const NO_COMMON_CELLS: &str = "Here: no combination of parameters has enough samples of both.";

fn crossing(route: &Evidence, translate: &Evidence) -> Judgement {
    let (kernel, program, metric) = match modes(route, translate) {
        Ok(modes) => modes,
        Err(found) => return found,
    };
    let Some(ratio) = program.ratio_to(&kernel, RELAY, p95(metric), ERROR_PROBABILITY) else {
        return Judgement::cannot_tell(NO_COMMON_CELLS);
    };
    let factor = ratio.factor;
    let words = format!(
        "Here: {}x{}: {} against {} ({}, 95th percentile).",
        three_digits(factor.value),
        between(factor, three_digits),
        delay(ratio.to),
        delay(ratio.from),
        metric::words(metric)
    );
    Judgement::new(factor.at_least(10.0), factor.value, words)
        .with_bound(factor, &[&kernel, &program])
        .with_explanation(|| explanation::wait(&program))
}

fn cost(route: &Evidence, translate: &Evidence) -> Judgement {
    let (kernel, program, metric) = match modes(route, translate) {
        Ok(modes) => modes,
        Err(found) => return found,
    };
    let Some(more) = program.difference_to(&kernel, RELAY, p95(metric), ERROR_PROBABILITY) else {
        return Judgement::cannot_tell(NO_COMMON_CELLS);
    };
    let words = format!(
        "Here: {} more{} ({}, 95th percentile).",
        delay(more.value),
        between(more, delay),
        metric::words(metric)
    );
    Judgement::new(more.at_least(1e5), more.value, words)
        .with_bound(more, &[&kernel, &program])
        .with_explanation(|| explanation::wait(&program))
}

fn flat(trials: &Evidence, axis: &str) -> Judgement {
    let bare = trials.bare();
    if bare.is_empty() {
        return nothing(&[&bare], "This mode was not measured.");
    }
    let Some(metric) = common_metric(PREFERRED_METRICS, &[&bare]) else {
        return Judgement::cannot_tell("Here: the node has no timestamps.");
    };
    if bare.trials.iter().any(|trial| !trial.parameters.contains_key(axis)) {
        return Judgement::not_run(format!("The run has no axis {axis}."));
    }
    let Some(spread) = bare.spread(axis, p95(metric), ERROR_PROBABILITY) else {
        return Judgement::cannot_tell("Here: one value only.").without(&[&bare]);
    };
    let (ends, spread) = (spread.ends, spread.factor);
    let said = ends.as_ref().map(|ends| {
        let [from, to] = ends.levels.map(delay);
        let [first, last] = &ends.values;
        format!("{from} at {axis} {first} against {to} at {last}, ")
    });
    let words = format!(
        "Here: {}a factor of {}{} ({}, 95th percentile).",
        said.unwrap_or_default(),
        three_digits(spread.value),
        between(spread, three_digits),
        metric::words(metric)
    );
    Judgement::new(spread.at_most(MAX_FLAT_RATIO), spread.value, words)
        .with_bound(spread, &[&bare])
        .with_explanation(|| explanation::by_axis(&bare, axis, &ends?.values))
}

fn linear(encrypt: &Evidence) -> Judgement {
    let bare = encrypt.bare();
    if bare.is_empty() {
        return nothing(&[&bare], "Encryption was not measured.");
    }
    let Some(metric) = common_metric(PREFERRED_METRICS, &[&bare]) else {
        return Judgement::cannot_tell("Here: the node has no timestamps.");
    };
    let Some(line) = bare.line("payload_bytes", p95(metric), ERROR_PROBABILITY) else {
        return Judgement::cannot_tell("Here: a line needs three sizes.").without(&[&bare]);
    };
    let slope = line.fit.slope;
    let r2 = explained(line.fit.r_squared.unwrap_or(0.0), line.free);
    let words = format!(
        "Here: {} + {} ns per byte (interval {} to {}), R2 = {}{} ({}, 95th percentile).",
        delay(line.fit.intercept.value),
        three_digits(slope.value),
        three_digits(slope.interval.low),
        three_digits(slope.interval.high),
        three_digits(r2.value),
        between(r2, three_digits),
        metric::words(metric)
    );
    let rises = Bound { value: slope.value, low: slope.interval.low, high: slope.interval.high };
    let verdict = match (rises.at_least(f64::MIN_POSITIVE), r2.at_least(MIN_LINEAR_R2)) {
        (ClaimVerdict::Pass, verdict) => verdict,
        (ClaimVerdict::Fail, _) | (_, ClaimVerdict::Fail) => ClaimVerdict::Fail,
        _ => ClaimVerdict::CannotTell,
    };
    Judgement::new(verdict, r2.value, words)
        .with_bound(r2, &[&bare])
        .with_explanation(|| explanation::per_byte(&bare, metric))
}

/// R2 with bounds of three standard errors of Fisher's z of the correlation.
fn explained(r2: f64, trials: usize) -> Bound {
    const SIGMAS: f64 = 3.0;
    let z = r2.clamp(0.0, 1.0 - 1e-9).sqrt().atanh();
    match trials {
        0..4 => Bound { value: r2, low: f64::NEG_INFINITY, high: f64::INFINITY },
        n => {
            let margin = SIGMAS / ((n - 3) as f64).sqrt();
            let back = |z: f64| z.max(0.0).tanh().powi(2);
            Bound { value: r2, low: back(z - margin), high: back(z + margin) }
        }
    }
}

fn order(encrypt: &Evidence) -> Judgement {
    let bare = encrypt.bare();
    if bare.is_empty() {
        return nothing(&[&bare], "Encryption was not measured.");
    }
    let level = |metric| Some((metric, bare.level(p95(metric), ERROR_PROBABILITY)?));
    let Some((metric, level)) = common_metric(PREFERRED_METRICS, &[&bare]).and_then(level) else {
        return Judgement::cannot_tell("Here: the node has no timestamps, or too few samples.");
    };
    let words = format!(
        "Here: {}{} ({}, 95th percentile, geometric mean over trials).",
        delay(level.value),
        between(level, delay),
        metric::words(metric)
    );
    Judgement::new(level.at_least(1e6), level.value, words)
        .with_bound(level, &[&bare])
        .with_explanation(|| explanation::parts(&bare))
}

fn rate(all: &Evidence) -> Judgement {
    let bare = all.bare();
    let Some(metric) = common_metric(PREFERRED_METRICS, &[&bare]) else {
        return Judgement::cannot_tell("Here: the node has no timestamps.");
    };
    // Logarithms, because modes differ by orders of magnitude and each varies in proportion.
    let mean = |trial: &TrialData| {
        let mean = trial.summary.as_ref()?.metrics.get(metric)?.mean?;
        (mean > 0.0).then(|| mean.ln())
    };
    let Some(line) = bare.line("rate_pps", mean, ERROR_PROBABILITY) else {
        return Judgement::not_run("A line needs three packet rates.");
    };
    let change = |slope: f64| (slope * 1_000.0).exp_m1();
    let slope = line.fit.slope;
    let change = Bound {
        value: change(slope.value),
        low: change(slope.interval.low),
        high: change(slope.interval.high),
    };
    let verdict = match change {
        Bound { high, .. } if high < 0.0 => ClaimVerdict::Pass,
        Bound { low, .. } if low > 0.0 => ClaimVerdict::Fail,
        _ => ClaimVerdict::CannotTell,
    };
    let words = format!(
        "Here: {}{} (mean {}).",
        share(change.value),
        between(change, share),
        metric::words(metric)
    );
    Judgement::new(verdict, change.value, words)
        .with_bound(change, &[&bare])
        .with_explanation(|| explanation::by_rate(&bare))
}

fn balance(translate: &Evidence, encrypt: &Evidence) -> Judgement {
    let programs = translate.bare().and(encrypt.bare());
    if programs.is_empty() {
        return nothing(&[&programs], "No program relayed.");
    }
    // The requested level identifies the highest load, not its name.
    let is_idle = |trial: &TrialData| trial.is_at("load", "none");
    let most = programs.trials.iter().map(|trial| requested_load(trial)).fold(0.0, f64::max);
    let idle = programs.filter(is_idle);
    let loaded = programs.filter(|trial| trial.parameters.contains_key("load") && !is_idle(trial));
    let busy = loaded.filter(|trial| requested_load(trial) >= 0.9 * most);
    if idle.is_empty() || busy.is_empty() {
        return nothing(&[&idle, &loaded], "The run has no axis load with and without load.");
    }
    let compared =
        |metric| Some((metric, busy.ratio_to(&idle, "load", p95(metric), ERROR_PROBABILITY)?));
    let Some((metric, ratio)) =
        common_metric(PREFERRED_METRICS, &[&idle, &busy]).and_then(compared)
    else {
        return Judgement::cannot_tell(NO_COMMON_CELLS);
    };
    let factor = ratio.factor;
    let words = format!(
        "Here: {}x{}: {} under load against {} without ({}, 95th percentile).",
        three_digits(factor.value),
        between(factor, three_digits),
        delay(ratio.to),
        delay(ratio.from),
        metric::words(metric)
    );
    let verdict = match factor {
        Bound { low, .. } if low > 1.0 => ClaimVerdict::Pass,
        Bound { high, .. } if high <= MAX_UNCHANGED_RATIO => ClaimVerdict::Fail,
        _ => ClaimVerdict::CannotTell,
    };
    Judgement::new(verdict, factor.value, words)
        .with_bound(factor, &[&idle.clone().and(busy.clone())])
        .with_explanation(|| {
            explanation::compared([("without load", &idle), ("under the highest load", &busy)])
        })
}
