//! Distribution of the end-to-end delay over a path.

use crate::component::{end_delay, link_delays, node_delays};
use crate::delay_grid::{BINS, DelayGrid};
use crate::network::{Flow, Network, Path};
use crate::quantile_function::QuantileFunction;
use crate::usage::Usage;

/// Largest probability that a delay lies beyond the grid although it meets no deadline.
const MAX_TAIL: f64 = 0.001;

/// Largest ratio of the grid's range to the time until the deadline at which one grid serves both.
const MAX_COARSENESS: f64 = 16.0;

/// Predicted delay over a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathDelay {
    pub(crate) mean_ns: f64,
    /// Quantiles; `None` if they lie beyond the grid.
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p95_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
    /// Probability that a packet arrives within the deadline.
    pub(crate) probability: f64,
    /// Probability that a packet is lost.
    pub(crate) loss_ratio: f64,
    /// Standard error of a quantile by the steps of the grid.
    pub(crate) resolution_ns: f64,
    /// Largest possible error of a quantile by the steps of the grid.
    pub(crate) resolution_bound_ns: f64,
}

/// Delays of all parts of a path, which are taken as independent.
fn components(network: &Network, usage: &Usage, flow: &Flow, path: &Path) -> Vec<QuantileFunction> {
    let relays = path.relays().iter().flat_map(|node| node_delays(network, usage, *node, flow));
    let links = path.hops.iter().flat_map(|hop| link_delays(network, usage, *hop, flow));
    let ends = [network.sender.as_ref(), network.receiver.as_ref()];
    let ends = ends.into_iter().filter_map(|end| end_delay(end, flow));
    relays.chain(links).chain(ends).collect()
}

/// Predicts the delay over a path beside the flows in `usage`, which do not include this one.
pub(crate) fn path_delay(
    network: &Network,
    usage: &Usage,
    flow: &Flow,
    path: &Path,
    deadline_ns: f64,
) -> PathDelay {
    let parts = components(network, usage, flow, path);
    let least: f64 = parts.iter().map(QuantileFunction::min).sum();
    let mean_ns = parts.iter().map(QuantileFunction::mean).sum();
    let varying: Vec<&QuantileFunction> =
        parts.iter().filter(|part| part.max() > part.min()).collect();
    let count = varying.len().max(1) as f64;
    // The grid ends where at most `MAX_TAIL` of the delays lie beyond, and not before the deadline.
    let kept = 1.0 - MAX_TAIL / count;
    let usual: f64 = varying.iter().map(|part| part.at(kept) - part.min()).sum();
    let whole: f64 = varying.iter().map(|part| part.max() - part.min()).sum();
    let range = usual.max((deadline_ns - least).min(whole));
    let step = (range / BINS as f64).max(f64::MIN_POSITIVE);
    let sum = convolved(&parts, step, range);
    // Rare long delays make steps that are too long for the deadline, which then has a grid of its own.
    let span = (deadline_ns - least).min(whole);
    let in_time = if span > 0.0 && span < range / MAX_COARSENESS {
        convolved(&parts, span / (BINS - 1) as f64, span).share_up_to(deadline_ns)
    } else {
        sum.share_up_to(deadline_ns)
    };
    let loss_ratio = 1.0 - arrival_ratio(network, path);
    PathDelay {
        mean_ns,
        p50_ns: sum.quantile(0.5),
        p95_ns: sum.quantile(0.95),
        p99_ns: sum.quantile(0.99),
        probability: in_time * (1.0 - loss_ratio),
        loss_ratio,
        resolution_ns: if varying.is_empty() { 0.0 } else { step / 2.0 * count.sqrt() },
        resolution_bound_ns: if varying.is_empty() { 0.0 } else { step * count },
    }
}

/// Distribution of the sum of independent delays, in steps of `step` over `range`.
fn convolved(parts: &[QuantileFunction], step: f64, range: f64) -> DelayGrid {
    let (varying, constant): (Vec<_>, Vec<_>) =
        parts.iter().partition(|part| part.max() > part.min());
    let fixed = QuantileFunction::constant(constant.into_iter().map(QuantileFunction::min).sum());
    if varying.is_empty() || range <= 0.0 {
        let least = fixed.min() + varying.into_iter().map(QuantileFunction::min).sum::<f64>();
        return DelayGrid::of(&QuantileFunction::constant(least), 1.0);
    }
    let start = DelayGrid::of(&fixed, step);
    varying.into_iter().fold(start, |sum, part| sum.plus(&DelayGrid::of(part, step)))
}

