//! Fields of a plan file.
//!
//! ```toml
//! version = 1
//! name = "sizes"
//! load = "none"                       # one of [loads.*]; "none" is built in
//!
//! [topology]
//! lab = "line:2"                      # or star:N, or the TOML file of a lab; or roles of devices
//! link = { rate = "100Mbit/s" }
//!
//! [ping]                              # what every trial measures
//! from = "n1"
//! to = "n2"
//! protocol = "stamp"
//! rate = "200pps"
//! duration = "5s"
//!
//! [loads.busy]
//! cpu = [{ on = "n2", level = "90%" }]
//!
//! [matrix]                            # what varies from cell to cell
//! size = { from = "100B", to = "1400B", step = "100B" }
//! load = ["none", "busy"]
//!
//! [trials]
//! repetitions = 3
//! ```

mod check;
mod file;

use std::collections::BTreeMap;

use dwell_engine::protocol::Scheme;
use dwell_units::{Bytes, Nanos, Rate, Ratio};
use serde::{Deserialize, Deserializer, de};
use toml::{Table, Value};

use crate::error::PlanError;
use crate::fields::field_names;
use crate::measurement::Measurement;
use crate::source::Source;
use crate::topology::{LabSpec, LabTopology, Topology};
use dwell_protocol::{
    Generator, Limit, NodeSimParameters, PingParameters, ReflectEngine, Scheduling, Stamps,
};

pub(crate) use file::PlanFile;

/// Supported format version.
const VERSION: u32 = 1;

/// Name of the built-in empty load.
pub(crate) const NO_LOAD: &str = "none";

/// Maximum number of repetitions per cell.
const MAX_REPETITIONS: u32 = 1_000_000;

/// A plan, with the values of one cell inserted.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Format version.
    pub version: u32,
    /// Name: letters, digits, hyphens, dots and underscores.
    pub name: String,
    /// Purpose, in one sentence.
    pub title: Option<String>,
    /// Load of this cell, by its name in `loads`.
    pub load: String,
    /// Nodes and how they are connected.
    pub topology: Topology,
    /// Settings for all jobs of a node.
    pub nodes: BTreeMap<String, NodeSettings>,
    /// Measurement that every trial makes.
    pub measurement: Measurement,
    /// Document whose claims are judged: `miya-2020`. The name is not checked here.
    pub claims: Option<String>,
    /// Settings of the reflector.
    pub reflect: ReflectPlan,
    /// Simulated node that answers in place of a reflector, if any.
    pub node_sim: Option<NodeSimParameters>,
    /// Loads that cells refer to.
    pub loads: BTreeMap<String, Load>,
    /// Axes by name, in file order (parsed by [`crate::expand`]).
    pub matrix: Table,
    /// Rules for some of the cells.
    pub constraint: Vec<Constraint>,
    /// Number and order of trials.
    pub trials: Trials,
    /// Conditions to stop early.
    pub stop: StopRules,
}

/// Settings for all jobs of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSettings {
    /// CPU of timing threads.
    pub cpu: Option<usize>,
}

/// Probes from one node to another: the fields that only plans have, and the shared options.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingPlan {
    /// Node that sends.
    pub from: String,
    /// Node that answers; a reflector is started there.
    pub to: String,
    /// Protocol, by its URL scheme.
    #[serde(default = "stamp", deserialize_with = "scheme")]
    pub protocol: Scheme,
    /// Port of the reflector; `None`: the protocol's default.
    pub port: Option<u16>,
    /// Alternative to `interval`: packets, or bits of IP packets of this size.
    pub rate: Option<Rate>,
    /// Busy-poll instead of sleeping.
    #[serde(default)]
    pub busy_poll: bool,
    /// Scheduling class of the timing thread.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Use IPv6.
    #[serde(default)]
    pub ipv6: bool,
    /// Options of the probes; their fields are in the same table.
    #[serde(skip)]
    pub parameters: PingParameters,
}

const fn stamp() -> Scheme {
    Scheme::Stamp
}

fn scheme<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scheme, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// Settings of the reflector.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReflectPlan {
    /// Busy-poll instead of sleeping.
    pub busy_poll: bool,
    /// Timestamp used as T2.
    pub stamps: Stamps,
    /// Copy the sender's sequence number instead of counting.
    pub stateless: bool,
    /// Replies per second and source.
    pub limit: Option<Limit>,
    /// Engine that replies.
    pub engine: ReflectEngine,
}

