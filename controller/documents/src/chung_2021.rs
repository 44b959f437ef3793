//! Claims of Chung 2021 about TCP and UDP between a client and a microcontroller (S3), judged by the
//! mean round trip of each trial. Each claim is judged for the clean node, and for the simulated
//! Arduino of the paper (ids that end in `-arduino`).
//!
//! Chung's average case is the mean of the best and the worst case. Here it is a measurement under
//! load.

use dwell_report::analysis::nlr::is_idle;
use dwell_report::model::quantity::{delay, three_digits};
use dwell_report::model::{
    Claim, ClaimUnit, ClaimVerdict, JudgedClaims, Published, RunData, TrialData,
};

use crate::Document;
use crate::evidence::{Bound, Comparison, Evidence};
use crate::judgement::{ClaimSpec, Judgement, Limit, between, nothing};
use crate::published::of_claim;

const CITE: &str = "Chung 2021";

/// The document.
pub(crate) const DOCUMENT: Document = Document {
    name: "chung-2021",
    aliases: &["chung", "s3"],
    cite: CITE,
    judge: Some(judge),
    published: |_| Published::default(),
};

/// Parameters that a trial differs in from another case or protocol.
const PROTOCOL: &str = "protocol";
const CLIENTS: &str = "clients";
const NODE: &str = "node_sim.like";

/// Largest ratio between a factor and that of the paper, either way, that counts as the same: the
/// paper's 13 latencies per table determine a mean to about 20 %.
const MAX_DEVIATION: f64 = 1.2;

/// Error probability of each claim: 5 % shared by all claims of a run.
const ERROR_PROBABILITY: f64 = 0.05 / (2 * CLAIMS.len()) as f64;

/// A claim and its check.
type NodeClaim = ClaimSpec<fn(&Cases) -> Judgement>;

/// Trials of one kind of node by case.
struct Cases<'a> {
    /// One client without load.
    best: Evidence<'a>,
    /// The largest number of clients without load.
    worst: Evidence<'a>,
    /// Under load.
    average: Evidence<'a>,
    /// All trials.
    all: Evidence<'a>,
}

const CLAIMS: [NodeClaim; 8] = [
    ClaimSpec {
        id: "S3.5-faster",
        claim: "UDP is faster than TCP (TCP over UDP, all cases together).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| judged(of.all.tcp_over_udp(), |factor| factor.rises()),
    },
    factor(
        "S3.5-best",
        "With one client, TCP takes 2.65 times as long as UDP (1303.5 and 491 ms, within 20 %).",
        |of| judged(of.best.tcp_over_udp(), |factor| is_like(factor, "S3.5-best")),
    ),
    factor(
        "S3.5-worst",
        "With many clients, TCP takes 2.43 times as long as UDP (1730.3 and 712.4 ms, within 20 %).",
        |of| judged(of.worst.tcp_over_udp(), |factor| is_like(factor, "S3.5-worst")),
    ),
    factor(
        "S3.5-average",
        "On average, TCP takes 2.5 times as long as UDP (within 20 %; here measured under load).",
        |of| judged(of.average.tcp_over_udp(), |factor| is_like(factor, "S3.5-average")),
    ),
    ClaimSpec {
        id: "S3.4-clients-tcp",
        claim: "TCP takes longer with many clients than with one (1.33 times in the paper).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| of.more_clients("text+tcp", round_trip),
    },
    ClaimSpec {
        id: "S3.4-clients-udp",
        claim: "UDP takes longer with many clients than with one (1.45 times in the paper).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| of.more_clients("text+udp", round_trip),
    },
    ClaimSpec {
        id: "S3.4-server-lag",
        claim: "Many clients cause server lag: requests wait longer in the server's socket (UDP, median).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| of.more_clients("text+udp", server_lag),
    },
    ClaimSpec {
        id: "S3.4-low",
        claim: "The latency is low, below 100 ms (mean with one client, TCP and UDP).",
        limit: Limit::Published,
        unit: ClaimUnit::Ns,
        judge: |of| of.low_latency(),
    },
];

/// A claim about the factor between TCP and UDP.
const fn factor(
    id: &'static str,
    claim: &'static str,
    judge: fn(&Cases) -> Judgement,
) -> NodeClaim {
    ClaimSpec { id, claim, limit: Limit::Published, unit: ClaimUnit::Times, judge }
}

/// Ids and limits of the claims.
#[cfg(test)]
pub(crate) fn limits() -> Vec<(&'static str, Limit)> {
    CLAIMS.iter().map(ClaimSpec::id_and_limit).collect()
}

fn judge(run: &RunData) -> JudgedClaims {
    let all = Evidence::of(run);
    let judged = |is_arduino: bool| {
        let cases = Cases::of(&all, is_arduino);
        CLAIMS.each_ref().map(|claim| claim.judged(|judge| judge(&cases)))
    };
    let arduino = judged(true).map(|claim| Claim { id: format!("{}-arduino", claim.id), ..claim });
    JudgedClaims {
        cite: CITE,
        claims: judged(false).into_iter().chain(arduino).collect(),
        node_delay: None,
        left_out: all.left_out_text(),
    }
}

