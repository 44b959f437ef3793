//! Clocks of the machines on the path of a flow. Timestamps of two machines are subtracted only if the
//! relation of their clocks is known.

use dwell_fleet::Nodes;
use dwell_stats::{Leg, Machine};
use dwell_units::Nanos;

/// The nodes on the path of a flow, and their clocks.
#[derive(Clone, Debug)]
pub(crate) struct PathClocks {
    /// Nodes in path order. Several may trace packets as [`Machine::Node`].
    path: Vec<(Machine, String)>,
    nodes: Nodes,
}

impl PathClocks {
    pub(crate) fn new(mut path: Vec<(Machine, String)>, nodes: Nodes) -> Self {
        path.sort();
        path.dedup();
        Self { path, nodes }
    }

    /// Whether a step of this node's clock affects timestamps of the path.
    pub(crate) fn contains_clock_of(&self, node: &str) -> bool {
        let clock = self.nodes.clock_domain(node);
        self.path.iter().any(|(_, other)| self.nodes.clock_domain(other) == clock)
    }

    /// Returns the first node of each group with related clocks; one node if all are related.
    pub(crate) fn unrelated(&self) -> Vec<&str> {
        let mut first: Vec<&str> = Vec::new();
        for (_, node) in &self.path {
            if first.iter().all(|other| self.nodes.clock_relation(other, node).is_none()) {
                first.push(node);
            }
        }
        first
    }

    /// Returns the offsets to subtract from delays.
    pub(crate) fn offsets(&self) -> ClockOffsets {
        let node = self.offset(Machine::Node, Machine::Node).is_some();
        let legs = Leg::ALL.map(|leg| {
            let (first, last) = leg.machines();
            // The delay of all links is that of the path without the node.
            self.offset(first, last).filter(|_| node || leg != Leg::LinkDelay)
        });
        ClockOffsets { legs, node }
    }

    /// Returns the offset of the clock of `b` from that of `a`; `None` if it is unknown or differs
    /// among the nodes of one machine.
    fn offset(&self, a: Machine, b: Machine) -> Option<Nanos> {
        let of = |machine| self.path.iter().filter(move |(other, _)| *other == machine);
        let mut common = None;
        for ((_, first), (_, last)) in of(a).flat_map(|a| of(b).map(move |b| (a, b))) {
            let offset = self.nodes.clock_relation(first, last)?.offset;
            if *common.get_or_insert(offset) != offset {
                return None;
            }
        }
        // Without a node there are no timestamps to correct.
        Some(common.unwrap_or_default())
    }
}

/// Corrections of delays for the clocks of the machines. The default is one clock for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffsets {
    /// Offset to subtract, in the order of [`Leg::ALL`]; `None` if the clocks are unrelated.
    legs: [Option<Nanos>; Leg::ALL.len()],
    /// Whether all timestamps of the node are of one clock.
    node: bool,
}

impl Default for ClockOffsets {
    fn default() -> Self {
        Self { legs: [Some(Nanos::ZERO); Leg::ALL.len()], node: true }
    }
}

impl ClockOffsets {
    /// Returns the delay without the offset of the clocks; `None` if their relation is unknown.
    pub(crate) fn corrected(&self, leg: Leg, delay: Nanos) -> Option<Nanos> {
        let offsets = Leg::ALL.into_iter().zip(self.legs);
        let (_, offset) = offsets.into_iter().find(|(other, _)| *other == leg)?;
        Some(delay - offset?)
    }

    /// Whether timestamps of the node may be subtracted from each other.
    pub(crate) const fn has_node_delays(&self) -> bool {
        self.node
    }
}

#[cfg(test)]
mod tests {
    use dwell_fleet::ClockDomain;

    use super::*;

    /// Returns the clocks of a path from n1 through n2 to n3, with these clock domains.
    fn clocks(domains: [&str; 3]) -> PathClocks {
        let names = ["n1", "n2", "n3"];
        let nodes =
            names.into_iter().zip(domains).fold(Nodes::default(), |nodes, (name, domain)| {
                nodes.with_clock(name, ClockDomain::of_node(domain))
            });
        let path = Machine::ALL.into_iter().zip(names.map(str::to_owned));
        PathClocks::new(path.collect(), nodes)
    }

    fn legs(clocks: &PathClocks) -> Vec<Leg> {
        let offsets = clocks.offsets();
        let known = |leg: &Leg| offsets.corrected(*leg, Nanos(7)) == Some(Nanos(7));
        Leg::ALL.into_iter().filter(known).collect()
    }

    #[test]
    fn legs_between_unrelated_clocks_have_no_delay() {
        use Leg::{EndToEnd, LinkDelay, LinkIn, LinkOut, ReceiverIn, SenderOut};
        let one = clocks(["a", "a", "a"]);
        assert_eq!((legs(&one), one.unrelated()), (Leg::ALL.to_vec(), vec!["n1"]));
        assert_eq!(one.offsets(), ClockOffsets::default());
        let receiver = clocks(["a", "a", "b"]);
        assert_eq!(legs(&receiver), [SenderOut, LinkIn, ReceiverIn]);
        assert_eq!(receiver.unrelated(), ["n1", "n3"]);
        let node = clocks(["a", "b", "a"]);
        assert_eq!(legs(&node), [EndToEnd, SenderOut, LinkDelay, ReceiverIn]);
        let all = clocks(["a", "b", "c"]);
        assert_eq!(
            (legs(&all), all.unrelated()),
            (vec![SenderOut, ReceiverIn], vec!["n1", "n2", "n3"])
        );
        assert!(!legs(&all).contains(&LinkOut));
    }

    #[test]
    fn two_unrelated_nodes_between_the_ends_have_no_node_delay() {
        let mut both = clocks(["a", "b", "a"]);
        both.path.push((Machine::Node, "n1".into()));
        assert!(!both.offsets().has_node_delays());
        assert!(!legs(&both).contains(&Leg::LinkDelay));
        assert!(legs(&both).contains(&Leg::EndToEnd));
    }

    #[test]
    fn clock_step_outside_the_path_is_irrelevant() {
        let clocks = clocks(["a", "b", "a"]);
        assert!(clocks.contains_clock_of("n3") && !clocks.contains_clock_of("n4"));
    }
}
