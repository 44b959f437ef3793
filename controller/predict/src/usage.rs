//! CPU and traffic of nodes and links by the flows that are placed.

use std::collections::HashMap;

use crate::network::{Flow, Hop, Network, Path};
use crate::node_model::HEADER_BYTES;

/// Packets that pass a node, or a link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    /// Number of flows.
    pub(crate) flows: usize,
    /// Packets per second.
    pub(crate) rate_pps: f64,
    /// Bits per second, headers included.
    pub(crate) rate_bps: f64,
    /// Nanoseconds per second for which the packets occupy the node or link.
    pub(crate) busy_ns: f64,
}

impl Traffic {
    fn add(&mut self, flow: &Flow, busy_ns: f64, sign: f64) {
        let flows = self.flows as f64 + sign;
        self.flows = flows.max(0.0) as usize;
        self.rate_pps = (self.rate_pps + sign * flow.rate_pps).max(0.0);
        self.rate_bps = (self.rate_bps + sign * bits_per_second(flow)).max(0.0);
        self.busy_ns = (self.busy_ns + sign * busy_ns).max(0.0);
    }

    /// Mean time in nanoseconds for which a packet occupies the node or link.
    pub(crate) fn service_ns(&self) -> f64 {
        if self.rate_pps > 0.0 { self.busy_ns / self.rate_pps } else { 0.0 }
    }
}

/// Bits per second of a flow on a link, headers included.
pub(crate) fn bits_per_second(flow: &Flow) -> f64 {
    flow.rate_pps * (flow.size_bytes + HEADER_BYTES) * 8.0
}

/// Nanoseconds per second for which a flow occupies a node; 0 if its cost is unknown.
fn node_busy_ns(network: &Network, node: u32, flow: &Flow) -> f64 {
    let cost = network.relay(node).and_then(|relay| relay.delay.cost);
    cost.map_or(0.0, |cost| cost.of(flow.size_bytes) * flow.rate_pps)
}

/// Nanoseconds per second for which a flow occupies a link; 0 without a rate.
fn link_busy_ns(network: &Network, hop: Hop, flow: &Flow) -> f64 {
    network.link(hop.link).rate_bps.map_or(0.0, |rate| 1e9 * bits_per_second(flow) / rate)
}

/// Use of all nodes and links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    nodes: HashMap<u32, Traffic>,
    hops: HashMap<Hop, Traffic>,
}

impl Usage {
    /// Adds a flow on a path.
    pub(crate) fn add(&mut self, network: &Network, flow: &Flow, path: &Path) {
        self.change(network, flow, path, 1.0);
    }

    /// Removes a flow that was added.
    pub(crate) fn remove(&mut self, network: &Network, flow: &Flow, path: &Path) {
        self.change(network, flow, path, -1.0);
    }

    fn change(&mut self, network: &Network, flow: &Flow, path: &Path, sign: f64) {
        for node in path.relays() {
            let traffic = self.nodes.entry(*node).or_default();
            traffic.add(flow, node_busy_ns(network, *node, flow), sign);
            if traffic.flows == 0 {
                self.nodes.remove(node);
            }
        }
        for hop in &path.hops {
            let traffic = self.hops.entry(*hop).or_default();
            traffic.add(flow, link_busy_ns(network, *hop, flow), sign);
            if traffic.flows == 0 {
                self.hops.remove(hop);
            }
        }
    }

