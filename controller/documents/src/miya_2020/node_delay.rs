//! Claims about the node delay: its dependence on mode, size, rate and load.

use dwell_report::model::axes::RELAY;
use dwell_report::model::metric;
use dwell_report::model::quantity::{delay, share, three_digits};
use dwell_report::model::{ClaimVerdict, TrialData};

use super::{
    ERROR_PROBABILITY, MAX_FLAT_RATIO, MIN_LINEAR_R2, PREFERRED_METRICS, common_metric,
    explanation, p95,
};
use crate::evidence::{Bound, Evidence, Line, requested_load};
use crate::judgement::{Judgement, between, nothing};
use crate::published::of_claim;

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

/// Sentence about the trials without load, where the verdict is on others as well; otherwise empty. Cases
/// without loads are comparable with these trials only.
fn idle_sentence(trials: &[&Evidence], found: impl Fn() -> Option<String>) -> String {
    let has_load = trials.iter().any(|all| all.idle().trials.len() < all.trials.len());
    found()
        .filter(|_| has_load)
        .map_or_else(String::new, |words| format!(" Without load: {words}."))
}

pub(super) fn crossing(route: &Evidence, translate: &Evidence) -> Judgement {
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
    let idle = || {
        let kernel = kernel.idle();
        let ratio = program.idle().ratio_to(&kernel, RELAY, p95(metric), ERROR_PROBABILITY)?;
        let factor = three_digits(ratio.factor.value);
        Some(format!("{factor}x: {} against {}", delay(ratio.to), delay(ratio.from)))
    };
    let words = words + &idle_sentence(&[&kernel, &program], idle);
    Judgement::new(factor.at_least(of_claim("S0.18")), factor.value, words)
        .with_bound(factor, &[&kernel, &program])
        .with_explanation(|| explanation::wait(&program))
}

pub(super) fn cost(route: &Evidence, translate: &Evidence) -> Judgement {
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
    let idle = || {
        let kernel = kernel.idle();
        let more = program.idle().difference_to(&kernel, RELAY, p95(metric), ERROR_PROBABILITY)?;
        Some(format!("{} more{}", delay(more.value), between(more, delay)))
    };
    let words = words + &idle_sentence(&[&kernel, &program], idle);
    Judgement::new(more.at_least(of_claim("S0.23")), more.value, words)
        .with_bound(more, &[&kernel, &program])
        .with_explanation(|| explanation::wait(&program))
}

pub(super) fn flat(trials: &Evidence, axis: &str) -> Judgement {
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

pub(super) fn linear(encrypt: &Evidence) -> Judgement {
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
    let words = format!("Here: {} ({}, 95th percentile).", fit_words(&line), metric::words(metric));
    let rises = Bound { value: slope.value, low: slope.interval.low, high: slope.interval.high };
    let verdict = match (rises.at_least(f64::MIN_POSITIVE), r2.at_least(MIN_LINEAR_R2)) {
        (ClaimVerdict::Pass, verdict) => verdict,
        (ClaimVerdict::Fail, _) | (_, ClaimVerdict::Fail) => ClaimVerdict::Fail,
        _ => ClaimVerdict::CannotTell,
    };
    let idle = || {
        let line = bare.idle().line("payload_bytes", p95(metric), ERROR_PROBABILITY)?;
        Some(fit_words(&line))
    };
    let words = words + &idle_sentence(&[&bare], idle);
    Judgement::new(verdict, r2.value, words)
        .with_bound(r2, &[&bare])
        .with_explanation(|| explanation::per_byte(&bare, metric))
}

/// A line through node delays with its intervals.
fn fit_words(line: &Line) -> String {
    let slope = line.fit.slope;
    let r2 = explained(line.fit.r_squared.unwrap_or(0.0), line.free);
    format!(
        "{} + {} ns per byte (interval {} to {}), R2 = {}{}",
        delay(line.fit.intercept.value),
        three_digits(slope.value),
        three_digits(slope.interval.low),
        three_digits(slope.interval.high),
        three_digits(r2.value),
        between(r2, three_digits)
    )
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

pub(super) fn order(encrypt: &Evidence) -> Judgement {
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
    let idle = || {
        let level = bare.idle().level(p95(metric), ERROR_PROBABILITY)?;
        Some(format!("{}{}", delay(level.value), between(level, delay)))
    };
    let words = words + &idle_sentence(&[&bare], idle);
    Judgement::new(level.at_least(1e6), level.value, words)
        .with_bound(level, &[&bare])
        .with_explanation(|| explanation::parts(&bare))
}

pub(super) fn rate(all: &Evidence) -> Judgement {
    let bare = all.bare();
    if bare.is_empty() {
        return nothing(&[&bare], "No relay was measured.");
    }
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

pub(super) fn balance(translate: &Evidence, encrypt: &Evidence) -> Judgement {
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
    Judgement::new(factor.rises(), factor.value, words)
        .with_bound(factor, &[&idle.clone().and(busy.clone())])
        .with_explanation(|| {
            explanation::compared([("without load", &idle), ("under the highest load", &busy)])
        })
}
