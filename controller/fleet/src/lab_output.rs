//! JSON of `dwell lab`, as far as fleets need it: `dwell.lab/1`, `dwell.labs/1` and
//! `dwell.lab-routes/1`. The program is the same build, so an unreadable output is an error.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use crate::{ClockDomain, CreatedLink, Nodes, QuotaUse, Routes};

/// Output of `lab up`.
#[derive(Debug, Deserialize)]
pub(crate) struct Lab {
    name: String,
    nodes: Vec<Node>,
    links: Vec<Link>,
    medium: Option<SharedBridge>,
}

/// Output of `lab list`.
#[derive(Debug, Deserialize)]
pub(crate) struct Labs {
    labs: Vec<Lab>,
}

/// Output of `lab routes`.
#[derive(Debug, Deserialize)]
pub(crate) struct RouteTable {
    /// The first missing item; `None` if the routes are complete.
    pub(crate) reason: Option<String>,
    #[serde(flatten)]
    pub(crate) routes: Routes,
}

#[derive(Debug, Deserialize)]
struct Node {
    name: String,
    /// By family: `v4`, `v6`.
    addresses: BTreeMap<String, IpAddr>,
    quota: Option<QuotaUse>,
    /// Emulated device that has the node's IPv4 address.
    device: Option<Device>,
}

/// A device, of which only its existence matters here.
#[derive(Debug, Deserialize)]
struct Device {}

#[derive(Debug, Deserialize)]
struct Link {
    a: String,
    b: String,
    mechanism: String,
    parameters: Parameters,
}

#[derive(Debug, Deserialize)]
struct SharedBridge {
    mechanism: String,
    parameters: Parameters,
    ports: Vec<Port>,
}

#[derive(Debug, Deserialize)]
struct Parameters {
    rate_bps: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Port {
    node: String,
}

impl Lab {
    /// The nodes, all on the controller's clock but for devices.
    pub(crate) fn nodes(&self) -> Nodes {
        let addresses = |node: &Node| {
            let known = node.addresses.values().copied();
            // A device has no IPv6.
            let usable = known.filter(|address| node.device.is_none() || address.is_ipv4());
            (node.name.clone(), usable.collect())
        };
        let addresses = self.nodes.iter().map(addresses);
        let nodes = Nodes::new(addresses.collect()).with_common_clock(ClockDomain::controller());
        let devices = self.nodes.iter().filter(|node| node.device.is_some());
        devices.fold(nodes, |nodes, device| nodes.with_microcontroller(&device.name))
    }

    /// The links, or the medium of a forced line.
    pub(crate) fn links(self) -> Vec<CreatedLink> {
        let created = |nodes, mechanism, parameters: Parameters| CreatedLink {
            nodes,
            rate_bps: parameters.rate_bps,
            mechanism,
        };
        let links =
            self.links.into_iter().map(|it| created(vec![it.a, it.b], it.mechanism, it.parameters));
        let medium = self.medium.into_iter().map(|it| {
            let nodes = it.ports.into_iter().map(|port| port.node).collect();
            created(nodes, it.mechanism, it.parameters)
        });
        links.chain(medium).collect()
    }
}

impl Labs {
    /// The quotas of the nodes of a lab, by node.
    pub(crate) fn quotas(self, lab: &str) -> BTreeMap<String, QuotaUse> {
        let nodes = self.labs.into_iter().filter(|it| it.name == lab).flat_map(|it| it.nodes);
        nodes.filter_map(|node| Some((node.name, node.quota?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn device_has_ipv4_and_a_clock_of_its_own() {
        let mut mcu = node("mcu", Value::Null);
        mcu["device"] = json!({ "kind": "cortex-m3", "image": "/x.elf" });
        let nodes = [node("host", Value::Null), mcu];
        let lab: Lab = from_value(json!({ "name": "x", "nodes": nodes, "links": [] })).unwrap();
        let nodes = lab.nodes();
        assert_eq!(
            (nodes.is_microcontroller("host"), nodes.is_microcontroller("mcu")),
            (false, true)
        );
        assert_eq!((nodes.address("mcu", true), nodes.clock_relation("host", "mcu")), (None, None));
        assert!(nodes.address("mcu", false).is_some() && nodes.address("host", true).is_some());
    }

    fn node(name: &str, quota: Value) -> Value {
        json!({ "name": name, "addresses": { "v4": "10.0.0.1", "v6": "fd00::1" }, "quota": quota })
    }

    #[test]
    fn lab_has_nodes_and_links_or_a_medium() {
        let line: Lab = from_value(json!({
            "schema": "dwell.lab/1", "name": "x", "medium": null,
            "nodes": [node("n1", Value::Null)],
            "links": [
                {"a": "n1", "b": "n2", "mechanism": "tbf", "parameters": {"rate_bps": 5_000_000}},
                {"a": "n2", "b": "n3", "mechanism": "veth", "parameters": {"rate_bps": null}},
            ],
        }))
        .unwrap();
        let nodes = line.nodes();
        assert_eq!(nodes.address("n1", false).unwrap().to_string(), "10.0.0.1");
        assert_eq!(nodes.clock_domain("n1"), ClockDomain::controller());
        let links = line.links();
        assert_eq!((links[0].rate_bps, links[0].mechanism.as_str()), (Some(5_000_000), "tbf"));
        assert_eq!((links[1].rate_bps, links[1].nodes.join(" ").as_str()), (None, "n2 n3"));
        let forced: Lab = from_value(json!({
            "name": "x", "nodes": [], "links": [],
            "medium": {"mechanism": "netem", "parameters": {"rate_bps": 65},
                "ports": [{"node": "n1"}, {"node": "n2"}]},
        }))
        .unwrap();
        assert_eq!(forced.links()[0].nodes, ["n1", "n2"]);
    }

    #[test]
    fn quotas_are_those_of_limited_nodes_of_the_lab() {
        let quota = json!({ "share_ratio": 0.2, "usage_ns": 7, "throttled_ns": null });
        let lab =
            |name: &str, nodes: [Value; 2]| json!({ "name": name, "nodes": nodes, "links": [] });
        let labs: Labs = from_value(json!({ "labs": [
            lab("other", [node("n1", quota.clone()), node("n2", Value::Null)]),
            lab("ours", [node("n1", Value::Null), node("n2", quota)]),
        ] }))
        .unwrap();
        let used = QuotaUse { share_ratio: 0.2, used_ns: Some(7), throttled_ns: None };
        assert_eq!(labs.quotas("ours"), BTreeMap::from([("n2".to_owned(), used)]));
    }
}
