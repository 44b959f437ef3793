//! What a plan file says, field by field.
//!
//! ```toml
//! version = 1
//! name = "sizes"
//! load = "none"                       # one of [loads.*]; "none" is always there
//!
//! [topology]
//! lab = "line:2"                      # or star:N, or the TOML file of a lab
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

use std::collections::BTreeMap;

use dwell_units::{BitRate, Bytes, Nanos, Rate, Ratio};
use serde::{Deserialize, Deserializer, de};
use toml::{Table, Value};

use crate::error::PlanError;
use crate::job::{Generator, IcmpSocket, Limit, Pattern, Scheduling, Stamps};
use crate::limits;
use crate::pacing::{Accurate, CrossPlan, PacePlan};
use crate::relaying::{FlowPlan, RelayPlan, Tracing};
use crate::source::Source;

/// The format that this reads.
const VERSION: u32 = 1;

/// The load that is always there.
pub(crate) const NO_LOAD: &str = "none";

/// Labs that have so many nodes as their name says.
const SHAPES: [&str; 3] = ["line", "star", "forced"];

/// The least share that a lab holds a node to, in parts per million.
const LEAST_QUOTA: u32 = 10_000;

/// The most repetitions of a cell.
const MOST_REPETITIONS: u32 = 1_000_000;

/// A plan, with the values of one cell put in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of the format.
    pub version: u32,
    /// Its name: letters, digits, hyphens, dots and underscores.
    pub name: String,
    /// What it is for, in a sentence.
    #[serde(default)]
    pub title: Option<String>,
    /// The load of this cell, by its name in `loads`.
    #[serde(default = "no_load")]
    pub load: String,
    /// Which nodes there are and how they are joined.
    pub topology: Topology,
    /// What holds for all jobs of a node.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodePlace>,
    /// What every trial measures, where that are round trips.
    #[serde(default)]
    pub ping: Option<PingPlan>,
    /// What every trial measures, where packets go one way.
    #[serde(default)]
    pub flow: Option<FlowPlan>,
    /// What every trial measures, where that are departures of packets. A plan has one of the three.
    #[serde(default)]
    pub pace: Option<PacePlan>,
    /// Traffic from the node that paces.
    #[serde(default)]
    pub cross: Option<CrossPlan>,
    /// When that node is accurate.
    #[serde(default)]
    pub accurate: Option<Accurate>,
    /// The node in the middle of the flow.
    #[serde(default)]
    pub relay: Option<RelayPlan>,
    /// Where the kernel's hooks stamp the packets of the flow.
    #[serde(default)]
    pub trace: Tracing,
    /// The published claims that a run is held against: `s0`.
    #[serde(default)]
    pub claims: Option<ClaimSet>,
    /// How the reflector runs.
    #[serde(default)]
    pub reflect: ReflectPlan,
    /// The loads that cells choose from.
    #[serde(default)]
    pub loads: BTreeMap<String, Load>,
    /// The axes, by name, in the order of the file (read by [`crate::expand`]).
    #[serde(default)]
    pub matrix: Table,
    /// What is done with some cells.
    #[serde(default)]
    pub constraint: Vec<Constraint>,
    /// How often, and in which order.
    #[serde(default)]
    pub trials: Trials,
    /// When to end early.
    #[serde(default)]
    pub stop: StopRules,
}

fn no_load() -> String {
    NO_LOAD.into()
}

/// Published claims that a run can be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimSet {
    /// What S0 found about relays (S0.18 to S0.27).
    S0,
}

impl ClaimSet {
    /// The name, as a plan writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S0 => "s0",
        }
    }
}

/// Where nodes come from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// A lab: `line:N`, `star:N`, `forced:N`, or the path of its TOML file.
    pub lab: String,
    /// Who makes the routes: `static` or `babel`.
    #[serde(default)]
    pub routing: Routing,
    /// What is asked of every link.
    #[serde(default)]
    pub link: LinkPlan,
    /// Shares of one processor that nodes are held to.
    #[serde(default)]
    pub quota: BTreeMap<String, Quota>,
}

/// The share of one processor that a node is held to; `"none"`, as a value of an axis, is all of them.
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

/// Who makes the routes of a lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// Whoever makes the lab.
    #[default]
    Static,
    /// A routing daemon on every node, babeld.
    Babel,
}

