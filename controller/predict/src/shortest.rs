//! Shortest paths (Dijkstra) for weights of relays and links.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::network::{Hop, Network, Path};

/// Weights of nodes and links: by kind, and of single ones that differ from their kind. An infinite
/// weight excludes a node or link.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(crate) relay_kinds: Vec<f64>,
    pub(crate) link_kinds: Vec<f64>,
    pub(crate) nodes: HashMap<u32, f64>,
    pub(crate) hops: HashMap<Hop, f64>,
}

impl Weights {
    /// Weight of relaying on a node; infinite if it relays nothing.
    pub(crate) fn node(&self, network: &Network, node: u32) -> f64 {
        if !self.nodes.is_empty()
            && let Some(weight) = self.nodes.get(&node)
        {
            return *weight;
        }
        network.relay_kind(node).map_or(f64::INFINITY, |kind| self.relay_kinds[kind])
    }

    /// Weight of a link of a kind, in one direction.
    pub(crate) fn hop(&self, hop: Hop, kind: u32) -> f64 {
        if !self.hops.is_empty()
            && let Some(weight) = self.hops.get(&hop)
        {
            return *weight;
        }
        self.link_kinds[kind as usize]
    }
}

/// Node in the queue; the one with the smallest key is the greatest.
#[derive(Clone, Copy, PartialEq)]
struct Queued {
    /// Distance from the start, and at least the distance to the end if that is known.
    key: f64,
    distance: f64,
    node: u32,
}

impl Eq for Queued {}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.total_cmp(&self.key).then_with(|| other.node.cmp(&self.node))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Path of the least weight from a node to another, and its weight; `None` if there is no path.
/// The weights of both ends do not count.
///
/// `potential` bounds the weight of the rest of a path from below, the relaying of the node itself
/// included, so that the search visits fewer nodes (A*). It must not fall by more than a step weighs.
pub(crate) fn shortest_path(
    network: &Network,
    weights: &Weights,
    potential: impl Fn(u32) -> f64,
    from: u32,
    to: u32,
) -> Option<(Path, f64)> {
    let mut distances = vec![f64::INFINITY; network.node_count()];
    // The node before each node, and the place of the edge among that node's edges.
    let mut before = vec![(u32::MAX, 0_u32); network.node_count()];
    let mut queue = BinaryHeap::from([Queued { key: 0.0, distance: 0.0, node: from }]);
    distances[from as usize] = 0.0;
    while let Some(Queued { distance, node, .. }) = queue.pop() {
        if node == to {
            return Some((walk_back(network, &before, from, to), distance));
        }
        if distance > distances[node as usize] {
            continue;
        }
        // A node that is not the sender is left only by relaying.
        let relaying = if node == from { 0.0 } else { weights.node(network, node) };
        if !relaying.is_finite() {
            continue;
        }
        for (place, edge) in network.edges(node).iter().enumerate() {
            let reached = distance + relaying + weights.hop(edge.hop, edge.kind);
            let known = &mut distances[edge.to as usize];
            if reached < *known {
                let rest = if edge.to == to { 0.0 } else { potential(edge.to) };
                if !rest.is_finite() {
                    continue;
                }
                *known = reached;
                before[edge.to as usize] = (node, place as u32);
                queue.push(Queued { key: reached + rest, distance: reached, node: edge.to });
            }
        }
    }
    None
}

fn walk_back(network: &Network, before: &[(u32, u32)], from: u32, to: u32) -> Path {
    let (mut nodes, mut hops, mut node) = (vec![to], Vec::new(), to);
    while node != from {
        let (previous, place) = before[node as usize];
        hops.push(network.edges(previous)[place as usize].hop);
        nodes.push(previous);
        node = previous;
    }
    nodes.reverse();
    hops.reverse();
    Path { nodes, hops }
}

/// Shortest paths from every node to one node.
#[derive(Clone, Debug)]
pub(crate) struct PathsTo {
    to: u32,
    /// Least weight from each node, without the weight of that node; infinite without a path.
    pub(crate) least: Vec<f64>,
    /// The node after each node.
    next: Vec<u32>,
}

