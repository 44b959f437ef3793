//! Shortest paths from every node to every other node and link, in as few routes as possible:
//! neighbouring prefixes with the same next hop are merged.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::addressing::{self, LINK_V4_LEN, LINK_V6_LEN};
use crate::topology::Topology;

/// A static route of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Prefix such as `198.19.0.2/31`.
    pub(crate) prefix: String,
    /// Index of the link it leaves by.
    pub(crate) link: usize,
    /// Whether the prefix is IPv6.
    pub(crate) v6: bool,
}

/// Adjacency of nodes: for each its (link, neighbour) pairs in the order of the links.
pub(crate) struct Neighbours(Vec<Vec<(usize, usize)>>);

impl Neighbours {
    pub(crate) fn of(topology: &Topology) -> Self {
        let mut all = vec![Vec::new(); topology.nodes.len()];
        for (link, edge) in topology.links.iter().enumerate() {
            all[edge.a].push((link, edge.b));
            all[edge.b].push((link, edge.a));
        }
        Self(all)
    }

    /// Returns the neighbours of the node with index `place`.
    pub(crate) fn of_node(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        self.0[place].iter().map(|(_, neighbour)| *neighbour)
    }

    /// Returns the first link from `from` to each node, by breadth-first search; `None` for the
    /// node itself and unreachable ones. Of equally short paths, the one by the earlier link wins.
    pub(crate) fn first_links(&self, from: usize) -> Vec<Option<FirstLink>> {
        let mut first_links: Vec<Option<FirstLink>> = vec![None; self.0.len()];
        let mut waiting = VecDeque::from([from]);
        while let Some(node) = waiting.pop_front() {
            for &(link, neighbour) in &self.0[node] {
                if neighbour == from || first_links[neighbour].is_some() {
                    continue;
                }
                let before = first_links[node];
                first_links[neighbour] = Some(FirstLink {
                    link: before.map_or(link, |first| first.link),
                    hops: before.map_or(1, |first| first.hops + 1),
                });
                waiting.push_back(neighbour);
            }
        }
        first_links
    }
}

/// How a node is reached: first link, and number of hops.
#[derive(Clone, Copy)]
pub(crate) struct FirstLink {
    pub(crate) link: usize,
    pub(crate) hops: usize,
}

/// Returns all routes that `node` needs in addition to those of its own interfaces.
pub(crate) fn routes(topology: &Topology, neighbours: &Neighbours, node: usize) -> Vec<Route> {
    let first_links = neighbours.first_links(node);
    let mut v4 = Vec::new();
    let mut v6 = Vec::new();
    for (place, first) in first_links.iter().enumerate() {
        let Some(first) = first else { continue };
        let own = addressing::node(place);
        v4.push(Prefix::new_v4(own.v4, 32, first.link));
        v6.push(Prefix::new_v6(own.v6, 128, first.link));
    }
    for (place, edge) in topology.links.iter().enumerate() {
        if edge.a == node || edge.b == node {
            continue;
        }
        let ends = [first_links[edge.a], first_links[edge.b]];
        let nearer = ends.into_iter().flatten().min_by_key(|first| first.hops);
        let Some(first) = nearer else { continue };
        let subnet = addressing::link_subnet(place);
        v4.push(Prefix::new_v4(subnet.v4, LINK_V4_LEN, first.link));
        v6.push(Prefix::new_v6(subnet.v6, LINK_V6_LEN, first.link));
    }
    let v4 = joined(v4).into_iter().map(|prefix| prefix.route(false));
    let v6 = joined(v6).into_iter().map(|prefix| prefix.route(true));
    v4.chain(v6).collect()
}

/// A prefix and its link. Bits are left-aligned in either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    bits: u128,
    len: u8,
    link: usize,
}

impl Prefix {
    fn new_v4(address: Ipv4Addr, len: u8, link: usize) -> Self {
        Self { bits: u128::from(u32::from(address)) << 96, len, link }
    }

    fn new_v6(address: Ipv6Addr, len: u8, link: usize) -> Self {
        Self { bits: u128::from(address), len, link }
    }

