//! Network: nodes, links and flows, with the models of their delays.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::delay_fit::{DelayFit, Estimate, Range};
use crate::error::PredictError;
use crate::node_model::{
    Cost, CostSource, HEADER_BYTES, LinkModel, ModeModel, NodeModel, relay_share,
};
use crate::quantile_function::QuantileFunction;

/// Maximum number of nodes, and of links.
pub(crate) const MAX_ELEMENTS: usize = 10_000_000;

/// Kind of relay: nodes of one kind share a model, a mode and a load.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Name of its model.
    pub model: String,
    /// Mode.
    pub mode: String,
    /// Delay in this mode.
    pub delay: Arc<ModeModel>,
    /// CPU load by other programs, 0 to 1.
    pub load_ratio: f64,
    /// Share of a processor that is left for relaying.
    pub capacity_ratio: f64,
}

/// Kind of link: links of one kind have the same delays.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Bits per second in each direction; `None` without a limit.
    pub rate_bps: Option<f64>,
    /// Propagation delay in nanoseconds beyond that in the model.
    pub delay_ns: f64,
    /// Share of packets that are lost.
    pub loss_ratio: f64,
    /// Name of its model; `None` for a link without delays beyond these.
    pub model: Option<String>,
    /// Delay beyond the transmission time.
    pub excess: Option<Arc<LinkModel>>,
}

/// Packets from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name.
    pub name: String,
    /// Sending node.
    pub from: u32,
    /// Receiving node.
    pub to: u32,
    /// UDP payload in bytes.
    pub size_bytes: f64,
    /// Packets per second.
    pub rate_pps: f64,
    /// Nodes of a path that must be used; empty for a free choice.
    pub path: Vec<u32>,
}

/// A model that is given in numbers instead of measured.
#[derive(Clone, Debug, PartialEq)]
pub struct InlineModel {
    /// Delay of an empty packet in nanoseconds.
    pub delay_ns: f64,
    /// Nanoseconds per byte.
    pub ns_per_byte: f64,
    /// Variation around the delay; `None` if it is constant.
    pub residual_ns: Option<QuantileFunction>,
    /// CPU time per packet in nanoseconds; `None` if unknown.
    pub cost_ns: Option<f64>,
    /// Share of a processor that the node has.
    pub capacity_ratio: f64,
}

impl InlineModel {
    /// The delay, at any size, rate and load.
    fn fit(&self) -> DelayFit {
        let all = Range { min: 0.0, max: f64::MAX };
        DelayFit {
            load_ratio: 0.0,
            trials: 0,
            packets: usize::MAX,
            size_bytes: all,
            rate_pps: all,
            intercept_ns: Estimate::exact(self.delay_ns),
            ns_per_byte: Some(Estimate::exact(self.ns_per_byte)),
            ns_per_pps: None,
            r_squared: None,
            loss_ratio: 0.0,
            trial_sd_ns: Some(0.0),
            residual_ns: self.residual_ns.clone().unwrap_or(QuantileFunction::constant(0.0)),
        }
    }

    /// The model of a relay in this mode.
    pub fn relay(&self, name: &str, mode: &str) -> Relay {
        let cost = |base_ns| Cost { base_ns, ns_per_byte: 0.0, source: CostSource::Given };
        let delay = ModeModel {
            engine: String::new(),
            delay_from: String::new(),
            delay_to: String::new(),
            cost: self.cost_ns.map(cost),
            levels: vec![self.fit()],
        };
        Relay {
            model: name.to_owned(),
            mode: mode.to_owned(),
            delay: Arc::new(delay),
            load_ratio: 0.0,
            capacity_ratio: self.capacity_ratio,
        }
    }

    /// The model of a link.
    pub fn link(&self) -> LinkModel {
        LinkModel { header_bytes: HEADER_BYTES, excess: self.fit() }
    }
}

impl Relay {
    /// A relay of a fitted model, without load.
    ///
    /// # Errors
    /// The model was not fitted in this mode.
    pub fn of(name: &str, model: &NodeModel, mode: &str) -> Result<Self, PredictError> {
        let Some(delay) = model.modes.get(mode) else {
            let known: Vec<&str> = model.modes.keys().map(String::as_str).collect();
            let message = format!("it has no mode '{mode}', but {}", known.join(", "));
            return Err(PredictError::Model { name: name.to_owned(), message });
        };
        Ok(Self {
            model: name.to_owned(),
            mode: mode.to_owned(),
            delay: Arc::new(delay.clone()),
            load_ratio: 0.0,
            capacity_ratio: model.capacity_ratio,
        })
    }

