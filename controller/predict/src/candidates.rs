//! Paths that may meet a deadline.
//!
//! In a small network, every path is a candidate. In a large one, candidates are shortest paths for
//! mean + factor x variance of the delay, for the factors at which such a path changes (Nikolova
//! et al. 2006), for a quantile, for the least delay, and for the fewest hops.

use std::collections::HashMap;

use crate::component::end_delay;
use crate::moments::{MomentCache, Moments};
use crate::network::{Flow, Hop, Network, Path};
use crate::shortest::{PathsTo, Weights, least_maximum, shortest_path};
use crate::usage::{MAX_SHARE, Traffic, Usage, has_room, link_share, relay_share};

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

/// Difference of two shares of capacity that decides nothing.
const EQUAL_SHARES: f64 = 0.01;

/// A node, or a direction of a link, for one flow.
#[derive(Clone, Copy, Debug)]
struct Element {
    moments: Moments,
    /// Share of its capacity that is used with the flow; `None` if unknown.
    share: Option<f64>,
}

/// Elements that a search uses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Include {
    /// Those with room for the flow.
    WithRoom,
    /// Those of which at most this share is used with the flow.
    UsedUpTo(f64),
    /// All.
    All,
}

impl Include {
    fn has(self, element: &Element) -> bool {
        match self {
            Self::WithRoom => has_room(element.share),
            Self::UsedUpTo(limit) => element.share.is_none_or(|share| share <= limit),
            Self::All => true,
        }
    }
}

/// All nodes and links for one flow: by kind, and those with traffic.
struct Table {
    relay_kinds: Vec<Element>,
    link_kinds: Vec<Element>,
    nodes: HashMap<u32, Element>,
    hops: HashMap<Hop, Element>,
}

impl Table {
    fn of(network: &Network, usage: &Usage, flow: &Flow, probability: f64) -> Self {
        let mut cache = MomentCache::new(flow, probability);
        let mut relay = |relay, others| Element {
            moments: cache.of_relay(relay, others),
            share: relay_share(relay, others, flow),
        };
        let idle = Traffic::default();
        let relay_kinds = network.relays().iter().map(|kind| relay(kind, idle)).collect();
        let nodes = usage.busy_nodes().filter_map(|(node, others)| {
            network.relay(node).map(|kind| (node, relay(kind, others)))
        });
        let nodes = nodes.collect();
        let mut link = |link, others| Element {
            moments: cache.of_link(link, others),
            share: link_share(link, others, flow),
        };
        let link_kinds = network.link_kinds().iter().map(|kind| link(kind, idle)).collect();
        let hops = usage.busy_hops();
        let hops = hops.map(|(hop, others)| (hop, link(network.link(hop.link), others))).collect();
        Self { relay_kinds, link_kinds, nodes, hops }
    }

    /// Weights by a function of nodes and links, without those that are not included.
    fn weights(&self, include: Include, of: impl Fn(&Element) -> f64) -> Weights {
        let weight = |element: &Element| {
            if include.has(element) { of(element) } else { f64::INFINITY }
        };
        Weights {
            relay_kinds: self.relay_kinds.iter().map(weight).collect(),
            link_kinds: self.link_kinds.iter().map(weight).collect(),
            nodes: self.nodes.iter().map(|(node, element)| (*node, weight(element))).collect(),
            hops: self.hops.iter().map(|(hop, element)| (*hop, weight(element))).collect(),
        }
    }

