//! A run and its trials.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_plan::{Accurate, Plan};
use dwell_record::series::Series;
use dwell_record::{Summary, TrialState};
use serde::{Deserialize, Serialize};

use crate::model::axes::RELAY;
use crate::model::claim::JudgedClaims;
use crate::model::host::HostData;
use crate::model::plan::RunPlan;
use crate::model::published::Published;

/// A run. The default has no trials.
#[derive(Clone, Debug, Default)]
pub struct RunData {
    /// Id, such as `20261121-1`.
    pub id: String,
    /// Name of the plan or of the imported file.
    pub name: String,
    /// Title from the plan.
    pub title: Option<String>,
    /// Start time, RFC 3339.
    pub started: String,
    /// End time; `None` while it runs, or if it was interrupted.
    pub finished: Option<String>,
    /// Version of dwell that ran it.
    pub dwell: String,
    /// Varied parameters and their values, in the order of the plan. Empty for a run of one cell.
    pub axes: Vec<Axis>,
    /// Trials, by number.
    pub trials: Vec<TrialData>,
    /// User notes.
    pub notes: Vec<String>,
    /// Claims of the document that the plan names.
    pub claims: Option<JudgedClaims>,
    /// Values of documents that are shown beside those of the run.
    pub published: Arc<Published>,
    /// Example packets for the component figure.
    pub packets: Vec<PacketData>,
    /// Host activity during one trial.
    pub host: Option<HostData>,
    /// Plan of the run; `None` for imports.
    pub plan: Option<Arc<RunPlan>>,
    /// Whether all nodes are namespaces of one machine.
    pub one_machine: bool,
    /// Definition of an accurate sender that overrides the one of the plan.
    pub accurate: Option<Accurate>,
}

/// An example packet and its delay components.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketData {
    /// Number of its trial.
    pub trial: u32,
    /// Which packet of the trial: `median`, `p99`, `slowest`.
    pub which: String,
    /// Packet id.
    pub id: u64,
    /// Delay components in nanoseconds, by metric; they sum to the whole.
    pub parts: BTreeMap<String, i64>,
    /// End-to-end delay, by the timestamps of both ends.
    pub end_to_end_ns: i64,
}

impl RunData {
    /// The plan; `None` without one, or if it cannot be parsed.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()?.parsed.as_ref()
    }

    /// Finished trials.
    pub fn finished_trials(&self) -> impl Iterator<Item = &TrialData> {
        self.trials.iter().filter(|trial| trial.state == TrialState::Finished)
    }

    /// Summaries of the measuring node, by finished trial.
    pub fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.finished_trials().filter_map(|trial| trial.summary.as_ref())
    }

    /// The axis of this name, if it was varied.
    pub fn axis(&self, name: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.name == name)
    }

    /// Relay modes; empty if they were not varied.
    pub fn modes(&self) -> &[String] {
        self.axis(RELAY).map_or(&[], |axis| &axis.values)
    }

    /// Short name of the run at a place of a comparison: a letter and its id. The trust panel shows
    /// its full name.
    pub(crate) fn lettered_id(&self, place: usize) -> String {
        let letter = u8::try_from(place).ok().filter(|i| *i < 26).map(|i| char::from(b'A' + i));
        letter.map_or_else(|| self.id.clone(), |letter| format!("{letter}: {}", self.id))
    }

    /// The trials with one value of an axis. Removes that axis, and values of other axes that no
    /// remaining trial has.
    pub fn only(&self, axis: &str, value: &str) -> Self {
        self.at(&[(axis, value)])
    }

    /// As [`Self::only`], with one value of each of several axes.
    pub(crate) fn at(&self, levels: &[(&str, &str)]) -> Self {
        let has = |trial: &&TrialData| levels.iter().all(|(axis, value)| trial.is_at(axis, value));
        let trials: Vec<TrialData> = self.trials.iter().filter(has).cloned().collect();
        let free = |axis: &&Axis| levels.iter().all(|(name, _)| axis.name != *name);
        let axes = self.axes.iter().filter(free).map(|other| {
            let used = |value: &String| trials.iter().any(|trial| trial.is_at(&other.name, value));
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

    /// The run without trials, axes, claims, packets and host data.
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
            claims: None,
            published: Arc::clone(&self.published),
            packets: Vec::new(),
            host: None,
            plan: self.plan.clone(),
            one_machine: self.one_machine,
            accurate: self.accurate,
        }
    }
}

/// A varied parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Name, such as `size`, `rate`, `load`.
    pub name: String,
    /// Values as written in the plan: `64B`, `100Mbit/s`, `network`.
    pub values: Vec<String>,
    /// Values in base units (bytes, bit/s, packets/s, nanoseconds, a ratio), if all are quantities;
    /// figures then have a continuous axis.
    pub numbers: Option<Vec<f64>>,
    /// Unit of `numbers`: `B`, `bit/s`, `pps`, `ns`, `1`.
    pub unit: Option<String>,
}

/// A trial.
#[derive(Clone, Debug)]
pub struct TrialData {
    /// Number in the run, from 1.
    pub trial: u32,
    /// Repetition of its cell, from 1.
    pub repetition: u32,
    /// Position in the order of execution, from 1.
    pub order: u32,
    /// State.
    pub state: TrialState,
    /// Why it failed or was not run.
    pub reason: Option<String>,
    /// Value of every axis as written in the plan.
    pub parameters: BTreeMap<String, String>,
    /// Send time of the first sample, in nanoseconds since the epoch; `None` if unknown.
    pub started_ns: Option<i64>,
    /// Summary of the measuring node.
    pub summary: Option<Summary>,
    /// Summary of each load.
    pub loads: Vec<Summary>,
    /// Summary of each packet capture taken outside dwell.
    pub witnesses: Vec<Summary>,
    /// Summaries of the other machines: reflectors, sinks, relays, traces, and the sender of a
    /// flow.
    pub machines: Vec<MachineData>,
    /// Data of the figures by metric, such as `rtt_ns`.
    pub series: BTreeMap<String, Series>,
}

impl TrialData {
    /// Whether the trial was measured at this value of an axis.
    pub fn is_at(&self, axis: &str, value: &str) -> bool {
        self.parameters.get(axis).is_some_and(|of_trial| of_trial == value)
    }
}

/// Summary of one machine of a trial.
#[derive(Clone, Debug)]
pub struct MachineData {
    /// Name of the node.
    pub node: String,
    /// Its summary.
    pub summary: Summary,
}