    /// Returns the prefix that covers exactly this one and `other`, if it exists.
    fn join(self, other: Self) -> Option<Self> {
        let half = 1_u128 << (128 - self.len);
        let siblings = self.len == other.len
            && self.link == other.link
            && self.bits & half == 0
            && self.bits | half == other.bits;
        siblings.then(|| Self { len: self.len - 1, ..self })
    }

    fn route(self, v6: bool) -> Route {
        let prefix = if v6 {
            format!("{}/{}", Ipv6Addr::from(self.bits), self.len)
        } else {
            format!("{}/{}", Ipv4Addr::from((self.bits >> 96) as u32), self.len)
        };
        Route { prefix, link: self.link, v6 }
    }
}

/// Returns the fewest prefixes that cover the same addresses by the same links, and no others.
fn joined(mut prefixes: Vec<Prefix>) -> Vec<Prefix> {
    prefixes.sort_unstable();
    let mut out: Vec<Prefix> = Vec::new();
    for mut prefix in prefixes {
        while let Some(whole) = out.last().and_then(|last| last.join(prefix)) {
            out.pop();
            prefix = whole;
        }
        out.push(prefix);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topology::{Edge, LinkOptions};

    fn topology(nodes: usize, links: &[(usize, usize)]) -> Topology {
        let edge = |&(a, b): &(usize, usize)| Edge { a, b, options: LinkOptions::default() };
        Topology {
            nodes: (1..=nodes).map(|n| format!("n{n}")).collect(),
            links: links.iter().map(edge).collect(),
            ..Topology::default()
        }
    }

    /// Returns the next hop of `node` to the node with index `to`, by the longest prefix, as in the
    /// kernel.
    fn next_hop(topology: &Topology, node: usize, to: usize) -> Option<usize> {
        let bits = u128::from(addressing::node(to).v6);
        let neighbours = Neighbours::of(topology);
        let all = routes(topology, &neighbours, node);
        let matching = all.iter().filter(|route| route.v6).filter_map(|route| {
            let (address, len) = route.prefix.split_once('/')?;
            let (address, len): (Ipv6Addr, u32) = (address.parse().ok()?, len.parse().ok()?);
            let shift = 128 - len;
            (u128::from(address) >> shift == bits >> shift).then_some((len, route.link))
        });
        let link = matching.max()?.1;
        let edge = &topology.links[link];
        Some(if edge.a == node { edge.b } else { edge.a })
    }

    #[test]
    fn long_line_needs_few_routes() {
        let line: Vec<_> = (1..250).map(|n| (n - 1, n)).collect();
        let line = topology(250, &line);
        let neighbours = Neighbours::of(&line);
        let most = (0..250).map(|n| routes(&line, &neighbours, n).len()).max().unwrap();
        assert!(most <= 100, "{most} routes in one node, of 996 destinations");
    }

    #[test]
    fn shorter_direction_round_a_ring_is_taken() {
        let ring = topology(5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
        assert_eq!(next_hop(&ring, 0, 2), Some(1));
        assert_eq!(next_hop(&ring, 0, 3), Some(4));
    }

    #[test]
    fn unreachable_node_has_no_route() {
        let two_islands = topology(4, &[(0, 1), (2, 3)]);
        assert_eq!(next_hop(&two_islands, 0, 1), Some(1));
        assert_eq!(next_hop(&two_islands, 0, 2), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn routes_reach_every_node_of_a_connected_lab(
            towards in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
            extra in prop::collection::vec((0..30_usize, 0..30_usize), 0..10),
        ) {
            let count = towards.len() + 1;
            let tree = towards.iter().enumerate().map(|(n, to)| (to.index(n + 1), n + 1));
            let mut links: Vec<(usize, usize)> = tree.collect();
            for (a, b) in extra {
                let (a, b) = (a % count, b % count);
                if a != b && !links.contains(&(a, b)) && !links.contains(&(b, a)) {
                    links.push((a, b));
                }
            }
            let lab = topology(count, &links);
            for from in 0..count {
                for to in (0..count).filter(|to| *to != from) {
                    let mut at = from;
                    for _ in 0..count {
                        at = if at == to { at } else { next_hop(&lab, at, to).unwrap() };
                    }
                    prop_assert_eq!(at, to, "from {} in {:?}", from, links);
                }
            }
        }
    }
}
