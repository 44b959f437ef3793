//! CPU and traffic of nodes and links by the flows that are placed.

use std::collections::HashMap;

use crate::network::{Flow, Hop, Link, Network, Path, Relay};
use crate::node_model::HEADER_BYTES;

/// Largest share of a node or link that is given to flows. Close to the whole, waiting times grow
/// without end.
pub(crate) const MAX_SHARE: f64 = 0.95;

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
    /// Sum over packets of the squares of these times, per second.
    pub(crate) busy_square: f64,
}

impl Traffic {
    fn add(&mut self, flow: &Flow, busy_ns: f64, sign: f64) {
        let flows = self.flows as f64 + sign;
        self.flows = flows.max(0.0) as usize;
        self.rate_pps = (self.rate_pps + sign * flow.rate_pps).max(0.0);
        self.rate_bps = (self.rate_bps + sign * bits_per_second(flow)).max(0.0);
        self.busy_ns = (self.busy_ns + sign * busy_ns).max(0.0);
        let square = if flow.rate_pps > 0.0 { busy_ns * busy_ns / flow.rate_pps } else { 0.0 };
        self.busy_square = (self.busy_square + sign * square).max(0.0);
    }

    /// Mean of the squares of the times in nanoseconds for which packets occupy the node or link, by
    /// the mean of these times. Equals the time if all packets need the same.
    pub(crate) fn service_ns(&self) -> f64 {
        if self.busy_ns > 0.0 { self.busy_square / self.busy_ns } else { 0.0 }
    }
}

/// Bits per second of a flow on a link, headers included.
pub(crate) fn bits_per_second(flow: &Flow) -> f64 {
    flow.rate_pps * (flow.size_bytes + HEADER_BYTES) * 8.0
}

/// Nanoseconds per second for which a flow occupies a relay; `None` if its cost is unknown.
fn relay_busy_ns(relay: &Relay, flow: &Flow) -> Option<f64> {
    relay.delay.cost.map(|cost| cost.of(flow.size_bytes) * flow.rate_pps)
}

/// Nanoseconds per second for which a flow occupies a link; `None` without a rate.
fn link_busy_ns(link: &Link, flow: &Flow) -> Option<f64> {
    link.rate_bps.map(|rate| 1e9 * bits_per_second(flow) / rate)
}

/// Share of a relay's capacity that is used by other flows and this one; `None` if the cost of its
/// packets is unknown.
pub(crate) fn relay_share(relay: &Relay, others: Traffic, flow: &Flow) -> Option<f64> {
    let busy = others.busy_ns + relay_busy_ns(relay, flow)?;
    Some(busy / 1e9 / relay.capacity_ratio)
}

/// Share of a link's rate that is used by other flows and this one; `None` without a rate.
pub(crate) fn link_share(link: &Link, others: Traffic, flow: &Flow) -> Option<f64> {
    Some((others.busy_ns + link_busy_ns(link, flow)?) / 1e9)
}

