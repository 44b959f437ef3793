//! Recording of every timestamp at 200,000 probes per second: `dwell ping` over a veth, alternately
//! with and without `--samples`. Replies are sent in front of the other node's stack, on the
//! prober's core, so that of two cores one is left for recording, as on a machine that measures
//! another. The rate reached is reported and judged too.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dwell_node_cli::Failure;
use serde::Serialize;
use serde_json::Value;

use super::timed::timed;
use crate::echo::{Echo, PORT};
use crate::judge::median;
use crate::{Lab, Node};

/// 200,000 per second.
const INTERVAL: &str = "5us";
const PROBES: u64 = 600_000;
const SECONDS: f64 = 3.0;

/// Results of recording.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Recording {
    /// Samples dropped by the ring or absent from the file, over all rounds.
    pub(super) missing: Option<u64>,
    /// Probes per second sent while recording, by round.
    pub(super) rate: Vec<f64>,
    /// p99 of the schedule error while recording, in nanoseconds, by round.
    pub(super) p99_recorded: Vec<f64>,
    /// The same without recording.
    pub(super) p99_bare: Vec<f64>,
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: &[f64]| median(ns).unwrap_or_default() / 1e3;
        write!(
            f,
            "recording: {:.0} probes/s reached; p99 of the schedule error {:.1} us, {:.1} us \
             without recording",
            median(&self.rate).unwrap_or_default(),
            us(&self.p99_recorded),
            us(&self.p99_bare)
        )
    }
}

pub(super) fn measure(dwell: &Path, folder: &Path, rounds: u64) -> Result<Recording, Failure> {
    let lab = Lab::up()?;
    let _echo = Echo::attach(&lab.netns(Node::N2)?, lab.address(Node::N1)?)?;
    let file = folder.join("recorded.samples");
    let (mut missing, mut rates) = (0, Vec::new());
    let (mut recorded, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.push(p99(&ping(&lab, folder, None)?)?);
        if file.exists() {
            fs::remove_file(&file)?;
        }
        let summary = ping(&lab, folder, Some(&file))?;
        recorded.push(p99(&summary)?);
        let late = summary["trust"]["schedule_error_ns"]["max"].as_f64().unwrap_or(0.0);
        // All probes were sent; the last one was late by about the largest error.
        rates.push(PROBES as f64 / (SECONDS + late / 1e9));
        let dropped =
            summary["trust"]["ring_dropped"].as_u64().context("the summary has no ring_dropped")?;
        missing += dropped + PROBES.abs_diff(dropped + in_file(dwell, folder, &file)?);
    }
    Ok(Recording { missing: Some(missing), rate: rates, p99_recorded: recorded, p99_bare: bare })
}

fn ping(lab: &Lab, folder: &Path, samples: Option<&Path>) -> Result<Value> {
    let mut ping = lab.dwell_on(Node::N1);
    let url = format!("udp://{}:{PORT}", lab.address(Node::N2)?);
    let count = PROBES.to_string();
    ping.args(["ping", &url, "-i", INTERVAL, "-c", &count, "--stamps", "user", "-q", "--json"]);
    if let Some(samples) = samples {
        ping.arg("--samples").arg(samples);
    }
    let summary: Value = serde_json::from_str(&timed(folder, &mut ping)?.stdout)?;
    ensure!(summary["packets"]["sent"] == PROBES, "not all probes were sent");
    Ok(summary)
}

fn p99(summary: &Value) -> Result<f64> {
    summary["trust"]["schedule_error_ns"]["p99"]
        .as_f64()
        .context("the summary has no schedule_error_ns")
}

/// Returns the number of samples that the import finds in a file.
fn in_file(dwell: &Path, folder: &Path, file: &Path) -> Result<u64> {
    let data = folder.join("recorded");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    let mut import = Command::new(dwell);
    import.arg("import").arg(file).arg("--json").arg("--data").arg(&data);
    let said: Value = serde_json::from_str(&timed(folder, &mut import)?.stdout)?;
    said["samples"].as_u64().context("the import reported no sample count")
}
