//! Addresses and clocks of the nodes of a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use dwell_stats::ClockRelation;

/// Identity of a clock: the kernel that keeps CLOCK_REALTIME. Namespaces of one kernel share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockDomain(String);

impl ClockDomain {
    /// Name of the controller's own kernel.
    pub const CONTROLLER: &str = "controller";

    /// The controller's own kernel.
    pub fn controller() -> Self {
        Self(Self::CONTROLLER.to_owned())
    }

    /// The kernel with this boot id.
    pub fn of_kernel(boot_id: &str) -> Self {
        Self(format!("kernel {boot_id}"))
    }

    /// A clock that only this node has.
    pub fn of_node(node: &str) -> Self {
        Self(format!("node {node}"))
    }
}

impl fmt::Display for ClockDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Addresses and clocks of nodes, by node name. Unless declared otherwise, each node has its own
/// clock, so that a transport without clock information loses one-way delays instead of inventing
/// them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes {
    addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Clock of the nodes not in `clocks`; `None` if each has its own.
    common: Option<ClockDomain>,
    clocks: BTreeMap<String, ClockDomain>,
    /// Clocks relative to the controller's.
    relations: BTreeMap<ClockDomain, ClockRelation>,
    /// Nodes that answer probes without a program of dwell.
    microcontrollers: BTreeSet<String>,
}

impl Nodes {
    /// Returns nodes with these addresses.
    pub fn new(addresses: BTreeMap<String, Vec<IpAddr>>) -> Self {
        Self { addresses, ..Self::default() }
    }

    /// Declares the clock of all nodes.
    #[must_use]
    pub fn with_common_clock(self, clock: ClockDomain) -> Self {
        Self { common: Some(clock), ..self }
    }

    /// Declares the clock of one node.
    #[must_use]
    pub fn with_clock(mut self, node: &str, clock: ClockDomain) -> Self {
        self.clocks.insert(node.to_owned(), clock);
        self
    }

    /// Declares a microcontroller: it has a clock of its own and answers probes without a program of dwell.
    #[must_use]
    pub fn with_microcontroller(mut self, node: &str) -> Self {
        self.microcontrollers.insert(node.to_owned());
        self.with_clock(node, ClockDomain::of_node(node))
    }

    /// Whether a node is a microcontroller.
    pub fn is_microcontroller(&self, node: &str) -> bool {
        self.microcontrollers.contains(node)
    }

    /// Returns the clock of a node.
    pub fn clock_domain(&self, node: &str) -> ClockDomain {
        let declared = self.clocks.get(node).or(self.common.as_ref());
        declared.cloned().unwrap_or_else(|| ClockDomain::of_node(node))
    }

    /// Declares a clock relative to the controller's.
    #[must_use]
    pub fn with_relation(mut self, clock: ClockDomain, relation: ClockRelation) -> Self {
        self.relations.insert(clock, relation);
        self
    }

    /// Returns the clock of `b` relative to that of `a`: no difference in one domain, `None` if
    /// unknown. The errors of two clocks relative to the controller's add up.
    pub fn clock_relation(&self, a: &str, b: &str) -> Option<ClockRelation> {
        let (a, b) = (self.clock_domain(a), self.clock_domain(b));
        if a == b {
            return Some(ClockRelation::default());
        }
        let relation = |clock: &ClockDomain| match self.relations.get(clock) {
            None if *clock == ClockDomain::controller() => Some(ClockRelation::default()),
            relation => relation.copied(),
        };
        Some(ClockRelation::between(&relation(&a)?, &relation(&b)?))
    }

    /// Returns the first address of this family of a node, or `None` if it is unknown and the
    /// node's name must be used.
    pub fn address(&self, node: &str, ipv6: bool) -> Option<IpAddr> {
        self.addresses.get(node)?.iter().find(|address| address.is_ipv6() == ipv6).copied()
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::{Instant, Nanos};

    use super::*;

    #[test]
    fn address_matches_the_requested_node_and_family() {
        let both = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let only_v6 = vec!["fd00::3".parse().unwrap()];
        let nodes = Nodes::new([("n2".to_owned(), both), ("n3".to_owned(), only_v6)].into());
        assert_eq!(nodes.address("n2", false).unwrap().to_string(), "10.0.0.2");
        assert_eq!(nodes.address("n2", true).unwrap().to_string(), "fd00::2");
        assert_eq!((nodes.address("n3", false), nodes.address("n4", true)), (None, None));
    }

    #[test]
    fn nodes_share_a_clock_only_if_declared() {
        let devices = Nodes::default();
        assert_eq!(devices.clock_relation("a", "b"), None);
        assert_eq!(devices.clock_relation("a", "a"), Some(ClockRelation::default()));
        assert_ne!(devices.clock_domain("controller"), ClockDomain::controller());
        let lab = Nodes::default().with_common_clock(ClockDomain::controller());
        assert_eq!(lab.clock_relation("n1", "n2"), Some(ClockRelation::default()));
        assert_eq!(lab.clock_domain("n1").to_string(), ClockDomain::CONTROLLER);
        let guest = lab.with_clock("n2", ClockDomain::of_node("n2"));
        assert_eq!(guest.clock_relation("n1", "n2"), None);
        assert!(guest.clock_relation("n1", "n3").is_some());
    }

    #[test]
    fn clocks_relate_through_that_of_the_controller() {
        let relation = |offset, error| ClockRelation {
            at: Instant::from_nanos(5_000_000_000),
            offset: Nanos(offset),
            rate: 0.0,
            error: Nanos(error),
        };
        let nodes = Nodes::default()
            .with_clock("a", ClockDomain::of_kernel("a"))
            .with_clock("b", ClockDomain::of_kernel("b"))
            .with_clock("twin of b", ClockDomain::of_kernel("b"))
            .with_clock("c", ClockDomain::controller())
            .with_relation(ClockDomain::of_kernel("a"), relation(1_000, 30))
            .with_relation(ClockDomain::of_kernel("b"), relation(-500, 20));
        let between = |a, b| nodes.clock_relation(a, b).map(|it| (it.offset.0, it.error.0));
        assert_eq!(between("a", "b"), Some((-1_500, 50)));
        assert_eq!(between("b", "a"), Some((1_500, 50)));
        assert_eq!(between("c", "b"), Some((-500, 20)));
        assert_eq!(between("b", "c"), Some((500, 20)));
        assert_eq!(between("b", "twin of b"), Some((0, 0)));
        assert_eq!(between("a", "unknown"), None);
    }
}