impl PathsTo {
    /// Searches from the end of the paths.
    pub(crate) fn search(network: &Network, weights: &Weights, to: u32) -> Self {
        let mut least = vec![f64::INFINITY; network.node_count()];
        let mut next = vec![u32::MAX; network.node_count()];
        let mut queue = BinaryHeap::from([Queued { key: 0.0, distance: 0.0, node: to }]);
        least[to as usize] = 0.0;
        while let Some(Queued { distance, node, .. }) = queue.pop() {
            if distance > least[node as usize] {
                continue;
            }
            let relaying = if node == to { 0.0 } else { weights.node(network, node) };
            if !relaying.is_finite() {
                continue;
            }
            for edge in network.edges(node) {
                // The packet travels from the neighbour to this node.
                let reached = distance + relaying + weights.hop(edge.back(), edge.kind);
                let known = &mut least[edge.to as usize];
                if reached < *known {
                    *known = reached;
                    next[edge.to as usize] = node;
                    queue.push(Queued { key: reached, distance: reached, node: edge.to });
                }
            }
        }
        Self { to, least, next }
    }

    /// The path from a node; `None` without one.
    pub(crate) fn from(&self, network: &Network, from: u32) -> Option<Path> {
        let mut nodes = vec![from];
        while nodes[nodes.len() - 1] != self.to {
            let next = self.next[nodes[nodes.len() - 1] as usize];
            if next == u32::MAX {
                return None;
            }
            nodes.push(next);
        }
        network.path_over(nodes)
    }
}