/// Whether a node or link has room, by the share of its capacity that would be used.
pub(crate) fn has_room(share: Option<f64>) -> bool {
    share.is_none_or(|share| share <= MAX_SHARE)
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
            let busy = network.relay(*node).and_then(|relay| relay_busy_ns(relay, flow));
            traffic.add(flow, busy.unwrap_or_default(), sign);
            if traffic.flows == 0 {
                self.nodes.remove(node);
            }
        }
        for hop in &path.hops {
            let traffic = self.hops.entry(*hop).or_default();
            let busy = link_busy_ns(network.link(hop.link), flow);
            traffic.add(flow, busy.unwrap_or_default(), sign);
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

    /// Nodes with traffic, and that traffic.
    pub(crate) fn busy_nodes(&self) -> impl Iterator<Item = (u32, Traffic)> + '_ {
        self.nodes.iter().map(|(node, traffic)| (*node, *traffic))
    }

    /// Links with traffic, and that traffic.
    pub(crate) fn busy_hops(&self) -> impl Iterator<Item = (Hop, Traffic)> + '_ {
        self.hops.iter().map(|(hop, traffic)| (*hop, *traffic))
    }

    /// Share of a node's capacity that is used; `None` if the cost of its packets is unknown.
    pub(crate) fn node_use(&self, network: &Network, node: u32) -> Option<f64> {
        let relay = network.relay(node)?;
        relay.delay.cost?;
        Some(self.node(node).busy_ns / 1e9 / relay.capacity_ratio)
    }

    /// Share of a link's rate that is used; `None` without a rate.
    pub(crate) fn hop_use(&self, network: &Network, hop: Hop) -> Option<f64> {
        network.link(hop.link).rate_bps?;
        Some(self.hop(hop).busy_ns / 1e9)
    }

    /// Share of a node's capacity that is used, with one more flow; `None` if the cost of its packets
    /// is unknown.
    pub(crate) fn node_share(&self, network: &Network, node: u32, flow: &Flow) -> Option<f64> {
        relay_share(network.relay(node)?, self.node(node), flow)
    }

    /// Share of a link's rate that is used, with one more flow; `None` without a rate.
    pub(crate) fn hop_share(&self, network: &Network, hop: Hop, flow: &Flow) -> Option<f64> {
        link_share(network.link(hop.link), self.hop(hop), flow)
    }

    /// Whether a node can relay one more flow.
    pub(crate) fn node_has_room(&self, network: &Network, node: u32, flow: &Flow) -> bool {
        has_room(self.node_share(network, node, flow))
    }

    /// Whether a link can carry one more flow.
    pub(crate) fn hop_has_room(&self, network: &Network, hop: Hop, flow: &Flow) -> bool {
        has_room(self.hop_share(network, hop, flow))
    }

    /// Whether all relays and links of a path have room for one more flow.
    pub(crate) fn path_has_room(&self, network: &Network, path: &Path, flow: &Flow) -> bool {
        path.relays().iter().all(|node| self.node_has_room(network, *node, flow))
            && path.hops.iter().all(|hop| self.hop_has_room(network, *hop, flow))
    }

    /// Shares of all relays and links of a path with one more flow, the largest first.
    pub(crate) fn shares(&self, network: &Network, path: &Path, flow: &Flow) -> Vec<f64> {
        let nodes = path.relays().iter().map(|node| self.node_share(network, *node, flow));
        let hops = path.hops.iter().map(|hop| self.hop_share(network, *hop, flow));
        let mut shares: Vec<f64> = nodes.chain(hops).flatten().collect();
        shares.sort_unstable_by(|a, b| b.total_cmp(a));
        shares
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
        assert!((usage.node_use(&network, 1).unwrap() - 0.005).abs() < 1e-12);
        assert!((usage.hop_use(&network, path.hops[0]).unwrap() - 0.4).abs() < 1e-12);
        assert!((usage.hop(path.hops[0]).service_ns() - 800_000.0).abs() < 1e-6);
        assert!(usage.hop_has_room(&network, path.hops[0], &flow));
        let shares = usage.shares(&network, &path, &flow);
        assert_eq!(shares.len(), 3);
        assert!((shares[0] - 0.8).abs() < 1e-12 && (shares[2] - 0.01).abs() < 1e-12, "{shares:?}");
        usage.add(&network, &flow, &path);
        assert!(!usage.hop_has_room(&network, path.hops[0], &flow));
        let back = network.path(&[1, 0]).unwrap().hops[0];
        assert!(usage.hop_has_room(&network, back, &flow), "the other direction is free");
        usage.remove(&network, &flow, &path);
        usage.remove(&network, &flow, &path);
        assert!(usage.hops().is_empty() && usage.nodes().is_empty());
    }

    #[test]
    fn long_packets_among_short_ones_make_longer_waits() {
        let flow = |size_bytes, rate_pps| Flow {
            name: "f".into(),
            from: 0,
            to: 2,
            size_bytes,
            rate_pps,
            path: Vec::new(),
        };
        // Both occupy a link of 1 Mbit/s for 10 %: 125 packets of 0.8 ms, or 10 of 10 ms.
        let mut traffic = Traffic::default();
        traffic.add(&flow(58.0, 125.0), 1e8, 1.0);
        assert!((traffic.service_ns() - 0.8e6).abs() < 1.0, "{traffic:?}");
        traffic.add(&flow(1_208.0, 10.0), 1e8, 1.0);
        // (125 x 0.8^2 + 10 x 10^2) / (125 x 0.8 + 10 x 10) = 5.4; the mean time is 1.5 ms.
        assert!((traffic.service_ns() - 5.4e6).abs() < 1.0, "{traffic:?}");
    }
}
