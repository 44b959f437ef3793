//! Nodes of a lab and the links that join them, before any of it is created: `line:3`, `star:5`,
//! `forced:3`, `wifi:3`, or a TOML file.
//!
//! ```toml
//! version = 1
//! nodes = ["robot", "relay", "base"]
//!
//! [[links]]
//! a = "robot"
//! b = "relay"
//! rate = "10Mbit/s"     # and delay, jitter, loss, duplicate, reorder, seed, mechanism
//! delay = "5ms"
//!
//! [[links]]
//! a = "relay"
//! b = "base"
//!
//! [quota]
//! relay = "20%"         # of one CPU, for everything that `lab exec relay` runs
//!
//! [device.base]         # a microcontroller answers probes to this node
//! kind = "cortex-m3"
//! image = "dwell-cortex-m3.elf"  # optional
//! ```

mod file;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dwell_engine::link::LinkParameters;
use dwell_units::{BitRate, Nanos, Ratio};
use serde::{Deserialize, Serialize};

use crate::error::{TopologyError, ValueError};

/// Maximum number of nodes in a lab.
pub(crate) const MAX_NODES: usize = 250;
/// Maximum number of links in a lab: as many subnets as the addresses allow.
pub(crate) const MAX_LINKS: usize = 16_384;

/// Number of nodes in a Wi-Fi lab.
const RADIO_NODES: RangeInclusive<usize> = 2..=8;

/// Minimum rate of a link: tc counts rates in whole bytes per second.
const MIN_RATE: BitRate = BitRate(8);

/// Nodes and links, in the order given.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    pub(crate) nodes: Vec<String>,
    pub(crate) links: Vec<Edge>,
    /// A medium that the nodes share instead of links. They hear those that `links` joins them to.
    pub(crate) shared: Option<MediumKind>,
    /// Source of routes.
    pub(crate) routing: Routing,
    /// CPU shares, by index of the node.
    pub(crate) quotas: Vec<(usize, Ratio)>,
    /// Devices, by index of the node.
    pub(crate) devices: Vec<(usize, DeviceRequest)>,
}

/// A requested device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRequest {
    pub(crate) kind: DeviceKind,
    /// File of its firmware; `None`: the one that `make firmware` built or `make install` installed.
    pub(crate) image: Option<PathBuf>,
}

dwell_units::named! {
    /// Kind of a device that answers probes in place of a namespace.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum DeviceKind {
        /// Cortex-M3 of QEMU's machine lm3s6965evb.
        #[serde(rename = "cortex-m3")]
        CortexM3 = "cortex-m3",
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DeviceKind {
    type Err = String;

    /// Parses the name of a kind.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text)
            .ok_or_else(|| format!("'{text}' is not a kind of device; write cortex-m3"))
    }
}

/// A medium that all nodes of a lab share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediumKind {
    /// A bridge.
    Bridge,
    /// A radio channel.
    Radio,
}

dwell_units::named! {
    /// Source of a lab's routes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Routing {
        /// Set by dwell once: the shortest paths.
        #[default]
        Static = "static",
        /// babeld in every node (RFC 8966).
        Babel = "babel",
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Routing {
    type Err = String;

    /// Parses the name of a routing.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| format!("'{text}' is not a routing; write static or babel"))
    }
}

/// CPU quota of a node, as on the command line: `n2=20%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaOption {
    node: String,
    share: Ratio,
}

impl FromStr for QuotaOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((node, share)) = text.split_once('=').filter(|(node, _)| !node.is_empty()) else {
            return Err(format!("'{text}' is not a quota; write a node and a share, like n2=20%"));
        };
        Ok(Self { node: node.to_owned(), share: quota_share(share)? })
    }
}

/// A link between two nodes, by their indices.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) options: LinkOptions,
}

/// Requested properties of a link; `None` is the default.
#[derive(Clone, Debug, Default)]
pub struct LinkOptions {
    /// Rate in bits per second.
    pub rate: Option<BitRate>,
    /// Propagation delay.
    pub delay: Option<Nanos>,
    /// Maximum variation of the delay in either direction.
    pub jitter: Option<Nanos>,
    /// Share of frames lost.
    pub loss: Option<Ratio>,
    /// Share of frames duplicated.
    pub duplicate: Option<Ratio>,
    /// Share of frames that skip the delay.
    pub reorder: Option<Ratio>,
    /// Seed of the random numbers.
    pub seed: Option<u64>,
    /// How the link is emulated; `None` chooses the best mechanism that can do it.
    pub mechanism: Option<Mechanism>,
}

