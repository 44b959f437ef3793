//! Fits the trials of a relay run.

use std::collections::BTreeMap;

use dwell_stats::median;

use crate::delay_fit::{DelayFit, TrialDelays};
use crate::error::PredictError;
use crate::node_model::{Cost, CostSource, HEADER_BYTES, LinkModel, ModeModel, NodeModel};
use crate::trial::{PacketDelays, RelayTrial};

/// Confidence of the intervals.
const CONFIDENCE: f64 = 0.95;

/// Fewest packets of a component in a trial; of trials with fewer, only losses count.
const MIN_PACKETS: usize = 20;

/// Largest difference of a reached load from the requested one that is not noted: three points.
const MAX_LOAD_DEVIATION: f64 = 0.03;

/// Origin of the trials.
#[derive(Clone, Debug, Default)]
pub struct FitSource {
    /// Version of dwell.
    pub dwell: String,
    /// Run.
    pub run: String,
    /// Plan.
    pub plan: String,
    /// Node that relayed.
    pub node: String,
    /// Levels of axes to which the run was restricted.
    pub conditions: BTreeMap<String, String>,
}

/// Fits trials with a relay on one node.
///
/// # Errors
/// No trial has node delays of enough packets, or the node had several CPU quotas.
pub fn fit_relay(source: FitSource, trials: &[RelayTrial]) -> Result<NodeModel, PredictError> {
    let capacity_ratio = common_quota(trials)?;
    let mut notes = Vec::new();
    let mut by_mode: BTreeMap<&str, Vec<&RelayTrial>> = BTreeMap::new();
    for trial in trials {
        by_mode.entry(&trial.mode).or_default().push(trial);
    }
    let mut modes = BTreeMap::new();
    for (mode, trials) in &by_mode {
        match mode_model(trials) {
            Some(model) => {
                notes.extend(mode_notes(mode, trials, &model));
                modes.insert((*mode).to_owned(), model);
            }
            None => notes.push(format!(
                "mode {mode} is left out: no trial has the node delay of {MIN_PACKETS} packets"
            )),
        }
    }
    if modes.is_empty() {
        return Err(PredictError::Fit(format!(
            "run {} has no node delays to fit: {}",
            source.run,
            match trials {
                [] => "no finished trial has a relay".to_owned(),
                _ => format!(
                    "no trial has timestamps of {MIN_PACKETS} packets on both sides of the node; run it \
                     as root, so that the kernel's hooks are traced"
                ),
            }
        )));
    }
    // Links and ends are not loaded, so the lowest load describes them best.
    let ends = end_trials(trials);
    if let Some(trial) = ends.first().filter(|trial| trial.load_ratio > 0.0) {
        notes.push(format!(
            "links and ends were measured with a load of {:.0} % on the node",
            100.0 * trial.load_ratio
        ));
    }
    notes.extend(load_notes(trials));
    notes.extend(link_note(&ends));
    let link = component(&ends, 0.0, |trial| {
        let transmission = transmission_ns(trial.link_rate_bps, trial.size_bytes);
        let delays = trial.packets().iter().flat_map(|one| [one.link_in, one.link_out]);
        delays.filter(|delay| delay.is_finite()).map(|delay| delay - transmission).collect()
    });
    let end = |of: fn(&PacketDelays) -> f64| component(&ends, 0.0, |trial| trial.values(of));
    let (sender, receiver) = (end(|one| one.sender_out), end(|one| one.receiver_in));
    if link.is_none() {
        notes.push("the run has no link delays, so the model has no link".into());
    }
    let without_loss = |fit: DelayFit| DelayFit { loss_ratio: 0.0, ..fit };
    let FitSource { dwell, run, plan, node, conditions } = source;
    Ok(NodeModel {
        schema: NodeModel::SCHEMA.to_owned(),
        dwell,
        run,
        plan,
        node,
        conditions,
        confidence: CONFIDENCE,
        capacity_ratio,
        modes,
        link: link
            .map(|excess| LinkModel { header_bytes: HEADER_BYTES, excess: without_loss(excess) }),
        sender: sender.map(without_loss),
        receiver: receiver.map(without_loss),
        notes,
    })
}

