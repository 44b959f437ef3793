//! S0.25: packets are lost only if encrypted and sent at 200 packets/s or more.
//!
//! Losses come in bursts, so packets are not independent: the verdict counts trials with any loss.

use dwell_report::model::quantity::share;
use dwell_report::model::{ClaimVerdict, TrialData};
use dwell_stats::{MIN_TRIALS, share_interval};

use super::ERROR_PROBABILITY;
use crate::evidence::{Evidence, number};
use crate::judgement::{Judgement, nothing};

/// Upper bound of the loss ratio below which a node keeps up.
const MAX_KEEP_UP_LOSS: f64 = 0.001;

pub(super) fn judge(route: &Evidence, translate: &Evidence, encrypt: &Evidence) -> Judgement {
    if [route, translate, encrypt].iter().any(|mode| mode.is_empty()) {
        return nothing(&[route, translate, encrypt], "Not all three modes were measured.");
    }
    let fast = |trial: &TrialData| number(trial, "rate_pps").is_some_and(|pps| pps >= 200.0);
    let there = encrypt.filter(fast);
    if there.is_empty() {
        return nothing(&[&there], "No rate of 200 packets/s or more was measured.");
    }
    let elsewhere = route.clone().and(translate.clone()).and(encrypt.filter(|trial| !fast(trial)));
    let ((sent, lost), (other_sent, other_lost)) = (there.losses(), elsewhere.losses());
    let (losing, other_losing) = (there.lossy_trials(), elsewhere.lossy_trials());
    let trials = |evidence: &Evidence| evidence.trials.len() as u64;
    let several = |count: u64| count >= MIN_TRIALS as u64;
    let confidence = 1.0 - ERROR_PROBABILITY;
    let more_often = || {
        let here = share_interval(losing, trials(&there), confidence);
        let other = share_interval(other_losing, trials(&elsewhere), confidence);
        here.zip(other).is_some_and(|(here, other)| here.low > other.high)
    };
    let most = share_interval(lost, sent, confidence).map_or(1.0, |interval| interval.high);
    let keeps_up = losing == 0 && most <= MAX_KEEP_UP_LOSS && several(trials(&there));
    let verdict = match (losing, other_losing) {
        (_, other) if several(other) => ClaimVerdict::Fail,
        (here, 0) if several(here) && more_often() => ClaimVerdict::Pass,
        (0, 0) if keeps_up => ClaimVerdict::Fail,
        _ => ClaimVerdict::CannotTell,
    };
    let mut words = format!(
        "Here: {lost} of {sent} lost there (in {losing} of {} trials), {other_lost} of {other_sent} \
         elsewhere (in {other_losing} of {}).",
        trials(&there),
        trials(&elsewhere)
    );
    if keeps_up {
        words += &format!(" At most {} are lost there: this node keeps up.", share(most));
    } else if verdict == ClaimVerdict::CannotTell && lost == 0 {
        words += &format!(" Up to {} could still be lost there: send more packets.", share(most));
    } else if verdict == ClaimVerdict::CannotTell {
        words += " Losses in few trials may be chance: add repetitions.";
    }
    let ratio = if sent == 0 { 0.0 } else { lost as f64 / sent as f64 };
    Judgement::new(verdict, ratio, words).without(&[&there, &elsewhere])
}
