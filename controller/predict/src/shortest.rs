//! Shortest paths (Dijkstra) for weights of relays and links.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::network::{Edge, Hop, Network, Path};

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

/// Least weight from every node to `to`, without the weight of that node; infinite if there is no
/// path.
pub(crate) fn weights_to(network: &Network, weights: &Weights, to: u32) -> Vec<f64> {
    let mut distances = vec![f64::INFINITY; network.node_count()];
    let mut queue = BinaryHeap::from([Queued { key: 0.0, distance: 0.0, node: to }]);
    distances[to as usize] = 0.0;
    while let Some(Queued { distance, node, .. }) = queue.pop() {
        if distance > distances[node as usize] {
            continue;
        }
        let relaying = if node == to { 0.0 } else { weights.node(network, node) };
        if !relaying.is_finite() {
            continue;
        }
        for edge in network.edges(node) {
            // The packet travels from the neighbour to this node.
            let reached = distance + relaying + weights.hop(edge.back(), edge.kind);
            let known = &mut distances[edge.to as usize];
            if reached < *known {
                *known = reached;
                queue.push(Queued { key: reached, distance: reached, node: edge.to });
            }
        }
    }
    distances
}

/// The path whose weights [`weights_to`] computed; `None` if there is no path.
pub(crate) fn path_along(
    network: &Network,
    weights: &Weights,
    least: &[f64],
    from: u32,
    to: u32,
) -> Option<Path> {
    let mut path = Path { nodes: vec![from], hops: Vec::new() };
    let mut node = from;
    while node != to {
        let through = |edge: &Edge| {
            let relaying = if edge.to == to { 0.0 } else { weights.node(network, edge.to) };
            weights.hop(edge.hop, edge.kind) + relaying + least[edge.to as usize]
        };
        let next = network.edges(node).iter().map(|edge| (through(edge), edge));
        let (weight, next) = next.min_by(|a, b| a.0.total_cmp(&b.0))?;
        if !weight.is_finite() || path.nodes.contains(&next.to) {
            return None;
        }
        path.hops.push(next.hop);
        path.nodes.push(next.to);
        node = next.to;
    }
    Some(path)
}

#[cfg(test)]
mod tests {
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
        let least = weights_to(&network, &weights, 3);
        assert_eq!(least, [23.0, 1.0, 12.0, 0.0, 1.0]);
        assert_eq!(path_along(&network, &weights, &least, 0, 3), Some(path));
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
    fn hosts_do_not_relay() {
        let (network, weights) = diamond();
        // From b to e, the paths lead over a or d, which are hosts.
        assert_eq!(shortest_path(&network, &weights, |_| 0.0, 1, 4), None);
    }
}
