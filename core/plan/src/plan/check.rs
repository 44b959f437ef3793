//! Checks of a plan that concern more than one field.

use std::collections::BTreeMap;

use dwell_protocol::PingParameters;
use dwell_units::{Nanos, Ratio};

use super::{MAX_REPETITIONS, NO_LOAD, PingPlan, Plan, ReflectPlan};
use crate::error::PlanError;
use crate::limits;
use crate::measurement::Measurement;
use crate::source::Source;
use crate::topology::{Quota, Topology};

/// Minimum CPU quota of a node, in parts per million.
const MIN_QUOTA_PPM: u32 = 10_000;

impl Plan {
    pub(super) fn check(&self, source: &Source) -> Result<(), PlanError> {
        check_name(source, "name", &self.name)?;
        self.check_topology(source)?;
        match &self.measurement {
            Measurement::Ping(ping) => self.check_ping(source, ping)?,
            Measurement::Flow(flow) => flow.check(self, source)?,
            Measurement::Pace(pace) => pace.check(self, source)?,
        }
        self.check_loads(source)?;
        limits::check(self, source)?;
        let repetitions = self.trials.repetitions;
        if !(1..=MAX_REPETITIONS).contains(&repetitions) {
            return Err(source.error(
                "trials.repetitions",
                format!("{repetitions} is not between 1 and {MAX_REPETITIONS}"),
            ));
        }
        if self.trials.pause < Nanos::ZERO {
            return Err(source.error("trials.pause", "must be 0 or more"));
        }
        Ok(())
    }

    /// Checks that apply only to the complete values of a cell.
    pub(crate) fn check_together(&self, source: &Source) -> Result<(), PlanError> {
        match &self.measurement {
            Measurement::Ping(ping) => {
                self.check_node_sim(source, ping)?;
                check_clients(source, ping)?;
                self.check_reflector(source, ping)
            }
            Measurement::Flow(flow) => flow.check_together(source),
            Measurement::Pace(pace) => pace.check_together(source),
        }
    }

    fn check_topology(&self, source: &Source) -> Result<(), PlanError> {
        match &self.topology {
            Topology::Lab(lab) => self.check_quotas(source, &lab.quota)?,
            Topology::Devices(roles) => check_roles(source, roles)?,
        }
        let Some(known) = self.known_nodes(source) else { return Ok(()) };
        if let Some(unknown) = self.nodes.keys().find(|name| !known.contains(name)) {
            let path = format!("nodes.{unknown}");
            return Err(self.unknown_node(source, &path, unknown, &known));
        }
        Ok(())
    }