    /// Traffic through a node.
    pub(crate) fn node(&self, node: u32) -> Traffic {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    /// Traffic over a link in one direction.
    pub(crate) fn hop(&self, hop: Hop) -> Traffic {
        self.hops.get(&hop).copied().unwrap_or_default()
    }

    /// Nodes with traffic, in order.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.nodes.keys().copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Links with traffic, in order.
    pub(crate) fn hops(&self) -> Vec<Hop> {
        let mut hops: Vec<Hop> = self.hops.keys().copied().collect();
        hops.sort_unstable_by_key(|hop| (hop.link, !hop.forward));
        hops
    }

    /// Share of a node's capacity that is used, with one more flow if given; `None` if the cost of
    /// its packets is unknown.
    pub(crate) fn node_share(
        &self,
        network: &Network,
        node: u32,
        more: Option<&Flow>,
    ) -> Option<f64> {
        let relay = network.relay(node)?;
        relay.delay.cost?;
        let busy = more.map_or(0.0, |flow| node_busy_ns(network, node, flow));
        Some((self.node(node).busy_ns + busy) / 1e9 / relay.capacity_ratio)
    }

    /// Share of a link's rate that is used, with one more flow if given; `None` without a rate.
    pub(crate) fn hop_share(
        &self,
        network: &Network,
        hop: Hop,
        more: Option<&Flow>,
    ) -> Option<f64> {
        network.link(hop.link).rate_bps?;
        let busy = more.map_or(0.0, |flow| link_busy_ns(network, hop, flow));
        Some((self.hop(hop).busy_ns + busy) / 1e9)
    }

    /// Whether a node can relay one more flow.
    pub(crate) fn node_has_room(&self, network: &Network, node: u32, flow: &Flow) -> bool {
        self.node_share(network, node, Some(flow)).is_none_or(|share| share <= 1.0)
    }

    /// Whether a link can carry one more flow.
    pub(crate) fn hop_has_room(&self, network: &Network, hop: Hop, flow: &Flow) -> bool {
        self.hop_share(network, hop, Some(flow)).is_none_or(|share| share <= 1.0)
    }

    /// Largest share of any relay or link of the path, with one more flow.
    pub(crate) fn bottleneck(&self, network: &Network, path: &Path, flow: &Flow) -> f64 {
        let nodes = path.relays().iter().map(|node| self.node_share(network, *node, Some(flow)));
        let hops = path.hops.iter().map(|hop| self.hop_share(network, *hop, Some(flow)));
        nodes.chain(hops).flatten().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NetworkBuilder;
    use crate::network::tests::{constant, plain_link};

    #[test]
    fn shares_count_cpu_time_and_bits_with_headers() {
        let mut builder = NetworkBuilder::default();
        let relay = builder.relay(constant(1.0).relay("m", "route"));
        for name in ["a", "b", "c"] {
            builder.node(name, Some(relay)).unwrap();
        }
        let kind = builder.link_kind(plain_link(10e6));
        builder.link(0, 1, kind).unwrap();
        builder.link(1, 2, kind).unwrap();
        let network = builder.build().unwrap();
        let path = network.path(&[0, 1, 2]).unwrap();
        let flow = Flow {
            name: "f".into(),
            from: 0,
            to: 2,
            size_bytes: 958.0,
            rate_pps: 500.0,
            path: Vec::new(),
        };
        let mut usage = Usage::default();
        usage.add(&network, &flow, &path);
        // 500 packets of 10 us, and of 1,000 bytes on 10 Mbit/s.
        assert!((usage.node_share(&network, 1, None).unwrap() - 0.005).abs() < 1e-12);
        assert!((usage.hop_share(&network, path.hops[0], None).unwrap() - 0.4).abs() < 1e-12);
        assert!((usage.hop(path.hops[0]).service_ns() - 800_000.0).abs() < 1e-6);
        assert!(usage.hop_has_room(&network, path.hops[0], &flow));
        assert!((usage.bottleneck(&network, &path, &flow) - 0.8).abs() < 1e-12);
        usage.add(&network, &flow, &path);
        assert!(!usage.hop_has_room(&network, path.hops[0], &flow));
        let back = network.path(&[1, 0]).unwrap().hops[0];
        assert!(usage.hop_has_room(&network, back, &flow), "the other direction is free");
        usage.remove(&network, &flow, &path);
        usage.remove(&network, &flow, &path);
        assert!(usage.hops().is_empty() && usage.nodes().is_empty());
    }
}