dwell_units::named! {
    /// How a link is emulated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Mechanism {
        /// A plain veth pair.
        Veth = "veth",
        /// A veth pair with the kernel's netem at both ends.
        Netem = "netem",
        /// A veth pair with a token bucket at both ends: a rate, but no serialisation delay.
        Tbf = "tbf",
        /// dwell's own process between two TAP interfaces.
        Tap = "tap",
        /// Radios simulated by mac80211_hwsim.
        Hwsim = "hwsim",
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = String;

    /// Parses the name of a mechanism that can be requested.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text)
            .filter(|mechanism| !matches!(mechanism, Self::Veth | Self::Hwsim))
            .ok_or_else(|| ValueError::Mechanism(text.to_owned()).to_string())
    }
}

impl Topology {
    /// Reads `line:N`, `star:N`, `forced:N`, `wifi:N`, or the TOML file of that name; `over`
    /// overrides the file's link properties.
    ///
    /// # Errors
    /// The text is not one of these, or requests something impossible.
    pub fn read(text: &str, over: &LinkOptions) -> Result<Self, TopologyError> {
        let mut topology = match text.split_once(':') {
            Some(("line", count)) => Self::line(nodes(text, "line", count)?),
            Some(("star", count)) => Self::star(nodes(text, "star", count)?),
            Some(("forced", count)) => {
                let line = Self::line(nodes(text, "forced", count)?);
                Self { shared: Some(MediumKind::Bridge), ..line }
            }
            Some(("wifi", count)) => Self::radios(nodes(text, "wifi", count)?, over)?,
            _ if Path::new(text).is_file() => Self::file(Path::new(text))?,
            _ => return Err(TopologyError::Unknown(text.to_owned())),
        };
        for edge in &mut topology.links {
            edge.options = edge.options.clone().overridden_by(over);
        }
        topology.check()?;
        Ok(topology)
    }

    /// Sets the source of routes.
    #[must_use]
    pub fn with_routing(self, routing: Routing) -> Self {
        Self { routing, ..self }
    }

    /// Sets quotas, which override those of the file.
    ///
    /// # Errors
    /// There is no such node.
    pub fn with_quotas(mut self, options: &[QuotaOption]) -> Result<Self, TopologyError> {
        for QuotaOption { node, share } in options {
            let Some(place) = self.nodes.iter().position(|name| name == node) else {
                let (node, nodes) = (node.clone(), self.nodes.join(", "));
                return Err(TopologyError::QuotaNode { node, nodes });
            };
            self.quotas.retain(|(other, _)| *other != place);
            self.quotas.push((place, *share));
        }
        Ok(self)
    }

    fn line(count: usize) -> Self {
        Self::numbered(count, |n| n - 1)
    }

    /// A line of radios, which have no link properties.
    fn radios(count: usize, over: &LinkOptions) -> Result<Self, TopologyError> {
        if !RADIO_NODES.contains(&count) {
            let (min, max) = (*RADIO_NODES.start(), *RADIO_NODES.end());
            return Err(TopologyError::Radios { count, min, max });
        }
        if let Some(option) = over.first_name() {
            return Err(TopologyError::RadioOption { option, count });
        }
        Ok(Self { shared: Some(MediumKind::Radio), ..Self::line(count) })
    }

    fn star(count: usize) -> Self {
        Self::numbered(count, |_| 0)
    }