    /// A relay without load, beside this CPU load by other programs, 0 to 1.
    #[must_use]
    pub fn beside(&self, load_ratio: f64) -> Self {
        let capacity_ratio = self.capacity_ratio * relay_share(load_ratio);
        Self { load_ratio, capacity_ratio, ..self.clone() }
    }
}

/// Adjacent node with the link to it, in the direction of that node. Has the kind of the link, because
/// a search reads edges in order, and links at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) to: u32,
    pub(crate) kind: u32,
    pub(crate) hop: Hop,
}

impl Edge {
    /// The same link in the other direction.
    pub(crate) fn back(self) -> Hop {
        Hop { forward: !self.hop.forward, ..self.hop }
    }
}

/// Direction of a link: `forward` is from its first end to its second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hop {
    pub(crate) link: u32,
    pub(crate) forward: bool,
}

/// Way through the network without a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    pub(crate) nodes: Vec<u32>,
    pub(crate) hops: Vec<Hop>,
}

impl Path {
    /// The relaying nodes.
    pub(crate) fn relays(&self) -> &[u32] {
        let last = self.nodes.len().saturating_sub(1);
        self.nodes.get(1..last).unwrap_or_default()
    }
}

/// Nodes and links by index, with flows.
#[derive(Clone, Debug)]
pub struct Network {
    names: Vec<String>,
    /// Kind of relay by node; [`Network::HOST`] for a node that relays nothing.
    relay_of: Vec<u32>,
    relays: Vec<Relay>,
    /// Ends and kind of each link.
    links: Vec<(u32, u32, u32)>,
    link_kinds: Vec<Link>,
    /// First edge of each node, and the number of edges.
    offsets: Vec<u32>,
    edges: Vec<Edge>,
    pub(crate) sender: Option<DelayFit>,
    pub(crate) receiver: Option<DelayFit>,
    flows: Vec<Flow>,
}

impl Network {
    /// Kind of a node that relays nothing.
    const HOST: u32 = u32::MAX;

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.names.len()
    }

    /// Number of links.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Name of a node.
    pub fn name(&self, node: u32) -> &str {
        &self.names[node as usize]
    }

    /// The flows.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Kinds of relays.
    pub(crate) fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// Kinds of links.
    pub(crate) fn link_kinds(&self) -> &[Link] {
        &self.link_kinds
    }

    /// Kind of the relay on a node, by its index.
    pub(crate) fn relay_kind(&self, node: u32) -> Option<usize> {
        let kind = self.relay_of[node as usize];
        (kind != Self::HOST).then_some(kind as usize)
    }

    /// The relay on a node.
    pub(crate) fn relay(&self, node: u32) -> Option<&Relay> {
        self.relay_kind(node).map(|kind| &self.relays[kind])
    }

    /// Kind of a link, by its index.
    pub(crate) fn link_kind(&self, link: u32) -> usize {
        self.links[link as usize].2 as usize
    }

    /// A link.
    pub(crate) fn link(&self, link: u32) -> &Link {
        &self.link_kinds[self.link_kind(link)]
    }

    /// Ends of a link, in this direction.
    pub(crate) fn end_numbers(&self, hop: Hop) -> (u32, u32) {
        let (a, b, _) = self.links[hop.link as usize];
        if hop.forward { (a, b) } else { (b, a) }
    }

    /// Names of the ends of a link, in this direction.
    pub(crate) fn ends(&self, hop: Hop) -> (&str, &str) {
        let (from, to) = self.end_numbers(hop);
        (self.name(from), self.name(to))
    }

    /// Neighbours of a node.
    pub(crate) fn edges(&self, node: u32) -> &[Edge] {
        let [from, to] = [0, 1].map(|next| self.offsets[node as usize + next] as usize);
        &self.edges[from..to]
    }

    /// The path over nodes without a loop; `None` if two in a row have no link.
    pub(crate) fn path_over(&self, nodes: Vec<u32>) -> Option<Path> {
        let hop = |pair: &[u32]| {
            self.edges(pair[0]).iter().find(|edge| edge.to == pair[1]).map(|edge| edge.hop)
        };
        let hops = nodes.windows(2).map(hop).collect::<Option<Vec<Hop>>>()?;
        Some(Path { nodes, hops })
    }

    /// The path over these nodes.
    ///
    /// # Errors
    /// It has a loop, or two nodes in a row have no link, or a node between relays nothing.
    pub(crate) fn path(&self, nodes: &[u32]) -> Result<Path, String> {
        let mut hops = Vec::new();
        let mut seen = HashSet::new();
        for (i, node) in nodes.iter().enumerate() {
            if !seen.insert(*node) {
                let name = self.name(*node);
                return Err(format!("the path visits node '{name}' twice; remove the loop"));
            }
            if i > 0 && i + 1 < nodes.len() && self.relay(*node).is_none() {
                let name = self.name(*node);
                return Err(format!(
                    "node '{name}' of the path has no model, so it relays nothing"
                ));
            }
            let Some(before) = i.checked_sub(1).map(|before| nodes[before]) else { continue };
            let edge = self.edges(before).iter().find(|edge| edge.to == *node);
            let Some(edge) = edge else {
                let (a, b) = (self.name(before), self.name(*node));
                return Err(format!(
                    "the path needs a link between '{a}' and '{b}'; there is no such link"
                ));
            };
            hops.push(edge.hop);
        }
        Ok(Path { nodes: nodes.to_vec(), hops })
    }
}

