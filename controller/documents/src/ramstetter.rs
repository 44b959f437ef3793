//! Claims of Ramstetter about stable ping (S1.8), judged for the machines of a run. A trial is one
//! observation, by the mean and the variance of its round trips.
//!
//! Ramstetter's originator mode is `--stamps driver` here, and the dumb mode a reflector in the
//! driver. The set-ups are standard ping, semi-stable (driver timestamps, ordinary answerer) and
//! stable (both). Each set-up is judged by the delay that it reports: by the driver's timestamps if
//! it has them, else the program's. Two claims judge the program's delay in all set-ups, because the
//! paper's histograms are of ping's own output.

use dwell_record::Kind;
use dwell_report::analysis::nlr::is_idle;
use dwell_report::model::metric::RTT_DRIVER;
use dwell_report::model::quantity::{delay, three_digits};
use dwell_report::model::{ClaimUnit, ClaimVerdict, JudgedClaims, Published, RunData, TrialData};

use crate::Document;
use crate::evidence::{Bound, Comparison, Evidence};
use crate::judgement::{ClaimSpec, Judgement, Limit, between, nothing};
use crate::published::of_claim;

const CITE: &str = "Ramstetter";

/// The document.
pub(crate) const DOCUMENT: Document = Document {
    name: "ramstetter",
    aliases: &[],
    cite: CITE,
    judge: Some(judge),
    published: |_| Published::default(),
};

/// Round trip by the program's timestamps.
const PROGRAM: &str = "rtt_ns";

/// Parameter of the timestamps of probes.
const STAMPS: &str = "stamps";

/// Parameter of the engine of the reflector.
const ENGINE: &str = "reflect.engine";

/// Result of trials without a delay by the driver's timestamps.
const NO_DRIVER_TIMESTAMPS: &str = "Here: no reply has a timestamp of the driver.";

/// Error probability of each claim: 5 % shared by all claims of a run.
const ERROR_PROBABILITY: f64 = 0.05 / CLAIMS.len() as f64;

/// A claim and its check.
type SetUpClaim = ClaimSpec<fn(&SetUps) -> Judgement>;

/// Trials of a run by set-up.
struct SetUps<'a> {
    standard: Evidence<'a>,
    semi_stable: Evidence<'a>,
    stable: Evidence<'a>,
}

/// Figure of a trial that a claim is about.
#[derive(Clone, Copy)]
enum Figure {
    Mean,
    Variance,
}

/// Claim that a figure falls from one set-up to the next.
const fn falls(
    id: &'static str,
    claim: &'static str,
    judge: fn(&SetUps) -> Judgement,
) -> SetUpClaim {
    ClaimSpec { id, claim, limit: Limit::Own(1.0), unit: ClaimUnit::Times, judge }
}

const CLAIMS: [SetUpClaim; 9] = [
    falls(
        "S1.8-mean-semi",
        "The mean round trip falls from standard (by the program's timestamps) to semi-stable ping (by \
         the driver's).",
        |of| of.semi_stable.falls_from(&of.standard, Figure::Mean),
    ),
    falls(
        "S1.8-mean-stable",
        "The mean round trip falls from semi-stable to stable ping (both by the driver's timestamps).",
        |of| of.stable.falls_from(&of.semi_stable, Figure::Mean),
    ),
    falls(
        "S1.8-mean-program",
        "The mean round trip falls from standard to stable ping (both by the program's timestamps, as \
         ping reports them).",
        |of| of.stable.program_falls_from(&of.standard, Figure::Mean),
    ),
    falls(
        "S1.8-variance-semi",
        "The variance of round trips falls from standard (by the program's timestamps) to semi-stable \
         ping (by the driver's).",
        |of| of.semi_stable.falls_from(&of.standard, Figure::Variance),
    ),
    falls(
        "S1.8-variance-stable",
        "The variance of round trips falls from semi-stable to stable ping (both by the driver's \
         timestamps).",
        |of| of.stable.falls_from(&of.semi_stable, Figure::Variance),
    ),
    falls(
        "S1.8-variance-program",
        "The variance of round trips falls from standard to stable ping (both by the program's \
         timestamps, as ping reports them).",
        |of| of.stable.program_falls_from(&of.standard, Figure::Variance),
    ),
    falls(
        "S1.8-weak-mean",
        "The mean round trip falls most with a weak answering host (standard over stable ping there, \
         over the same with a fast host).",
        |of| of.weak_gain(Figure::Mean),
    ),
    falls(
        "S1.8-weak-variance",
        "The variance of round trips falls most with a weak answering host (likewise).",
        |of| of.weak_gain(Figure::Variance),
    ),
    ClaimSpec {
        id: "S1.8-log",
        claim: "Ping and the log of the driver differ by up to 0.2 ms (mean difference of a trial).",
        limit: Limit::Published,
        unit: ClaimUnit::Ns,
        judge: |of| of.log_difference(),
    },
];