/// Nanoseconds that a link needs to transmit a packet.
pub(crate) fn transmission_ns(rate_bps: Option<f64>, size_bytes: f64) -> f64 {
    rate_bps.map_or(0.0, |rate| (size_bytes + HEADER_BYTES) * 8e9 / rate)
}

/// The node's share of a processor, which all trials must have in common.
fn common_quota(trials: &[RelayTrial]) -> Result<f64, PredictError> {
    let mut quotas: Vec<f64> =
        trials.iter().map(|trial| trial.quota_ratio.unwrap_or(1.0)).collect();
    quotas.sort_unstable_by(f64::total_cmp);
    quotas.dedup();
    match quotas.as_slice() {
        [] => Ok(1.0),
        [quota] => Ok(*quota),
        several => {
            let text: Vec<String> =
                several.iter().map(|quota| format!("{:.0} %", 100.0 * quota)).collect();
            Err(PredictError::Fit(format!(
                "the node had several CPU quotas ({}); fit one at a time with --where",
                text.join(", ")
            )))
        }
    }
}

fn mode_model(trials: &[&RelayTrial]) -> Option<ModeModel> {
    let mut loads: Vec<f64> = trials.iter().map(|trial| trial.load_ratio).collect();
    loads.sort_unstable_by(f64::total_cmp);
    loads.dedup();
    let level = |load: &f64| {
        let of_load: Vec<&RelayTrial> =
            trials.iter().copied().filter(|trial| trial.load_ratio == *load).collect();
        component(&of_load, *load, |trial| trial.values(|one| one.node))
    };
    let levels: Vec<DelayFit> = loads.iter().filter_map(level).collect();
    let first = trials.iter().find(|trial| !trial.delay_points.0.is_empty())?;
    (!levels.is_empty()).then(|| ModeModel {
        engine: first.engine.clone(),
        delay_from: first.delay_points.0.clone(),
        delay_to: first.delay_points.1.clone(),
        cost: cost(trials),
        levels,
    })
}

/// Trials and variables of a mode that its fit lacks.
fn mode_notes(mode: &str, trials: &[&RelayTrial], model: &ModeModel) -> Vec<String> {
    let mut notes = Vec::new();
    let is_short = |trial: &&&RelayTrial| trial.values(|one| one.node).len() < MIN_PACKETS;
    let short = trials.iter().filter(is_short).count();
    if short > 0 {
        notes.push(format!(
            "mode {mode}: {short} of {} trials have the node delay of fewer than {MIN_PACKETS} packets, \
             so only their losses count",
            trials.len()
        ));
    }
    for level in &model.levels {
        for variable in level.left_out() {
            notes.push(format!(
                "mode {mode}, load {:.0} %: {} trials are too few for the effect of the {variable}, \
                 which is left out",
                100.0 * level.load_ratio,
                level.trials
            ));
        }
    }
    notes
}

/// Loads that were not reached. A level is known by the requested load, because a prediction has no
/// other: within a quota, a program that requests all of a processor gets what the quota leaves.
fn load_notes(trials: &[RelayTrial]) -> Vec<String> {
    let mut reached: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for trial in trials {
        let ppm = (1e6 * trial.load_ratio).round() as u64;
        reached.entry(ppm).or_default().extend(trial.reached_ratio);
    }
    let note = |(ppm, reached): (u64, Vec<f64>)| {
        let (requested, found) = (ppm as f64 / 1e6, median(&reached)?);
        ((requested - found).abs() > MAX_LOAD_DEVIATION).then(|| {
            format!(
                "a load of {:.0} % reached {:.0} % of a processor (median of trials); it is named by \
                 what was requested",
                100.0 * requested,
                100.0 * found
            )
        })
    };
    reached.into_iter().filter_map(note).collect()
}

