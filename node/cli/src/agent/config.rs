//! Configuration file of an agent.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use dwell_protocol::ReflectJob;
use dwell_rollup::{LocalLimits, Name, NodeSchedule, ScheduleEntry};
use dwell_units::{Bytes, Nanos};
use serde_json::{Map, Value, json};

use super::spool_access::default_dir;

/// Default size of a spool.
const DEFAULT_SPOOL_SIZE: Bytes = Bytes(64 << 20);

/// Minimum size of a spool: less does not hold the files in use.
const MIN_SPOOL_SIZE: Bytes = Bytes(1 << 20);

/// Default time between writes to the medium.
const DEFAULT_SYNC_INTERVAL: Nanos = Nanos::from_secs(30);

/// Configuration of an agent (TOML).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentConfig {
    /// Name of this node in records and schedules.
    pub(super) node: Name,
    /// Directory of the spool.
    pub(super) spool: PathBuf,
    /// Maximum size of the records in it.
    pub(super) spool_size: Bytes,
    /// Time after which records are on the medium and survive a power failure.
    pub(super) sync_interval: Nanos,
    /// Limits that no schedule can exceed.
    pub(super) limits: LocalLimits,
    /// Probes to answer; `None`: none.
    pub(super) reflect: Option<ReflectJob>,
    /// Streams besides those of the hub's schedule.
    pub(super) entries: Vec<ScheduleEntry>,
}

/// A table of the file. A field that is not taken from it is unknown. Reading fields by hand keeps the
/// program small, where a deserializer of TOML for every type would add to it.
struct Table {
    /// Prefix of its fields in messages, such as `limits.`.
    path: &'static str,
    fields: Map<String, Value>,
}

impl Table {
    fn new(path: &'static str, value: Value) -> anyhow::Result<Self> {
        match value {
            Value::Object(fields) => Ok(Self { path, fields }),
            _ => bail!("{}: not a table", path.trim_end_matches('.')),
        }
    }

    /// Takes a table below.
    fn table(&mut self, name: &str, path: &'static str) -> anyhow::Result<Option<Self>> {
        self.fields.remove(name).map(|value| Self::new(path, value)).transpose()
    }

    fn error(&self, name: &str, what: impl Display) -> anyhow::Error {
        anyhow!("{}{name}: {what}", self.path)
    }

    /// Takes a text and parses it.
    fn parse<T: FromStr<Err: Display>>(&mut self, name: &str) -> anyhow::Result<Option<T>> {
        let text = match self.fields.remove(name) {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(other) => return Err(self.error(name, format!("{other} is not text in quotes"))),
        };
        text.parse().map(Some).map_err(|error| self.error(name, error))
    }

    /// Takes a list of texts and parses each.
    fn list<T: FromStr<Err: Display>>(&mut self, name: &str) -> anyhow::Result<Vec<T>> {
        let list = match self.fields.remove(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(self.error(name, format!("{other} is not a list"))),
        };
        let parse = |value: Value| match value {
            Value::String(text) => text.parse().map_err(|error| self.error(name, error)),
            other => Err(self.error(name, format!("{other} is not text in quotes"))),
        };
        list.into_iter().map(parse).collect()
    }

    /// Takes a value that is true or false.
    fn flag(&mut self, name: &str) -> anyhow::Result<bool> {
        match self.fields.remove(name) {
            None => Ok(false),
            Some(Value::Bool(is_set)) => Ok(is_set),
            Some(other) => Err(self.error(name, format!("{other} is not true or false"))),
        }
    }

    /// Refuses fields that were not taken.
    fn end(self) -> anyhow::Result<()> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(name) => bail!("unknown field {}{name}", self.path),
        }
    }
}

