//! Machine-readable description of a lab: the object that `--json` prints and that holds a lab's
//! state (`dwell.lab/1`). Units are in the names.

use std::path::PathBuf;

use dwell_engine::link::LinkParameters;
use dwell_units::{BitRate, Nanos, Ratio};
use serde::{Deserialize, Serialize};

use crate::addressing::{Addresses, End};
use crate::topology::{DeviceKind, Mechanism, Routing};

/// Name and version of the format.
pub const SCHEMA: &str = "dwell.lab/1";

/// A lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lab {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name.
    pub name: String,
    /// Progress of its creation.
    pub state: LabState,
    /// Whether it was created without root, in a user namespace.
    pub rootless: bool,
    /// Release of iproute2 that created it.
    pub iproute2: Option<String>,
    /// Nodes, in the order given.
    pub nodes: Vec<Node>,
    /// Links, in the order given.
    pub links: Vec<Link>,
    /// Bridge or radio channel that joins all nodes in a forced line, which has no links.
    #[serde(default)]
    pub medium: Option<Medium>,
    /// Source of its routes.
    #[serde(default)]
    pub routing: Routing,
    /// Daemons that maintain its routes, one per node; empty with static routes.
    #[serde(default)]
    pub daemons: Vec<Daemon>,
}

/// State of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabState {
    /// It is being created, or its creation was interrupted.
    Making,
    /// It is complete.
    Up,
    /// It was complete, but a process has ended since: that of a link or a device, a routing daemon, or
    /// the namespace keeper of a rootless lab.
    Broken,
}

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Yes, as far as is known; the interfaces may still be down.
    #[default]
    Up,
    /// No: its process has ended (TAP links).
    Dead,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Name, and host name inside the lab.
    pub name: String,
    /// Network namespace, as `ip netns list` shows it.
    pub netns: String,
    /// Own addresses, on loopback.
    pub addresses: Addresses,
    /// CPU quota, if it has one.
    #[serde(default)]
    pub quota: Option<Quota>,
    /// Device that has the node's IPv4 address, if the node is not only a namespace.
    #[serde(default)]
    pub device: Option<Device>,
}

/// An emulated device behind a node's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Kind.
    pub kind: DeviceKind,
    /// File of its firmware.
    pub image: PathBuf,
}

/// CPU quota of a node. It is an average: usage beyond it waits for the next period of 100 ms, in
/// stalls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// Requested share of one CPU.
    pub share_ratio: f64,
    /// Directories of the control group, one per hierarchy.
    pub groups: Vec<PathBuf>,
    /// CPU time used since the lab is up, if requested.
    pub usage_ns: Option<i64>,
    /// Time in which processes were runnable but throttled, if requested.
    pub throttled_ns: Option<i64>,
}

/// The medium that the nodes of a forced line share: a bridge in a namespace of its own, or a radio
/// channel. Filters reduce what its nodes hear to a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Medium {
    /// Namespace of the bridge, or in which the radios were created.
    pub netns: String,
    /// Name of the interface in every node, and of the bridge.
    pub interface: String,
    /// Classifier that drops unwanted frames: when they leave the bridge's port to each node, or
    /// when they arrive at its radio.
    pub filter: Filter,
    /// How the frames that a node sends are shaped.
    pub mechanism: Mechanism,
    /// Parameters of the shaping.
    pub parameters: Parameters,
    /// The radio channel; `None` for a bridge.
    #[serde(default)]
    pub radio: Option<RadioChannel>,
    /// Ports, in the order of the nodes.
    pub ports: Vec<Port>,
}

/// Channel of an ad hoc network (IBSS) of 802.11 radios.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RadioChannel {
    /// Driver of the radios.
    pub driver: String,
    /// Name of the network.
    pub ssid: String,
    /// Its BSSID.
    pub bssid: String,
    /// Centre frequency.
    pub frequency_mhz: u32,
    /// Width.
    pub width_mhz: u32,
}

/// A node on a shared medium. Its port on a bridge is called like the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Node.
    pub node: String,
    /// Its addresses there.
    pub address: Addresses,
    /// Its hardware address.
    pub hardware: String,
    /// Nodes that it hears.
    pub hears: Vec<String>,
}

