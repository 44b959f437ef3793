//! A run as the report sees it: already summarised, so that nothing here grows with the number of
//! samples.

use std::collections::BTreeMap;

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
    /// By name of metric, such as `rtt_ns`: everything that figures draw.
    pub series: BTreeMap<String, Series>,
}
