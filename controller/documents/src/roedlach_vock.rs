//! Claims of Roedlach/Vock about UDP round trips between two Raspberry Pis (S4.4), judged for the
//! machines of a run. A trial is one observation, by a figure of its round trips.
//!
//! The report prints minimum, maximum and mean. Its means are means of the distinct values in its
//! files; the true ones of the three files that exist were computed again, and so were percentiles,
//! which the report does not have. Ratios of printed and of true figures are both stated.

use std::collections::BTreeSet;

use dwell_report::analysis::nlr::is_idle;
use dwell_report::model::quantity::{delay, three_digits};
use dwell_report::model::{ClaimUnit, ClaimVerdict, JudgedClaims, Published, RunData, TrialData};

use crate::Document;
use crate::evidence::{Bound, Comparison, Ends, Evidence, Spread};
use crate::judgement::{ClaimSpec, Judgement, Limit, between, nothing};

const CITE: &str = "Roedlach/Vock";

/// The document.
pub(crate) const DOCUMENT: Document = Document {
    name: "roedlach-vock",
    aliases: &["s4"],
    cite: CITE,
    judge: Some(judge),
    published: |_| Published::default(),
};

/// The delay that the program reports, as in the paper.
const METRIC: &str = "rtt_ns";

/// Parameter of the load.
const LOAD: &str = "load";

/// Parameter of the number of cycles.
const COUNT: &str = "count";

/// Maximum ratio that counts as unchanged; the paper's own minima differ by 1.16.
const MAX_FLAT_RATIO: f64 = 1.25;

/// Error probability of each claim: 5 % shared by all claims of a run.
const ERROR_PROBABILITY: f64 = 0.05 / CLAIMS.len() as f64;

/// Figure of a trial's round trips.
#[derive(Clone, Copy)]
enum Figure {
    Min,
    Mean,
    Median,
    P99Point9,
    Max,
}

/// A claim and its check.
type LoadClaim = ClaimSpec<fn(&Loads) -> Judgement>;

/// Trials of a run by load.
struct Loads<'a> {
    all: Evidence<'a>,
    idle: Evidence<'a>,
    network: Evidence<'a>,
    cpu: Evidence<'a>,
}

const CLAIMS: [LoadClaim; 7] = [
    ClaimSpec {
        id: "S4.4-min",
        claim: "The minimum round trip does not depend on the load: its values stay within a factor of \
                1.25 (published: 1.16, from 147 to 170 us).",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| flat(&of.all, LOAD, Figure::Min),
    },
    ClaimSpec {
        id: "S4.4-network",
        claim: "Network load leaves the mean round trip as it is, within a factor of 1.25 (printed: 288 \
                over 296 us, from its samples: 278.66 over 281.35).",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| unchanged(&of.network, &of.idle, Figure::Mean),
    },
    ClaimSpec {
        id: "S4.4-cpu-mean",
        claim: "CPU load at both ends raises the mean round trip (printed: 414 over 296 us, from its \
                samples: 288.39 over 281.35, 1.03x).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| rises(&of.cpu, &of.idle, Figure::Mean),
    },
    ClaimSpec {
        id: "S4.4-cpu-median",
        claim: "CPU load at both ends lowers the median round trip (not printed, from its samples: 248.5 \
                over 282.5 us), because processors under load leave low frequencies and idle states.",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| falls(&of.cpu, &of.idle, Figure::Median),
    },
    ClaimSpec {
        id: "S4.4-cpu-tail",
        claim: "CPU load at both ends raises the 99.9th percentile (not printed, from its samples: 8,886 \
                over 693 us).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| rises(&of.cpu, &of.idle, Figure::P99Point9),
    },
    ClaimSpec {
        id: "S4.4-cpu-max",
        claim: "CPU load at both ends raises the maximum (printed: 12,267 over 3,256 us).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| rises(&of.cpu, &of.idle, Figure::Max),
    },
    ClaimSpec {
        id: "S4.4-long",
        claim: "Ten times the cycles give the same mean, within a factor of 1.25 (printed: 340 us of \
                500,000 cycles over 296 of 50,000; the files of the long series are lost).",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| flat(&of.idle, COUNT, Figure::Mean),
    },
];