/// Rates of the links, if there are several.
fn link_note(trials: &[&RelayTrial]) -> Option<String> {
    let mut rates: Vec<f64> = trials.iter().filter_map(|trial| trial.link_rate_bps).collect();
    let without = trials.iter().any(|trial| trial.link_rate_bps.is_none());
    rates.sort_unstable_by(f64::total_cmp);
    rates.dedup();
    let unlimited = without.then(|| "unlimited".to_owned());
    let texts: Vec<String> =
        rates.iter().map(|rate| format!("{} Mbit/s", rate / 1e6)).chain(unlimited).collect();
    (texts.len() > 1).then(|| {
        format!(
            "links of several rates ({}) are fitted together; choose one with --where topology.link.rate=...",
            texts.join(", ")
        )
    })
}

/// Fits one component of the trials. `None` if no trial has enough values.
fn component(
    trials: &[&RelayTrial],
    load: f64,
    values: impl Fn(&RelayTrial) -> Vec<f64>,
) -> Option<DelayFit> {
    let delays = |trial: &&RelayTrial| TrialDelays {
        size_bytes: trial.size_bytes,
        rate_pps: trial.rate_pps,
        sent: trial.sent,
        received: trial.received,
        delays: values(trial),
    };
    let mut of_trials: Vec<TrialDelays> = trials.iter().map(delays).collect();
    // A trial that lost nearly all of its packets has too few for a fit, but its losses count.
    let sent: u64 = of_trials.iter().map(|trial| trial.sent).sum();
    let received: u64 = of_trials.iter().map(|trial| trial.received).sum();
    of_trials.retain(|trial| trial.delays.len() >= MIN_PACKETS);
    let fit = DelayFit::of(&of_trials, load, CONFIDENCE)?;
    let loss_ratio = sent.saturating_sub(received) as f64 / sent.max(1) as f64;
    Some(DelayFit { loss_ratio, ..fit })
}

/// Trials that describe links and ends: those of the lowest load, and of them those whose program
/// relays, because their links begin and end in the drivers.
fn end_trials(trials: &[RelayTrial]) -> Vec<&RelayTrial> {
    let least = trials.iter().map(|trial| trial.load_ratio).fold(f64::INFINITY, f64::min);
    let idle = || trials.iter().filter(move |trial| trial.load_ratio == least);
    let is_driver = |trial: &&RelayTrial| {
        (trial.delay_points.0.as_str(), trial.delay_points.1.as_str()) == ("rx_kernel", "tx_kernel")
    };
    let between_drivers: Vec<&RelayTrial> = idle().filter(is_driver).collect();
    if between_drivers.is_empty() { idle().collect() } else { between_drivers }
}

/// CPU time per packet. A node with a quota has its CPU time counted; its growth with the rate is
/// the cost of a packet. Otherwise the cost is the time in the program, or in the kernel.
fn cost(trials: &[&RelayTrial]) -> Option<Cost> {
    let counted = trials.iter().filter(|trial| trial.load_ratio == 0.0);
    let used: Vec<TrialDelays> = counted
        .filter_map(|trial| Some(single(trial, trial.rate_pps, 1e9 * trial.used_ratio?)))
        .collect();
    let growth = DelayFit::of(&used, 0.0, CONFIDENCE).and_then(|fit| fit.ns_per_byte);
    if let Some(growth) = growth.filter(|growth| growth.used && growth.value > 0.0) {
        return Some(Cost { base_ns: growth.value, ns_per_byte: 0.0, source: CostSource::Quota });
    }
    let by_median = |source: CostSource, of: fn(&PacketDelays) -> f64| {
        let medians = trials.iter().filter_map(|trial| {
            let values = trial.values(of);
            (values.len() >= MIN_PACKETS).then_some(())?;
            Some(single(trial, trial.size_bytes, median(&values)?))
        });
        let medians: Vec<TrialDelays> = medians.collect();
        let fit = DelayFit::of(&medians, 0.0, CONFIDENCE)?;
        let slope = fit.ns_per_byte.filter(|slope| slope.used).map_or(0.0, |slope| slope.value);
        Some(Cost { base_ns: fit.intercept_ns.value, ns_per_byte: slope, source })
    };
    by_median(CostSource::Program, |one| one.program)
        .or_else(|| by_median(CostSource::NodeDelay, |one| one.node))
}