/// How frames are kept from nodes that must not hear them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// tc's `bpf` classifier with a classic program.
    Bpf,
    /// tc's `flower` classifier.
    Flower,
}

/// A program that maintains the routes of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// Node.
    pub node: String,
    /// Name of the program.
    pub program: String,
    /// Process id.
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
    /// It has ended, and its routes are lost.
    Dead,
}

/// A link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Node at one end.
    pub a: String,
    /// Node at the other end.
    pub b: String,
    /// Interface in `a`, named after the node it leads to.
    pub a_interface: String,
    /// Interface in `b`.
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
    /// Parameters.
    pub parameters: Parameters,
    /// Log of every packet dropped, duplicated or reordered (TAP links only).
    pub event_log: Option<String>,
    /// Counters, if requested.
    pub counters: Option<Counters>,
}

impl Link {
    /// Returns the end at the node of this name.
    pub(crate) fn end_at(&self, node: &str) -> Option<End> {
        [(&self.a, End::A), (&self.b, End::B)]
            .into_iter()
            .find(|(at, _)| *at == node)
            .map(|(_, end)| end)
    }

    pub(crate) fn interface(&self, end: End) -> &str {
        match end {
            End::A => &self.a_interface,
            End::B => &self.b_interface,
        }
    }

    pub(crate) fn address(&self, end: End) -> Addresses {
        match end {
            End::A => self.a_address,
            End::B => self.b_address,
        }
    }
}

/// Parameters of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Rate in bits per second; `null` means unlimited.
    pub rate_bps: Option<u64>,
    /// Propagation delay.
    pub delay_ns: i64,
    /// Maximum variation of the delay in either direction.
    pub jitter_ns: i64,
    /// Share of packets lost.
    pub loss_ratio: f64,
    /// Share of packets duplicated.
    pub duplicate_ratio: f64,
    /// Share of packets that skip the delay.
    pub reorder_ratio: f64,
    /// Seed of the random numbers; `null` if nothing is random, or for a netem without a seed.
    pub seed: Option<u64>,
}

/// Counters of a link, by direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// From `a` to `b`.
    pub a_to_b: DirectionCounters,
    /// From `b` to `a`.
    pub b_to_a: DirectionCounters,
    /// Events missing from the log for lack of room (TAP links only).
    pub events_lost: Option<u64>,
}

/// Counters of one direction of a link; `null` where its mechanism does not count. Includes frames
/// of address resolution and multicast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounters {
    /// Frames that entered.
    pub arrived: Option<u64>,
    /// Frames that left, including copies.
    pub delivered: u64,
    /// Bytes that left.
    pub delivered_bytes: u64,
    /// Frames dropped for any reason.
    pub dropped: u64,
    /// Dropped frames that the link lost on purpose.
    pub lost: Option<u64>,
    /// Dropped frames that found no room.
    pub overflow: Option<u64>,
    /// Delivered frames that the far end did not take because its interface was down.
    pub refused: Option<u64>,
    /// Frames that were duplicated.
    pub duplicated: Option<u64>,
    /// Frames that skipped the delay.
    pub reordered: Option<u64>,
    /// Frames that the sender's kernel dropped before the link received them.
    pub interface_dropped: Option<u64>,
    /// Maximum lateness of a departure, caused by load on the machine.
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

    /// Returns the parameters as the engine takes them.
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
    /// Returns the node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns the index pairs of nodes that a path joins, over links or over a shared medium; each
    /// pair in both orders.
    pub(crate) fn reachable_pairs(&self) -> Vec<(usize, usize)> {
        let place = |name: &str| self.nodes.iter().position(|node| node.name == name);
        let links = self.links.iter().map(|link| (link.a.as_str(), link.b.as_str()));
        let heard =
            self.medium.iter().flat_map(|medium| &medium.ports).flat_map(|port| {
                port.hears.iter().map(|other| (port.node.as_str(), other.as_str()))
            });
        // Joined nodes get the lower of their numbers.
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