/// Ids and limits of the claims.
#[cfg(test)]
pub(crate) fn limits() -> Vec<(&'static str, Limit)> {
    CLAIMS.iter().map(ClaimSpec::id_and_limit).collect()
}

fn judge(run: &RunData) -> JudgedClaims {
    let all = Evidence::of_any_load(run);
    let loaded = |cpu: bool| all.filter(|trial| !is_idle(trial) && has_cpu_load(trial) == cpu);
    let loads =
        Loads { idle: all.idle(), network: loaded(false), cpu: loaded(true), all: all.clone() };
    JudgedClaims {
        cite: CITE,
        claims: CLAIMS.iter().map(|claim| claim.judged(|judge| judge(&loads))).collect(),
        node_delay: None,
        left_out: None,
    }
}

fn has_cpu_load(trial: &TrialData) -> bool {
    trial.loads.iter().any(|load| load.value("asked_ratio").is_some())
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Min => "minimum",
            Self::Mean => "mean",
            Self::Median => "median",
            Self::P99Point9 => "p99.9",
            Self::Max => "maximum",
        }
    }

    /// The figure of a trial in ns; `None` if its samples do not support it.
    fn of(self, trial: &TrialData) -> Option<f64> {
        let figures = trial.summary.as_ref()?.metrics.get(METRIC)?;
        let whole = |ns: Option<i64>| ns.map(|ns| ns as f64);
        match self {
            Self::Min => whole(figures.min),
            Self::Mean => figures.mean,
            Self::Median => whole(figures.p50),
            Self::P99Point9 => whole(figures.p99_9),
            Self::Max => whole(figures.max),
        }
    }
}

fn rises(loaded: &Evidence, idle: &Evidence, figure: Figure) -> Judgement {
    against(loaded, idle, figure, Bound::rises)
}

fn falls(loaded: &Evidence, idle: &Evidence, figure: Figure) -> Judgement {
    against(loaded, idle, figure, Bound::falls)
}

fn unchanged(loaded: &Evidence, idle: &Evidence, figure: Figure) -> Judgement {
    against(loaded, idle, figure, |factor| factor.within(1.0 / MAX_FLAT_RATIO, MAX_FLAT_RATIO))
}

fn against(
    loaded: &Evidence,
    idle: &Evidence,
    figure: Figure,
    verdict: impl Fn(Bound) -> ClaimVerdict,
) -> Judgement {
    if loaded.is_empty() || idle.is_empty() {
        return nothing(&[loaded, idle], "Not both loads were measured.");
    }
    let of = |trial: &TrialData| figure.of(trial);
    let found = loaded.ratio_to(idle, LOAD, of, ERROR_PROBABILITY);
    let Some(Comparison { from, to, factor }) = found else {
        return Judgement::cannot_tell(format!(
            "Here: no combination of parameters has a {} with and without the load.",
            figure.name()
        ));
    };
    let words = format!(
        "Here: {}x{}: {} of {} against {}.",
        three_digits(factor.value),
        between(factor, three_digits),
        figure.name(),
        delay(to),
        delay(from),
    );
    Judgement::new(verdict(factor), factor.value, words).with_bound(factor, &[loaded, idle])
}

/// Judges whether a figure is the same at all values of a parameter.
fn flat(all: &Evidence, parameter: &str, figure: Figure) -> Judgement {
    if all.is_empty() {
        return nothing(&[all], "Nothing was measured.");
    }
    let values: BTreeSet<_> = all.trials.iter().map(|it| it.parameters.get(parameter)).collect();
    if values.len() < 2 {
        return Judgement::not_run(format!("The run has one {parameter} only."));
    }
    let of = |trial: &TrialData| figure.of(trial);
    let Some(Spread { factor, ends }) = all.spread(parameter, of, ERROR_PROBABILITY) else {
        return Judgement::cannot_tell("Here: one value only.").without(&[all]);
    };
    let said = ends.map(|Ends { values: [first, last], levels }| {
        let [from, to] = levels.map(delay);
        format!("{from} at {parameter} {first} against {to} at {last}, ")
    });
    let words = format!(
        "Here: {}a factor of {}{} ({}).",
        said.unwrap_or_default(),
        three_digits(factor.value),
        between(factor, three_digits),
        figure.name(),
    );
    Judgement::new(factor.at_most(MAX_FLAT_RATIO), factor.value, words).with_bound(factor, &[all])
}
