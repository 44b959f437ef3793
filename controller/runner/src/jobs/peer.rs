//! The node that a job sends to: by name in plans and results, by address in jobs. Nodes resolve no
//! names, so jobs also work where the lab cannot mount its own /etc/hosts.

use std::net::IpAddr;

use dwell_fleet::Nodes;
use dwell_record::Summary;

/// The node that a job sends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name in the plan.
    name: String,
    /// Address; `None` if the fleet knows none and the name must be resolved.
    address: Option<IpAddr>,
}

impl Peer {
    pub(super) fn of(node: &str, nodes: &Nodes, ipv6: bool) -> Self {
        Self { name: node.to_owned(), address: nodes.address(node, ipv6) }
    }

    /// Returns the address, or the name if the address is unknown.
    pub(super) fn host(&self) -> String {
        self.address.map_or_else(|| self.name.clone(), |address| address.to_string())
    }

    /// Returns the host part of a URL.
    pub(super) fn url_host(&self) -> String {
        match self.address {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host(),
        }
    }

    /// Replaces the address in the summary's target with the name.
    pub(crate) fn name_target(&self, summary: &mut Summary) {
        let target = &mut summary.target;
        for host in [self.url_host(), self.host()] {
            *target = target.replace(&format!("://{host}"), &format!("://{}", self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_record::{Environment, Kind, Stamps, Trust};

    use super::*;

    fn named(target: &str, address: Option<&str>) -> String {
        let address = address.map(|address| address.parse().unwrap());
        let mut summary = Summary {
            kind: Kind::Ping,
            target: target.to_owned(),
            parameters: Default::default(),
            packets: None,
            metrics: Default::default(),
            values: Default::default(),
            stamps: Stamps::default(),
            engine: String::new(),
            trains: Vec::new(),
            spikes: None,
            driver: None,
            trust: Trust::default(),
            environment: Environment::default(),
        };
        Peer { name: "n2".to_owned(), address }.name_target(&mut summary);
        summary.target
    }

    #[test]
    fn target_of_a_summary_names_the_node() {
        let v4 = Some("10.0.0.2");
        assert_eq!(named("stamp://10.0.0.2:862", v4), "stamp://n2:862");
        assert_eq!(named("icmp://10.0.0.2", v4), "icmp://n2");
        assert_eq!(
            named("udp://0.0.0.0:5001 udp://10.0.0.2:5001", v4),
            "udp://0.0.0.0:5001 udp://n2:5001"
        );
        assert_eq!(named("udp://[fd00::2]:5001", Some("fd00::2")), "udp://n2:5001");
        assert_eq!(named("udp://fd00::2:8999", Some("fd00::2")), "udp://n2:8999");
        assert_eq!(named("stamp://n2:862", None), "stamp://n2:862");
    }
}
