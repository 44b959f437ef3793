//! What a lab is, for programs: the object that `--json` prints and that a lab's state is kept in
//! (`dwell.lab/1`). Units stand in the names.

use std::path::PathBuf;

use dwell_engine::link::LinkParameters;
use dwell_units::{BitRate, Nanos, Ratio};
use serde::{Deserialize, Serialize};

use crate::addressing::Addresses;
use crate::topology::{Mechanism, Routing};

/// The name and version of the format.
pub const SCHEMA: &str = "dwell.lab/1";

/// A lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lab {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its name.
    pub name: String,
    /// How far it has come.
    pub state: LabState,
    /// Whether it lives in a user namespace instead of belonging to root.
    pub rootless: bool,
    /// The release of iproute2 that made it.
    pub iproute2: Option<String>,
    /// Its nodes, in the order in which they were given.
    pub nodes: Vec<Node>,
    /// Its links, likewise.
    pub links: Vec<Link>,
    /// What all nodes are joined to instead of links, in a forced line.
    #[serde(default)]
    pub medium: Option<Medium>,
    /// Where its routes come from.
    #[serde(default)]
    pub routing: Routing,
    /// The programs that keep its routes, one to a node; none where routes are static.
    #[serde(default)]
    pub daemons: Vec<Daemon>,
}

/// How far a lab has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabState {
    /// It is being made, or its making was cut short.
    Making,
    /// All of it is there.
    Up,
    /// All of it was there, and something has ended since: a link of its own process, a daemon that
    /// keeps routes, or the process that keeps a rootless lab.
    Broken,
}

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// As far as can be told; the interfaces may still be switched off.
    #[default]
    Up,
    /// Its process has ended (TAP links), so nothing gets through any more.
    Dead,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name, which is also its host name inside the lab.
    pub name: String,
    /// Its network namespace, as `ip netns list` shows it.
    pub netns: String,
    /// Its own addresses, on loopback.
    pub addresses: Addresses,
    /// How much of a processor it may use, where it is held to a share.
    #[serde(default)]
    pub quota: Option<Quota>,
}

/// What holds a node to a share of a processor. An average: what is over it waits for the next
/// period of 100 ms, in stalls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// The share of one processor that was asked for.
    pub share_ratio: f64,
    /// The control group's directories, one in each hierarchy it takes.
    pub groups: Vec<PathBuf>,
    /// Processor time that was used since the lab is up, where asked for.
    pub usage_ns: Option<i64>,
    /// Time for which processes could have run and were held, where asked for.
    pub throttled_ns: Option<i64>,
}

/// What everybody on it would hear, filtered down to a line: a bridge in a namespace of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Medium {
    /// The namespace with the bridge.
    pub netns: String,
    /// The bridge there, and the interface in every node.
    pub interface: String,
    /// What drops the frames of those who are not to be heard, on the way out of the port to each node.
    pub filter: Filter,
    /// How what a node sends is shaped.
    pub mechanism: Mechanism,
    /// What that does to frames.
    pub parameters: Parameters,
    /// Who is on it, in the order of the nodes.
    pub ports: Vec<Port>,
}

/// A node on a medium. Its port on the bridge is called like the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The node.
    pub node: String,
    /// Its addresses there.
    pub address: Addresses,
    /// Its hardware address.
    pub hardware: String,
    /// The nodes that it hears.
    pub hears: Vec<String>,
}

/// How frames are kept from those who are not to hear them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// tc's `bpf` classifier with a classic program.
    Bpf,
    /// tc's `flower` classifier.
    Flower,
}

/// A program that keeps the routes of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// The node.
    pub node: String,
    /// Its name.
    pub program: String,
    /// Its number.
    pub pid: u32,
    /// Whether it runs.
    pub state: DaemonState,
}

/// Whether a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonState {
    /// It runs.
    Up,
    /// It has ended, and what it knew of routes goes with it.
    Dead,
}

/// A link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The node at one end.
    pub a: String,
    /// The node at the other.
    pub b: String,
    /// The interface in `a`, named after whom it leads to.
    pub a_interface: String,
    /// The interface in `b`.
    pub b_interface: String,
    /// Its addresses in `a`.
    pub a_address: Addresses,
    /// Its addresses in `b`.
    pub b_address: Addresses,
    /// How it is emulated.
    pub mechanism: Mechanism,
    /// Whether it carries packets.
    #[serde(default)]
    pub state: LinkState,
    /// What it does to packets.
    pub parameters: Parameters,
    /// The file that tells of every packet dropped, doubled or reordered (TAP links only).
    pub event_log: Option<String>,
    /// What it did so far, where asked for.
    pub counters: Option<Counters>,
}