/// What is asked of every link of a lab.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// Bits per second; `"none"`, as a value of an axis, is no limit.
    #[serde(default, deserialize_with = "rate_or_none")]
    pub rate: Option<BitRate>,
    /// Time of travel, one way.
    #[serde(default)]
    pub delay: Option<Nanos>,
    /// Variation of the delay, either way.
    #[serde(default)]
    pub jitter: Option<Nanos>,
    /// Share of packets lost.
    #[serde(default)]
    pub loss: Option<Ratio>,
    /// Share of packets doubled.
    #[serde(default)]
    pub duplicate: Option<Ratio>,
    /// Share of packets that skip the delay.
    #[serde(default)]
    pub reorder: Option<Ratio>,
    /// Where the links' luck comes from.
    #[serde(default)]
    pub seed: Option<u64>,
    /// `netem`, `tbf` or `tap`.
    #[serde(default)]
    pub mechanism: Option<String>,
}

fn rate_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BitRate>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) if text == "none" => Ok(None),
        rate => BitRate::deserialize(rate).map(Some).map_err(|e| de::Error::custom(e.message())),
    }
}

/// What holds for all jobs of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlace {
    /// Timing threads run on this CPU.
    #[serde(default)]
    pub cpu: Option<usize>,
}

/// What every trial measures: probes from one node to another.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingPlan {
    /// The node that sends.
    pub from: String,
    /// The node that answers; a reflector is started there.
    pub to: String,
    /// `stamp`, `icmp`, `udp`, `tcp`, `roundtrip`, `text+udp` or `text+tcp`.
    #[serde(default = "stamp")]
    pub protocol: String,
    /// Port of the reflector, if not the protocol's usual one.
    #[serde(default)]
    pub port: Option<u16>,
    /// Payload.
    #[serde(default)]
    pub size: Option<Bytes>,
    /// Probes to send.
    #[serde(default)]
    pub count: Option<u64>,
    /// For how long to send.
    #[serde(default)]
    pub duration: Option<Nanos>,
    /// Time between probes.
    #[serde(default)]
    pub interval: Option<Nanos>,
    /// The same as a rate: packets, or bits of IP packets of this size.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// The next probe leaves after the reply of the last, or its time-out.
    #[serde(default)]
    pub closed_loop: bool,
    /// In closed loop, how long to wait after each reply.
    #[serde(default)]
    pub pause: Option<Nanos>,
    /// A reply after this is late.
    #[serde(default = "second")]
    pub timeout: Nanos,
    /// Probes to send first, not counted.
    #[serde(default)]
    pub warm_up: Option<u32>,
    /// Which stamps to use.
    #[serde(default)]
    pub stamps: Stamps,
    /// Ask for the kernel's stamp before the queueing discipline as well.
    #[serde(default)]
    pub sched_stamps: bool,
    /// Poll without sleeping.
    #[serde(default)]
    pub busy_poll: bool,
    /// Scheduling class of the timing thread.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Which kind of ICMP socket.
    #[serde(default)]
    pub icmp_socket: IcmpSocket,
    /// What fills the payload.
    #[serde(default)]
    pub pattern: Pattern,
    /// Use IPv6.
    #[serde(default)]
    pub ipv6: bool,
    /// Time to live, or hop limit.
    #[serde(default)]
    pub ttl: Option<u8>,
    /// Differentiated services code point.
    #[serde(default)]
    pub dscp: Option<u8>,
}

fn stamp() -> String {
    "stamp".into()
}

const fn second() -> Nanos {
    Nanos::from_secs(1)
}

/// How the reflector runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReflectPlan {
    /// Poll without sleeping.
    #[serde(default)]
    pub busy_poll: bool,
    /// Which stamp is T2.
    #[serde(default)]
    pub stamps: Stamps,
    /// Copy the sender's sequence number instead of counting.
    #[serde(default)]
    pub stateless: bool,
    /// Replies per second and source.
    #[serde(default)]
    pub limit: Option<Limit>,
}

/// A load: everything that runs beside the measurement.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// CPU time burnt.
    #[serde(default)]
    pub cpu: Vec<CpuLoad>,
    /// Traffic sent.
    #[serde(default)]
    pub traffic: Vec<TrafficLoad>,
}

