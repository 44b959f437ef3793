//! Addresses and clocks of the nodes of a fleet.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use dwell_units::Nanos;
use serde_json::Value;

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

    /// Reads the addresses from the output of `dwell lab up --json` (`dwell.lab/1`). Unreadable
    /// addresses are left out. All nodes, also those without addresses, have the controller's clock.
    pub fn of_lab(json: &[u8]) -> Self {
        let lab: Value = serde_json::from_slice(json).unwrap_or_default();
        let nodes = lab["nodes"].as_array().into_iter().flatten();
        let addresses = |node: &Value| {
            let of = |family: &str| node["addresses"][family].as_str()?.parse().ok();
            let all = ["v4", "v6"].into_iter().filter_map(of).collect::<Vec<IpAddr>>();
            Some((node["name"].as_str()?.to_owned(), all))
        };
        let addresses = nodes.filter_map(addresses).collect();
        Self::new(addresses).with_common_clock(ClockDomain::controller())
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
        let lab = br#"{"nodes": [
            {"name": "n1", "addresses": {"v4": "10.0.0.1", "v6": "fd00::1"}},
            {"name": "n2", "addresses": {"v4": "10.0.0.2", "v6": "fd00::2"}},
            {"name": "n3", "addresses": {"v4": "nowhere", "v6": "fd00::3"}}, 7]}"#;
        let nodes = Nodes::of_lab(lab);
        assert_eq!(nodes.address("n2", false).unwrap().to_string(), "10.0.0.2");
        assert_eq!(nodes.address("n1", true).unwrap().to_string(), "fd00::1");
        assert_eq!((nodes.address("n3", false), nodes.address("n4", true)), (None, None));
        assert_eq!(Nodes::of_lab(b"no lab").address("n1", false), None);
    }

    #[test]
    fn nodes_share_a_clock_only_if_declared() {
        let devices = Nodes::default();
        assert_eq!(devices.clock_relation("a", "b"), None);
        assert_eq!(devices.clock_relation("a", "a"), Some(ClockRelation::default()));
        assert_ne!(devices.clock_domain("controller"), ClockDomain::controller());
        let lab = Nodes::of_lab(b"{}");
        assert_eq!(lab.clock_relation("n1", "n2"), Some(ClockRelation::default()));
        assert_eq!(lab.clock_domain("n1").to_string(), ClockDomain::CONTROLLER);
        let guest = lab.with_clock("n2", ClockDomain::of_node("n2"));
        assert_eq!(guest.clock_relation("n1", "n2"), None);
        assert!(guest.clock_relation("n1", "n3").is_some());
    }
}
