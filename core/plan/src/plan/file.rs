//! The file of a plan, before its measurement is read.

use std::collections::BTreeMap;

use dwell_protocol::NodeSimParameters;
use serde::Deserialize;
use toml::Table;

use super::{Constraint, Load, NO_LOAD, NodeSettings, Plan, ReflectPlan, StopRules, Trials};
use crate::error::PlanError;
use crate::flow::TraceSetting;
use crate::measurement::Measurement;
use crate::pacing::{Accurate, CrossPlan};
use crate::source::Source;
use crate::topology::Topology;

/// The fields and tables of a plan file. [`Measurement::read`] takes those of the measurement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanFile {
    version: u32,
    name: String,
    title: Option<String>,
    #[serde(default = "no_load")]
    load: String,
    topology: Topology,
    #[serde(default)]
    nodes: BTreeMap<String, NodeSettings>,
    pub(crate) ping: Option<Table>,
    pub(crate) flow: Option<Table>,
    pub(crate) pace: Option<Table>,
    pub(crate) cross: Option<CrossPlan>,
    pub(crate) accurate: Option<Accurate>,
    pub(crate) relay: Option<Table>,
    #[serde(default)]
    pub(crate) trace: TraceSetting,
    claims: Option<String>,
    #[serde(default)]
    reflect: ReflectPlan,
    node_sim: Option<NodeSimParameters>,
    #[serde(default)]
    loads: BTreeMap<String, Load>,
    #[serde(default)]
    matrix: Table,
    #[serde(default)]
    constraint: Vec<Constraint>,
    #[serde(default)]
    trials: Trials,
    #[serde(default)]
    stop: StopRules,
}

fn no_load() -> String {
    NO_LOAD.into()
}

impl PlanFile {
    pub(super) fn into_plan(mut self, source: &Source) -> Result<Plan, PlanError> {
        Ok(Plan {
            measurement: Measurement::read(source, &mut self)?,
            version: self.version,
            name: self.name,
            title: self.title,
            load: self.load,
            topology: self.topology,
            nodes: self.nodes,
            claims: self.claims,
            reflect: self.reflect,
            node_sim: self.node_sim,
            loads: self.loads,
            matrix: self.matrix,
            constraint: self.constraint,
            trials: self.trials,
            stop: self.stop,
        })
    }
}