/// Smallest possible maximum of the weights of a path; infinite without a path. The weights of both
/// ends do not count.
pub(crate) fn least_maximum(network: &Network, weights: &Weights, from: u32, to: u32) -> f64 {
    let mut maxima = vec![f64::INFINITY; network.node_count()];
    let mut queue = BinaryHeap::from([Queued { key: 0.0, distance: 0.0, node: from }]);
    maxima[from as usize] = 0.0;
    while let Some(Queued { distance, node, .. }) = queue.pop() {
        if node == to {
            return distance;
        }
        if distance > maxima[node as usize] {
            continue;
        }
        let relaying = if node == from { 0.0 } else { weights.node(network, node) };
        for edge in network.edges(node) {
            let reached = distance.max(relaying).max(weights.hop(edge.hop, edge.kind));
            if reached < maxima[edge.to as usize] {
                maxima[edge.to as usize] = reached;
                queue.push(Queued { key: reached, distance: reached, node: edge.to });
            }
        }
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::network::NetworkBuilder;
    use crate::network::tests::{constant, plain_link};

    /// a - b - d and a - c - e - d, where b is a slow relay.
    fn diamond() -> (Network, Weights) {
        let mut builder = NetworkBuilder::default();
        let slow = builder.relay(constant(1.0).relay("slow", "route"));
        let fast = builder.relay(constant(1.0).relay("fast", "route"));
        for (name, relay) in
            [("a", None), ("b", Some(slow)), ("c", Some(fast)), ("d", None), ("e", Some(fast))]
        {
            builder.node(name, relay).unwrap();
        }
        let kind = builder.link_kind(plain_link(1e6));
        for (a, b) in [(0, 1), (1, 3), (0, 2), (2, 4), (4, 3)] {
            builder.link(a, b, kind).unwrap();
        }
        let weights = Weights {
            relay_kinds: vec![100.0, 10.0],
            link_kinds: vec![1.0],
            nodes: HashMap::new(),
            hops: HashMap::new(),
        };
        (builder.build().unwrap(), weights)
    }

    #[test]
    fn path_avoids_the_slow_relay_and_single_exceptions() {
        let (network, mut weights) = diamond();
        let (path, weight) = shortest_path(&network, &weights, |_| 0.0, 0, 3).unwrap();
        assert_eq!((path.nodes.clone(), weight), (vec![0, 2, 4, 3], 23.0));
        let paths = PathsTo::search(&network, &weights, 3);
        assert_eq!(paths.least, [23.0, 1.0, 12.0, 0.0, 1.0]);
        assert_eq!(paths.from(&network, 0), Some(path));
        assert_eq!(least_maximum(&network, &weights, 0, 3), 10.0);
        weights.nodes.insert(4, 200.0);
        let (path, weight) = shortest_path(&network, &weights, |_| 0.0, 0, 3).unwrap();
        assert_eq!((path.nodes, weight), (vec![0, 1, 3], 102.0));
        weights.hops.insert(path.hops[1], f64::INFINITY);
        let (path, _) = shortest_path(&network, &weights, |_| 0.0, 0, 3).unwrap();
        assert_eq!(path.nodes, [0, 2, 4, 3]);
        weights.nodes.insert(2, f64::INFINITY);
        assert_eq!(shortest_path(&network, &weights, |_| 0.0, 0, 3), None);
    }

    #[test]
    fn paths_of_weight_zero_have_no_loop() {
        let (network, mut weights) = diamond();
        weights.relay_kinds = vec![0.0, 0.0];
        weights.link_kinds = vec![0.0];
        let paths = PathsTo::search(&network, &weights, 3);
        for from in [0, 1, 2, 4] {
            let path = paths.from(&network, from).unwrap();
            assert_eq!(path.nodes.last(), Some(&3), "{path:?}");
        }
    }

    /// Weight of the lightest path, by trying all of them.
    fn enumerated(
        network: &Network,
        weights: &Weights,
        (nodes, so_far): (&mut Vec<u32>, f64),
        to: u32,
        join: fn(f64, f64) -> f64,
    ) -> f64 {
        let node = nodes[nodes.len() - 1];
        if node == to {
            return so_far;
        }
        let relaying = if nodes.len() == 1 { 0.0 } else { weights.node(network, node) };
        let mut least = f64::INFINITY;
        for edge in network.edges(node) {
            if !nodes.contains(&edge.to) {
                let reached = join(join(so_far, relaying), weights.hop(edge.hop, edge.kind));
                nodes.push(edge.to);
                least = least.min(enumerated(network, weights, (nodes, reached), to, join));
                nodes.pop();
            }
        }
        least
    }

    proptest! {
        #[test]
        fn searches_agree_with_enumeration(
            relays in vec(prop_oneof![Just(0.0), Just(f64::INFINITY), 0.0..5.0_f64], 7),
            links in vec((0..7_u32, 0..7_u32, prop_oneof![Just(0.0), 0.0..5.0_f64]), 6..16),
        ) {
            let mut builder = NetworkBuilder::default();
            for i in 0..7 {
                let kind = builder.relay(constant(1.0).relay("m", "route"));
                builder.node(&format!("n{i}"), Some(kind)).unwrap();
            }
            let mut joined = HashMap::new();
            for (a, b, weight) in links {
                if a != b && !joined.contains_key(&(a.min(b), a.max(b))) {
                    joined.insert((a.min(b), a.max(b)), weight);
                    let kind = builder.link_kind(plain_link(1e6));
                    builder.link(a, b, kind).unwrap();
                }
            }
            let network = builder.build().unwrap();
            let mut weights = Weights {
                relay_kinds: relays,
                link_kinds: vec![0.0; joined.len()],
                nodes: HashMap::new(),
                hops: HashMap::new(),
            };
            for link in 0..network.link_count() as u32 {
                for forward in [true, false] {
                    let hop = Hop { link, forward };
                    let (a, b) = network.end_numbers(hop);
                    // Directions differ.
                    let weight = joined[&(a.min(b), a.max(b))] + f64::from(u8::from(forward));
                    weights.hops.insert(hop, weight);
                }
            }
            let weight = |path: &Path| {
                let relays = path.relays().iter().map(|node| weights.node(&network, *node));
                relays.chain(path.hops.iter().map(|hop| weights.hops[hop])).sum::<f64>()
            };
            let paths = PathsTo::search(&network, &weights, 6);
            for from in 0..6 {
                let least = enumerated(&network, &weights, (&mut vec![from], 0.0), 6, |a, b| a + b);
                let is_equal = |found: f64| found == least || (found - least).abs() < 1e-9;
                prop_assert!(is_equal(paths.least[from as usize]), "{least}, {paths:?}");
                let found = paths.from(&network, from);
                prop_assert!(is_equal(found.as_ref().map_or(f64::INFINITY, weight)), "{found:?}");
                for guided in [false, true] {
                    let rest = |node: u32| {
                        let rest = weights.node(&network, node) + paths.least[node as usize];
                        if guided { rest } else { 0.0 }
                    };
                    let found = shortest_path(&network, &weights, rest, from, 6);
                    let total = found.as_ref().map_or(f64::INFINITY, |(_, weight)| *weight);
                    prop_assert!(is_equal(total), "{total} instead of {least}");
                    if let Some((path, total)) = found {
                        prop_assert!((weight(&path) - total).abs() < 1e-9, "{path:?}");
                    }
                }
                let maximum = least_maximum(&network, &weights, from, 6);
                let least = enumerated(&network, &weights, (&mut vec![from], 0.0), 6, f64::max);
                prop_assert_eq!(maximum, least);
            }
        }
    }

    #[test]
    fn hosts_do_not_relay() {
        let (network, weights) = diamond();
        // From b to e, the paths lead over a or d, which are hosts.
        assert_eq!(shortest_path(&network, &weights, |_| 0.0, 1, 4), None);
    }
}