/// Ids and limits of the claims.
#[cfg(test)]
pub(crate) fn limits() -> Vec<(&'static str, Limit)> {
    CLAIMS.iter().map(ClaimSpec::id_and_limit).collect()
}

fn judge(run: &RunData) -> JudgedClaims {
    let all = Evidence::of(run);
    let set_up = |driver_stamps, in_driver| {
        all.filter(|trial| {
            has_driver_stamps(trial) == driver_stamps && answers_in_driver(trial) == in_driver
        })
    };
    let set_ups = SetUps {
        standard: set_up(false, false),
        semi_stable: set_up(true, false),
        stable: set_up(true, true),
    };
    JudgedClaims {
        cite: CITE,
        claims: CLAIMS.iter().map(|claim| claim.judged(|judge| judge(&set_ups))).collect(),
        node_delay: None,
        left_out: all.left_out_text(),
    }
}

/// Whether the trial asked for timestamps of the driver.
fn has_driver_stamps(trial: &TrialData) -> bool {
    trial.summary.as_ref().and_then(|summary| summary.text(STAMPS)) == Some("driver")
}

/// Whether a reflector of the trial replied in the driver.
fn answers_in_driver(trial: &TrialData) -> bool {
    let mut machines = trial.machines.iter().map(|machine| &machine.summary);
    machines.any(|it| it.kind == Kind::Reflect && it.engine.starts_with("xdp"))
}

/// Whether the answering host is weak: loaded, or with a quota.
fn is_weak(trial: &TrialData) -> bool {
    let has_quota =
        |(name, value): (&String, &String)| name.starts_with("topology.quota.") && value != "none";
    !is_idle(trial) || trial.parameters.iter().any(has_quota)
}

/// Metric of the delay that a trial reports.
fn reported(trial: &TrialData) -> &'static str {
    if has_driver_stamps(trial) { RTT_DRIVER } else { PROGRAM }
}

impl Figure {
    /// The figure of a trial: ns, or ns squared.
    fn of(self, trial: &TrialData, metric: &str) -> Option<f64> {
        let figures = trial.summary.as_ref()?.metrics.get(metric)?;
        match self {
            Self::Mean => figures.mean,
            Self::Variance => figures.stddev.map(|stddev| stddev * stddev),
        }
    }

    /// Names the figure, and both levels as delays.
    fn levels_text(self, to: f64, from: f64) -> String {
        match self {
            Self::Mean => format!("mean; {} against {}", delay(to), delay(from)),
            Self::Variance => {
                let [to, from] = [to, from].map(|level| delay(level.sqrt()));
                format!("variance; standard deviations {to} against {from}")
            }
        }
    }
}

impl<'a> Evidence<'a> {
    /// Judges whether the figure of the reported delay is lower than in `others`.
    fn falls_from(&self, others: &Self, figure: Figure) -> Judgement {
        self.judge_fall(others, figure, reported)
    }