/// Builds a [`Network`].
#[derive(Clone, Debug, Default)]
pub struct NetworkBuilder {
    names: Vec<String>,
    by_name: HashMap<String, u32>,
    relay_of: Vec<u32>,
    relays: Vec<Relay>,
    links: Vec<(u32, u32, u32)>,
    link_kinds: Vec<Link>,
    sender: Option<DelayFit>,
    receiver: Option<DelayFit>,
    flows: Vec<Flow>,
}

impl NetworkBuilder {
    /// Adds a kind of relay and returns its number.
    pub fn relay(&mut self, relay: Relay) -> u32 {
        self.relays.push(relay);
        self.relays.len() as u32 - 1
    }

    /// Adds a kind of link and returns its number.
    pub fn link_kind(&mut self, link: Link) -> u32 {
        self.link_kinds.push(link);
        self.link_kinds.len() as u32 - 1
    }

    /// Adds a node with a kind of relay, or none, and returns its number.
    ///
    /// # Errors
    /// The name exists, or there are too many nodes.
    pub fn node(&mut self, name: &str, relay: Option<u32>) -> Result<u32, PredictError> {
        let number = self.names.len() as u32;
        if self.names.len() >= MAX_ELEMENTS {
            return Err(PredictError::topology("nodes", format!("there are over {MAX_ELEMENTS}")));
        }
        if self.by_name.insert(name.to_owned(), number).is_some() {
            return Err(PredictError::topology("nodes", format!("node '{name}' is listed twice")));
        }
        self.names.push(name.to_owned());
        self.relay_of.push(relay.unwrap_or(Network::HOST));
        Ok(number)
    }

    /// Number of the node with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Adds a link between two nodes.
    ///
    /// # Errors
    /// It joins a node to itself.
    pub fn link(&mut self, a: u32, b: u32, kind: u32) -> Result<(), PredictError> {
        if a == b {
            let name = &self.names[a as usize];
            let message = format!("it joins node '{name}' to itself; remove the loop");
            return Err(PredictError::topology(format!("links[{}]", self.links.len()), message));
        }
        self.links.push((a, b, kind));
        Ok(())
    }

    /// Delays in every sender and receiver.
    pub fn ends(&mut self, sender: Option<DelayFit>, receiver: Option<DelayFit>) {
        (self.sender, self.receiver) = (sender, receiver);
    }

    /// Adds a flow.
    pub fn flow(&mut self, flow: Flow) {
        self.flows.push(flow);
    }