/// CPU time to burn on a node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuLoad {
    /// The node.
    pub on: String,
    /// Share of each CPU.
    pub level: Ratio,
    /// The CPUs; none is all.
    #[serde(default)]
    pub cpus: Vec<usize>,
}

/// Traffic from one node to another.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficLoad {
    /// The node that sends.
    pub from: String,
    /// The node that receives and counts.
    pub to: String,
    /// The transport protocol.
    #[serde(default)]
    pub protocol: Transport,
    /// Rate of all flows together; bits are counted over IP packets, or over payload with TCP. UDP needs
    /// one; without one, TCP sends as fast as it can.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Number of flows.
    #[serde(default = "one")]
    pub flows: u32,
    /// Gaps: `constant`, `poisson` or `pareto(SHAPE)`.
    #[serde(default = "constant")]
    pub distribution: String,
    /// UDP payload, or bytes of each write with TCP.
    #[serde(default)]
    pub size: Option<Bytes>,
    /// Seed of the gaps.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// What sends it.
    #[serde(default)]
    pub generator: Generator,
}

/// The transport protocol of traffic.
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
    /// The UDP payload.
    pub fn payload(&self) -> Bytes {
        self.size.unwrap_or(DEFAULT_PAYLOAD)
    }
}

/// Fits Ethernet's 1500 B with the headers of IPv6.
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

/// What is done with the cells that have all of these values.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// Value (or list of values) by axis.
    pub when: BTreeMap<String, Value>,
    /// Leave them out.
    #[serde(default)]
    pub drop: bool,
    /// Give them these axes in place of those of the same name.
    #[serde(default)]
    pub matrix: Table,
}

/// How often, and in which order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trials {
    /// Times that each cell is measured.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// The order.
    #[serde(default)]
    pub order: Order,
    /// Seed of the order; left out, it is drawn and printed.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Rest between trials.
    #[serde(default)]
    pub pause: Nanos,
    /// A trial that takes longer has failed [default: three times as long as it should, and 30 s].
    #[serde(default)]
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

/// The order of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Blocks that hold every cell once, in random order within each: a drift over the run falls
    /// on all cells alike, and does not look like the effect of one.
    #[default]
    Blocks,
    /// All trials in random order.
    Random,
    /// Cell by cell, as the matrix is written.
    AsWritten,
}

/// When to end early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRules {
    /// After so many failed trials in a row [default: 5].
    #[serde(default)]
    pub failures: Option<u32>,
    /// After this time, at the end of the trial that is under way.
    #[serde(default)]
    pub time: Option<Nanos>,
}

