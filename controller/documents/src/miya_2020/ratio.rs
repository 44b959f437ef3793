//! S0.19 and S0.20: node-to-link delay ratio (NLR).

use dwell_report::analysis::nlr::{self, NlrConditions};
use dwell_report::model::axes::RELAY;
use dwell_report::model::quantity::{share, three_digits};
use dwell_report::model::{ClaimVerdict, TrialData};

use super::{ERROR_PROBABILITY, explanation};
use crate::evidence::{Bound, Evidence, number};
use crate::judgement::{Judgement, between, nothing};

pub(super) fn judge(
    trials: &Evidence,
    conditions: &NlrConditions,
    verdict: impl Fn(Bound) -> ClaimVerdict,
) -> Judgement {
    if trials.is_empty() {
        return nothing(&[trials], "This mode or size was not measured.");
    }
    let linked = trials.linked();
    if linked.is_empty() {
        let why = "Here: links have no rate, so packets have no transmission time; set \
                   topology.link.rate.";
        return if linked.left_out() > 0 {
            nothing(&[&linked], why)
        } else {
            Judgement::cannot_tell(why)
        };
    }
    let idle = linked.idle();
    if idle.is_empty() {
        return Judgement::cannot_tell(
            "Here: every trial over links with a rate was under load, which also slows emulated \
             links.",
        );
    }
    let slow = conditions.slow_links(&idle.trials);
    let fit = idle.filter(|trial| conditions.is_valid(trial));
    let Some(ratio) = fit.level(|trial| conditions.of_trial(trial), ERROR_PROBABILITY) else {
        return Judgement::cannot_tell(match slow.as_str() {
            "" => "Here: too few packets have the timestamps for it.".to_owned(),
            slow => slow.trim_start().to_owned(),
        });
    };
    let rates = fit.trials.iter().filter_map(|t| number(t, "link_rate_bps"));
    let rate = rates.fold(f64::MAX, f64::min) / 1e6;
    let words = format!(
        "Here: {}{} over two links of {} Mbit/s, without load ({}, 95th percentiles, geometric mean \
         over trials).{}{slow}",
        share(ratio.value),
        between(ratio, share),
        three_digits(rate),
        metric_names(&fit),
        nlr::transmission_comparison(&fit.trials).unwrap_or_default()
    );
    Judgement::new(verdict(ratio), ratio.value, words)
        .with_bound(ratio, &[&fit])
        .with_explanation(|| explanation::node_and_links(&fit))
}

/// Node-delay metrics at whose timestamps the links of the trials end.
fn metric_names(fit: &Evidence) -> String {
    let mode = |trial: &'_ TrialData| trial.parameters.get(RELAY).cloned().unwrap_or_default();
    let each: Vec<_> = fit
        .trials
        .iter()
        .filter_map(|trial| Some((mode(trial), nlr::node_delay_metric(trial)?)))
        .collect();
    nlr::node_delay_names(each.iter().map(|(mode, metric)| (mode.as_str(), *metric)))
}
