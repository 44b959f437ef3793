//! Idle states of processors as the cause of S0.26: Miya 2020 reports that delays fall as the packet
//! rate rises, without a cause. Judged for round trips at several rates, once with a program and
//! processors that sleep between probes and once without sleep. A trial is one observation, by its
//! median: at low rates a trial has too few probes for a mean.

use dwell_report::analysis::group::percentile_of;
use dwell_report::model::quantity::{delay, three_digits};
use dwell_report::model::{ClaimUnit, JudgedClaims, Published, RunData, TrialData};
use dwell_stats::Quantile;

use crate::Document;
use crate::evidence::{Bound, Comparison, Evidence, MAX_UNCHANGED_RATIO, number};
use crate::judgement::{ClaimSpec, Judgement, Limit, between, nothing};
use crate::miya_2020::{CITE, MAX_FLAT_RATIO};

/// The claims of the document that plans name.
pub(crate) const DOCUMENT: Document = Document {
    name: "miya-2020-idle",
    aliases: &[],
    cite: CITE,
    judge: Some(judge),
    published: |_| Published::default(),
};

/// Judged delay: that of the program, which includes the exit from idle states at both ends.
const METRIC: &str = "rtt_ns";

/// Parameter of the packet rate.
const RATE: &str = "rate";

/// Error probability of each claim: 5 % shared by all claims of a run.
const ERROR_PROBABILITY: f64 = 0.05 / CLAIMS.len() as f64;

/// A claim and its check.
type IdleClaim = ClaimSpec<fn(&IdleEvidence) -> Judgement>;

const CLAIMS: [IdleClaim; 3] = [
    ClaimSpec {
        id: "S0.26-sleep",
        claim: "Slower probing gives longer round trips while program and CPUs sleep between probes \
                (median at the lowest rate over that at the highest).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| of.asleep.slowdown().map_or_else(|none| none, |found| found.judged(&of.asleep)),
    },
    ClaimSpec {
        id: "S0.26-awake",
        claim: "With busy polling and no idle states the effect is gone: medians at all rates are \
                within a factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| of.awake.flat(),
    },
    ClaimSpec {
        id: "S0.26-cause",
        claim: "Sleep causes the effect: round trips grow more from the highest to the lowest rate with \
                sleep than without (ratio of both factors).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| of.cause(),
    },
];

/// Trials of a run by what happens between probes.
struct IdleEvidence<'a> {
    asleep: Rates<'a>,
    awake: Rates<'a>,
}

/// Trials at several rates.
struct Rates<'a> {
    trials: Evidence<'a>,
    /// Why these trials are missing; empty if they were not planned.
    missing: &'static str,
}

/// Delay at the lowest rate over that at the highest.
struct Slowdown {
    compared: Comparison,
    /// Lowest and highest rate.
    rates: [String; 2],
}

/// Ids and limits of the claims.
#[cfg(test)]
pub(crate) fn limits() -> Vec<(&'static str, Limit)> {
    CLAIMS.iter().map(ClaimSpec::id_and_limit).collect()
}

fn judge(run: &RunData) -> JudgedClaims {
    let all = Evidence::of(run);
    let polls = |trial: &TrialData| has_flag(trial, "busy_poll");
    let asleep = all.filter(|trial| !polls(trial) && !has_flag(trial, "no_idle"));
    let awake = all.filter(|trial| polls(trial) && has_flag(trial, "no_idle"));
    let has_no_idle = !awake.is_empty();
    let awake = awake.filter(idle_is_off);
    let missing = match has_no_idle && awake.is_empty() {
        true => "Here: idle states could not be switched off; see the warnings of the run.",
        false => "",
    };
    let evidence = IdleEvidence {
        asleep: Rates { trials: asleep, missing: "" },
        awake: Rates { trials: awake, missing },
    };
    JudgedClaims {
        cite: CITE,
        claims: CLAIMS.iter().map(|claim| claim.judged(|judge| judge(&evidence))).collect(),
        node_delay: None,
        left_out: all.left_out_text(),
    }
}

/// Whether a parameter of the measurement is true.
fn has_flag(trial: &TrialData, parameter: &str) -> bool {
    let summary = trial.summary.as_ref();
    summary.and_then(|it| it.parameters.get(parameter)?.as_bool()).unwrap_or(false)
}

/// Whether `--no-idle` had an effect.
fn idle_is_off(trial: &TrialData) -> bool {
    let idle = trial.summary.as_ref().and_then(|it| it.environment.cpu_idle.as_ref());
    idle.is_some_and(|idle| idle.is_off())
}

