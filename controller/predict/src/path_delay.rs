//! Distribution of the end-to-end delay over a path.

use crate::component::{end_delay, link_delays, node_delays};
use crate::delay_grid::{BINS, DelayGrid};
use crate::network::{Flow, Network, Path};
use crate::quantile_function::QuantileFunction;
use crate::usage::Usage;

/// Largest probability that a delay lies beyond the grid although it meets no deadline.
const MAX_TAIL: f64 = 0.001;

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
    let sum = if varying.is_empty() || range <= 0.0 {
        DelayGrid::of(&QuantileFunction::constant(least), 1.0)
    } else {
        let constant: f64 =
            parts.iter().filter(|part| part.max() <= part.min()).map(QuantileFunction::min).sum();
        let start = DelayGrid::of(&QuantileFunction::constant(constant), step);
        varying.iter().fold(start, |sum, part| sum.plus(&DelayGrid::of(part, step)))
    };
    let loss_ratio = 1.0 - arrival_ratio(network, path);
    PathDelay {
        mean_ns,
        p50_ns: sum.quantile(0.5),
        p95_ns: sum.quantile(0.95),
        p99_ns: sum.quantile(0.99),
        probability: sum.share_up_to(deadline_ns) * (1.0 - loss_ratio),
        loss_ratio,
        resolution_ns: if varying.is_empty() { 0.0 } else { step / 2.0 * count.sqrt() },
        resolution_bound_ns: if varying.is_empty() { 0.0 } else { step * count },
    }
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
    use crate::network::{InlineModel, NetworkBuilder};

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
    fn long_paths_state_their_resolution() {
        let (network, flow, path) = line(300, 1e6);
        let delay = path_delay(&network, &Usage::default(), &flow, &path, 1e9);
        let mean = 301.0 * 800_000.0 + 300.0 * (100_000.0 + 0.9 * 50_000.0 + 0.1 * 550_000.0);
        assert!((delay.mean_ns / mean - 1.0).abs() < 1e-6, "{delay:?}");
        assert!((delay.p50_ns.unwrap() / mean - 1.0).abs() < 0.005, "{delay:?} and {mean}");
        assert!(delay.resolution_ns < 0.01 * delay.p50_ns.unwrap(), "{delay:?}");
    }
}