/// A load that runs during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// CPU load.
    pub cpu: Vec<CpuLoad>,
    /// Traffic.
    pub traffic: Vec<TrafficLoad>,
}

/// CPU load on a node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuLoad {
    /// Node.
    pub on: String,
    /// Share of each CPU.
    pub level: Ratio,
    /// CPUs; empty means all.
    #[serde(default)]
    pub cpus: Vec<usize>,
}

/// Traffic from one node to another.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficLoad {
    /// Node that sends.
    pub from: String,
    /// Node that receives and counts.
    pub to: String,
    /// Transport protocol.
    #[serde(default)]
    pub protocol: Transport,
    /// Rate of all flows together. Bits count IP packets, or payload with TCP. Required for UDP;
    /// without it TCP sends as fast as possible.
    pub rate: Option<Rate>,
    /// Number of flows.
    #[serde(default = "one")]
    pub flows: u32,
    /// Gaps: `constant`, `poisson` or `pareto(SHAPE)`.
    #[serde(default = "constant")]
    pub distribution: String,
    /// UDP payload, or bytes per write with TCP.
    pub size: Option<Bytes>,
    /// Seed of the gaps.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// Traffic generator.
    #[serde(default)]
    pub generator: Generator,
}

/// Transport protocol of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Packets on a schedule.
    #[default]
    Udp,
    /// Bulk transfer.
    Tcp,
}

impl TrafficLoad {
    /// UDP payload size.
    pub fn payload(&self) -> Bytes {
        self.size.unwrap_or(DEFAULT_PAYLOAD)
    }
}

/// Default payload: fits into 1500 B with IPv6 headers.
const DEFAULT_PAYLOAD: Bytes = Bytes(1400);

const fn one() -> u32 {
    1
}

fn constant() -> String {
    "constant".into()
}

const fn first_seed() -> u64 {
    1
}

/// Rule for the cells that have all of these values.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// Value, or list of values, by axis.
    pub when: BTreeMap<String, Value>,
    /// Drop these cells.
    #[serde(default)]
    pub drop: bool,
    /// Axes that replace those of the same name.
    #[serde(default)]
    pub matrix: Table,
}

/// Number and order of trials.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trials {
    /// Number of measurements per cell.
    pub repetitions: u32,
    /// Order.
    pub order: Order,
    /// Seed of the order; if missing, it is drawn and printed.
    pub seed: Option<u64>,
    /// Pause between trials.
    pub pause: Nanos,
    /// Time limit after which a trial fails [default: three times the expected time plus 30 s].
    pub time_limit: Option<Nanos>,
}

impl Default for Trials {
    fn default() -> Self {
        Self {
            repetitions: one(),
            order: Order::default(),
            seed: None,
            pause: Nanos::ZERO,
            time_limit: None,
        }
    }
}

/// Order of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Blocks that contain every cell once in random order. Drift during the run then affects all
    /// cells equally and does not resemble an effect of one of them.
    #[default]
    Blocks,
    /// All trials in random order.
    Random,
    /// Cell by cell, in matrix order.
    AsWritten,
}

/// Conditions to stop early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRules {
    /// Number of successive failed trials [default: 5].
    pub failures: Option<u32>,
    /// Time after which the run stops, at the end of the current trial.
    pub time: Option<Nanos>,
}

