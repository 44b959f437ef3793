//! Results of checks, from which judged claims are made.

use std::collections::BTreeSet;

use dwell_report::model::{Claim, ClaimUnit, ClaimVerdict};

use crate::evidence::{Bound, Evidence};
use crate::published;

/// Number with which the check of a claim compares.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Number in the paper: [`published::of_claim`].
    Published,
    /// Another number. The paper may state one beside it, such as how far a value fell, where the
    /// claim is that it falls.
    Own(f64),
}

/// A claim of a document with its check: a function of the document's evidence.
pub(crate) struct ClaimSpec<J> {
    /// Line of the document, with a suffix if the line makes several claims.
    pub(crate) id: &'static str,
    pub(crate) claim: &'static str,
    pub(crate) limit: Limit,
    pub(crate) unit: ClaimUnit,
    pub(crate) judge: J,
}

impl<J> ClaimSpec<J> {
    /// Id and limit.
    #[cfg(test)]
    pub(crate) fn id_and_limit(&self) -> (&'static str, Limit) {
        (self.id, self.limit)
    }

    /// The claim with the judgement that `apply` gets from its check.
    pub(crate) fn judged(&self, apply: impl FnOnce(&J) -> Judgement) -> Claim {
        apply(&self.judge).into_claim(self.id, self.claim, self.limit, self.unit)
    }
}

/// Result of judging a claim.
pub(crate) struct Judgement {
    verdict: ClaimVerdict,
    value: Option<f64>,
    /// Bounds of the value.
    interval: Option<(f64, f64)>,
    words: String,
    /// Explanation of a failed claim by the components of the delay.
    why: Option<String>,
}

impl Judgement {
    pub(crate) fn cannot_tell(why: impl Into<String>) -> Self {
        Self {
            verdict: ClaimVerdict::CannotTell,
            value: None,
            interval: None,
            words: why.into(),
            why: None,
        }
    }

    pub(crate) fn not_run(what: impl Into<String>) -> Self {
        Self {
            verdict: ClaimVerdict::NotRun,
            value: None,
            interval: None,
            words: what.into(),
            why: None,
        }
    }

    pub(crate) fn new(verdict: ClaimVerdict, value: f64, words: String) -> Self {
        Self { verdict, value: Some(value), interval: None, words, why: None }
    }

    /// Adds the interval of the value, a hint how to decide an undecided verdict on it, and the
    /// trials left out.
    pub(crate) fn with_bound(mut self, bound: Bound, all: &[&Evidence]) -> Self {
        self.interval = bound.is_bounded().then_some((bound.low, bound.high));
        let lost = all.iter().any(|evidence| !evidence.lost().is_empty());
        if self.verdict == ClaimVerdict::CannotTell {
            self.words += match (bound.is_bounded(), lost) {
                (true, false) => " The limit lies inside the interval: add repetitions.",
                (true, true) => " The limit lies inside the interval.",
                (false, _) => {
                    " Too few repetitions for an interval; set trials.repetitions to at least 3."
                }
            };
        }
        self.without(all)
    }

    /// Adds the number of trials left out, and the combinations that lost all their trials.
    pub(crate) fn without(mut self, all: &[&Evidence]) -> Self {
        let left_out: usize = all.iter().map(|evidence| evidence.left_out()).sum();
        if left_out > 0 {
            let trials = all.iter().map(|evidence| evidence.trials.len()).sum::<usize>() + left_out;
            self.words += &format!(
                " {left_out} of {trials} trials are left out: their load missed the requested level \
                 by more than 3 points."
            );
            let lost: BTreeSet<String> = all.iter().flat_map(|evidence| evidence.lost()).collect();
            if !lost.is_empty() {
                let lost: Vec<String> = lost.into_iter().collect();
                self.words += &format!(
                    " No trial remains at {}: more repetitions cannot decide this.",
                    lost.join("; at ")
                );
            }
        }
        self
    }

    /// The judged claim.
    fn into_claim(self, id: &str, claim: &str, limit: Limit, unit: ClaimUnit) -> Claim {
        let published = published::of_claim(id);
        let limit = match limit {
            Limit::Published => published,
            Limit::Own(limit) => Some(limit),
        };
        Claim {
            id: id.to_owned(),
            claim: claim.to_owned(),
            found: self.words,
            why: self.why,
            verdict: self.verdict,
            value: self.value,
            interval: self.interval,
            limit,
            published,
            unit,
        }
    }

    /// Adds an explanation if the verdict is a failure.
    pub(crate) fn with_explanation(mut self, why: impl FnOnce() -> Option<String>) -> Self {
        if self.verdict == ClaimVerdict::Fail {
            self.why = why();
        }
        self
    }
}

/// Result without evidence: not measured, or not under the requested load.
pub(crate) fn nothing(all: &[&Evidence], what: &str) -> Judgement {
    if all.iter().any(|evidence| evidence.is_empty() && evidence.left_out() > 0) {
        return Judgement::cannot_tell("Here: no trial had the requested load.").without(all);
    }
    Judgement::not_run(what)
}

/// `, interval a to b`; empty if repetitions are too few.
pub(crate) fn between(bound: Bound, said: impl Fn(f64) -> String) -> String {
    if !bound.is_bounded() {
        return String::new();
    }
    format!(", interval {} to {}", said(bound.low), said(bound.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_number_stands_beside_an_own_limit() {
        let claim =
            |id, limit, unit| Judgement::not_run("").into_claim(id, "", limit, unit).against();
        for (id, limit, unit, words) in [
            ("S4.4-cpu-max", Limit::Own(1.0), ClaimUnit::Times, "published 3.77x, own limit 1x"),
            ("S0.18", Limit::Published, ClaimUnit::Times, "published 10x"),
            ("S3.5-faster", Limit::Own(1.0), ClaimUnit::Times, "own limit 1x"),
        ] {
            assert_eq!(claim(id, limit, unit), words);
        }
    }
}