impl Plan {
    /// Reads a plan without the values of any cell, and judges what can be judged so far.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn read(source: &Source) -> Result<Self, PlanError> {
        Self::with(source, source.table().clone())
    }

    /// Reads `table`, which is the plan of `source` with the values of a cell put in.
    pub(crate) fn with(source: &Source, table: Table) -> Result<Self, PlanError> {
        if let Some(version) = table.get("version").and_then(Value::as_integer)
            && version != i64::from(VERSION)
        {
            return Err(source.error(
                "version",
                format!("this dwell reads version {VERSION} of plans, and this is {version}"),
            ));
        }
        let plan: Self = source.read(table)?;
        plan.check(source)?;
        Ok(plan)
    }

    /// The nodes of a `line:N`, `star:N` or `forced:N`; `None` for a file, which only the lab knows.
    pub fn node_names(&self) -> Option<Vec<String>> {
        let (shape, count) = self.topology.lab.split_once(':')?;
        let count: usize = count.parse().ok()?;
        SHAPES.contains(&shape).then(|| (1..=count).map(|n| format!("n{n}")).collect())
    }

    /// The same, and those of a file whose text came with the plan.
    fn known_nodes(&self, source: &Source) -> Option<Vec<String>> {
        let listed = || source.labs.nodes(&self.topology.lab).map(<[String]>::to_vec);
        self.node_names().or_else(listed)
    }

    /// The load of this cell.
    pub fn load(&self) -> Load {
        self.loads.get(&self.load).cloned().unwrap_or_default()
    }

    fn check(&self, source: &Source) -> Result<(), PlanError> {
        let name_fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(name_fits) {
            return Err(source.error(
                "name",
                "a name has 1 to 64 letters, digits, hyphens, dots and underscores",
            ));
        }
        self.check_topology(source)?;
        if let Some(ping) = &self.ping {
            self.check_ping(source, ping)?;
        }
        self.check_flow(source)?;
        self.check_pace(source)?;
        self.check_loads(source)?;
        limits::check(self, source)?;
        let repetitions = self.trials.repetitions;
        if !(1..=MOST_REPETITIONS).contains(&repetitions) {
            return Err(source.error(
                "trials.repetitions",
                format!("{repetitions} is not between 1 and {MOST_REPETITIONS}"),
            ));
        }
        if self.trials.pause < Nanos::ZERO {
            return Err(source.error("trials.pause", "a time is 0 or more"));
        }
        Ok(())
    }

    fn check_topology(&self, source: &Source) -> Result<(), PlanError> {
        let lab = &self.topology.lab;
        let number = |count: &str| count.parse::<u32>().is_ok_and(|n| (1..=250).contains(&n));
        match lab.split_once(':') {
            Some((shape, count)) if SHAPES.contains(&shape) && number(count) => {}
            Some((shape, _)) if SHAPES.contains(&shape) => {
                return Err(source.error(
                    "topology.lab",
                    format!("'{lab}': a lab has 1 to 250 nodes, like line:3"),
                ));
            }
            _ if lab.ends_with(".toml") => {}
            _ => {
                return Err(source.error(
                    "topology.lab",
                    format!(
                        "'{lab}' is no lab; known are line:N, star:N, forced:N and a file ending \
                         in .toml"
                    ),
                ));
            }
        }
        for (node, quota) in &self.topology.quota {
            let path = format!("topology.quota.{node}");
            self.check_node(source, &path, node)?;
            if quota.0.is_some_and(|share| share.ppm() < LEAST_QUOTA) {
                let what = "a share of one processor, 1% or more; \"none\" is no quota";
                return Err(source.error(&path, what));
            }
        }
        let Some(known) = self.known_nodes(source) else { return Ok(()) };
        if let Some(stranger) = self.nodes.keys().find(|name| !known.contains(name)) {
            return Err(unknown_node(source, &format!("nodes.{stranger}"), stranger, &known));
        }
        Ok(())
    }

    pub(crate) fn check_node(
        &self,
        source: &Source,
        path: &str,
        name: &str,
    ) -> Result<(), PlanError> {
        match self.known_nodes(source) {
            Some(known) if !known.iter().any(|node| node == name) => {
                Err(unknown_node(source, path, name, &known))
            }
            _ => Ok(()),
        }
    }

    fn check_ping(&self, source: &Source, ping: &PingPlan) -> Result<(), PlanError> {
        self.check_node(source, "ping.from", &ping.from)?;
        self.check_node(source, "ping.to", &ping.to)?;
        if ping.from == ping.to {
            return Err(source.error("ping.to", format!("'{}' would probe itself", ping.to)));
        }
        let known = ["stamp", "icmp", "udp", "tcp", "roundtrip", "text+udp", "text+tcp"];
        if !known.contains(&ping.protocol.as_str()) {
            return Err(source.error(
                "ping.protocol",
                format!("unknown protocol '{}'; known are {}", ping.protocol, known.join(", ")),
            ));
        }
        if ping.port == Some(0) {
            return Err(source.error("ping.port", "a port is a number from 1 to 65535"));
        }
        if ping.count == Some(0) {
            return Err(source.error("ping.count", "0 probes measure nothing; send 1 or more"));
        }
        if ping.count.is_none() && ping.duration.is_none() {
            return Err(source.error("ping", "a trial needs an end: give count or duration"));
        }
        for (field, time) in [("duration", ping.duration), ("interval", ping.interval)] {
            if time.is_some_and(|time| time <= Nanos::ZERO) {
                return Err(source.error(&format!("ping.{field}"), "must be above 0"));
            }
        }
        if ping.timeout <= Nanos::ZERO {
            return Err(source.error("ping.timeout", "a reply needs time, like \"1s\""));
        }
        if ping.interval.is_some() && ping.rate.is_some() {
            return Err(source.error("ping.rate", "give interval or rate, not both"));
        }
        if ping.rate.is_some() && ping.interval().is_none() {
            return Err(source.error("ping.rate", "a rate is above 0"));
        }
        if ping.pause.is_some() && !ping.closed_loop {
            return Err(source.error("ping.pause", "a pause is for closed_loop = true"));
        }
        Ok(())
    }

    fn check_loads(&self, source: &Source) -> Result<(), PlanError> {
        if self.loads.contains_key(NO_LOAD) {
            return Err(source.error("loads.none", "'none' is the name of no load; choose another"));
        }
        for (name, load) in &self.loads {
            for (n, cpu) in load.cpu.iter().enumerate() {
                self.check_node(source, &format!("loads.{name}.cpu[{n}].on"), &cpu.on)?;
                if cpu.level == Ratio::ZERO {
                    let path = format!("loads.{name}.cpu[{n}].level");
                    return Err(source.error(&path, "burn 1% to 100%"));
                }
            }
            for (n, traffic) in load.traffic.iter().enumerate() {
                let path = format!("loads.{name}.traffic[{n}]");
                self.check_node(source, &format!("{path}.from"), &traffic.from)?;
                self.check_node(source, &format!("{path}.to"), &traffic.to)?;
                if !(1..=1_000).contains(&traffic.flows) {
                    return Err(source.error(&format!("{path}.flows"), "1 to 1000 flows"));
                }
            }
        }
        if self.load != NO_LOAD && !self.loads.contains_key(&self.load) {
            let known: Vec<_> = self.loads.keys().map(String::as_str).chain([NO_LOAD]).collect();
            return Err(source.error(
                "load",
                format!("there is no load '{}'; there are {}", self.load, known.join(", ")),
            ));
        }
        Ok(())
    }
}