    /// Creates nodes n1, n2 ...; each but the first is joined to an earlier one.
    fn numbered(count: usize, towards: impl Fn(usize) -> usize) -> Self {
        let edge = |n| Edge { a: towards(n), b: n, options: LinkOptions::default() };
        Self {
            nodes: (1..=count).map(|n| format!("n{n}")).collect(),
            links: (1..count).map(edge).collect(),
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), TopologyError> {
        let count = self.nodes.len();
        if !(1..=MAX_NODES).contains(&count) {
            return Err(TopologyError::Count { count: count as u64, max: MAX_NODES });
        }
        if self.links.len() > MAX_LINKS {
            return Err(TopologyError::Links { count: self.links.len(), max: MAX_LINKS });
        }
        for edge in &self.links {
            let link = || format!("{} - {}", self.nodes[edge.a], self.nodes[edge.b]);
            let parameters = edge.options.parameters();
            parameters.check().map_err(|error| TopologyError::Link { link: link(), error })?;
            if edge.options.mechanism == Some(Mechanism::Tbf) && !parameters.is_rate_only() {
                let message = "tbf gives a rate and nothing else; leave the mechanism out, or \
                               everything but the rate";
                return Err(TopologyError::Mechanism { link: link(), message });
            }
            if edge.options.mechanism == Some(Mechanism::Netem) && parameters.is_plain() {
                let message = "netem has nothing to do here; give a rate, a delay or a loss";
                return Err(TopologyError::Mechanism { link: link(), message });
            }
        }
        Ok(())
    }
}

impl LinkOptions {
    /// Returns these properties, overridden by those that `over` sets.
    fn overridden_by(self, over: &Self) -> Self {
        Self {
            rate: over.rate.or(self.rate),
            delay: over.delay.or(self.delay),
            jitter: over.jitter.or(self.jitter),
            loss: over.loss.or(self.loss),
            duplicate: over.duplicate.or(self.duplicate),
            reorder: over.reorder.or(self.reorder),
            seed: over.seed.or(self.seed),
            mechanism: over.mechanism.or(self.mechanism),
        }
    }

    /// Returns the name of the first property that is set; `None` without any.
    fn first_name(&self) -> Option<&'static str> {
        let all = [
            ("rate", self.rate.is_some()),
            ("delay", self.delay.is_some()),
            ("jitter", self.jitter.is_some()),
            ("loss", self.loss.is_some()),
            ("duplicate", self.duplicate.is_some()),
            ("reorder", self.reorder.is_some()),
            ("seed", self.seed.is_some()),
            ("mechanism", self.mechanism.is_some()),
        ];
        all.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Returns what the link does to frames.
    pub(crate) fn parameters(&self) -> LinkParameters {
        LinkParameters {
            rate: self.rate,
            delay: self.delay.unwrap_or_default(),
            jitter: self.jitter.unwrap_or_default(),
            loss: self.loss.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default(),
            reorder: self.reorder.unwrap_or_default(),
        }
    }
}

/// Parses the rate of a link, such as `100Mbit/s`.
///
/// # Errors
/// The text is not a rate, or the rate is too low; the message says what would be right.
pub fn rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>().map_err(|error| error.to_string())? {
        slow if slow < MIN_RATE => Err(ValueError::Rate { slow, min: MIN_RATE }.to_string()),
        rate => Ok(rate),
    }
}

/// Parses a CPU share that a node can be limited to; the error says what would be right.
fn quota_share(text: &str) -> Result<Ratio, String> {
    // The kernel refuses quotas below 1 ms, and periods above 1 s are useless.
    const MIN_PPM: u32 = 10_000;
    let share: Ratio = text.parse().map_err(|error: dwell_units::UnitError| error.to_string())?;
    if share.ppm() < MIN_PPM {
        return Err(format!("a quota of {share} is too small; the minimum is 1%, like n2=20%"));
    }
    Ok(share)
}

/// Parses the number of nodes in `line:3`.
fn nodes(text: &str, kind: &'static str, count: &str) -> Result<usize, TopologyError> {
    let count: u64 =
        count.parse().map_err(|_| TopologyError::NoCount { text: text.to_owned(), kind })?;
    match usize::try_from(count) {
        Ok(nodes) if (1..=MAX_NODES).contains(&nodes) => Ok(nodes),
        _ => Err(TopologyError::Count { count, max: MAX_NODES }),
    }
}

/// Names with another meaning: interfaces, kernel settings, this machine.
const RESERVED: [&str; 4] = ["all", "default", "lo", "localhost"];