    /// Mean and variance of a path.
    fn moments(&self, network: &Network, path: &Path) -> (f64, f64) {
        let kind = |node: &u32| network.relay_kind(*node).map(|kind| self.relay_kinds[kind]);
        let relays =
            path.relays().iter().filter_map(|node| self.nodes.get(node).copied().or(kind(node)));
        let link = |hop: &Hop| self.link_kinds[network.link_kind(hop.link)];
        let links = path.hops.iter().map(|hop| self.hops.get(hop).copied().unwrap_or(link(hop)));
        relays.chain(links).fold((0.0, 0.0), |(mean, variance), one| {
            (mean + one.moments.mean, variance + one.moments.variance)
        })
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
    let (from, to) = (flow.from, flow.to);
    // Hops are counted on links; relays add nothing but their mean.
    let mean = |one: &Element| MEAN_BESIDE_HOP * one.moments.mean;
    let mut by_hops = table.weights(Include::All, mean);
    for weight in by_hops.link_kinds.iter_mut().chain(by_hops.hops.values_mut()) {
        *weight += 1.0;
    }
    let fewest_hops = shortest_path(network, &by_hops, |_| 0.0, from, to).map(|(path, _)| path);
    let by_least = table.weights(Include::WithRoom, |one| one.moments.least);
    let fastest = PathsTo::search(network, &by_least, to);
    let least = &fastest.least;
    let ends = [network.sender.as_ref(), network.receiver.as_ref()];
    let ends = ends.into_iter().filter_map(|end| end_delay(end, flow));
    let ends: f64 = ends.map(|delay| delay.min()).sum();
    let least_ns = least[from as usize] + ends;
    if !least_ns.is_finite() {
        return Candidates { paths: Vec::new(), is_complete: true, fewest_hops, least_ns };
    }
    let all = all_paths(network, &by_least, least, flow, deadline_ns - ends);
    let is_complete = all.is_some();
    // Least delay from each node on, its own included: no weight of a path is smaller.
    let through = |(node, least): (usize, f64)| by_least.node(network, node as u32) + least;
    let rest: Vec<f64> = least.iter().copied().enumerate().map(through).collect();
    let by_quantile = table.weights(Include::WithRoom, |one| one.moments.quantile);
    let singles = [
        shortest_path(network, &by_quantile, |node| rest[node as usize], from, to)
            .map(|(path, _)| path),
        fastest.from(network, from),
        fewest_hops.clone().filter(|path| usage.path_has_room(network, path, flow)),
        least_used(network, &table, &rest, from, to),
    ];
    let mut paths = all.unwrap_or_else(|| trade_offs(network, &table, &rest, from, to));
    for path in singles.into_iter().flatten() {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    Candidates { paths, is_complete, fewest_hops, least_ns }
}

/// Path of the least mean delay among those whose busiest relay or link is used least.
fn least_used(network: &Network, table: &Table, rest: &[f64], from: u32, to: u32) -> Option<Path> {
    let shares = table.weights(Include::WithRoom, |one| one.share.unwrap_or_default());
    let least = least_maximum(network, &shares, from, to);
    let limit = Include::UsedUpTo((least + EQUAL_SHARES).min(MAX_SHARE));
    let by_mean = table.weights(limit, |one| one.moments.mean);
    shortest_path(network, &by_mean, |node| rest[node as usize], from, to).map(|(path, _)| path)
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
        let of = |one: &Element| mean * one.moments.mean + variance * one.moments.variance;
        let weights = table.weights(Include::WithRoom, of);
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
    fn least_used_path_is_a_candidate_in_a_large_network() {
        let network = ladder(30);
        let to = network.node_count() as u32 - 1;
        // All nodes of one side are used to 45 %, except the last one, which the other side leads to.
        let mut usage = Usage::default();
        let side = |i: u32| 1 + 2 * i;
        let heavy = Flow { rate_pps: 45_000.0, size_bytes: 1.0, ..flow(to) };
        let nodes: Vec<u32> = (0..29).map(side).collect();
        let used = network.path(&[&[0], &nodes[..]].concat()).unwrap();
        usage.add(&network, &heavy, &used);
        let found = candidates(&network, &usage, &flow(to), 1e12, 0.95);
        assert!(!found.is_complete);
        let most = |path: &Path| {
            let shares =
                path.relays().iter().map(|one| usage.node_share(&network, *one, &flow(to)));
            shares.flatten().fold(0.0, f64::max)
        };
        assert!(found.paths.iter().any(|path| most(path) < 0.01), "{:?}", found.paths);
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