impl PingPlan {
    /// Bytes of an IP packet that carries a probe.
    pub(crate) fn ip_bytes(&self) -> u64 {
        let ip = if self.ipv6 { 40 } else { 20 };
        let (above, payload) = match self.protocol.as_str() {
            "icmp" => (8, 56),
            "tcp" => (32, 64),
            "text+tcp" => (32, 7),
            "text+udp" => (8, 7),
            "roundtrip" => (8, 24),
            _ => (8, 64),
        };
        ip + above + self.size.map_or(payload, |size| size.0)
    }

    /// Time between probes, given as such or as a rate.
    pub fn interval(&self) -> Option<Nanos> {
        match self.rate {
            None => self.interval,
            Some(Rate::Packets(rate)) => rate.gap(),
            Some(Rate::Bits(rate)) => rate.transmission_time(Bytes(self.ip_bytes())),
        }
    }
}

fn unknown_node(source: &Source, path: &str, name: &str, known: &[String]) -> PlanError {
    let (first, last) = (known.first(), known.last());
    let is_numbered = first.is_some_and(|first| first == "n1");
    let there_are = match (first, last) {
        (Some(first), Some(last)) if first != last && is_numbered => {
            format!("there are {first} to {last}")
        }
        (Some(first), Some(last)) if first != last => format!("there are {}", known.join(", ")),
        (Some(only), _) => format!("there is only {only}"),
        _ => "there are none".to_owned(),
    };
    source.error(path, format!("there is no node '{name}' in this lab; {there_are}"))
}

#[cfg(test)]
mod tests {
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
    fn a_plan_says_what_is_left_out() {
        let plan = read(PLAN).unwrap();
        let ping = plan.ping.as_ref().unwrap();
        assert_eq!((plan.load.as_str(), ping.protocol.as_str()), ("none", "stamp"));
        assert_eq!(ping.interval(), Some(Nanos::from_millis(5)));
        assert_eq!(plan.trials.repetitions, 1);
        assert_eq!(plan.node_names().unwrap(), ["n1", "n2", "n3"]);
    }

    #[test]
    fn a_rate_in_bits_counts_ip_packets() {
        let plan = read(&PLAN.replace("200pps", "1Mbit/s")).unwrap();
        // 20 + 8 + 64 bytes.
        assert_eq!(plan.ping.unwrap().interval(), Some(Nanos(92 * 8 * 1_000)));
    }

    #[test]
    fn plan_reads_short_units_like_the_command_line() {
        let text = PLAN.replace("100Mbit/s", "100M").replace("90%", "90");
        let (short, long) = (read(&text).unwrap(), read(PLAN).unwrap());
        assert_eq!(short.topology.link.rate, Some(BitRate(100_000_000)));
        assert_eq!(short, long);
    }

    #[test]
    fn every_mistake_points_at_its_line_and_says_what_would_be_right() {
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