impl Plan {
    /// Parses a plan with overrides, each `PATH=VALUE`.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn parse(text: &str, settings: &[String]) -> Result<Self, PlanError> {
        let mut source = Source::parse(text)?;
        settings.iter().try_for_each(|setting| source.set(setting))?;
        Self::read(&source)
    }

    /// Reads and checks a plan without the values of any cell.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn read(source: &Source) -> Result<Self, PlanError> {
        Self::with(source, source.table().clone())
    }

    /// Reads `table`, the plan of `source` with the values of a cell inserted.
    pub(crate) fn with(source: &Source, table: Table) -> Result<Self, PlanError> {
        if let Some(version) = table.get("version").and_then(Value::as_integer)
            && version != i64::from(VERSION)
        {
            return Err(source.error(
                "version",
                format!("unsupported plan version {version}; this dwell reads version {VERSION}"),
            ));
        }
        let plan = source.read::<PlanFile>(table)?.into_plan(source)?;
        plan.check(source)?;
        Ok(plan)
    }

    /// Names of the fields and tables of a plan file.
    pub fn field_names() -> &'static [&'static str] {
        field_names::<PlanFile>()
    }

    /// Names of the nodes; `None` for a lab file whose text was not added.
    fn known_nodes(&self, source: &Source) -> Option<Vec<String>> {
        match &self.topology {
            Topology::Lab(LabTopology { lab: LabSpec::File(path), .. }) => {
                source.labs.nodes(path).map(<[String]>::to_vec)
            }
            topology => topology.node_names(),
        }
    }

    /// The load of this cell.
    pub fn load(&self) -> Load {
        self.loads.get(&self.load).cloned().unwrap_or_default()
    }
}

impl PingPlan {
    /// Size of an IP packet that contains a probe.
    pub(crate) fn ip_bytes(&self) -> u64 {
        let ip = if self.ipv6 { 40 } else { 20 };
        let spec = self.protocol.spec();
        let payload = self.parameters.size.map_or(spec.payload.default, |size| size.0);
        ip + spec.transport.header_len() + payload
    }

