//! Paths that may meet a deadline.
//!
//! In a small network, every path is a candidate. In a large one, candidates are shortest paths for
//! mean + factor x variance of the delay, for the factors at which such a path changes (Nikolova
//! et al. 2006), for a quantile, for the least delay, and for the fewest hops.

use std::collections::HashMap;

use crate::component::{end_delay, link_delays, node_delays};
use crate::network::{Flow, Hop, Network, Path};
use crate::quantile_function::QuantileFunction;
use crate::shortest::{Weights, path_along, shortest_path, weights_to};
use crate::usage::Usage;

/// Maximum number of paths of which every one is a candidate.
const MAX_ALL_PATHS: usize = 64;

/// Maximum number of nodes that the search for all paths visits.
const MAX_VISITS: usize = 20_000;

/// Maximum number of shortest paths between mean and variance.
const MAX_TRADE_OFFS: usize = 3;

/// Weight of a nanosecond of mean delay beside a hop, so that it decides only between paths of
/// equal length.
const MEAN_BESIDE_HOP: f64 = 1e-13;

/// Weight of a nanosecond of mean delay beside the variance in square nanoseconds, so that it decides
/// only between paths of equal variance.
const MEAN_BESIDE_VARIANCE: f64 = 1e-6;

/// Moments of the delay of a node or link.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    least: f64,
    mean: f64,
    variance: f64,
    quantile: f64,
}

impl Moments {
    fn of(delays: &[QuantileFunction], probability: f64) -> Self {
        delays.iter().fold(Self::default(), |sum, delay| Self {
            least: sum.least + delay.min(),
            mean: sum.mean + delay.mean(),
            variance: sum.variance + delay.variance(),
            quantile: sum.quantile + delay.at(probability),
        })
    }
}

/// Moments of all nodes and links for one flow.
struct Table {
    relay_kinds: Vec<Moments>,
    link_kinds: Vec<Moments>,
    nodes: HashMap<u32, Moments>,
    hops: HashMap<Hop, Moments>,
    /// Kinds without room for the flow, even without others.
    full_relay_kinds: Vec<bool>,
    full_link_kinds: Vec<bool>,
    full_nodes: Vec<u32>,
    full_hops: Vec<Hop>,
}

impl Table {
    fn of(network: &Network, usage: &Usage, flow: &Flow, probability: f64) -> Self {
        let empty = Usage::default();
        // A representative of each kind stands for all nodes and links without traffic.
        let mut of_kind = vec![None; network.relays().len()];
        for node in 0..network.node_count() as u32 {
            if let Some(kind) = network.relay_kind(node) {
                of_kind[kind].get_or_insert(node);
            }
        }
        let mut of_link_kind = vec![None; network.link_kinds().len()];
        for link in 0..network.link_count() as u32 {
            of_link_kind[network.link_kind(link)].get_or_insert(link);
        }
        let node = |node: u32, usage: &Usage| {
            Moments::of(&node_delays(network, usage, node, flow), probability)
        };
        let hop = |hop: Hop, usage: &Usage| {
            Moments::of(&link_delays(network, usage, hop, flow), probability)
        };
        let forward = |link: u32| Hop { link, forward: true };
        let busy_nodes = usage.nodes();
        let busy_hops = usage.hops();
        let full_nodes = busy_nodes.iter().copied();
        let full_hops = busy_hops.iter().copied();
        Self {
            relay_kinds: of_kind
                .iter()
                .map(|kind| kind.map_or(Moments::default(), |one| node(one, &empty)))
                .collect(),
            link_kinds: of_link_kind
                .iter()
                .map(|kind| kind.map_or(Moments::default(), |one| hop(forward(one), &empty)))
                .collect(),
            full_relay_kinds: of_kind
                .iter()
                .map(|kind| kind.is_some_and(|one| !empty.node_has_room(network, one, flow)))
                .collect(),
            full_link_kinds: of_link_kind
                .iter()
                .map(|kind| {
                    kind.is_some_and(|one| !empty.hop_has_room(network, forward(one), flow))
                })
                .collect(),
            nodes: busy_nodes.iter().map(|one| (*one, node(*one, usage))).collect(),
            hops: busy_hops.iter().map(|one| (*one, hop(*one, usage))).collect(),
            full_nodes: full_nodes
                .filter(|one| !usage.node_has_room(network, *one, flow))
                .collect(),
            full_hops: full_hops.filter(|one| !usage.hop_has_room(network, *one, flow)).collect(),
        }
    }

