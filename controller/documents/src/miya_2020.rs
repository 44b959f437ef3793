//! Claims of Miya 2020 about relays on a Pi Zero (S0.18 to S0.27), judged for the machines of a run
//! by the statistic of the paper: 95th percentiles (S0.13, S0.15, S0.17), or means where it speaks
//! of an average. A trial is one observation.

mod explanation;
mod jitter;
mod loss;
mod node_delay;
mod ratio;

use dwell_report::analysis::group::percentile_of;
use dwell_report::analysis::nlr::NlrConditions;
use dwell_report::model::metric::NODE_DELAY_METRICS;
use dwell_report::model::{
    ClaimMetric, ClaimUnit, JudgedClaims, Published, PublishedLevel, RunData, TrialData,
};
use dwell_stats::Quantile;

use crate::Document;
use crate::evidence::{Evidence, number};
use crate::judgement::{ClaimSpec, Judgement, Limit};
use crate::published::of_claim;

pub(crate) const CITE: &str = "Miya 2020";

/// The document.
pub(crate) const DOCUMENT: Document =
    Document { name: "miya-2020", aliases: &["s0"], cite: CITE, judge: Some(judge), published };

/// Maximum ratio of 95th percentiles that counts as flat; repetitions in the paper differ by more.
pub(crate) const MAX_FLAT_RATIO: f64 = 1.25;

/// Minimum R2 of a linear relation.
const MIN_LINEAR_R2: f64 = 0.9;

/// Node-delay metrics in order of preference. The paper timestamped packets between netfilter's
/// hooks (S0.6); a claim uses the first metric that its trials have, and names it.
const PREFERRED_METRICS: [&str; 3] =
    [NODE_DELAY_METRICS[2], NODE_DELAY_METRICS[1], NODE_DELAY_METRICS[0]];

/// Error probability of each claim: 5 % shared by all claims of a run.
const ERROR_PROBABILITY: f64 = 0.05 / CLAIMS.len() as f64;

/// A claim and its check.
type RelayClaim = ClaimSpec<fn(&RelayEvidence) -> Judgement>;

/// Trials of a run by relay mode, and where an NLR is valid.
struct RelayEvidence<'a> {
    all: Evidence<'a>,
    route: Evidence<'a>,
    translate: Evidence<'a>,
    encrypt: Evidence<'a>,
    nlr: NlrConditions,
}

