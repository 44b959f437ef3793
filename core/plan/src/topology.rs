//! Topologies: where the nodes of a plan come from, and how they are connected.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use dwell_units::{BitRate, Nanos, Ratio};
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;
use toml::Value;

/// Maximum number of nodes of a lab without a file.
const MAX_LAB_NODES: u32 = 250;

/// Number of nodes of a Wi-Fi lab.
const RADIO_NODES: RangeInclusive<u32> = 2..=8;

/// Origin of the nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "TopologyFields")]
pub enum Topology {
    /// Network namespaces of one kernel.
    Lab(LabTopology),
    /// Machines that are bound to these roles when the run starts.
    Devices(Vec<String>),
}

/// A lab and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct LabTopology {
    /// Shape.
    pub lab: LabSpec,
    /// Origin of the routes.
    pub routing: Routing,
    /// Settings of every link.
    pub link: LinkPlan,
    /// CPU quotas of nodes, as shares of one processor.
    pub quota: BTreeMap<String, Quota>,
}

/// The fields of `[topology]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFields {
    lab: Option<LabSpec>,
    roles: Option<Vec<String>>,
    routing: Option<Routing>,
    link: Option<LinkPlan>,
    quota: Option<BTreeMap<String, Quota>>,
}

impl TryFrom<TopologyFields> for Topology {
    type Error = String;

    fn try_from(fields: TopologyFields) -> Result<Self, String> {
        let TopologyFields { lab, roles, routing, link, quota } = fields;
        let of_labs =
            [("routing", routing.is_some()), ("link", link.is_some()), ("quota", quota.is_some())];
        match (lab, roles) {
            (Some(lab), None) => Ok(Self::Lab(LabTopology {
                lab,
                routing: routing.unwrap_or_default(),
                link: link.unwrap_or_default(),
                quota: quota.unwrap_or_default(),
            })),
            (None, Some(roles)) => match of_labs.into_iter().find(|(_, given)| *given) {
                Some((field, _)) => Err(format!("'{field}' needs a lab; remove it or roles")),
                None => Ok(Self::Devices(roles)),
            },
            (Some(_), Some(_)) => Err("give lab or roles, not both".into()),
            (None, None) => Err("give a lab, like lab = \"line:3\", or roles of devices".into()),
        }
    }
}

impl Topology {
    /// Names of the nodes; `None` for a lab file, whose text is not known here.
    pub fn node_names(&self) -> Option<Vec<String>> {
        match self {
            Self::Lab(lab) => lab.lab.node_names(),
            Self::Devices(roles) => Some(roles.clone()),
        }
    }

    /// Settings of emulated links; `None` for devices.
    pub const fn link(&self) -> Option<&LinkPlan> {
        match self {
            Self::Lab(lab) => Some(&lab.link),
            Self::Devices(_) => None,
        }
    }

    /// Whether every link has the MTU of Ethernet. Links of devices and of a lab file may have a
    /// larger one.
    pub const fn has_ethernet_mtu(&self) -> bool {
        match self {
            Self::Lab(lab) => !matches!(lab.lab, LabSpec::File(_)),
            Self::Devices(_) => false,
        }
    }
}

/// Shape of a lab, as `line:N`, `star:N`, `forced:N`, `wifi:N` or the path of a file ending in
/// `.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum LabSpec {
    /// Nodes in a line.
    Line(u32),
    /// Nodes around the first.
    Star(u32),
    /// Nodes on one bridge whose filters force them into a line.
    Forced(u32),
    /// Simulated radios in an ad hoc network, forced into a line.
    Wifi(u32),
    /// Path of the lab's TOML file.
    File(String),
}

/// A text that describes no lab.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LabSpecError {
    /// The number of nodes is invalid.
    #[error("'{0}': a lab has 1 to {MAX_LAB_NODES} nodes, like line:3")]
    Size(String),
    /// The number of radios is invalid.
    #[error("'{0}': a Wi-Fi lab has {min} to {max} nodes, like wifi:3", min = RADIO_NODES.start(), max = RADIO_NODES.end())]
    Radios(String),
    /// The shape is unknown.
    #[error(
        "unknown lab '{0}'; known are line:N, star:N, forced:N, wifi:N and a file ending in .toml"
    )]
    Shape(String),
}

impl LabSpec {
    fn node_names(&self) -> Option<Vec<String>> {
        match self {
            Self::Line(count) | Self::Star(count) | Self::Forced(count) | Self::Wifi(count) => {
                Some((1..=*count).map(|n| format!("n{n}")).collect())
            }
            Self::File(_) => None,
        }
    }
}

impl FromStr for LabSpec {
    type Err = LabSpecError;