    /// Weights by a function of the moments. Full nodes and links are excluded unless
    /// `with_full`.
    fn weights(&self, of: impl Fn(&Moments) -> f64, with_full: bool) -> Weights {
        let kinds = |moments: &[Moments], full: &[bool]| {
            let weight = |(moments, is_full): (&Moments, &bool)| {
                if *is_full && !with_full { f64::INFINITY } else { of(moments) }
            };
            moments.iter().zip(full).map(weight).collect()
        };
        let mut weights = Weights {
            relay_kinds: kinds(&self.relay_kinds, &self.full_relay_kinds),
            link_kinds: kinds(&self.link_kinds, &self.full_link_kinds),
            nodes: self.nodes.iter().map(|(node, moments)| (*node, of(moments))).collect(),
            hops: self.hops.iter().map(|(hop, moments)| (*hop, of(moments))).collect(),
        };
        if !with_full {
            weights.nodes.extend(self.full_nodes.iter().map(|node| (*node, f64::INFINITY)));
            weights.hops.extend(self.full_hops.iter().map(|hop| (*hop, f64::INFINITY)));
        }
        weights
    }

    /// Mean and variance of a path.
    fn moments(&self, network: &Network, path: &Path) -> (f64, f64) {
        let kind = |node: &u32| network.relay_kind(*node).map(|kind| self.relay_kinds[kind]);
        let relays =
            path.relays().iter().filter_map(|node| self.nodes.get(node).copied().or(kind(node)));
        let link = |hop: &Hop| self.link_kinds[network.link_kind(hop.link)];
        let links = path.hops.iter().map(|hop| self.hops.get(hop).copied().unwrap_or(link(hop)));
        relays
            .chain(links)
            .fold((0.0, 0.0), |(mean, variance), one| (mean + one.mean, variance + one.variance))
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    /// Distinct paths with room for the flow.
    pub(crate) paths: Vec<Path>,
    /// Whether no other path can meet the deadline.
    pub(crate) is_complete: bool,
    /// The path of fewest hops, whether or not it has room; `None` if there is no path at all.
    pub(crate) fewest_hops: Option<Path>,
    /// Least possible delay over any path with room; infinite without one.
    pub(crate) least_ns: f64,
}

/// Searches paths for a flow that is not in `usage`. `probability` is that of meeting the deadline.
pub(crate) fn candidates(
    network: &Network,
    usage: &Usage,
    flow: &Flow,
    deadline_ns: f64,
    probability: f64,
) -> Candidates {
    let table = Table::of(network, usage, flow, probability);
    let hops = |moments: &Moments| 1.0 + MEAN_BESIDE_HOP * moments.mean;
    let (from, to) = (flow.from, flow.to);
    // Hops are counted on links; relays add nothing but their mean.
    let mut by_hops = table.weights(hops, true);
    for weight in by_hops.relay_kinds.iter_mut().chain(by_hops.nodes.values_mut()) {
        *weight -= 1.0;
    }
    let fewest_hops = shortest_path(network, &by_hops, |_| 0.0, from, to).map(|(path, _)| path);
    let by_least = table.weights(|one| one.least, false);
    let least = weights_to(network, &by_least, to);
    let ends = [network.sender.as_ref(), network.receiver.as_ref()];
    let ends = ends.into_iter().filter_map(|end| end_delay(end, flow));
    let ends: f64 = ends.map(|delay| delay.min()).sum();
    let least_ns = least[from as usize] + ends;
    if !least_ns.is_finite() {
        return Candidates { paths: Vec::new(), is_complete: true, fewest_hops, least_ns };
    }
    let all = all_paths(network, &by_least, &least, flow, deadline_ns - ends);
    let is_complete = all.is_some();
    // Least delay from each node on, its own included: no weight of a path is smaller.
    let through = |(node, least): (usize, f64)| by_least.node(network, node as u32) + least;
    let rest: Vec<f64> = least.iter().copied().enumerate().map(through).collect();
    let mut paths = all.unwrap_or_else(|| trade_offs(network, &table, &rest, from, to));
    let by_quantile = table.weights(|one| one.quantile, false);
    let has_room = |path: &Path| {
        path.relays().iter().all(|node| usage.node_has_room(network, *node, flow))
            && path.hops.iter().all(|hop| usage.hop_has_room(network, *hop, flow))
    };
    let singles = [
        shortest_path(network, &by_quantile, |node| rest[node as usize], from, to)
            .map(|(path, _)| path),
        path_along(network, &by_least, &least, from, to),
        fewest_hops.clone().filter(has_room),
    ];
    for path in singles.into_iter().flatten() {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    Candidates { paths, is_complete, fewest_hops, least_ns }
}

/// All paths without a loop that can meet the deadline; `None` if there are too many.
fn all_paths(
    network: &Network,
    weights: &Weights,
    least: &[f64],
    flow: &Flow,
    deadline_ns: f64,
) -> Option<Vec<Path>> {
    let mut paths = Vec::new();
    // Nodes of the current path, each with the number of its next edge and the delay up to it.
    let mut stack = vec![(flow.from, 0_usize, 0.0_f64)];
    let mut visits = 0;
    while let Some((node, next, so_far)) = stack.last_mut() {
        let (node, so_far) = (*node, *so_far);
        let Some(edge) = network.edges(node).get(*next).copied() else {
            stack.pop();
            continue;
        };
        *next += 1;
        visits += 1;
        if visits > MAX_VISITS {
            return None;
        }
        if stack.iter().any(|(on_path, ..)| *on_path == edge.to) {
            continue;
        }
        let relaying = if node == flow.from { 0.0 } else { weights.node(network, node) };
        let reached = so_far + relaying + weights.hop(edge.hop, edge.kind);
        let relays = if edge.to == flow.to { 0.0 } else { weights.node(network, edge.to) };
        if reached + relays + least[edge.to as usize] > deadline_ns {
            continue;
        }
        if edge.to != flow.to {
            stack.push((edge.to, 0, reached));
            continue;
        }
        if paths.len() >= MAX_ALL_PATHS {
            return None;
        }
        let nodes: Vec<u32> = stack.iter().map(|(node, ..)| *node).chain([flow.to]).collect();
        paths.extend(network.path(&nodes).ok());
    }
    Some(paths)
}

/// Paths on the trade-off between mean and variance of the delay. `rest` is the least delay from
/// each node on.
fn trade_offs(network: &Network, table: &Table, rest: &[f64], from: u32, to: u32) -> Vec<Path> {
    let search = |mean: f64, variance: f64| {
        let weights = table.weights(|one| mean * one.mean + variance * one.variance, false);
        let potential = |node: u32| mean * rest[node as usize];
        shortest_path(network, &weights, potential, from, to).map(|(path, _)| path)
    };
    let (Some(fast), Some(steady)) = (search(1.0, 0.0), search(MEAN_BESIDE_VARIANCE, 1.0)) else {
        return Vec::new();
    };
    if fast == steady {
        return vec![fast];
    }
    let mut paths = vec![fast, steady];
    let mut open = vec![(0, 1)];
    while let Some((a, b)) = open.pop() {
        if paths.len() >= 2 + MAX_TRADE_OFFS {
            break;
        }
        let ((mean_a, variance_a), (mean_b, variance_b)) =
            (table.moments(network, &paths[a]), table.moments(network, &paths[b]));
        // The factor at which both paths weigh the same.
        let factor = (mean_b - mean_a) / (variance_a - variance_b);
        if !(factor.is_finite() && factor > 0.0) {
            continue;
        }
        let Some(path) = search(1.0, factor).filter(|path| !paths.contains(path)) else { continue };
        paths.push(path);
        open.extend([(a, paths.len() - 1), (paths.len() - 1, b)]);
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::{constant, plain_link};
    use crate::network::{InlineModel, NetworkBuilder};

    fn flow(to: u32) -> Flow {
        let path = Vec::new();
        Flow { name: "f".into(), from: 0, to, size_bytes: 958.0, rate_pps: 100.0, path }
    }

    /// A ladder of `length` rungs of relays with random delays, sender 0 and receiver last.
    fn ladder(length: u32) -> Network {
        let mut builder = NetworkBuilder::default();
        builder.node("sender", None).unwrap();
        let link = builder.link_kind(plain_link(100e6));
        for i in 0..length {
            for side in 0..2_u32 {
                let wide = f64::from(1 + (i * 7 + side * 3) % 5) * 40_000.0;
                let model = InlineModel {
                    residual_ns: Some(
                        vec![(0.0, 0.0), (0.95, 1_000.0), (1.0, wide * 20.0)].try_into().unwrap(),
                    ),
                    ..constant(500_000.0 - wide)
                };
                let kind = builder.relay(model.relay("m", "route"));
                let node = builder.node(&format!("n{i}_{side}"), Some(kind)).unwrap();
                if i == 0 {
                    builder.link(0, node, link).unwrap();
                } else {
                    builder.link(node - 2, node, link).unwrap();
                    builder.link(node - 1 - 2 * side, node, link).unwrap();
                }
            }
        }
        let last = builder.node("receiver", None).unwrap();
        builder.link(last - 1, last, link).unwrap();
        builder.link(last - 2, last, link).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn small_network_is_searched_completely() {
        let network = ladder(3);
        let to = network.node_count() as u32 - 1;
        let found = candidates(&network, &Usage::default(), &flow(to), 1e9, 0.95);
        assert!(found.is_complete && found.paths.len() > 2, "{found:?}");
        assert_eq!(found.fewest_hops.unwrap().hops.len(), 4);
        let tight = candidates(&network, &Usage::default(), &flow(to), 1_000.0, 0.95);
        assert!(tight.least_ns > 1_000.0 && tight.is_complete);
    }

    #[test]
    fn large_network_has_trade_offs_between_mean_and_variance() {
        let network = ladder(30);
        let to = network.node_count() as u32 - 1;
        let found = candidates(&network, &Usage::default(), &flow(to), 1e12, 0.95);
        assert!(!found.is_complete);
        assert!((3..20).contains(&found.paths.len()), "{}", found.paths.len());
        let lengths: Vec<usize> = found.paths.iter().map(|path| path.nodes.len()).collect();
        assert!(lengths.iter().all(|length| *length >= 32), "{lengths:?}");
    }

    #[test]
    fn full_nodes_are_no_candidates() {
        let network = ladder(2);
        let to = network.node_count() as u32 - 1;
        let mut usage = Usage::default();
        let all = candidates(&network, &usage, &flow(to), 1e9, 0.95);
        // Packets of 10 us: 95,000 of them fill a relay to 95 %.
        let heavy = Flow { rate_pps: 95_000.0, size_bytes: 1.0, ..flow(to) };
        usage.add(&network, &heavy, &network.path(&[0, 1, 3, to]).unwrap());
        let next = Flow { rate_pps: 6_000.0, size_bytes: 1.0, ..flow(to) };
        let found = candidates(&network, &usage, &next, 1e9, 0.95);
        assert!(found.paths.len() < all.paths.len());
        assert!(
            found.paths.iter().all(|path| !path.nodes.contains(&1) && !path.nodes.contains(&3))
        );
        let too_heavy = Flow { rate_pps: 200_000.0, ..next };
        let found = candidates(&network, &usage, &too_heavy, 1e9, 0.95);
        assert!(found.paths.is_empty() && found.fewest_hops.is_some());
    }
}
