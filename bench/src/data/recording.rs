//! Recording every stamp at 200,000 probes a second: `dwell ping` over a veth, with and without
//! `--samples`, in turns. Probes are answered in front of the other node's stack, by the prober's
//! own core, so that of two cores one is left to the recording, as on a machine that measures
//! another; the rate that was reached is reported, and judged too.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dwell_node_cli::Failure;
use serde::Serialize;
use serde_json::Value;

use super::goals::median;
use super::timed::timed;
use crate::echo::{Echo, PORT};
use crate::{Lab, Node};

/// 200,000 a second.
const INTERVAL: &str = "5us";
const PROBES: u64 = 600_000;
const SECONDS: f64 = 3.0;

/// What recording did.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Recording {
    /// Samples that found the ring full, or are not in the file; all rounds together.
    pub(super) missing: Option<u64>,
    /// Probes a second that were sent while recording: the median round's.
    pub(super) rate: Option<f64>,
    /// Median of the schedule error's p99 while recording, in nanoseconds.
    pub(super) p99_recorded: Option<f64>,
    /// The same without recording.
    pub(super) p99_bare: Option<f64>,
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: Option<f64>| ns.unwrap_or_default() / 1e3;
        write!(
            f,
            "recording: {:.0} probes/s reached; p99 of the schedule error {:.1} us, {:.1} us \
             without recording",
            self.rate.unwrap_or_default(),
            us(self.p99_recorded),
            us(self.p99_bare)
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
        // Every probe was sent; the last one late by about the longest error.
        rates.push(PROBES as f64 / (SECONDS + late / 1e9));
        let dropped = summary["trust"]["ring_dropped"].as_u64().context("no drop counter")?;
        missing += dropped + PROBES.abs_diff(dropped + in_file(dwell, folder, &file)?);
    }
    Ok(Recording {
        missing: Some(missing),
        rate: median(&rates),
        p99_recorded: median(&recorded),
        p99_bare: median(&bare),
    })
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
    summary["trust"]["schedule_error_ns"]["p99"].as_f64().context("no schedule error")
}

/// Samples in a file, as the import counts them.
fn in_file(dwell: &Path, folder: &Path, file: &Path) -> Result<u64> {
    let data = folder.join("recorded");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    let mut import = Command::new(dwell);
    import.arg("import").arg(file).arg("--json").arg("--data").arg(&data);
    let said: Value = serde_json::from_str(&timed(folder, &mut import)?.stdout)?;
    said["samples"].as_u64().context("no count of samples")
}
