//! Runs and trials as stored in the catalogue.

use std::collections::BTreeMap;

use dwell_record::TrialState;
use serde::{Deserialize, Serialize};

/// A run to create.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Whether it is measured or imported.
    pub kind: RunKind,
    /// Name of the plan or the imported file.
    pub name: String,
    /// Title of the plan.
    pub title: Option<String>,
    /// The plan's text; `None` for imports.
    pub plan: Option<String>,
    /// Texts of the lab files named in the plan, by path; `None` for imports.
    pub lab_files: Option<BTreeMap<String, String>>,
    /// Settings of the command line, as `PATH=VALUE`.
    pub settings: Vec<String>,
    /// Seed of the order of trials.
    pub seed: u64,
    /// The axes of the matrix, as in the JSON report.
    pub axes: serde_json::Value,
    /// Data with which a later process finds the nodes, as JSON; not interpreted here. `None` for
    /// imports.
    pub fleet: Option<String>,
    /// The version of dwell.
    pub dwell: String,
    /// Who starts it, as `USER@HOST`.
    pub owner: String,
    /// All trials, in order of execution.
    pub trials: Vec<NewTrial>,
}

#[cfg(test)]
impl NewRun {
    /// A run without trials, for tests.
    pub(crate) fn without_trials(kind: RunKind) -> Self {
        Self {
            kind,
            name: "p".into(),
            title: None,
            plan: None,
            lab_files: None,
            settings: Vec::new(),
            seed: 0,
            axes: serde_json::json!([]),
            fleet: None,
            dwell: "0".into(),
            owner: "alice@lab".into(),
            trials: Vec::new(),
        }
    }
}

/// A trial to create.
#[derive(Clone, Debug)]
pub struct NewTrial {
    /// Number within the run.
    pub number: u32,
    /// Number of the cell.
    pub cell: u32,
    /// Repetition within the cell, from 1.
    pub repetition: u32,
    /// Value by axis.
    pub parameters: BTreeMap<String, String>,
}

dwell_units::named! {
    /// Origin of a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RunKind {
        /// Measured by running a plan.
        Run = "run",
        /// Imported from a file.
        Import = "import",
    }
}

dwell_units::named! {
    /// State of a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RunState {
        /// In progress.
        Running = "running",
        /// All trials have ended.
        Finished = "finished",
        /// Ended by a stop rule, the user or an error; it can be resumed.
        Stopped = "stopped",
        /// Its runner died; it can be resumed. The catalogue still says running in this case.
        Interrupted = "interrupted",
    }
}

dwell_units::named! {
    /// Role of the job that reported a summary.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Role {
        /// The measurement.
        Measurement = "measurement",
        /// A load.
        Load = "load",
        /// A reflector, sink or relay.
        Server = "server",
        /// An external witness.
        Witness = "witness",
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// Key in the catalogue.
    pub(crate) id: i64,
    /// Name of the run.
    pub run: String,
    /// Origin.
    pub kind: RunKind,
    /// Name of the plan or the imported file.
    pub name: String,
    /// Title of the plan.
    pub title: Option<String>,
    /// The plan's text.
    pub plan: Option<String>,
    /// Texts of the lab files named in the plan; `None` if not stored.
    pub lab_files: Option<BTreeMap<String, String>>,
    /// Settings of the command line.
    pub settings: Vec<String>,
    /// Seed of the order of trials.
    pub seed: u64,
    /// The axes of the matrix.
    pub axes: serde_json::Value,
    /// State.
    pub state: RunState,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC.
    pub finished: Option<String>,
    /// Data with which a later process finds the nodes, as JSON; `None` for imports.
    pub fleet: Option<String>,
    /// The version of dwell.
    pub dwell: String,
    /// Who started it, as `USER@HOST`; `None` for runs of earlier versions.
    pub owner: Option<String>,
    /// Number of trials.
    pub trials: u32,
    /// Number of finished trials.
    pub trials_finished: u32,
    /// Number of failed trials.
    pub trials_failed: u32,
    /// Number of trials that were not run because a node does not support them.
    pub trials_not_run: u32,
}

/// Which runs are wanted; an absent field matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Name of the plan or the imported file.
    pub name: Option<String>,
    /// Origin.
    pub kind: Option<RunKind>,
    /// State.
    pub state: Option<RunState>,
    /// Names of runs that are left out.
    pub hidden: Vec<String>,
    /// If given, only runs with these names.
    pub only: Option<Vec<String>>,
}

/// Number of rows of a catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs by state, as the catalogue says: a run whose runner died is `running`.
    pub runs: Vec<(String, u64)>,
    /// Trials by state.
    pub trials: Vec<(String, u64)>,
    /// Devices.
    pub devices: u64,
}

/// A node that took part in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunNode {
    /// Name in the plan.
    pub node: String,
    /// Its version of dwell.
    pub dwell: String,
    /// Name of its clock domain; nodes with equal names have the same CLOCK_REALTIME. `None` if
    /// unknown.
    pub clock: Option<String>,
    /// The device that it was bound to; `None` for nodes of labs.
    pub device: Option<BoundDevice>,
}

/// The device of a node, as it was during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoundDevice {
    /// Name of the device.
    pub name: String,
    /// Destination of ssh(1).
    pub destination: String,
    /// SHA-256 of the node's program, as 64 hexadecimal digits.
    pub program_sha256: String,
    /// Machine type, such as `aarch64`.
    pub arch: String,
}

/// A trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRow {
    /// Key in the catalogue.
    pub(crate) id: i64,
    /// Number within the run.
    pub number: u32,
    /// Number of the cell.
    pub cell: u32,
    /// Repetition within the cell, from 1.
    pub repetition: u32,
    /// Position in the order of execution, from 1.
    pub position: u32,
    /// State.
    pub state: TrialState,
    /// Why it failed or was not run.
    pub reason: Option<String>,
    /// Value by axis; empty if damaged in the catalogue.
    pub parameters: BTreeMap<String, String>,
    /// The damaged text of the parameters in the catalogue.
    pub(crate) damaged: Option<String>,
    /// Time of the first sample, in nanoseconds since the epoch.
    pub first_ns: Option<i64>,
    /// Number of rows in the sample file.
    pub samples: Option<u64>,
    /// Checksum of the sample file.
    pub(crate) samples_crc32: Option<u32>,
}