/// The claims in the order of the paper.
const CLAIMS: [RelayClaim; 15] = [
    ClaimSpec {
        id: "S0.18",
        claim: "Relaying in a program takes at least 10x the node delay of kernel routing (95th percentiles).",
        limit: Limit::Published,
        unit: ClaimUnit::Times,
        judge: |of| node_delay::crossing(&of.route, &of.translate),
    },
    ClaimSpec {
        id: "S0.19-route",
        claim: "Routed packets: the node delay is below 5 % of the link delay (NLR).",
        limit: Limit::Published,
        unit: ClaimUnit::Share,
        judge: |of| {
            ratio::judge(&of.route, &of.nlr, |bound| bound.at_most(of_claim("S0.19-route")))
        },
    },
    ClaimSpec {
        id: "S0.19-translate",
        claim: "Packets relayed by a program: the node delay is about 30 % of the link delay (NLR), taken \
                here as 15 to 60 %.",
        limit: Limit::Published,
        unit: ClaimUnit::Share,
        judge: |of| ratio::judge(&of.translate, &of.nlr, |bound| bound.within(0.15, 0.6)),
    },
    ClaimSpec {
        id: "S0.20",
        claim: "Encrypted packets above 1,200 B: the node delay exceeds the link delay.",
        limit: Limit::Published,
        unit: ClaimUnit::Share,
        judge: |of| {
            let large =
                |trial: &TrialData| number(trial, "payload_bytes").is_some_and(|b| b > 1_200.0);
            ratio::judge(&of.encrypt.filter(large), &of.nlr, |bound| {
                bound.at_least(of_claim("S0.20"))
            })
        },
    },
    ClaimSpec {
        id: "S0.21-route-rate",
        claim: "The node delay of route does not depend on the packet rate: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| node_delay::flat(&of.route, "rate"),
    },
    ClaimSpec {
        id: "S0.21-route-load",
        claim: "The node delay of route does not depend on the load of the node: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| node_delay::flat(&of.route, "load"),
    },
    ClaimSpec {
        id: "S0.21-translate-rate",
        claim: "The node delay of translate does not depend on the packet rate: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| node_delay::flat(&of.translate, "rate"),
    },
    ClaimSpec {
        id: "S0.21-translate-load",
        claim: "The node delay of translate does not depend on the load of the node: its 95th percentiles stay within a \
                factor of 1.25.",
        limit: Limit::Own(MAX_FLAT_RATIO),
        unit: ClaimUnit::Times,
        judge: |of| node_delay::flat(&of.translate, "load"),
    },
    ClaimSpec {
        id: "S0.22-linear",
        claim: "The node delay of encrypted packets is linear in their size: a rising line through the 95th \
                percentiles explains at least 90 % of the variance (R2).",
        limit: Limit::Own(MIN_LINEAR_R2),
        unit: ClaimUnit::Number,
        judge: |of| node_delay::linear(&of.encrypt),
    },
    ClaimSpec {
        id: "S0.22-order",
        claim: "The node delay of encrypted packets is of the order of milliseconds (95th percentile), \
                taken here as 1 ms or more.",
        limit: Limit::Own(1e6),
        unit: ClaimUnit::Ns,
        judge: |of| node_delay::order(&of.encrypt),
    },
    ClaimSpec {
        id: "S0.23",
        claim: "Crossing to user space and back costs more than 100 us (claimed for a Pi Zero; judged for \
                this machine, 95th percentile).",
        limit: Limit::Published,
        unit: ClaimUnit::Ns,
        judge: |of| node_delay::cost(&of.route, &of.translate),
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
        judge: |of| node_delay::rate(&of.all),
    },
    ClaimSpec {
        id: "S0.27",
        claim: "Load balancing between nodes pays: the node delay of programs is longer on a loaded node \
                (95th percentile under the highest load over that without load).",
        limit: Limit::Own(1.0),
        unit: ClaimUnit::Times,
        judge: |of| node_delay::balance(&of.translate, &of.encrypt),
    },
];

/// Ids and limits of the claims.
#[cfg(test)]
pub(crate) fn limits() -> Vec<(&'static str, Limit)> {
    CLAIMS.iter().map(ClaimSpec::id_and_limit).collect()
}

fn judge(run: &RunData) -> JudgedClaims {
    let all = Evidence::of(run);
    let left_out = all.left_out_text();
    let [route, translate, encrypt] = ["route", "translate", "encrypt"].map(|mode| all.mode(mode));
    let evidence = RelayEvidence { all, route, translate, encrypt, nlr: NlrConditions::of(run) };
    JudgedClaims {
        cite: CITE,
        claims: CLAIMS.iter().map(|claim| claim.judged(|judge| judge(&evidence))).collect(),
        node_delay: Some(ClaimMetric {
            metric: PREFERRED_METRICS[0],
            words: "between netfilter's hooks, where Miya 2020 timestamped",
        }),
        left_out,
    }
}

/// The condition of the experiments (S0.11, S0.14), for a run over relay modes: payload in bytes,
/// packets per second.
fn published(run: &RunData) -> Published {
    if run.modes().is_empty() {
        return Published::default();
    }
    let level = |axis, value, text| PublishedLevel { cite: CITE, axis, value, text };
    let levels = vec![level("size", 1000.0, "1000 B"), level("rate", 200.0, "200 pps")];
    Published { levels, ..Published::default() }
}

/// First metric for which all evidence has samples.
fn common_metric(metrics: [&'static str; 3], all: &[&Evidence]) -> Option<&'static str> {
    metrics.into_iter().find(|metric| all.iter().all(|one| one.has(metric)))
}

/// 95th percentile of a trial.
fn p95(metric: &'static str) -> impl Fn(&TrialData) -> Option<f64> {
    move |trial| percentile_of(trial, metric, Quantile::P95).map(|ns| ns as f64)
}
