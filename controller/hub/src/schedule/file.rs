//! The TOML file of a schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dwell_units::{Bytes, Nanos, PacketRate};
use serde::Deserialize;

use super::error::ScheduleError;
use super::window::Window;

/// Version of the file format.
const VERSION: u32 = 1;

/// Maximum length of a schedule in bytes.
const MAX_LEN: usize = 1 << 20;

/// Maximum length of the name of a measurement in bytes.
const MAX_NAME_LEN: usize = 63;

/// A schedule as it was written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    version: u32,
    /// Settings of single nodes, by name.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeSettings>,
    /// Members of groups, by name. The group `all` contains every known node.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<String>>,
    /// Limits of each node.
    #[serde(default)]
    pub limits: Limits,
    /// The measurements.
    #[serde(default)]
    pub measure: Vec<Measure>,
}

/// Settings of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSettings {
    /// Address that probes are sent to; without one, that of the device.
    pub address: Option<IpAddr>,
}

/// Limits of each node. A schedule that exceeds one is not applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Packets that a node sends per second, probes and replies.
    pub packets_per_second: Option<f64>,
    /// Bytes of IP packets that a node sends per day, probes and replies.
    pub bytes_per_day: Option<Bytes>,
}

/// A measurement between pairs of nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Name, unique in the schedule. It is part of the identity of each stream.
    pub name: String,
    /// Full mesh: every ordered pair of these nodes.
    #[serde(default)]
    pub mesh: Option<Names>,
    /// Every node of one set to every node of another.
    #[serde(default)]
    pub star: Option<Star>,
    /// Single pairs, as `SENDER:REFLECTOR`.
    #[serde(default)]
    pub pairs: Vec<String>,
    /// Protocol of the probes: the scheme of a target.
    #[serde(default = "default_protocol")]
    pub protocol: String,
    /// Port of the reflectors; without one, that of the protocol.
    #[serde(default)]
    pub port: Option<u16>,
    /// Time between probes.
    #[serde(default)]
    pub interval: Option<Nanos>,
    /// Probes per second, instead of an interval.
    #[serde(default)]
    pub rate: Option<PacketRate>,
    /// Payload of a probe.
    #[serde(default)]
    pub size: Option<Bytes>,
    /// Replies that arrive after this time are late.
    #[serde(default)]
    pub timeout: Option<Nanos>,
    /// Daily window in UTC; without one, all day.
    #[serde(default)]
    pub window: Option<Window>,
    /// Keep samples in the spool of the sender. They take most of its space.
    #[serde(default = "yes")]
    pub samples: bool,
}

const fn yes() -> bool {
    true
}

/// The pairs of a star.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Star {
    /// Senders.
    pub from: Names,
    /// Reflectors.
    pub to: Names,
    /// Whether the reflectors also send to the senders.
    #[serde(default)]
    pub both: bool,
}

/// A name of a node or group, or a list of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a name of a node or group, or a list of them")]
pub enum Names {
    /// One name.
    One(String),
    /// Several names.
    Several(Vec<String>),
}

impl Names {
    /// The names.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

fn default_protocol() -> String {
    "stamp".to_owned()
}

/// Whether a name can be that of a measurement or group: letters, digits, `-`, `_` and `.`.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty()
        && name.len() <= MAX_NAME_LEN
        && name.bytes().all(allowed)
        && !name.starts_with(['-', '.'])
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// The text is no schedule, or its measurements contradict themselves. Names of nodes are not
    /// checked here.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        if text.len() > MAX_LEN {
            let message = format!("it has {} bytes, more than {MAX_LEN}", text.len());
            return Err(ScheduleError::Syntax(message));
        }
        let schedule: Self = toml::from_str(text)
            .map_err(|error| ScheduleError::Syntax(error.to_string().trim_end().to_owned()))?;
        if schedule.version != VERSION {
            return Err(ScheduleError::Version(schedule.version));
        }
        schedule.check()?;
        Ok(schedule)
    }

    fn check(&self) -> Result<(), ScheduleError> {
        const NAME_RULE: &str = "use letters, digits, '-', '_' and '.', at most 63";
        for group in self.groups.keys() {
            if group == "all" {
                let message = "the group 'all' contains every node; choose another name";
                return Err(ScheduleError::value("groups", message));
            }
            if !is_name(group) {
                let message = format!("invalid name '{group}'; {NAME_RULE}");
                return Err(ScheduleError::value("groups", message));
            }
            if self.nodes.contains_key(group) {
                let message = format!("'{group}' is the name of a node and of a group; rename one");
                return Err(ScheduleError::value("groups", message));
            }
        }
        let limit = self.limits.packets_per_second;
        if limit.is_some_and(|limit| !limit.is_finite() || limit <= 0.0) {
            let message = "packets_per_second must be above 0";
            return Err(ScheduleError::value("limits", message));
        }
        let mut names = BTreeSet::new();
        for measure in &self.measure {
            if !is_name(&measure.name) {
                let message = format!("invalid name '{}'; {NAME_RULE}", measure.name);
                return Err(ScheduleError::value("measure", message));
            }
            if !names.insert(&measure.name) {
                let message = "two measurements have this name; rename one";
                return Err(measure.error(message));
            }
            measure.check()?;
        }
        Ok(())
    }
}