impl AgentConfig {
    /// Reads and checks a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read configuration {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("invalid configuration {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut fields = Table::new("", toml::from_str::<Value>(text)?)?;
        let node: Name = fields.parse("node")?.context("the field node is missing")?;
        let spool: Option<PathBuf> = fields.parse("spool")?;
        let spool_size = fields.parse("spool_size")?.unwrap_or(DEFAULT_SPOOL_SIZE);
        if spool_size < MIN_SPOOL_SIZE {
            bail!("spool_size {spool_size}: at least {MIN_SPOOL_SIZE}");
        }
        let sync_interval = fields.parse("sync_interval")?.unwrap_or(DEFAULT_SYNC_INTERVAL);
        if sync_interval < Nanos::ZERO {
            bail!("sync_interval {sync_interval}: 0 or more");
        }
        let limits = fields.table("limits", "limits.")?.map(limits).transpose()?;
        let reflect = fields.table("reflect", "reflect.")?.map(reflect).transpose()?;
        // In the form of a schedule, whose entries have the same fields.
        let entries = fields.fields.remove("entries").unwrap_or_else(|| json!([]));
        let own = json!({ "version": 0, "node": node, "entries": entries }).to_string();
        let own = NodeSchedule::from_json(own.as_bytes()).context("entries")?;
        fields.end()?;
        Ok(Self {
            node,
            spool: spool.unwrap_or_else(default_dir),
            spool_size,
            sync_interval,
            limits: limits.unwrap_or_default(),
            reflect,
            entries: own.entries,
        })
    }

    /// All entries, each with the version of its schedule: own ones first. An entry of the hub with the
    /// name of an own one is left out.
    pub(super) fn merged(&self, schedule: Option<&NodeSchedule>) -> (NodeSchedule, Vec<Name>) {
        let is_own = |name: &Name| self.entries.iter().any(|own| own.name == *name);
        let of_hub = schedule.map_or(&[][..], |schedule| &schedule.entries);
        let (hidden, added): (Vec<_>, Vec<_>) =
            of_hub.iter().cloned().partition(|entry| is_own(&entry.name));
        let version = schedule.map_or(0, |schedule| schedule.version);
        let entries = [&self.entries[..], &added].concat();
        let all = NodeSchedule { version, node: self.node.clone(), entries };
        (all, hidden.into_iter().map(|entry| entry.name).collect())
    }

    /// Version of the schedule that an entry belongs to.
    pub(super) fn version_of(&self, entry: &Name, schedule: &NodeSchedule) -> u64 {
        let is_own = self.entries.iter().any(|own| own.name == *entry);
        if is_own { 0 } else { schedule.version }
    }
}

fn limits(mut fields: Table) -> anyhow::Result<LocalLimits> {
    let limits = LocalLimits {
        packets: fields.parse("packets")?,
        bytes_per_day: fields.parse("bytes_per_day")?,
        targets: fields.list("targets")?,
    };
    fields.end()?;
    Ok(limits)
}

fn reflect(mut fields: Table) -> anyhow::Result<ReflectJob> {
    let job = ReflectJob {
        urls: fields.list("urls")?,
        key_file: fields.parse("key_file")?,
        limit: fields.parse("limit")?,
        stateless: fields.flag("stateless")?,
        allow_any_port: fields.flag("allow_any_port")?,
        ..ReflectJob::default()
    };
    fields.end()?;
    Ok(job)
}

#[cfg(test)]
mod tests {
    use dwell_rollup::DEFAULT_SPOOL_DIR;

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
        limit = "off"
        stateless = true

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
        assert_eq!(config.spool, default_dir());
        let full = AgentConfig::parse(FULL_CONFIG).unwrap();
        assert_eq!(full.entries[0].interval, Nanos::from_secs(1));
        assert_eq!(full.limits.packets, "200pps".parse().ok());
        let reflect = full.reflect.unwrap();
        assert_eq!((reflect.limit, reflect.stateless), ("off".parse().ok(), true));
        for (wrong, text) in [
            ("", "the field node is missing"),
            ("node = 1", "node: 1 is not text in quotes"),
            ("node = \"a/b\"", "invalid name 'a/b'"),
            ("node = \"n1\"\nspol = \"/x\"", "unknown field spol"),
            ("node = \"n1\"\nspool_size = \"10KiB\"", "spool_size 10KiB: at least 1MiB"),
            ("node = \"n1\"\nlimits = 3", "limits: not a table"),
            ("node = \"n1\"\n[limits]\ntargets = [\"x\"]", "limits.targets: 'x' is not a network"),
            ("node = \"n1\"\n[limits]\nrate = \"1pps\"", "unknown field limits.rate"),
            (
                "node = \"n1\"\n[reflect]\nstateless = 1",
                "reflect.stateless: 1 is not true or false",
            ),
            (&FULL_CONFIG.replace("\"1s\"", "\"1us\""), "entries: invalid schedule: entry gateway"),
            (&FULL_CONFIG.replace("\"gw\"", "\"gw\"\nburst = 1"), "unknown field `burst`"),
            ("node =", "TOML parse error"),
        ] {
            let error = format!("{:#}", AgentConfig::parse(wrong).unwrap_err());
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn example_is_a_configuration() {
        let example = include_str!("../../../../packaging/agent.toml");
        let config = AgentConfig::parse(example).unwrap();
        assert_eq!(config.merged(None).0.refusals(&config.limits), []);
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
