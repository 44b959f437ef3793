//! Checks of a plan that concern more than one field.

use dwell_units::{Nanos, Ratio};

use super::{LAB_SHAPES, MAX_REPETITIONS, MIN_QUOTA_PPM, NO_LOAD, PingPlan, Plan};
use crate::error::PlanError;
use crate::limits;
use crate::source::Source;

impl Plan {
    pub(super) fn check(&self, source: &Source) -> Result<(), PlanError> {
        let name_fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(name_fits) {
            return Err(source
                .error("name", "must be 1 to 64 letters, digits, hyphens, dots and underscores"));
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

    fn check_topology(&self, source: &Source) -> Result<(), PlanError> {
        let lab = &self.topology.lab;
        let number = |count: &str| count.parse::<u32>().is_ok_and(|n| (1..=250).contains(&n));
        match lab.split_once(':') {
            Some((shape, count)) if LAB_SHAPES.contains(&shape) && number(count) => {}
            Some((shape, _)) if LAB_SHAPES.contains(&shape) => {
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
                        "unknown lab '{lab}'; known are line:N, star:N, forced:N and a file ending \
                         in .toml"
                    ),
                ));
            }
        }
        for (node, quota) in &self.topology.quota {
            let path = format!("topology.quota.{node}");
            self.check_node(source, &path, node)?;
            if quota.0.is_some_and(|share| share.ppm() < MIN_QUOTA_PPM) {
                let message = "must be 1% or more of one processor, or \"none\" for no quota";
                return Err(source.error(&path, message));
            }
        }
        let Some(known) = self.known_nodes(source) else { return Ok(()) };
        if let Some(unknown) = self.nodes.keys().find(|name| !known.contains(name)) {
            return Err(unknown_node(source, &format!("nodes.{unknown}"), unknown, &known));
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
        if ping.port == Some(0) {
            return Err(source.error("ping.port", "must be 1 to 65535"));
        }
        if ping.count == Some(0) {
            return Err(source.error("ping.count", "must be 1 or more"));
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
            return Err(source.error("ping.timeout", "must be above 0, like \"1s\""));
        }
        if ping.interval.is_some() && ping.rate.is_some() {
            return Err(source.error("ping.rate", "give interval or rate, not both"));
        }
        if ping.rate.is_some() && ping.interval().is_none() {
            return Err(source.error("ping.rate", "must be above 0"));
        }
        if ping.pause.is_some() && !ping.closed_loop {
            return Err(source.error("ping.pause", "pause needs closed_loop = true"));
        }
        Ok(())
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
        _ => "the lab has no nodes".to_owned(),
    };
    source.error(path, format!("there is no node '{name}' in this lab; {there_are}"))
}