impl Measure {
    pub(super) fn error(&self, message: impl Into<String>) -> ScheduleError {
        ScheduleError::value(format!("measure '{}'", self.name), message)
    }

    fn check(&self) -> Result<(), ScheduleError> {
        let shapes = [self.mesh.is_some(), self.star.is_some(), !self.pairs.is_empty()];
        if shapes.into_iter().filter(|shape| *shape).count() != 1 {
            return Err(self.error("give exactly one of mesh, star and pairs"));
        }
        if self.interval.is_some() && self.rate.is_some() {
            return Err(self.error("give interval or rate, not both"));
        }
        if self.interval.is_some_and(|interval| interval <= Nanos::ZERO) {
            return Err(self.error("interval must be above 0, like \"1s\""));
        }
        if self.rate.is_some_and(|rate| rate.gap().is_none()) {
            return Err(self.error("rate must be above 0, like \"10pps\""));
        }
        if self.timeout.is_some_and(|timeout| timeout <= Nanos::ZERO) {
            return Err(self.error("timeout must be above 0, like \"1s\""));
        }
        if self.port == Some(0) {
            return Err(self.error("port must be 1 to 65535"));
        }
        Ok(())
    }

    /// Time between probes.
    pub fn interval(&self) -> Nanos {
        let by_rate = self.rate.and_then(PacketRate::gap);
        by_rate.or(self.interval).unwrap_or(Nanos::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC*", lines in "[a-z\\[\\]{}=\", \n0-9:-]*") {
            let _ = Schedule::parse(&text);
            let measure = format!("version = 1\n[[measure]]\nname = \"m\"\n{lines}");
            let _ = Schedule::parse(&measure);
        }
    }

    fn error(text: &str) -> String {
        Schedule::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn schedule_is_read_with_defaults() {
        let schedule = Schedule::parse(
            "version = 1\n[groups]\ncore = [\"a\", \"b\"]\n\
             [[measure]]\nname = \"m\"\nmesh = \"core\"\n\
             [[measure]]\nname = \"s\"\nstar = { from = [\"core\"], to = \"c\" }\nrate = \"10pps\"\n",
        )
        .unwrap();
        let [mesh, star] = &schedule.measure[..] else { panic!("{schedule:?}") };
        assert_eq!((mesh.protocol.as_str(), mesh.interval()), ("stamp", Nanos::from_secs(1)));
        assert_eq!(star.interval(), Nanos::from_millis(100));
    }

    #[test]
    fn mistake_is_named_with_its_place() {
        let unknown = error("version = 1\n[[measure]]\nname = \"m\"\nmash = \"all\"\n");
        assert!(unknown.contains("mash") && unknown.contains("line 4"), "{unknown}");
        assert!(error("version = 2\n").contains("version = 2"));
        let measure =
            |lines: &str| error(&format!("version = 1\n[[measure]]\nname = \"m\"\n{lines}"));
        assert!(measure("").contains("measure 'm': give exactly one of mesh, star and pairs"));
        assert!(measure("mesh = \"all\"\npairs = [\"a:b\"]").contains("exactly one"));
        assert!(measure("mesh = \"all\"\ninterval = \"1s\"\nrate = \"1pps\"").contains("not both"));
        assert!(measure("mesh = \"all\"\ninterval = \"0s\"").contains("above 0"));
        assert!(measure("mesh = \"all\"\nrate = \"0pps\"").contains("above 0"));
        assert!(measure("mesh = \"all\"\ninterval = 1").contains("\"10ms\""));
        assert!(measure("mesh = \"all\"\nwindow = \"8-18\"").contains("08:00-18:00"));
        assert!(measure("mesh = 5").contains("a name of a node or group"));
        let twice = measure("mesh = \"all\"\n[[measure]]\nname = \"m\"\nmesh = \"all\"\n");
        assert!(twice.contains("two measurements"), "{twice}");
        assert!(error("version = 1\n[groups]\nall = []\n").contains("'all'"));
        assert!(error(&" ".repeat(MAX_LEN + 1)).contains("more than"));
    }
}
