//! Addresses of the nodes of a lab.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

/// Addresses of nodes, by node name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(BTreeMap<String, (Ipv4Addr, Ipv6Addr)>);

impl Hosts {
    /// Reads the addresses from the output of `dwell lab up --json` (`dwell.lab/1`). Nodes without
    /// readable addresses are left out.
    pub fn read(lab: &[u8]) -> Self {
        let lab: Value = serde_json::from_slice(lab).unwrap_or_default();
        let nodes = lab["nodes"].as_array().into_iter().flatten();
        let host = |node: &Value| {
            let address = |family: &str| node["addresses"][family].as_str();
            let (v4, v6) = (address("v4")?.parse().ok()?, address("v6")?.parse().ok()?);
            Some((node["name"].as_str()?.to_owned(), (v4, v6)))
        };
        Self(nodes.filter_map(host).collect())
    }

    /// Returns the address of a node, or `None` if it is unknown and its name must be used.
    pub fn address(&self, node: &str, ipv6: bool) -> Option<IpAddr> {
        let (v4, v6) = self.0.get(node)?;
        Some(if ipv6 { (*v6).into() } else { (*v4).into() })
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
        let hosts = Hosts::read(lab);
        assert_eq!(hosts.address("n2", false).unwrap().to_string(), "10.0.0.2");
        assert_eq!(hosts.address("n1", true).unwrap().to_string(), "fd00::1");
        assert_eq!((hosts.address("n3", false), hosts.address("n4", true)), (None, None));
        assert_eq!(Hosts::read(b"no lab"), Hosts::default());
    }
}
