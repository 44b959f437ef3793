//! Runs and trials as the catalogue has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A run to begin.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Measured here, or read from a file.
    pub kind: RunKind,
    /// The plan's name, or the file's.
    pub name: String,
    /// What it is for.
    pub title: Option<String>,
    /// The plan's text; `None` for imports.
    pub plan: Option<String>,
    /// The text of each lab file that the plan names, by its path there; `None` for imports.
    pub lab_files: Option<BTreeMap<String, String>>,
    /// What was set from outside, as `PATH=VALUE`.
    pub settings: Vec<String>,
    /// Decides the order of trials.
    pub seed: u64,
    /// The axes of the matrix, as JSON of the report's.
    pub axes: serde_json::Value,
    /// The version of dwell.
    pub dwell: String,
    /// All trials, in the order in which they are to be run.
    pub trials: Vec<NewTrial>,
}

/// A trial to come.
#[derive(Clone, Debug)]
pub struct NewTrial {
    /// Its number in the run.
    pub number: u32,
    /// The number of its cell.
    pub cell: u32,
    /// Which repetition of its cell, from 1.
    pub repetition: u32,
    /// Value by axis.
    pub parameters: BTreeMap<String, String>,
}

/// Where a run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// A plan that was run.
    Run,
    /// A file that was imported.
    Import,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Under way.
    Running,
    /// Every trial has ended.
    Finished,
    /// A stop rule ended it, a person, or something that kept it from going on; it can be resumed.
    Stopped,
    /// Its runner died; it can be resumed. Never in the catalogue, which then still says running.
    Interrupted,
}

/// How far a trial is.
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

/// Whose summary it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What the trial measured.
    Measurement,
    /// What a load reached.
    Load,
    /// What a reflector or a sink counted.
    Server,
    /// What somebody outside saw.
    Witness,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// Its key in the catalogue.
    pub(crate) id: i64,
    /// What people call it.
    pub run: String,
    /// Where it comes from.
    pub kind: RunKind,
    /// The plan's name, or the file's.
    pub name: String,
    /// What it is for.
    pub title: Option<String>,
    /// The plan's text.
    pub plan: Option<String>,
    /// The text of each lab file that the plan names; `None` where none was kept.
    pub lab_files: Option<BTreeMap<String, String>>,
    /// What was set from outside.
    pub settings: Vec<String>,
    /// Decides the order of trials.
    pub seed: u64,
    /// The axes of the matrix.
    pub axes: serde_json::Value,
    /// How far it is.
    pub state: RunState,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC.
    pub finished: Option<String>,
    /// The lab that the runner made for it.
    pub lab: Option<String>,
    /// The version of dwell.
    pub dwell: String,
    /// Trials by state.
    pub trials: u32,
    /// Of those, finished.
    pub trials_finished: u32,
    /// Of those, failed.
    pub trials_failed: u32,
    /// Of those, not run, because a node cannot do what they ask for.
    pub trials_not_run: u32,
}

/// A trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRow {
    /// Its key in the catalogue.
    pub(crate) id: i64,
    /// Its number in the run.
    pub number: u32,
    /// The number of its cell.
    pub cell: u32,
    /// Which repetition of its cell, from 1.
    pub repetition: u32,
    /// Its place in the order, from 1.
    pub position: u32,
    /// How far it is.
    pub state: TrialState,
    /// Why it failed.
    pub reason: Option<String>,
    /// Value by axis; empty where the catalogue's cannot be read.
    pub parameters: BTreeMap<String, String>,
    /// What stands in the catalogue for the parameters, where it is damaged.
    pub(crate) damaged: Option<String>,
    /// Of the first sample, in nanoseconds since the epoch.
    pub first_ns: Option<i64>,
    /// Rows in the file of samples.
    pub samples: Option<u64>,
    /// Checksum of that file.
    pub(crate) samples_crc32: Option<u32>,
}

macro_rules! texts {
    ($($type:ident { $($variant:ident: $text:literal),+ })+) => {$(
        impl $type {
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub(crate) fn read(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    )+};
}

texts! {
    RunKind { Run: "run", Import: "import" }
    RunState {
        Running: "running", Finished: "finished", Stopped: "stopped", Interrupted: "interrupted"
    }
    TrialState {
        Planned: "planned", Running: "running", Finished: "finished", Failed: "failed",
        NotRun: "not-run"
    }
    Role { Measurement: "measurement", Load: "load", Server: "server", Witness: "witness" }
}