    /// Judges whether the figure of the program's delay is lower than in `others`.
    fn program_falls_from(&self, others: &Self, figure: Figure) -> Judgement {
        self.judge_fall(others, figure, |_| PROGRAM)
    }

    fn judge_fall(
        &self,
        others: &Self,
        figure: Figure,
        metric: fn(&TrialData) -> &'static str,
    ) -> Judgement {
        let Comparison { from, to, factor } = match self.compared(others, figure, metric) {
            Ok(compared) => compared,
            Err(none) => return none,
        };
        let words = format!(
            "Here: {}x{}: {}.{}",
            three_digits(factor.value),
            between(factor, three_digits),
            figure.levels_text(to, from),
            reversed_text(factor),
        );
        Judgement::new(factor.falls(), factor.value, words).with_bound(factor, &[self, others])
    }

    fn compared(
        &self,
        others: &Self,
        figure: Figure,
        metric: fn(&TrialData) -> &'static str,
    ) -> Result<Comparison, Judgement> {
        if self.is_empty() || others.is_empty() {
            return Err(nothing(&[self, others], "Not both set-ups were measured."));
        }
        let of = |trial: &TrialData| figure.of(trial, metric(trial));
        let lacks = |all: &Self| all.trials.iter().all(|trial| of(trial).is_none());
        if lacks(self) || lacks(others) {
            return Err(Judgement::cannot_tell(NO_DRIVER_TIMESTAMPS));
        }
        self.ratio_across(others, &[STAMPS, ENGINE], of, ERROR_PROBABILITY).ok_or_else(|| {
            Judgement::cannot_tell(
                "Here: no combination of parameters has enough samples of both set-ups.",
            )
        })
    }
}

impl SetUps<'_> {
    fn weak_gain(&self, figure: Figure) -> Judgement {
        let gain = |weak: bool| {
            let [standard, stable] =
                [&self.standard, &self.stable].map(|all| all.filter(|it| is_weak(it) == weak));
            standard.compared(&stable, figure, reported)
        };
        let (weak, fast) = match (gain(true), gain(false)) {
            (Ok(weak), Ok(fast)) => (weak.factor, fast.factor),
            (Err(none), _) | (_, Err(none)) => return none,
        };
        let more = weak.over(fast);
        let words = format!(
            "Here: {}x{}: standard over stable ping is {} with a weak host and {} with a fast one ({} \
             of the reported delay).",
            three_digits(more.value),
            between(more, three_digits),
            three_digits(weak.value),
            three_digits(fast.value),
            match figure {
                Figure::Mean => "mean",
                Figure::Variance => "variance",
            },
        );
        Judgement::new(more.rises(), more.value, words)
            .with_bound(more, &[&self.standard, &self.stable])
    }

    fn log_difference(&self) -> Judgement {
        let stamped = self.semi_stable.clone().and(self.stable.clone());
        if stamped.is_empty() {
            return nothing(&[&stamped], "No trial had timestamps of the driver.");
        }
        let difference = |trial: &TrialData| {
            let mean = |metric| Figure::Mean.of(trial, metric);
            Some(mean(PROGRAM)? - mean(RTT_DRIVER)?)
        };
        let Some(level) = stamped.level(difference, ERROR_PROBABILITY) else {
            return Judgement::cannot_tell(NO_DRIVER_TIMESTAMPS);
        };
        let words = format!(
            "Here: the program's mean is {} above the driver's{}; the cause is the way from the driver \
             to the program, and its wake-up.",
            delay(level.value),
            between(level, delay),
        );
        Judgement::new(level.at_most(of_claim("S1.8-log")), level.value, words)
            .with_bound(level, &[&stamped])
    }
}

/// Note that a figure rose; empty if it did not surely rise.
fn reversed_text(factor: Bound) -> &'static str {
    match factor.falls() {
        ClaimVerdict::Fail if factor.low > 1.0 => " It rises.",
        ClaimVerdict::Fail => " A fall of less than 5 % counts as none.",
        _ => "",
    }
}