/// What a link does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Bits per second; `null` is as fast as the machine goes.
    pub rate_bps: Option<u64>,
    /// Time of travel.
    pub delay_ns: i64,
    /// Variation of the delay, either way.
    pub jitter_ns: i64,
    /// Share of packets lost.
    pub loss_ratio: f64,
    /// Share of packets doubled.
    pub duplicate_ratio: f64,
    /// Share of packets that skip the delay.
    pub reorder_ratio: f64,
    /// Where the link's luck comes from; `null` where nothing is left to chance, or to a netem that
    /// was given no seed.
    pub seed: Option<u64>,
}

/// What a link did, by direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// From `a` to `b`.
    pub a_to_b: DirectionCounters,
    /// From `b` to `a`.
    pub b_to_a: DirectionCounters,
    /// Events that are missing from the event log, for want of room (TAP links only).
    pub events_lost: Option<u64>,
}

/// What a link did in one direction; `null` where its mechanism does not tell. Frames of address
/// resolution and multicast count as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounters {
    /// Frames that came in.
    pub arrived: Option<u64>,
    /// Frames that went out, copies included.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Frames dropped, for whatever reason.
    pub dropped: u64,
    /// Of the dropped, those that the link lost on purpose.
    pub lost: Option<u64>,
    /// Of the dropped, those that found no room.
    pub overflow: Option<u64>,
    /// Of the delivered, those that the far end did not take: its interface was down.
    pub refused: Option<u64>,
    /// Frames that got a copy.
    pub duplicated: Option<u64>,
    /// Frames that skipped the delay.
    pub reordered: Option<u64>,
    /// Frames that the sender's kernel dropped before the link saw them.
    pub interface_dropped: Option<u64>,
    /// The most that a frame left later than it should have, because the machine was late.
    pub lateness_max_ns: Option<i64>,
}

impl Parameters {
    pub(crate) fn new(parameters: &LinkParameters, seed: Option<u64>) -> Self {
        Self {
            rate_bps: parameters.rate.map(|rate| rate.0),
            delay_ns: parameters.delay.0,
            jitter_ns: parameters.jitter.0,
            loss_ratio: parameters.loss.as_f64(),
            duplicate_ratio: parameters.duplicate.as_f64(),
            reorder_ratio: parameters.reorder.as_f64(),
            seed,
        }
    }

    /// As the engine takes them.
    pub fn link_parameters(&self) -> LinkParameters {
        // Ratios were parts per million before they were written.
        let ratio =
            |share: f64| Ratio::from_ppm((share * 1e6).round() as u32).unwrap_or(Ratio::ONE);
        LinkParameters {
            rate: self.rate_bps.map(BitRate),
            delay: Nanos(self.delay_ns),
            jitter: Nanos(self.jitter_ns),
            loss: ratio(self.loss_ratio),
            duplicate: ratio(self.duplicate_ratio),
            reorder: ratio(self.reorder_ratio),
        }
    }
}

impl Lab {
    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Pairs of nodes with a way between them, over links or over who hears whom, by their places;
    /// each in both orders.
    pub(crate) fn reachable_pairs(&self) -> Vec<(usize, usize)> {
        let place = |name: &str| self.nodes.iter().position(|node| node.name == name);
        let links = self.links.iter().map(|link| (link.a.as_str(), link.b.as_str()));
        let heard =
            self.medium.iter().flat_map(|medium| &medium.ports).flat_map(|port| {
                port.hears.iter().map(|other| (port.node.as_str(), other.as_str()))
            });
        // Whoever is joined gets the number of the one with the smaller.
        let mut island: Vec<usize> = (0..self.nodes.len()).collect();
        for (a, b) in links.chain(heard) {
            let (Some(a), Some(b)) = (place(a), place(b)) else { continue };
            let (kept, gone) = (island[a].min(island[b]), island[a].max(island[b]));
            island.iter_mut().filter(|number| **number == gone).for_each(|number| *number = kept);
        }
        let all = 0..self.nodes.len();
        all.clone()
            .flat_map(|from| all.clone().map(move |to| (from, to)))
            .filter(|(from, to)| from != to && island[*from] == island[*to])
            .collect()
    }
}
