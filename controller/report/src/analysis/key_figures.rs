//! Numbers to read first.

use std::cmp::Reverse;

use dwell_stats::{Quantile, share_interval};
use dwell_units::Bytes;

use crate::analysis::effect::{self, EffectChange};
use crate::analysis::group::{Group, interval_of};
use crate::analysis::paced::{RateVerdict, cross_traffic, distinct, is_paced, verdicts};
use crate::analysis::packet_words::PacketWords;
use crate::analysis::subject::Subject;
use crate::model::RunData;
use crate::model::quantity::{count, count_noun, delay, share};

/// Maximum number of key figures.
const MAX_KEY_FIGURES: usize = 4;

/// A number to read first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyFigure {
    /// Id of the finding that it belongs to.
    pub(crate) finding: String,
    /// `p99 88 us -> 660 us`.
    pub(crate) value: String,
    /// Its metric and condition.
    pub(crate) condition: String,
    /// `7.5x, 95 % CI 5.4x to 11x`.
    pub(crate) interval: Option<String>,
}

/// At most four numbers, the largest effect first: changes over a parameter; else the delay and the
/// losses of all trials; the largest rates of senders in a run of paced packets.
pub(crate) fn key_figures(run: &RunData) -> Vec<KeyFigure> {
    let mut all = match Subject::of(run) {
        _ if is_paced(run) => rates(run),
        Some(subject) => {
            let changes = changes(&subject);
            if changes.is_empty() && run.modes().is_empty() { delays(&subject) } else { changes }
        }
        None => Vec::new(),
    };
    all.truncate(MAX_KEY_FIGURES);
    all
}

fn changes(subject: &Subject) -> Vec<KeyFigure> {
    let effects = effect::effects(subject);
    let mut all: Vec<(&str, &EffectChange)> = effects
        .iter()
        .flat_map(|effect| effect.changes.iter().map(|change| (effect.axis.as_str(), change)))
        .collect();
    all.sort_by(|a, b| b.1.change.size().total_cmp(&a.1.change.size()));
    all.iter().map(|(axis, change)| of_change(axis, change)).collect()
}

fn of_change(axis: &str, it: &EffectChange) -> KeyFigure {
    let [first, far] = &it.labels;
    let change = &it.change;
    let ratio = change.compared();
    let parts: Vec<String> = ratio.into_iter().chain([change.interval_text()]).collect();
    KeyFigure {
        finding: format!("effect-{axis}"),
        value: format!("{} {} -> {}", it.percentile, delay(change.from), delay(change.to)),
        condition: format!("{}, {first} -> {far}", it.noun),
        interval: Some(parts.join(", ")),
    }
}

/// Median, p99 and losses over all trials.
fn delays(subject: &Subject) -> Vec<KeyFigure> {
    let run = subject.run;
    let all = Group::new(String::new(), run.finished_trials().collect(), subject.metric);
    let percentile = |(quantile, called): (Quantile, &str)| {
        let interval = match all.trials.as_slice() {
            [trial] => interval_of(trial, subject.metric, quantile),
            _ => None,
        };
        Some(KeyFigure {
            finding: "delay".to_owned(),
            value: format!("{called} {}", delay(all.quantile(quantile)?)),
            condition: format!(
                "{}, {}",
                subject.noun,
                count_noun(all.over_trials(quantile).count() as u64, "trial")
            ),
            interval: interval
                .map(|(low, high)| format!("95 % CI {} to {}", delay(low), delay(high))),
        })
    };
    let percentiles = [(Quantile::P50, "median"), (Quantile::P99, "p99")];
    let mut figures: Vec<KeyFigure> = percentiles.into_iter().filter_map(percentile).collect();
    if let Some(packets) = all.packets().filter(|packets| packets.sent > 0) {
        let gone = packets.lost.saturating_add(packets.late);
        let probes = count_noun(packets.sent, PacketWords::of(run).probe);
        let interval = share_interval(gone, packets.sent, 0.95);
        figures.extend((gone > 0).then(|| KeyFigure {
            finding: "loss".to_owned(),
            value: format!("loss {}", share(gone as f64 / packets.sent as f64)),
            condition: format!("{} of {probes}", count(gone)),
            interval: interval.map(|it| format!("95 % CI {} to {}", share(it.low), share(it.high))),
        }));
    }
    figures
}

/// Largest accurate rate of each engine.
fn rates(run: &RunData) -> Vec<KeyFigure> {
    let all = verdicts(run);
    let key = |verdict: &&RateVerdict| (verdict.largest.rate(), Reverse(verdict.ip_size));
    let best = |engine: &str| all.iter().filter(|it| it.engine == engine).max_by_key(key);
    let engines = distinct(all.iter().map(|verdict| verdict.engine.as_str()));
    let mut best: Vec<&RateVerdict> = engines.into_iter().filter_map(best).collect();
    best.sort_by_key(|verdict| Reverse(key(verdict)));
    let of = |verdict: &&RateVerdict| {
        Some(KeyFigure {
            finding: "verdict".to_owned(),
            value: format!("up to {}", verdict.largest.rate()?),
            condition: format!(
                "{} of {}, IP packets of {} {}",
                verdict.engine,
                verdict.node,
                Bytes(verdict.ip_size),
                cross_traffic(verdict.flows)
            ),
            interval: None,
        })
    };
    best.iter().filter_map(of).collect()
}
