//! Clocks of the machines on the path of a flow. Timestamps of two machines are subtracted only if the
//! relation of their clocks is known.

use dwell_fleet::Nodes;
use dwell_stats::{ClockRelation, Leg, LinkEndpoints, Machine, OneWayPath};
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

    /// Returns the first node of each group with one clock.
    pub(crate) fn distinct(&self) -> Vec<&str> {
        let mut first: Vec<&str> = Vec::new();
        for (_, node) in &self.path {
            let clock = self.nodes.clock_domain(node);
            if first.iter().all(|other| self.nodes.clock_domain(other) != clock) {
                first.push(node);
            }
        }
        first
    }

    /// Returns the relations by which delays are corrected.
    pub(crate) fn relations(&self) -> LegClocks {
        let node = self.is_one_clock(Machine::Node);
        let legs = Leg::ALL.map(|leg| {
            let (first, last) = leg.machines();
            // The delay of all links is that of the path without the node.
            self.relation(first, last).filter(|_| node || leg != Leg::LinkDelay)
        });
        LegClocks { legs, node }
    }

    /// Whether all nodes of a machine have one clock.
    fn is_one_clock(&self, machine: Machine) -> bool {
        self.relation(machine, machine).is_some_and(|it| it == ClockRelation::default())
    }

    /// Returns the clock of `b` relative to that of `a`; `None` if it is unknown or differs among the
    /// nodes of one machine.
    fn relation(&self, a: Machine, b: Machine) -> Option<ClockRelation> {
        let of = |machine| self.path.iter().filter(move |(other, _)| *other == machine);
        let mut common = None;
        for ((_, first), (_, last)) in of(a).flat_map(|a| of(b).map(move |b| (a, b))) {
            let relation = self.nodes.clock_relation(first, last)?;
            if *common.get_or_insert(relation) != relation {
                return None;
            }
        }
        // Without a node there are no timestamps to correct.
        Some(common.unwrap_or_default())
    }
}

/// Corrections of delays for the clocks of the machines. The default is one clock for all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LegClocks {
    /// Clock at the end relative to that at the start, in the order of [`Leg::ALL`]; `None` if the
    /// clocks are unrelated.
    legs: [Option<ClockRelation>; Leg::ALL.len()],
    /// Whether all timestamps of the node are of one clock.
    node: bool,
}

impl Default for LegClocks {
    fn default() -> Self {
        Self { legs: [Some(ClockRelation::default()); Leg::ALL.len()], node: true }
    }
}

impl LegClocks {
    fn of(&self, leg: Leg) -> Option<&ClockRelation> {
        let mut relations = Leg::ALL.into_iter().zip(&self.legs);
        relations.find(|(other, _)| *other == leg)?.1.as_ref()
    }

    /// Returns the delay of a packet in a leg; `None` if the relation of its clocks is unknown.
    pub(crate) fn delay(
        &self,
        leg: Leg,
        path: &OneWayPath,
        endpoints: &LinkEndpoints,
    ) -> Option<Nanos> {
        let relation = self.of(leg)?;
        let difference = leg.of(path, endpoints)?;
        if *relation == ClockRelation::default() {
            return Some(difference);
        }
        Some(relation.delay(difference, leg.start(path, endpoints)?))
    }

    /// Returns the bounds of the delays between machines with different clocks.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (Leg, Nanos)> + '_ {
        let legs = Leg::ALL.into_iter().zip(&self.legs);
        legs.filter_map(|(leg, relation)| Some((leg, relation.as_ref()?.error)))
            .filter(|(_, error)| error.is_positive())
    }

    /// Whether the clocks permit this delay: no packet arrives before it was sent.
    pub(crate) fn permits(&self, leg: Leg, delay: Nanos) -> bool {
        let error = self.of(leg).map_or(Nanos::ZERO, |relation| relation.error);
        error == Nanos::ZERO || delay.saturating_add(error) >= Nanos::ZERO
    }

    /// Forgets the relations of different clocks.
    pub(crate) fn forget_bounded(&mut self) {
        for relation in &mut self.legs {
            *relation = relation.filter(|relation| !relation.error.is_positive());
        }
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
        let relations = clocks.relations();
        Leg::ALL.into_iter().filter(|leg| relations.of(*leg).is_some()).collect()
    }

    #[test]
    fn legs_between_unrelated_clocks_have_no_delay() {
        use Leg::{EndToEnd, LinkDelay, LinkIn, LinkOut, ReceiverIn, SenderOut};
        let one = clocks(["a", "a", "a"]);
        assert_eq!((legs(&one), one.unrelated()), (Leg::ALL.to_vec(), vec!["n1"]));
        assert_eq!(one.relations(), LegClocks::default());
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
        assert!(!both.relations().has_node_delays());
        assert!(!legs(&both).contains(&Leg::LinkDelay));
        assert!(legs(&both).contains(&Leg::EndToEnd));
    }

    #[test]
    fn related_clocks_bound_the_legs_between_them() {
        let mut related = clocks(["a", "b", "a"]);
        let relation = |offset, error| ClockRelation {
            offset: Nanos(offset),
            error: Nanos(error),
            ..ClockRelation::default()
        };
        for (domain, relation) in [("a", relation(1_000, 30)), ("b", relation(3_000, 10))] {
            related.nodes = related.nodes.with_relation(ClockDomain::of_node(domain), relation);
        }
        assert_eq!((related.unrelated(), related.distinct()), (vec!["n1"], vec!["n1", "n2"]));
        let mut legs = related.relations();
        assert!(legs.has_node_delays());
        let errors: Vec<_> = legs.errors().collect();
        assert_eq!(errors, [(Leg::LinkIn, Nanos(40)), (Leg::LinkOut, Nanos(40))]);
        assert!(legs.permits(Leg::LinkIn, Nanos(-40)) && !legs.permits(Leg::LinkIn, Nanos(-41)));
        assert!(legs.permits(Leg::EndToEnd, Nanos(-41)), "on one clock, timestamps decide");
        legs.forget_bounded();
        assert_eq!(legs.errors().count(), 0);
        assert!(legs.of(Leg::EndToEnd).is_some() && legs.of(Leg::LinkOut).is_none());
        assert!(legs.permits(Leg::LinkIn, Nanos(-41)), "there is no delay to judge");
    }

    #[test]
    fn clock_step_outside_the_path_is_irrelevant() {
        let clocks = clocks(["a", "b", "a"]);
        assert!(clocks.contains_clock_of("n3") && !clocks.contains_clock_of("n4"));
    }
}