/// Share of the packets that arrive.
fn arrival_ratio(network: &Network, path: &Path) -> f64 {
    let relays = path.relays().iter().filter_map(|node| network.relay(*node));
    let relays = relays.map(|relay| relay.delay.loss_ratio(relay.load_ratio));
    let links = path.hops.iter().map(|hop| network.link(hop.link).loss_ratio);
    relays.chain(links).map(|loss| 1.0 - loss.clamp(0.0, 1.0)).product()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::network::tests::{constant, plain_link};
    use crate::network::{InlineModel, Link, NetworkBuilder};

    /// A line of relays with this spread (uniform) behind links of 0.8 ms.
    fn line(relays: usize, spread: f64) -> (Network, Flow, Path) {
        let mut builder = NetworkBuilder::default();
        let quantiles = vec![(0.0, 0.0), (0.9, spread / 10.0), (1.0, spread)];
        let model =
            InlineModel { residual_ns: Some(quantiles.try_into().unwrap()), ..constant(100_000.0) };
        let kind = builder.relay(model.relay("m", "translate"));
        let nodes: Vec<u32> =
            (0..relays + 2).map(|n| builder.node(&format!("n{n}"), Some(kind)).unwrap()).collect();
        let link = builder.link_kind(plain_link(10e6));
        nodes.windows(2).for_each(|pair| builder.link(pair[0], pair[1], link).unwrap());
        let network = builder.build().unwrap();
        let path = network.path(&nodes).unwrap();
        let flow = Flow {
            name: "f".into(),
            from: 0,
            to: relays as u32 + 1,
            size_bytes: 958.0,
            rate_pps: 100.0,
            path: Vec::new(),
        };
        (network, flow, path)
    }

    #[test]
    fn sum_over_relays_matches_a_simulation() {
        let (network, flow, path) = line(3, 2e6);
        let delay = path_delay(&network, &Usage::default(), &flow, &path, 4e6);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut draw = || {
            let p: f64 = random.random_range(0.0..1.0);
            100_000.0 + if p < 0.9 { p / 0.9 * 2e5 } else { 2e5 + (p - 0.9) / 0.1 * 1.8e6 }
        };
        let mut sums: Vec<f64> =
            (0..200_000).map(|_| 4.0 * 800_000.0 + draw() + draw() + draw()).collect();
        sums.sort_unstable_by(f64::total_cmp);
        for (found, p) in [(delay.p50_ns, 0.5), (delay.p95_ns, 0.95), (delay.p99_ns, 0.99)] {
            let drawn = sums[(p * sums.len() as f64) as usize];
            let found = found.unwrap();
            assert!((found / drawn - 1.0).abs() < 0.01, "p{p}: {found} and {drawn}");
        }
        let met = sums.partition_point(|sum| *sum <= 4e6) as f64 / sums.len() as f64;
        assert!((delay.probability - met).abs() < 0.005, "{} and {met}", delay.probability);
        let mean = sums.iter().sum::<f64>() / sums.len() as f64;
        assert!((delay.mean_ns / mean - 1.0).abs() < 0.001, "{} and {mean}", delay.mean_ns);
        assert!(delay.resolution_bound_ns < 0.005 * delay.p95_ns.unwrap(), "{delay:?}");
    }

    #[test]
    fn constant_delays_are_exact() {
        let (network, flow, path) = line(2, 0.0);
        let delay = path_delay(&network, &Usage::default(), &flow, &path, 2_600_000.0);
        assert_eq!((delay.p50_ns, delay.p99_ns), (Some(2_600_000.0), Some(2_600_000.0)));
        assert_eq!((delay.probability, delay.resolution_bound_ns), (1.0, 0.0));
        let delay = path_delay(&network, &Usage::default(), &flow, &path, 2_599_999.0);
        assert_eq!(delay.probability, 0.0);
    }

    #[test]
    fn other_flows_add_waiting_time() {
        let (network, flow, path) = line(1, 0.0);
        let mut usage = Usage::default();
        let alone = path_delay(&network, &usage, &flow, &path, 1e9);
        // 500 packets of 0.8 ms: each link is busy for 40 % of the time.
        usage.add(&network, &Flow { rate_pps: 500.0, ..flow.clone() }, &path);
        let beside = path_delay(&network, &usage, &flow, &path, 1e9);
        let wait = 2.0 * 0.4 * 800_000.0 / (2.0 * 0.6);
        let found = beside.mean_ns - alone.mean_ns;
        assert!((found / wait - 1.0).abs() < 0.05, "{found} and {wait}");
        assert!(beside.p95_ns > alone.p95_ns);
    }

    #[test]
    fn wait_is_longer_with_a_part_of_a_processor() {
        let waits = [1.0, 0.1].map(|capacity_ratio| {
            let mut builder = NetworkBuilder::default();
            let model = InlineModel { capacity_ratio, cost_ns: Some(100_000.0), ..constant(1e6) };
            let kind = builder.relay(model.relay("m", "translate"));
            for (name, relay) in [("a", None), ("r", Some(kind)), ("b", None)] {
                builder.node(name, relay).unwrap();
            }
            let link = builder.link_kind(Link { rate_bps: None, ..plain_link(1.0) });
            builder.link(0, 1, link).unwrap();
            builder.link(1, 2, link).unwrap();
            let network = builder.build().unwrap();
            let path = network.path(&[0, 1, 2]).unwrap();
            let (_, flow, _) = line(1, 0.0);
            let mut usage = Usage::default();
            // Half of the capacity: 500 packets/s per tenth of a processor.
            let rate_pps = 5_000.0 * capacity_ratio;
            usage.add(&network, &Flow { rate_pps, ..flow.clone() }, &path);
            path_delay(&network, &usage, &flow, &path, 1e9).mean_ns - 1e6
        });
        assert!((waits[1] / waits[0] - 10.0).abs() < 0.01, "{waits:?}");
    }

    #[test]
    fn rare_long_delays_do_not_hide_a_missed_deadline() {
        // A quarter of 99 % of the delays is below 5 ms; 1 % is up to an hour.
        for (longest, deadline, met) in [(3.6e12, 5e6, 0.99 / 4.0), (60e9, 15e6, 0.99 * 0.75)] {
            let mut builder = NetworkBuilder::default();
            let quantiles = vec![(0.0, 0.0), (0.99, 20e6), (1.0, longest)];
            let residual_ns = Some(quantiles.try_into().unwrap());
            let model = InlineModel { residual_ns, ..constant(0.0) };
            let kind = builder.relay(model.relay("m", "translate"));
            for (name, relay) in [("a", None), ("r", Some(kind)), ("b", None)] {
                builder.node(name, relay).unwrap();
            }
            let link = builder.link_kind(Link { rate_bps: None, ..plain_link(1.0) });
            builder.link(0, 1, link).unwrap();
            builder.link(1, 2, link).unwrap();
            let network = builder.build().unwrap();
            let path = network.path(&[0, 1, 2]).unwrap();
            let (_, flow, _) = line(1, 0.0);
            let found = path_delay(&network, &Usage::default(), &flow, &path, deadline);
            assert!((found.probability - met).abs() < 0.001, "{found:?}, not {met}");
        }
    }

    #[test]
    fn long_paths_state_their_resolution() {
        let (network, flow, path) = line(300, 1e6);
        let delay = path_delay(&network, &Usage::default(), &flow, &path, 1e9);
        let mean = 301.0 * 800_000.0 + 300.0 * (100_000.0 + 0.9 * 50_000.0 + 0.1 * 550_000.0);
        assert!((delay.mean_ns / mean - 1.0).abs() < 1e-6, "{delay:?}");
        assert!((delay.p50_ns.unwrap() / mean - 1.0).abs() < 0.005, "{delay:?} and {mean}");
        assert!(delay.resolution_ns < 0.01 * delay.p50_ns.unwrap(), "{delay:?}");
    }
}