    fn from_str(text: &str) -> Result<Self, LabSpecError> {
        let (shape, count) = text.split_once(':').unwrap_or((text, ""));
        let of_size: fn(u32) -> Self = match shape {
            "line" => Self::Line,
            "star" => Self::Star,
            "forced" => Self::Forced,
            "wifi" => {
                let count = count.parse().ok().filter(|count| RADIO_NODES.contains(count));
                return count.map(Self::Wifi).ok_or_else(|| LabSpecError::Radios(text.to_owned()));
            }
            _ if text.ends_with(".toml") => return Ok(Self::File(text.to_owned())),
            _ => return Err(LabSpecError::Shape(text.to_owned())),
        };
        let count = count.parse().ok().filter(|count| (1..=MAX_LAB_NODES).contains(count));
        count.map(of_size).ok_or_else(|| LabSpecError::Size(text.to_owned()))
    }
}

impl TryFrom<String> for LabSpec {
    type Error = LabSpecError;

    fn try_from(text: String) -> Result<Self, LabSpecError> {
        text.parse()
    }
}

impl fmt::Display for LabSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(count) => write!(f, "line:{count}"),
            Self::Star(count) => write!(f, "star:{count}"),
            Self::Forced(count) => write!(f, "forced:{count}"),
            Self::Wifi(count) => write!(f, "wifi:{count}"),
            Self::File(path) => f.write_str(path),
        }
    }
}

/// CPU quota of a node as a share of one processor. `"none"` allows an unlimited value on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota(pub Option<Ratio>);

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text == "none" => Ok(Self(None)),
            share => Ratio::deserialize(share)
                .map(|share| Self(Some(share)))
                .map_err(|error| de::Error::custom(error.message())),
        }
    }
}

/// Origin of a lab's routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// Static routes set up with the lab.
    #[default]
    Static,
    /// The routing daemon babeld on every node.
    Babel,
}

/// Settings of every link of a lab.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// Bits per second. `"none"` allows an unlimited value on an axis.
    #[serde(default, deserialize_with = "rate_or_none")]
    pub rate: Option<BitRate>,
    /// One-way delay.
    pub delay: Option<Nanos>,
    /// Maximum deviation from the delay.
    pub jitter: Option<Nanos>,
    /// Share of packets lost.
    pub loss: Option<Ratio>,
    /// Share of packets duplicated.
    pub duplicate: Option<Ratio>,
    /// Share of packets that bypass the delay.
    pub reorder: Option<Ratio>,
    /// Seed of random link effects.
    pub seed: Option<u64>,
    /// `netem`, `tbf` or `tap`.
    pub mechanism: Option<String>,
}

fn rate_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BitRate>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) if text == "none" => Ok(None),
        rate => BitRate::deserialize(rate).map(Some).map_err(|e| de::Error::custom(e.message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_spec_reads_shapes_and_files() {
        for text in ["line:3", "star:250", "forced:1", "wifi:8", "labs/field.toml", "a:b.toml"] {
            assert_eq!(text.parse::<LabSpec>().unwrap().to_string(), text);
        }
        assert_eq!("line:3".parse(), Ok(LabSpec::Line(3)));
        for text in ["line:0", "star:251", "forced:x", "line", "line:a.toml"] {
            assert_eq!(text.parse::<LabSpec>(), Err(LabSpecError::Size(text.to_owned())));
        }
        for text in ["wifi:1", "wifi:9", "wifi:", "wifi"] {
            assert_eq!(text.parse::<LabSpec>(), Err(LabSpecError::Radios(text.to_owned())));
        }
        for text in ["ring:3", "n1", ""] {
            assert_eq!(text.parse::<LabSpec>(), Err(LabSpecError::Shape(text.to_owned())));
        }
    }

    #[test]
    fn topology_is_a_lab_or_roles_but_not_a_mixture() {
        let read = toml::from_str::<Topology>;
        let devices = read("roles = [\"sender\", \"receiver\"]").unwrap();
        assert_eq!(devices.node_names().unwrap(), ["sender", "receiver"]);
        assert_eq!((devices.link(), devices.has_ethernet_mtu()), (None, false));
        let lab = read("lab = \"line:2\"\nlink = { rate = \"1Mbit/s\" }").unwrap();
        assert_eq!(lab.link().unwrap().rate, Some(BitRate(1_000_000)));
        for (text, words) in [
            ("lab = \"line:2\"\nroles = [\"a\"]", "lab or roles, not both"),
            ("roles = [\"a\"]\nlink = { delay = \"1ms\" }", "'link' needs a lab"),
            ("roles = [\"a\"]\nquota = { a = \"50%\" }", "'quota' needs a lab"),
            ("roles = [\"a\"]\nrouting = \"babel\"", "'routing' needs a lab"),
            ("", "give a lab"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message().contains(words), "{text}: {error}");
        }
    }
}
