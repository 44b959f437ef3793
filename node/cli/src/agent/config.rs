//! Configuration file of an agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use dwell_protocol::ReflectJob;
use dwell_rollup::{DEFAULT_SPOOL_DIR, LocalLimits, Name, NodeSchedule, ScheduleEntry};
use dwell_units::{Bytes, Nanos};
use serde::Deserialize;

/// Default size of a spool.
const DEFAULT_SPOOL_SIZE: Bytes = Bytes(64 << 20);

/// Minimum size of a spool: less does not hold the files in use.
const MIN_SPOOL_SIZE: Bytes = Bytes(1 << 20);

/// Default time between writes to the medium.
const DEFAULT_SYNC_INTERVAL: Nanos = Nanos::from_secs(30);

/// Configuration of an agent (TOML).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentConfig {
    /// Name of this node in records and schedules.
    pub(super) node: Name,
    /// Directory of the spool.
    #[serde(default = "default_spool")]
    pub(super) spool: PathBuf,
    /// Maximum size of the records in it.
    #[serde(default = "default_spool_size")]
    pub(super) spool_size: Bytes,
    /// Time after which records are on the medium and survive a power failure.
    #[serde(default = "default_sync_interval")]
    pub(super) sync_interval: Nanos,
    /// Limits that no schedule can exceed.
    #[serde(default)]
    pub(super) limits: LocalLimits,
    /// Probes to answer; `None`: none.
    #[serde(default)]
    pub(super) reflect: Option<ReflectJob>,
    /// Streams besides those of the hub's schedule.
    #[serde(default)]
    pub(super) entries: Vec<ScheduleEntry>,
}

fn default_spool() -> PathBuf {
    DEFAULT_SPOOL_DIR.into()
}

const fn default_spool_size() -> Bytes {
    DEFAULT_SPOOL_SIZE
}

const fn default_sync_interval() -> Nanos {
    DEFAULT_SYNC_INTERVAL
}

impl AgentConfig {
    /// Reads and checks a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read configuration {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("invalid configuration {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        // One deserializer for all jobs: a second one for TOML would add a tenth to the program.
        let value: serde_json::Value = toml::from_str(text)?;
        let config: Self = serde_json::from_value(value)?;
        if config.spool_size < MIN_SPOOL_SIZE {
            bail!("spool_size {}: at least {MIN_SPOOL_SIZE}", config.spool_size);
        }
        if config.sync_interval < Nanos::ZERO {
            bail!("sync_interval {}: 0 or more", config.sync_interval);
        }
        config.own_schedule().check()?;
        Ok(config)
    }

    /// The entries of the configuration.
    fn own_schedule(&self) -> NodeSchedule {
        NodeSchedule { version: 0, node: self.node.clone(), entries: self.entries.clone() }
    }

    /// All entries, each with the version of its schedule: own ones first. An entry of the hub with the
    /// name of an own one is left out.
    pub(super) fn merged(&self, schedule: Option<&NodeSchedule>) -> (NodeSchedule, Vec<Name>) {
        let own: BTreeSet<_> = self.entries.iter().map(|entry| &entry.name).collect();
        let of_hub = schedule.map_or(&[][..], |schedule| &schedule.entries);
        let (hidden, added): (Vec<_>, Vec<_>) =
            of_hub.iter().cloned().partition(|entry| own.contains(&entry.name));
        let mut all = self.own_schedule();
        all.version = schedule.map_or(0, |schedule| schedule.version);
        all.entries.extend(added);
        (all, hidden.into_iter().map(|entry| entry.name).collect())
    }

    /// Version of the schedule that an entry belongs to.
    pub(super) fn version_of(&self, entry: &Name, schedule: &NodeSchedule) -> u64 {
        let is_own = self.entries.iter().any(|own| own.name == *entry);
        if is_own { 0 } else { schedule.version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL_CONFIG: &str = r#"
        node = "n1"
        spool = "/tmp/spool"
        spool_size = "8MiB"
        sync_interval = "5s"

        [limits]
        packets = "200pps"
        bytes_per_day = "500MB"
        targets = ["10.0.0.0/8"]

        [reflect]
        urls = ["stamp://0.0.0.0:862"]

        [[entries]]
        name = "gateway"
        reflector = "gw"
        target = "icmp://10.0.0.1"
        interval = "1s"
    "#;

    #[test]
    fn configuration_has_defaults_and_refuses_unknown_fields() {
        let config = AgentConfig::parse("node = \"n1\"").unwrap();
        assert_eq!((config.spool_size, config.reflect), (DEFAULT_SPOOL_SIZE, None));
        assert_eq!(config.spool, Path::new(DEFAULT_SPOOL_DIR));
        let full = AgentConfig::parse(FULL_CONFIG).unwrap();
        assert_eq!(full.entries[0].interval, Nanos::from_secs(1));
        assert_eq!(full.limits.packets, "200pps".parse().ok());
        for (wrong, text) in [
            ("", "missing field `node`"),
            ("node = \"a/b\"", "invalid name 'a/b'"),
            ("node = \"n1\"\nspol = \"/x\"", "unknown field `spol`"),
            ("node = \"n1\"\nspool_size = \"10KiB\"", "spool_size 10KiB: at least 1MiB"),
            (&FULL_CONFIG.replace("\"1s\"", "\"1us\""), "interval 1us"),
        ] {
            let error = format!("{:#}", AgentConfig::parse(wrong).unwrap_err());
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn example_is_a_configuration() {
        let example = include_str!("../../../../packaging/agent.toml");
        let config = AgentConfig::parse(example).unwrap();
        assert_eq!(config.own_schedule().refusals(&config.limits), []);
        assert_eq!(config.spool, Path::new(DEFAULT_SPOOL_DIR));
        assert!(config.reflect.is_some() && config.entries.len() == 1);
    }

    #[test]
    fn own_entries_hide_those_of_the_hub_with_their_name() {
        let config = AgentConfig::parse(FULL_CONFIG).unwrap();
        let entry = |name: &str| ScheduleEntry {
            name: name.parse().unwrap(),
            reflector: "n2".parse().unwrap(),
            ..config.entries[0].clone()
        };
        let schedule = NodeSchedule {
            version: 7,
            node: config.node.clone(),
            entries: vec![entry("gateway"), entry("mesh")],
        };
        let (all, hidden) = config.merged(Some(&schedule));
        let names: Vec<_> = all.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!((names, all.version), (vec!["gateway", "mesh"], 7));
        assert_eq!(hidden, ["gateway".parse().unwrap()]);
        assert_eq!(config.version_of(&entry("gateway").name, &all), 0);
        assert_eq!(config.version_of(&entry("mesh").name, &all), 7);
        assert_eq!(config.merged(None).0.entries.len(), 1);
    }
}