    /// Builds the network.
    ///
    /// # Errors
    /// Two links join the same nodes, or the path of a flow is wrong.
    pub fn build(self) -> Result<Network, PredictError> {
        let nodes = self.names.len();
        let mut offsets = vec![0_u32; nodes + 1];
        for (a, b, _) in &self.links {
            offsets[*a as usize + 1] += 1;
            offsets[*b as usize + 1] += 1;
        }
        for i in 0..nodes {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let none = Edge { to: 0, kind: 0, hop: Hop { link: 0, forward: true } };
        let mut edges = vec![none; 2 * self.links.len()];
        for (link, (a, b, kind)) in self.links.iter().enumerate() {
            for (from, to, forward) in [(*a, *b, true), (*b, *a, false)] {
                let place = &mut next[from as usize];
                let hop = Hop { link: link as u32, forward };
                edges[*place as usize] = Edge { to, kind: *kind, hop };
                *place += 1;
            }
        }
        let network = Network {
            names: self.names,
            relay_of: self.relay_of,
            relays: self.relays,
            links: self.links,
            link_kinds: self.link_kinds,
            offsets,
            edges,
            sender: self.sender,
            receiver: self.receiver,
            flows: self.flows,
        };
        network.check_links()?;
        for (i, flow) in network.flows.iter().enumerate() {
            let place = || format!("flows[{i}] ({})", flow.name);
            let path = network.path(&flow.path);
            path.map_err(|message| PredictError::topology(place(), message))?;
        }
        Ok(network)
    }
}

impl Network {
    /// Fails if two links join the same nodes.
    fn check_links(&self) -> Result<(), PredictError> {
        let mut seen: Vec<u32> = vec![u32::MAX; self.names.len()];
        for node in 0..self.names.len() as u32 {
            for edge in self.edges(node) {
                let last = std::mem::replace(&mut seen[edge.to as usize], node);
                if last == node {
                    let (a, b) = (self.name(node), self.name(edge.to));
                    let message = format!("a link between '{a}' and '{b}' exists already");
                    return Err(PredictError::topology(
                        format!("links[{}]", edge.hop.link),
                        message,
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A model with a constant delay.
    pub(crate) fn constant(delay_ns: f64) -> InlineModel {
        InlineModel {
            delay_ns,
            ns_per_byte: 0.0,
            residual_ns: None,
            cost_ns: Some(10_000.0),
            capacity_ratio: 1.0,
        }
    }

    /// A link with a rate and no other delay.
    pub(crate) fn plain_link(rate_bps: f64) -> Link {
        Link { rate_bps: Some(rate_bps), delay_ns: 0.0, loss_ratio: 0.0, model: None, excess: None }
    }

    #[test]
    fn loops_and_double_links_are_refused() {
        let build = |links: &[(u32, u32)], path: &[u32]| {
            let mut builder = NetworkBuilder::default();
            let relay = builder.relay(constant(1.0).relay("m", "route"));
            for name in ["a", "b", "c"] {
                builder.node(name, Some(relay))?;
            }
            let kind = builder.link_kind(plain_link(1e6));
            links.iter().try_for_each(|(a, b)| builder.link(*a, *b, kind))?;
            let path = path.to_vec();
            let flow =
                Flow { name: "f".into(), from: 0, to: 2, size_bytes: 1.0, rate_pps: 1.0, path };
            builder.flow(flow);
            builder.build()
        };
        let line = [(0, 1), (1, 2)];
        assert!(build(&line, &[0, 1, 2]).is_ok());
        for (links, path, words) in [
            (&[(0, 1), (1, 1)][..], &[][..], "to itself"),
            (&[(0, 1), (1, 0)], &[], "between 'a' and 'b' exists"),
            (&line, &[0, 1, 0, 1, 2], "visits node 'a' twice"),
            (&line, &[0, 2], "no such link"),
        ] {
            let error = build(links, path).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn node_without_a_model_relays_nothing() {
        let mut builder = NetworkBuilder::default();
        for name in ["a", "b", "c"] {
            builder.node(name, None).unwrap();
        }
        assert!(builder.node("a", None).unwrap_err().to_string().contains("twice"));
        let kind = builder.link_kind(plain_link(1e6));
        builder.link(0, 1, kind).unwrap();
        builder.link(1, 2, kind).unwrap();
        let network = builder.build().unwrap();
        assert!(network.path(&[0, 1, 2]).unwrap_err().contains("has no model"));
        let path = network.path(&[1, 2]).unwrap();
        assert_eq!((path.relays().len(), path.hops[0].forward), (0, true));
        assert_eq!(network.ends(network.path(&[2, 1]).unwrap().hops[0]), ("c", "b"));
    }
}
