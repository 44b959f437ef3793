//! Addresses of the nodes of a fleet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

/// Addresses of nodes, by node name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    addresses: BTreeMap<String, Vec<IpAddr>>,
}

impl Nodes {
    /// Reads the addresses from the output of `dwell lab up --json` (`dwell.lab/1`). Unreadable
    /// addresses are left out.
    pub fn of_lab(json: &[u8]) -> Self {
        let lab: Value = serde_json::from_slice(json).unwrap_or_default();
        let nodes = lab["nodes"].as_array().into_iter().flatten();
        let addresses = |node: &Value| {
            let of = |family: &str| node["addresses"][family].as_str()?.parse().ok();
            Some((
                node["name"].as_str()?.to_owned(),
                ["v4", "v6"].into_iter().filter_map(of).collect::<Vec<IpAddr>>(),
            ))
        };
        Self { addresses: nodes.filter_map(addresses).collect() }
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
        assert_eq!(Nodes::of_lab(b"no lab"), Nodes::default());
    }
}
