//! TOML files of topologies.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dwell_units::{BitRate, Nanos, Ratio};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;

use super::{
    DeviceKind, DeviceRequest, Edge, LinkOptions, MAX_NODES, Mechanism, RESERVED, Topology,
    is_node_name, quota_share, rate,
};
use crate::error::TopologyError;

impl Topology {
    pub(super) fn file(path: &Path) -> Result<Self, TopologyError> {
        const MAX_FILE_LEN: u64 = 4 << 20;
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_LEN).read_to_string(&mut text))
            .map_err(|error| TopologyError::Read { path: path.to_owned(), error })?;
        let mut topology = Self::parse(&text, &path.display().to_string())?;
        // The path of an image is relative to the file.
        let folder = path.parent().unwrap_or(Path::new(""));
        for (_, device) in &mut topology.devices {
            device.image = device.image.take().map(|image| folder.join(image));
        }
        Ok(topology)
    }

    /// Parses the text of a topology file; `file` is its name, for messages.
    pub(super) fn parse(text: &str, file: &str) -> Result<Self, TopologyError> {
        let wrong = |at: usize, message: String| TopologyError::File {
            file: file.to_owned(),
            line: 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count(),
            message,
        };
        let read: TopologyFile = toml::from_str(text)
            .map_err(|e| wrong(e.span().map_or(0, |s| s.start), e.message().to_owned()))?;
        if *read.version.get_ref() != 1 {
            let message = format!("version {} is not supported; write 1", read.version.get_ref());
            return Err(wrong(read.version.span().start, message));
        }
        if read.nodes.len() > MAX_NODES {
            let count = read.nodes.len() as u64;
            return Err(TopologyError::Count { count, max: MAX_NODES });
        }
        let mut nodes: Vec<String> = Vec::new();
        for node in read.nodes {
            let (at, name) = (node.span().start, node.into_inner());
            if !is_node_name(&name) {
                return Err(wrong(
                    at,
                    format!(
                        "'{name}' cannot be a node; a name is a letter and up to 14 letters, \
                         digits or underscores, and not {}",
                        RESERVED.join(", ")
                    ),
                ));
            }
            if nodes.contains(&name) {
                return Err(wrong(at, format!("node '{name}' is listed twice")));
            }
            nodes.push(name);
        }
        let mut seen = HashSet::new();
        let mut links = Vec::new();
        for link in read.links {
            let place = |end: &Spanned<String>| {
                let name = end.get_ref();
                nodes.iter().position(|node| node == name).ok_or_else(|| {
                    let known = nodes.join(", ");
                    wrong(end.span().start, format!("there is no node '{name}'; nodes are {known}"))
                })
            };
            let (a, b) = (place(&link.a)?, place(&link.b)?);
            if a == b {
                return Err(wrong(link.b.span().start, "a link joins two different nodes".into()));
            }
            if !seen.insert((a.min(b), a.max(b))) {
                let message = format!("{} and {} are joined already", nodes[a], nodes[b]);
                return Err(wrong(link.b.span().start, message));
            }
            links.push(Edge { a, b, options: link.options() });
        }
        let mut quotas = Vec::new();
        for (name, share) in read.quota {
            let Some(node) = nodes.iter().position(|node| node == name.get_ref()) else {
                let (name, known) = (name.get_ref(), nodes.join(", "));
                let message = format!("there is no node '{name}'; nodes are {known}");
                return Err(wrong(at_of(&share), message));
            };
            let at = at_of(&share);
            let share = quota_share(share.get_ref()).map_err(|message| wrong(at, message))?;
            quotas.push((node, share));
        }
        let mut devices = Vec::new();
        for (name, device) in read.device {
            let Some(node) = nodes.iter().position(|node| node == name.get_ref()) else {
                let (name, known) = (name.get_ref(), nodes.join(", "));
                let message = format!("there is no node '{name}'; nodes are {known}");
                return Err(wrong(at_of(&device.kind), message));
            };
            let at = at_of(&device.kind);
            let kind: DeviceKind =
                device.kind.get_ref().parse().map_err(|message| wrong(at, message))?;
            devices.push((node, DeviceRequest { kind, image: device.image }));
        }
        Ok(Self { nodes, links, quotas, devices, ..Self::default() })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFile {
    version: Spanned<u32>,
    nodes: Vec<Spanned<String>>,
    #[serde(default)]
    links: Vec<LinkEntry>,
    /// CPU shares, by node.
    #[serde(default)]
    quota: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Devices, by node.
    #[serde(default)]
    device: BTreeMap<Spanned<String>, DeviceEntry>,
}

/// A device of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceEntry {
    kind: Spanned<String>,
    image: Option<PathBuf>,
}

fn at_of(value: &Spanned<String>) -> usize {
    value.span().start
}

/// A link of the file, as a flat structure: only there are unknown keys refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    a: Spanned<String>,
    b: Spanned<String>,
    #[serde(default, deserialize_with = "quoted_rate")]
    rate: Option<BitRate>,
    #[serde(default, deserialize_with = "quoted")]
    delay: Option<Nanos>,
    #[serde(default, deserialize_with = "quoted")]
    jitter: Option<Nanos>,
    #[serde(default, deserialize_with = "quoted")]
    loss: Option<Ratio>,
    #[serde(default, deserialize_with = "quoted")]
    duplicate: Option<Ratio>,
    #[serde(default, deserialize_with = "quoted")]
    reorder: Option<Ratio>,
    #[serde(default)]
    seed: Option<u64>,
    #[serde(default, deserialize_with = "quoted")]
    mechanism: Option<Mechanism>,
}

impl LinkEntry {
    fn options(&self) -> LinkOptions {
        LinkOptions {
            rate: self.rate,
            delay: self.delay,
            jitter: self.jitter,
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            seed: self.seed,
            mechanism: self.mechanism,
        }
    }
}

/// Parses a value written as text, in the common grammar of quantities.
fn quoted<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

fn quoted_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BitRate>, D::Error> {
    rate(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}
