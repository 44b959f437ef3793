//! Addresses and clocks of the nodes of a fleet.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use dwell_units::Nanos;

/// Identity of a clock: the kernel that keeps CLOCK_REALTIME. Namespaces of one kernel share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockDomain(String);

impl ClockDomain {
    /// Name of the controller's own kernel.
    pub const CONTROLLER: &str = "controller";

    /// The controller's own kernel.
    pub fn controller() -> Self {
        Self(Self::CONTROLLER.to_owned())
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

/// Clock of one node relative to that of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockRelation {
    /// Lead of the clock, subtracted from one-way delays.
    pub offset: Nanos,
    /// Bound of the remaining difference.
    pub error: Nanos,
}

/// Addresses and clocks of nodes, by node name. Unless declared otherwise, each node has its own
/// clock, so that a transport without clock information loses one-way delays instead of inventing
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Clock of the nodes not in `clocks`; `None` if each has its own.
    common: Option<ClockDomain>,
    clocks: BTreeMap<String, ClockDomain>,
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

    /// Returns the clock of a node.
    pub fn clock_domain(&self, node: &str) -> ClockDomain {
        let declared = self.clocks.get(node).or(self.common.as_ref());
        declared.cloned().unwrap_or_else(|| ClockDomain::of_node(node))
    }

    /// Returns the clock of `b` relative to that of `a`: no difference in one domain, `None` if
    /// unknown.
    pub fn clock_relation(&self, a: &str, b: &str) -> Option<ClockRelation> {
        (self.clock_domain(a) == self.clock_domain(b)).then(ClockRelation::default)
    }

    /// Returns the first address of this family of a node, or `None` if it is unknown and the
    /// node's name must be used.
    pub fn address(&self, node: &str, ipv6: bool) -> Option<IpAddr> {
        self.addresses.get(node)?.iter().find(|address| address.is_ipv6() == ipv6).copied()
    }
}

#[cfg(test)]
mod tests {
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
}