/// One value of a trial against one variable, in the place of the size.
fn single(trial: &RelayTrial, variable: f64, value: f64) -> TrialDelays {
    TrialDelays {
        size_bytes: variable,
        rate_pps: 0.0,
        sent: trial.sent,
        received: trial.received,
        delays: vec![value],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> FitSource {
        FitSource { run: "20260101-1".into(), node: "n2".into(), ..FitSource::default() }
    }

    /// A relay that takes 100 us + 10 ns/B, twice that under full load, on links of 10 Mbit/s that
    /// add 30 us.
    pub(crate) fn trials(quota: Option<f64>) -> Vec<RelayTrial> {
        let mut trials = Vec::new();
        for (i, load_ratio) in [0.0, 1.0].into_iter().cycle().take(24).enumerate() {
            let mut trial = RelayTrial::new("translate", 10_000, i as u64);
            trial.engine = "socket".into();
            trial.delay_points = ("rx_kernel".into(), "tx_kernel".into());
            trial.size_bytes = [200.0, 800.0, 1_400.0][i / 2 % 3];
            trial.rate_pps = [100.0, 300.0][i / 6 % 2];
            trial.load_ratio = load_ratio;
            trial.link_rate_bps = Some(10e6);
            trial.quota_ratio = quota;
            trial.used_ratio =
                quota.map(|_| 0.001 + trial.rate_pps * 40e-6 + 1e-5 * (i % 3) as f64);
            (trial.sent, trial.received) = (201, 201);
            let noise = (i * 5 % 7) as f64 * 20.0;
            for n in 0..201_u32 {
                let node = (100_000.0 + 10.0 * trial.size_bytes) * (1.0 + load_ratio) + noise;
                let wave = f64::from(n * 37 % 201) * 100.0;
                let link = 30_000.0 + (trial.size_bytes + 42.0) * 800.0 + noise;
                trial.push(PacketDelays {
                    sender_out: 20_000.0 + noise,
                    link_in: link,
                    node: node + wave,
                    link_out: link,
                    receiver_in: 25_000.0,
                    program: 35_000.0 + noise,
                });
            }
            trials.push(trial);
        }
        trials
    }

    #[test]
    fn components_of_a_known_relay_are_recovered() {
        let model = fit_relay(source(), &trials(None)).unwrap();
        let mode = &model.modes["translate"];
        assert_eq!(mode.levels.len(), 2);
        let idle = &mode.levels[0];
        assert!((idle.ns_per_byte.unwrap().value - 10.0).abs() < 0.2, "{idle:?}");
        assert!(!idle.ns_per_pps.unwrap().used, "{idle:?}");
        let p95 = mode.delay(1_000.0, 200.0, 0.0).at(0.95);
        assert!((p95 - 129_050.0).abs() < 300.0, "{p95}");
        let busy = mode.delay(1_000.0, 200.0, 1.0).at(0.5);
        assert!((busy - 230_050.0).abs() < 300.0, "{busy}");
        let link = model.link.as_ref().unwrap();
        assert!((link.excess.plane(500.0, 200.0) - 30_060.0).abs() < 80.0, "{link:?}");
        assert!((model.sender.as_ref().unwrap().plane(500.0, 200.0) - 20_060.0).abs() < 80.0);
        assert_eq!(model.receiver.as_ref().unwrap().plane(500.0, 200.0), 25_000.0);
        let cost = mode.cost.unwrap();
        assert_eq!((cost.source, model.capacity_ratio), (CostSource::Program, 1.0));
        assert!((cost.of(500.0) - 35_060.0).abs() < 80.0, "{cost:?}");
        let text = serde_json::to_string(&model).unwrap();
        let read = NodeModel::parse(&text, "x").unwrap();
        let again = read.modes["translate"].delay(1_000.0, 200.0, 0.0).at(0.95);
        assert!((again - p95).abs() < 1e-3, "{again} and {p95}");
    }

    #[test]
    fn losses_of_trials_with_few_packets_count() {
        let mut all = trials(None);
        // 12 trials per load, of which one lost all but ten packets.
        let mut short = RelayTrial::new("translate", 10_000, 1);
        short.delay_points = ("rx_kernel".into(), "tx_kernel".into());
        (short.size_bytes, short.rate_pps) = (200.0, 100.0);
        (short.sent, short.received) = (201, 10);
        short.link_rate_bps = Some(100e6);
        for packet in all[0].packets().iter().take(10).copied().collect::<Vec<_>>() {
            short.push(packet);
        }
        all.push(short);
        let model = fit_relay(source(), &all).unwrap();
        let idle = &model.modes["translate"].levels[0];
        assert_eq!(idle.trials, 12);
        assert!((idle.loss_ratio - 191.0 / (13.0 * 201.0)).abs() < 1e-9, "{}", idle.loss_ratio);
        let notes = model.notes.join("\n");
        assert!(notes.contains("1 of 25 trials have the node delay of fewer than 20"), "{notes}");
        assert!(notes.contains("several rates (10 Mbit/s, 100 Mbit/s)"), "{notes}");
        assert!(!notes.contains("reached"), "{notes}");
    }

    #[test]
    fn load_that_was_not_reached_and_dropped_variables_are_noted() {
        let mut all = trials(None);
        all.iter_mut().filter(|trial| trial.load_ratio == 1.0).for_each(|trial| {
            trial.reached_ratio = Some(0.05);
        });
        let notes = fit_relay(source(), &all).unwrap().notes.join("\n");
        assert!(notes.contains("load of 100 % reached 5 % of a processor"), "{notes}");
        assert!(!notes.contains("too few for the effect"), "{notes}");
        // Three trials of three sizes and two rates.
        let few: Vec<RelayTrial> = [0, 2, 10].into_iter().map(|i| all[i].clone()).collect();
        let notes = fit_relay(source(), &few).unwrap().notes.join("\n");
        assert!(notes.contains("3 trials are too few for the effect of the rate"), "{notes}");
    }

    #[test]
    fn cost_under_a_quota_is_counted_cpu_time() {
        let model = fit_relay(source(), &trials(Some(0.2))).unwrap();
        let cost = model.modes["translate"].cost.unwrap();
        assert_eq!((cost.source, model.capacity_ratio), (CostSource::Quota, 0.2));
        assert!((cost.of(500.0) - 40_000.0).abs() < 200.0, "{cost:?}");
    }

    #[test]
    fn runs_without_node_delays_are_refused() {
        let error = fit_relay(source(), &[]).unwrap_err().to_string();
        assert!(error.contains("20260101-1") && error.contains("no finished trial"), "{error}");
        let mut blind = trials(None);
        for trial in &mut blind {
            trial.delay_points = Default::default();
        }
        let error = fit_relay(source(), &blind).unwrap_err().to_string();
        assert!(error.contains("root"), "{error}");
        let mut two = trials(None);
        two[0].quota_ratio = Some(0.5);
        let error = fit_relay(source(), &two).unwrap_err().to_string();
        assert!(error.contains("50 %, 100 %") && error.contains("--where"), "{error}");
    }
}