    /// Time between probes, from the interval or the rate.
    pub fn interval(&self) -> Option<Nanos> {
        match self.rate {
            None => self.parameters.interval,
            Some(Rate::Packets(rate)) => rate.gap(),
            Some(Rate::Bits(rate)) => rate.transmission_time(Bytes(self.ip_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::BitRate;

    use super::*;

    const PLAN: &str = r#"
version = 1
name = "sizes"

[topology]
lab = "line:3"
link = { rate = "100Mbit/s" }

[ping]
from = "n1"
to = "n3"
rate = "200pps"
duration = "5s"

[loads.busy]
cpu = [{ on = "n2", level = "90%" }]
"#;

    fn read(text: &str) -> Result<Plan, PlanError> {
        Plan::read(&Source::parse(text)?)
    }

    #[test]
    fn plan_fills_in_defaults() {
        let plan = read(PLAN).unwrap();
        let ping = plan.measurement.ping().unwrap();
        assert_eq!((plan.load.as_str(), ping.protocol), ("none", Scheme::Stamp));
        assert_eq!(ping.interval(), Some(Nanos::from_millis(5)));
        assert_eq!(plan.trials.repetitions, 1);
        assert_eq!(plan.topology.node_names().unwrap(), ["n1", "n2", "n3"]);
    }

    #[test]
    fn rate_in_bits_counts_ip_packets() {
        let plan = read(&PLAN.replace("200pps", "1Mbit/s")).unwrap();
        // 20 + 8 + 76 bytes.
        assert_eq!(plan.measurement.ping().unwrap().interval(), Some(Nanos(104 * 8 * 1_000)));
    }

    #[test]
    fn plan_reads_short_units_like_the_command_line() {
        let text = PLAN.replace("100Mbit/s", "100M").replace("90%", "90");
        let (short, long) = (read(&text).unwrap(), read(PLAN).unwrap());
        assert_eq!(short.topology.link().unwrap().rate, Some(BitRate(100_000_000)));
        assert_eq!(short, long);
    }

    #[test]
    fn plan_of_devices_expands_and_checks_its_roles() {
        let lab = "lab = \"line:3\"\nlink = { rate = \"100Mbit/s\" }";
        let text = PLAN.replace(lab, "roles = [\"n1\", \"n2\", \"n3\"]");
        crate::expand(&Source::parse(&text).unwrap(), 1).unwrap();
        for (from, to, field, words) in [
            ("\"n2\", \"n3\"]", "\"n2\", \"n2\"]", "topology.roles[2]", "listed twice"),
            ("\"n2\", \"n3\"]", "\"n=2\"]", "topology.roles[1]", "letters"),
            ("[\"n1\", \"n2\", \"n3\"]", "[]", "topology.roles", "one role or more"),
            ("to = \"n3\"", "to = \"n4\"", "ping.to", "in this topology; there are n1 to n3"),
            ("roles", "link.rate = \"1Mbit/s\"\nroles", "topology", "'link' needs a lab"),
            ("roles", "lab = \"line:3\"\nroles", "topology", "not both"),
        ] {
            let error = read(&text.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.message.contains(words), "{error}");
            assert!(error.at.is_some(), "{error}");
        }
    }

    #[test]
    fn engine_in_the_driver_needs_a_protocol_that_it_answers() {
        let text = format!("{PLAN}[reflect]\nengine = \"xdp\"\n");
        for (protocol, fits) in [("icmp", true), ("udp", true), ("tcp", false), ("text+udp", false)]
        {
            let from = format!("protocol = \"{protocol}\"\nfrom = \"n1\"");
            let text = text.replace("from = \"n1\"", &from);
            let found = crate::expand(&Source::parse(&text).unwrap(), 1).unwrap().plan_of(0);
            assert_eq!(found.is_ok(), fits, "{protocol}");
            if let Err(error) = found {
                assert!(error.to_string().contains("does not answer"), "{error}");
            }
        }
        let unknown = read(&text.replace("\"xdp\"", "\"dpdk\"")).unwrap_err();
        assert!(unknown.to_string().contains("socket"), "{unknown}");
    }

    #[test]
    fn simulated_node_and_clients_need_a_fitting_protocol() {
        let text = format!("{PLAN}[node_sim]\nlike = \"chung-2021-best\"\n[trials]\n");
        let clients = PLAN.replace("from = \"n1\"", "from = \"n1\"\nclients = 4");
        for (protocol, node_fits, clients_fit) in [
            ("text+udp", true, true),
            ("text+tcp", true, true),
            ("udp", false, true),
            ("stamp", false, false),
            ("icmp", false, false),
        ] {
            let with = |text: &str| {
                let from = format!("protocol = \"{protocol}\"\nfrom = \"n1\"");
                let source = Source::parse(&text.replace("from = \"n1\"", &from)).unwrap();
                crate::expand(&source, 1).unwrap().plan_of(0)
            };
            assert_eq!(with(&text).is_ok(), node_fits, "{protocol}");
            assert_eq!(with(&clients).is_ok(), clients_fit, "{protocol}");
        }
        let wrong = read(&text.replace("[trials]", "sockets = 0")).and_then(|_| {
            let text = text.replace("[trials]", "sockets = 0");
            let text = text.replace("from = \"n1\"", "protocol = \"text+udp\"\nfrom = \"n1\"");
            crate::expand(&Source::parse(&text).unwrap(), 1).unwrap().plan_of(0)
        });
        let error = wrong.unwrap_err();
        assert_eq!(
            (error.field.as_str(), error.at.is_some()),
            ("node_sim.sockets", true),
            "{error}"
        );
    }

    #[test]
    fn plan_error_has_line_and_valid_form() {
        for (from, to, line, words) in [
            ("version = 1", "version = 2", 2, "version 1"),
            ("name = \"sizes\"", "name = \"../x\"", 3, "letters"),
            ("line:3", "ring:3", 6, "line:N"),
            ("line:3", "line:300", 6, "250"),
            ("\"n3\"", "\"n4\"", 11, "n1 to n3"),
            ("to = \"n3\"", "to = \"n1\"", 11, "itself"),
            ("\"200pps\"", "200", 12, "unit"),
            ("\"200pps\"", "\"-5ms\"", 12, "-5ms"),
            ("duration", "durations", 13, "unknown field 'durations'"),
            ("\"5s\"", "\"0s\"", 13, "above 0"),
            ("duration = \"5s\"", "size = \"-64B\"\nduration = \"5s\"", 13, "-64B"),
            ("on = \"n2\"", "on = \"n9\"", 16, "n1 to n3"),
            ("90%", "900%", 16, "900%"),
            ("version = 1", "version = 1\nload = \"heavy\"", 3, "busy, none"),
        ] {
            assert!(PLAN.contains(from));
            let error = read(&PLAN.replacen(from, to, 1)).unwrap_err();
            let at = error.at.clone().unwrap_or_else(|| panic!("{to}: {error}"));
            assert_eq!(at.line, line, "{to}: {error}");
            assert!(error.to_string().contains(words), "{to}: {error}");
        }
        let error = read(&PLAN.replace("duration = \"5s\"", "")).unwrap_err();
        assert!(error.to_string().contains("count or duration"), "{error}");
    }
}