/// Nodes give their names to interfaces and hosts, so the rules for those apply.
fn is_node_name(name: &str) -> bool {
    let is_reserved = RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
    name.len() <= 15
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !is_reserved
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Topology, String> {
        Topology::read(text, &LinkOptions::default()).map_err(|error| error.to_string())
    }

    fn parse(text: &str) -> Result<Topology, String> {
        let topology = Topology::parse(text, "lab.toml").map_err(|error| error.to_string())?;
        topology.check().map_err(|error| error.to_string())?;
        Ok(topology)
    }

    #[test]
    fn device_has_a_known_kind_and_node() {
        let nodes = "version = 1\nnodes = [\"a\", \"b\"]\n";
        let file = |rest: &str| parse(&format!("{nodes}{rest}"));
        let lab = file("[device.b]\nkind = \"cortex-m3\"\nimage = \"x.elf\"").unwrap();
        let (node, device) = &lab.devices[0];
        assert_eq!((*node, device.kind), (1, DeviceKind::CortexM3));
        assert_eq!(device.image.as_deref(), Some(Path::new("x.elf")));
        for (rest, right) in [
            ("[device.b]\nkind = \"cortex-m4\"", "line 4: 'cortex-m4' is not a kind"),
            ("[device.c]\nkind = \"cortex-m3\"", "line 4: there is no node 'c'; nodes are a, b"),
            ("[device.b]\nimage = \"x\"", "missing field `kind`"),
            ("[device.b]\nkind = \"cortex-m3\"\nram = 1", "unknown field `ram`"),
        ] {
            let error = file(rest).unwrap_err();
            assert!(error.contains(right), "{rest}: {error}");
        }
    }

    #[test]
    fn image_of_a_device_is_relative_to_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        let device = "[device.a]\nkind = \"cortex-m3\"\nimage = \"x.elf\"";
        std::fs::write(&file, format!("version = 1\nnodes = [\"a\"]\n{device}")).unwrap();
        let lab = read(file.to_str().unwrap()).unwrap();
        assert_eq!(lab.devices[0].1.image, Some(folder.path().join("x.elf")));
    }

    #[test]
    fn quota_names_node_and_cpu_share() {
        let quota = |text: &str| text.parse::<QuotaOption>();
        let lab = read("line:3").unwrap().with_quotas(&[quota("n2=20%").unwrap()]).unwrap();
        assert_eq!(lab.quotas, [(1, Ratio::from_ppm(200_000).unwrap())]);
        let stranger = lab.with_quotas(&[quota("n9=20%").unwrap()]).unwrap_err().to_string();
        assert!(stranger.contains("n1, n2, n3"), "{stranger}");
        for (text, right) in
            [("n2", "n2=20%"), ("=5%", "n2=20%"), ("n2=0.5%", "minimum is 1%"), ("n2=1", "50%")]
        {
            let error = quota(text).unwrap_err();
            assert!(error.contains(right), "{text}: {error}");
        }
        let file = "version = 1\nnodes = [\"a\", \"b\"]\n[quota]\nb = \"50%\"";
        assert_eq!(parse(file).unwrap().quotas, [(1, Ratio::from_ppm(500_000).unwrap())]);
        let wrong = parse("version = 1\nnodes = [\"a\"]\n[quota]\nc = \"50%\"").unwrap_err();
        assert!(wrong.starts_with("lab.toml, line 4: there is no node 'c'"), "{wrong}");
    }

    #[test]
    fn forced_line_has_neighbours_of_line() {
        let forced = read("forced:3").unwrap();
        assert_eq!(forced.shared, Some(MediumKind::Bridge));
        assert_eq!(joined(&forced), [(0, 1), (1, 2)]);
        assert_eq!(read("line:3").unwrap().shared, None);
    }

    #[test]
    fn radios_form_a_line_without_link_options() {
        let radios = read("wifi:3").unwrap();
        assert_eq!(
            (radios.shared, joined(&radios)),
            (Some(MediumKind::Radio), vec![(0, 1), (1, 2)])
        );
        assert_eq!(read("wifi:8").unwrap().nodes.len(), 8);
        let with = |text, over| Topology::read(text, &over).unwrap_err().to_string();
        let rate = LinkOptions { rate: Some(BitRate(65_000_000)), ..LinkOptions::default() };
        let tap = LinkOptions { mechanism: Some(Mechanism::Tap), ..LinkOptions::default() };
        for (over, option) in [(rate, "--rate"), (tap, "--mechanism")] {
            let error = with("wifi:3", over);
            assert!(error.contains(option) && error.contains("forced:3"), "{error}");
        }
    }

    #[test]
    fn plain_and_radio_links_cannot_be_requested() {
        assert_eq!("tap".parse(), Ok(Mechanism::Tap));
        for text in ["veth", "hwsim"] {
            assert!(text.parse::<Mechanism>().is_err(), "{text}");
        }
    }

    fn joined(topology: &Topology) -> Vec<(usize, usize)> {
        topology.links.iter().map(|edge| (edge.a, edge.b)).collect()
    }

    #[test]
    fn line_joins_neighbours_and_star_joins_all_to_hub() {
        assert_eq!(joined(&read("line:4").unwrap()), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(joined(&read("star:4").unwrap()), [(0, 1), (0, 2), (0, 3)]);
        assert_eq!(read("line:1").unwrap().nodes, ["n1"]);
        assert_eq!(read("star:250").unwrap().nodes.len(), 250);
    }

    #[test]
    fn invalid_topology_error_says_what_is_right() {
        for (text, right) in [
            ("line:0", "1 to 250 nodes"),
            ("star:0", "1 to 250 nodes"),
            ("line:251", "1 to 250 nodes"),
            ("line:99999999999999999999", "write it like line:3"),
            ("star:x", "write it like star:3"),
            ("line:-1", "write it like line:3"),
            ("ring:5", "line:3, star:5, forced:3, wifi:3 or the name of a TOML file"),
            ("forced:0", "1 to 250 nodes"),
            ("wifi:1", "2 to 8 radios"),
            ("wifi:9", "2 to 8 radios"),
            ("wifi:0", "1 to 250 nodes"),
            ("wifi:three", "write it like wifi:3"),
            ("no-such-file.toml", "TOML file that exists"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(right), "{text}: {error}");
        }
    }

    #[test]
    fn topology_file_sets_nodes_and_link_options() {
        let text = r#"
            version = 1
            nodes = ["robot", "relay", "base"]
            [[links]]
            a = "robot"
            b = "relay"
            rate = "10Mbit/s"
            delay = "5ms"
            seed = 3
            [[links]]
            a = "relay"
            b = "base"
            mechanism = "tap"
        "#;
        let topology = parse(text).unwrap();
        assert_eq!(joined(&topology), [(0, 1), (1, 2)]);
        let first = &topology.links[0].options;
        assert_eq!(first.rate, Some(BitRate(10_000_000)));
        assert_eq!((first.delay, first.seed), (Some(Nanos::from_millis(5)), Some(3)));
        assert_eq!(topology.links[1].options.mechanism, Some(Mechanism::Tap));
    }

    #[test]
    fn topology_file_errors_name_their_line() {
        let two = "version = 1\nnodes = [\"a\", \"b\"]\n";
        for (text, line, right) in [
            ("version = 2\nnodes = []".to_owned(), 1, "write 1"),
            ("version = 1\nnodes = [\n\"a\",\n\"b-c\"]".to_owned(), 4, "digits or underscores"),
            ("version = 1\nnodes = [\"lo\"]".to_owned(), 2, "not all, default, lo, localhost"),
            ("version = 1\nnodes = [\"LocalHost\"]".to_owned(), 2, "cannot be a node"),
            (format!("{two}[[links]]\na=\"a\"\nb=\"b\"\nrate = \"7bit/s\""), 6, "minimum rate"),
            ("version = 1\nnodes = [\"a\", \"a\"]".to_owned(), 2, "listed twice"),
            (format!("{two}[[links]]\na = \"a\"\nb = \"c\""), 5, "nodes are a, b"),
            (format!("{two}[[links]]\na = \"a\"\nb = \"a\""), 5, "two different nodes"),
            (format!("{two}[[links]]\na=\"a\"\nb=\"b\"\nrate = \"10\""), 6, "100Mbit/s"),
            (format!("{two}[[links]]\na=\"a\"\nb=\"b\"\nrate = 10"), 6, "string"),
            (format!("{two}[[links]]\na=\"a\"\nb=\"b\"\nspeed = 1"), 6, "expected one of"),
            (format!("{two}[[links]]\na=\"a\"\nb=\"b\"\nmechanism=\"x\""), 6, "netem, tbf and tap"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(&format!("lab.toml, line {line}: ")), "{text}\n{error}");
            assert!(error.contains(right), "{text}\n{error}");
        }
    }

    #[test]
    fn inconsistent_parameters_error_names_link() {
        let wrong = |options| Topology::read("line:2", &options).unwrap_err().to_string();
        let jitter = LinkOptions { jitter: Some(Nanos(5)), ..LinkOptions::default() };
        assert!(wrong(jitter).starts_with("link n1 - n2: jitter is 5ns"));
        let tbf = LinkOptions {
            mechanism: Some(Mechanism::Tbf),
            delay: Some(Nanos(5)),
            ..LinkOptions::default()
        };
        assert!(wrong(tbf).contains("tbf gives a rate and nothing else"));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC{0,200}") {
            let _ = Topology::parse(&text, "lab.toml");
        }
    }
}