fn median(trial: &TrialData) -> Option<f64> {
    percentile_of(trial, METRIC, Quantile::P50).map(|ns| ns as f64)
}

fn interval(trial: &TrialData) -> f64 {
    number(trial, "interval_ns").unwrap_or(f64::NAN)
}

impl Rates<'_> {
    /// Why these trials cannot be judged; `None` if they can.
    fn unjudged(&self) -> Option<Judgement> {
        if self.trials.is_empty() {
            return Some(match self.missing {
                "" => nothing(&[&self.trials], "No trial was measured in this way."),
                why => Judgement::cannot_tell(why),
            });
        }
        let all_have_it =
            self.trials.trials.iter().all(|trial| trial.parameters.contains_key(RATE));
        (!all_have_it).then(|| Judgement::not_run("The run has no axis rate."))
    }

    fn slowdown(&self) -> Result<Slowdown, Judgement> {
        if let Some(none) = self.unjudged() {
            return Err(none);
        }
        let intervals = || self.trials.trials.iter().map(|trial| interval(trial));
        let ends = [intervals().fold(0.0, f64::max), intervals().fold(f64::MAX, f64::min)];
        let [slow, fast] =
            ends.map(|end| self.trials.filter(|trial| (interval(trial) - end).abs() < 0.5));
        let rate = |of: &Evidence| of.trials.first()?.parameters.get(RATE).cloned();
        let (Some(low), Some(high)) = (rate(&slow), rate(&fast)) else {
            return Err(Judgement::cannot_tell("Here: the rates of the trials are unknown."));
        };
        if low == high {
            return Err(Judgement::not_run("The run has one rate only."));
        }
        match slow.ratio_to(&fast, RATE, median, ERROR_PROBABILITY) {
            Some(compared) => Ok(Slowdown { compared, rates: [low, high] }),
            None => Err(Judgement::cannot_tell("Here: too few replies at one of the rates.")),
        }
    }

    fn flat(&self) -> Judgement {
        if let Some(none) = self.unjudged() {
            return none;
        }
        let Some(spread) = self.trials.spread(RATE, median, ERROR_PROBABILITY) else {
            return Judgement::not_run("The run has one rate only.");
        };
        let (ends, factor) = (spread.ends, spread.factor);
        let ends = ends.map_or_else(String::new, |ends| {
            let [from, to] = ends.levels.map(delay);
            let [first, last] = ends.values;
            format!("{from} at {first} against {to} at {last}, ")
        });
        let words = format!(
            "Here: {ends}a factor of {}{} (largest of all pairs of rates, median).",
            three_digits(factor.value),
            between(factor, three_digits),
        );
        Judgement::new(factor.at_most(MAX_FLAT_RATIO), factor.value, words)
            .with_bound(factor, &[&self.trials])
    }
}

impl Slowdown {
    fn factor(&self) -> Bound {
        self.compared.factor
    }

    fn judged(&self, of: &Rates) -> Judgement {
        let factor = self.factor();
        let [low, high] = &self.rates;
        let words = format!(
            "Here: {}x{}: {} at {low} against {} at {high} (median).{}",
            three_digits(factor.value),
            between(factor, three_digits),
            delay(self.compared.to),
            delay(self.compared.from),
            unchanged_text(factor),
        );
        Judgement::new(factor.rises(), factor.value, words).with_bound(factor, &[&of.trials])
    }
}

impl IdleEvidence<'_> {
    fn cause(&self) -> Judgement {
        let (asleep, awake) = match (self.asleep.slowdown(), self.awake.slowdown()) {
            (Ok(asleep), Ok(awake)) => (asleep.factor(), awake.factor()),
            (Err(none), _) | (_, Err(none)) => return none,
        };
        let ratio = asleep.over(awake);
        let words = format!(
            "Here: {}x{}: a factor of {} with sleep against {} without (median).{}",
            three_digits(ratio.value),
            between(ratio, three_digits),
            three_digits(asleep.value),
            three_digits(awake.value),
            unchanged_text(ratio),
        );
        Judgement::new(ratio.rises(), ratio.value, words)
            .with_bound(ratio, &[&self.asleep.trials, &self.awake.trials])
    }
}

/// Explanation of a factor that counts as none.
fn unchanged_text(factor: Bound) -> String {
    match factor.high <= MAX_UNCHANGED_RATIO {
        true => format!(" A factor up to {MAX_UNCHANGED_RATIO} counts as no increase."),
        false => String::new(),
    }
}