    fn check_quotas(
        &self,
        source: &Source,
        quotas: &BTreeMap<String, Quota>,
    ) -> Result<(), PlanError> {
        for (node, quota) in quotas {
            let path = format!("topology.quota.{node}");
            self.check_node(source, &path, node)?;
            if quota.0.is_some_and(|share| share.ppm() < MIN_QUOTA_PPM) {
                let message = "must be 1% or more of one processor, or \"none\" for no quota";
                return Err(source.error(&path, message));
            }
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
                Err(self.unknown_node(source, path, name, &known))
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
        if ping.port == Some(0) {
            return Err(source.error("ping.port", "must be 1 to 65535"));
        }
        let parameters = &ping.parameters;
        parameters.check().map_err(|error| {
            source.error(&format!("ping.{}", error.field), format!("must be {}", error.right))
        })?;
        let PingParameters { count, duration, interval, pause, .. } = *parameters;
        if count.is_none() && duration.is_none() {
            return Err(source.error("ping", "a trial needs an end: give count or duration"));
        }
        for (field, time) in [("duration", duration), ("interval", interval)] {
            if time.is_some_and(|time| time <= Nanos::ZERO) {
                return Err(source.error(&format!("ping.{field}"), "must be above 0"));
            }
        }
        if interval.is_some() && ping.rate.is_some() {
            return Err(source.error("ping.rate", "give interval or rate, not both"));
        }
        if ping.rate.is_some() && ping.interval().is_none() {
            return Err(source.error("ping.rate", "must be above 0"));
        }
        if pause.is_some() && !parameters.closed_loop {
            return Err(source.error("ping.pause", "pause needs closed_loop = true"));
        }
        Ok(())
    }

    /// Checks that a simulated node answers the probes and has settings within their ranges.
    fn check_node_sim(&self, source: &Source, ping: &PingPlan) -> Result<(), PlanError> {
        let Some(node) = &self.node_sim else { return Ok(()) };
        node.check().map_err(|error| {
            source.error(&format!("node_sim.{}", error.field), format!("must be {}", error.right))
        })?;
        if !ping.protocol.spec().names_lags {
            let message = format!(
                "a simulated node answers text+udp and text+tcp probes, not {}",
                ping.protocol
            );
            return Err(source.error("node_sim", message));
        }
        if self.reflect != ReflectPlan::default() {
            return Err(source.error("reflect", "a simulated node replaces the reflector"));
        }
        Ok(())
    }

    fn check_reflector(&self, source: &Source, ping: &PingPlan) -> Result<(), PlanError> {
        let answers = ping.protocol.spec().driver_reply.is_some();
        if answers || !self.reflect.engine.is_in_driver() {
            return Ok(());
        }
        let message = format!(
            "an engine in the driver does not answer {} probes; use \"socket\"",
            ping.protocol
        );
        Err(source.error("reflect.engine", message))
    }

    fn check_loads(&self, source: &Source) -> Result<(), PlanError> {
        if self.loads.contains_key(NO_LOAD) {
            return Err(
                source.error("loads.none", "'none' is reserved for no load; choose another name")
            );
        }
        for (name, load) in &self.loads {
            for (n, cpu) in load.cpu.iter().enumerate() {
                self.check_node(source, &format!("loads.{name}.cpu[{n}].on"), &cpu.on)?;
                if cpu.level == Ratio::ZERO {
                    let path = format!("loads.{name}.cpu[{n}].level");
                    return Err(source.error(&path, "must be 1% to 100%"));
                }
            }
            for (n, traffic) in load.traffic.iter().enumerate() {
                let path = format!("loads.{name}.traffic[{n}]");
                self.check_node(source, &format!("{path}.from"), &traffic.from)?;
                self.check_node(source, &format!("{path}.to"), &traffic.to)?;
                if !(1..=1_000).contains(&traffic.flows) {
                    return Err(source.error(&format!("{path}.flows"), "must be 1 to 1000"));
                }
            }
        }
        if self.load != NO_LOAD && !self.loads.contains_key(&self.load) {
            let known: Vec<_> = self.loads.keys().map(String::as_str).chain([NO_LOAD]).collect();
            return Err(source.error(
                "load",
                format!("unknown load '{}'; known are {}", self.load, known.join(", ")),
            ));
        }
        Ok(())
    }

    fn unknown_node(&self, source: &Source, path: &str, name: &str, known: &[String]) -> PlanError {
        let place = match self.topology {
            Topology::Lab(_) => "lab",
            Topology::Devices(_) => "topology",
        };
        let (first, last) = (known.first(), known.last());
        let is_numbered = first.is_some_and(|first| first == "n1");
        let there_are = match (first, last) {
            (Some(first), Some(last)) if first != last && is_numbered => {
                format!("there are {first} to {last}")
            }
            (Some(first), Some(last)) if first != last => format!("there are {}", known.join(", ")),
            (Some(only), _) => format!("there is only {only}"),
            _ => format!("the {place} has no nodes"),
        };
        source.error(path, format!("there is no node '{name}' in this {place}; {there_are}"))
    }
}

/// Checks that the protocol allows several clients, if there are any.
fn check_clients(source: &Source, ping: &PingPlan) -> Result<(), PlanError> {
    if ping.parameters.clients() == 1 || ping.protocol.spec().allows_clients() {
        return Ok(());
    }
    let message = format!("{} probes come from one client; use another protocol", ping.protocol);
    Err(source.error("ping.clients", message))
}

/// Checks the names of devices.
fn check_roles(source: &Source, roles: &[String]) -> Result<(), PlanError> {
    if roles.is_empty() {
        return Err(source.error("topology.roles", "list one role or more, like \"sender\""));
    }
    for (n, role) in roles.iter().enumerate() {
        let path = format!("topology.roles[{n}]");
        check_name(source, &path, role)?;
        if roles[..n].contains(role) {
            return Err(source.error(&path, format!("'{role}' is listed twice")));
        }
    }
    Ok(())
}

fn check_name(source: &Source, path: &str, name: &str) -> Result<(), PlanError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        let message = "must be 1 to 64 letters, digits, hyphens, dots and underscores";
        return Err(source.error(path, message));
    }
    Ok(())
}
