//! A run as the report sees it: already summarised, so that nothing here grows with the number of
//! samples.

use std::collections::BTreeMap;

pub use crate::host::{HostData, HostGather, HostSeries, HostWanted, Quantity};
use dwell_plan::Accurate;
use dwell_record::Summary;
pub use dwell_record::series::{Hampel, Point, Series, Step, TimeBin};
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunData {
    /// Its id, such as `20261121-1`.
    pub id: String,
    /// The plan's name, or the name of the imported file.
    pub name: String,
    /// What the plan says it is for.
    pub title: Option<String>,
    /// When it began, RFC 3339.
    pub started: String,
    /// When it ended; `None` while it runs or was interrupted.
    pub finished: Option<String>,
    /// The version of dwell that ran it.
    pub dwell: String,
    /// The parameters that vary over the run, in the order of the plan, each with its values in the
    /// plan's order. Empty for a run of one cell.
    pub axes: Vec<Axis>,
    /// Its trials, in the order in which they were numbered.
    pub trials: Vec<TrialData>,
    /// What people wrote about it.
    pub notes: Vec<String>,
    /// The published claims that the plan wants the run held against, by their name: `s0`.
    #[serde(default)]
    pub claims: Option<String>,
    /// A few packets whose way is drawn.
    #[serde(default)]
    pub packets: Vec<PacketData>,
    /// What machines did during one trial.
    #[serde(default)]
    pub host: Option<HostData>,
    /// The plan that was run; `None` for imports.
    #[serde(default)]
    pub plan: Option<PlanData>,
    /// When a sender is accurate, where it is to be judged otherwise than the plan says.
    #[serde(default)]
    pub accurate: Option<Accurate>,
}

/// A plan, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanData {
    /// Its text.
    pub text: String,
    /// What was set from outside, as `PATH=VALUE`, in that order.
    pub settings: Vec<String>,
}

/// One packet on its way, as an example of many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketData {
    /// Of which trial it is, by its number.
    pub trial: u32,
    /// Which one of its trial: `median`, `p99`, `slowest`.
    pub which: String,
    /// Its id.
    pub id: u64,
    /// What it spent in each part, by the name of the metric; those that sum to the whole.
    pub parts: BTreeMap<String, i64>,
    /// From end to end, by the stamps of both ends.
    pub end_to_end_ns: i64,
}

impl RunData {
    /// The trials with one value of an axis as a run of its own, without that axis and without the
    /// values of others that only trials left out have.
    pub fn only(&self, axis: &str, value: &str) -> Self {
        self.at(&[(axis, value)])
    }

    /// The same with one value of each of several axes.
    pub(crate) fn at(&self, held: &[(&str, &str)]) -> Self {
        let has = |trial: &&TrialData| {
            held.iter().all(|(axis, value)| {
                trial.parameters.get(*axis).is_some_and(|of_trial| of_trial == value)
            })
        };
        let trials: Vec<TrialData> = self.trials.iter().filter(has).cloned().collect();
        let free = |axis: &&Axis| held.iter().all(|(name, _)| axis.name != *name);
        let axes = self.axes.iter().filter(free).map(|other| {
            let used = |value: &String| {
                trials.iter().any(|trial| trial.parameters.get(&other.name) == Some(value))
            };
            let kept: Vec<usize> =
                (0..other.values.len()).filter(|n| used(&other.values[*n])).collect();
            let numbers = other.numbers.as_ref();
            Axis {
                name: other.name.clone(),
                values: kept.iter().map(|n| other.values[*n].clone()).collect(),
                numbers: numbers
                    .map(|all| kept.iter().filter_map(|n| all.get(*n)).copied().collect()),
                unit: other.unit.clone(),
            }
        });
        let axes = axes.collect();
        let numbers: Vec<u32> = trials.iter().map(|trial| trial.trial).collect();
        let ours = |packet: &&PacketData| numbers.contains(&packet.trial);
        let packets = self.packets.iter().filter(ours).cloned().collect();
        let host = self.host.clone().filter(|host| numbers.contains(&host.wanted.trial));
        Self { axes, trials, packets, host, notes: Vec::new(), ..self.heading() }
    }

    /// What the run is, without what it measured.
    fn heading(&self) -> Self {
        Self {
            id: self.id.clone(),
            name: self.name.clone(),
            title: self.title.clone(),
            started: self.started.clone(),
            finished: self.finished.clone(),
            dwell: self.dwell.clone(),
            axes: Vec::new(),
            trials: Vec::new(),
            notes: Vec::new(),
            claims: self.claims.clone(),
            packets: Vec::new(),
            host: None,
            plan: self.plan.clone(),
            accurate: self.accurate,
        }
    }
}

/// A parameter that varies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Its name, such as `size`, `rate`, `load`.
    pub name: String,
    /// Its values, as the plan writes them: `64B`, `100Mbit/s`, `network`.
    pub values: Vec<String>,
    /// The same as numbers in base units (bytes, bit/s, packets/s, nanoseconds, a ratio), when all
    /// of them are quantities; figures then have a continuous axis.
    pub numbers: Option<Vec<f64>>,
    /// The unit of `numbers`: `B`, `bit/s`, `pps`, `ns`, `1`.
    pub unit: Option<String>,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialState {
    /// Not yet begun.
    Planned,
    /// Under way, or its runner died.
    Running,
    /// Measured.
    Finished,
    /// Failed, with a reason.
    Failed,
    /// What it asks for is not to be had on its node, for a reason.
    NotRun,
}

/// One trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialData {
    /// Its number in the run, from 1.
    pub trial: u32,
    /// Which repetition of its cell, from 1.
    pub repetition: u32,
    /// Its place in the order in which trials ran, from 1.
    pub order: u32,
    /// How it ended.
    pub state: TrialState,
    /// Why it failed.
    pub reason: Option<String>,
    /// The value of every axis, as the plan writes it.
    pub parameters: BTreeMap<String, String>,
    /// When its first sample was sent, in nanoseconds since the epoch; `None` when unknown.
    pub started_ns: Option<i64>,
    /// What the measuring node said of it.
    pub summary: Option<Summary>,
    /// What each load reached, as its node said.
    pub loads: Vec<Summary>,
    /// What somebody outside saw of its packets, by capture.
    #[serde(default)]
    pub witnesses: Vec<Summary>,
    /// What the other machines of the trial told of their part in it: reflectors, sinks, relays,
    /// traces, and the sender of a flow.
    #[serde(default)]
    pub machines: Vec<MachineData>,
    /// By name of metric, such as `rtt_ns`: everything that figures draw.
    pub series: BTreeMap<String, Series>,
}

/// What a machine told of its part in a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineData {
    /// The node.
    pub node: String,
    /// What it told.
    pub summary: Summary,
}