/// Whether the server is the simulated Arduino of the paper.
fn is_arduino(trial: &TrialData) -> bool {
    trial.parameters.get(NODE).is_some_and(|like| like.starts_with("chung-2021"))
}

/// Number of clients of a trial.
fn clients(trial: &TrialData) -> u64 {
    let recorded = trial.summary.as_ref().and_then(|summary| summary.number(CLIENTS));
    recorded.map_or(1, |clients| clients as u64)
}

/// Verdict on "like the factor of the paper".
fn is_like(factor: Bound, claim: &str) -> ClaimVerdict {
    let Some(published) = of_claim(claim) else { return ClaimVerdict::CannotTell };
    factor.within(published / MAX_DEVIATION, published * MAX_DEVIATION)
}

/// Judges a comparison, if there is one.
fn judged(
    compared: Result<(Comparison, Vec<Evidence>), Judgement>,
    verdict: impl Fn(Bound) -> ClaimVerdict,
) -> Judgement {
    let (Comparison { from, to, factor }, evidence) = match compared {
        Ok(compared) => compared,
        Err(none) => return none,
    };
    let words = format!(
        "Here: {}x{}: {} against {}.",
        three_digits(factor.value),
        between(factor, three_digits),
        delay(to),
        delay(from),
    );
    let evidence: Vec<_> = evidence.iter().collect();
    Judgement::new(verdict(factor), factor.value, words).with_bound(factor, &evidence)
}

impl<'a> Cases<'a> {
    fn of(all: &Evidence<'a>, arduino: bool) -> Self {
        let all = all.filter(|trial| is_arduino(trial) == arduino);
        let idle = all.filter(is_idle);
        let most = idle.trials.iter().map(|trial| clients(trial)).max().unwrap_or(1);
        Self {
            best: idle.filter(|trial| clients(trial) == 1),
            worst: idle.filter(|trial| most > 1 && clients(trial) == most),
            average: all.filter(|trial| !is_idle(trial)),
            all,
        }
    }

    /// Judges whether a figure of a protocol is larger with the largest number of clients.
    fn more_clients(&self, protocol: &str, of: fn(&TrialData) -> Option<f64>) -> Judgement {
        let [best, worst] =
            [&self.best, &self.worst].map(|case| case.filter(|it| it.is_at(PROTOCOL, protocol)));
        judged(worst.over_best(&best, of), |factor| factor.rises())
    }

    fn low_latency(&self) -> Judgement {
        if self.best.is_empty() {
            return nothing(&[&self.best], "No trial had one client and no load.");
        }
        let Some(level) = self.best.level(round_trip, ERROR_PROBABILITY) else {
            return Judgement::cannot_tell("Here: no reply arrived.");
        };
        let words = format!("Here: mean {}{}.", delay(level.value), between(level, delay));
        Judgement::new(level.at_most(of_claim("S3.4-low")), level.value, words)
            .with_bound(level, &[&self.best])
    }
}

impl<'a> Evidence<'a> {
    /// Ratio of TCP to UDP in otherwise equal trials.
    fn tcp_over_udp(&self) -> Result<(Comparison, Vec<Evidence<'a>>), Judgement> {
        let [tcp, udp] =
            ["text+tcp", "text+udp"].map(|name| self.filter(|it| it.is_at(PROTOCOL, name)));
        if tcp.is_empty() || udp.is_empty() {
            return Err(nothing(&[&tcp, &udp], "This case was not measured with both protocols."));
        }
        let compared = tcp.ratio_to(&udp, PROTOCOL, round_trip, ERROR_PROBABILITY);
        Ok((compared.ok_or_else(incomparable)?, vec![tcp, udp]))
    }

    /// Ratio of these trials to those of the best case.
    fn over_best(
        &self,
        best: &Self,
        of: fn(&TrialData) -> Option<f64>,
    ) -> Result<(Comparison, Vec<Evidence<'a>>), Judgement> {
        if self.is_empty() || best.is_empty() {
            return Err(nothing(&[self, best], "Only one number of clients was measured."));
        }
        let compared = self.ratio_across(best, &[CLIENTS, NODE], of, ERROR_PROBABILITY);
        Ok((compared.ok_or_else(incomparable)?, vec![self.clone(), best.clone()]))
    }
}

/// Mean round trip of a trial in nanoseconds.
fn round_trip(trial: &TrialData) -> Option<f64> {
    trial.summary.as_ref()?.metrics.get("rtt_ns")?.mean
}

/// Median server lag of a trial in nanoseconds. Its mean would depend on the warm-up.
fn server_lag(trial: &TrialData) -> Option<f64> {
    Some(trial.summary.as_ref()?.metrics.get("server_lag_ns")?.p50? as f64)
}

fn incomparable() -> Judgement {
    Judgement::cannot_tell("Here: no combination of parameters has enough samples of both.")
}
