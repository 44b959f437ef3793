//! Wall time and peak memory of a process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// Cost of a process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    /// Wall time in seconds.
    pub(super) seconds: f64,
    /// Peak resident memory in KiB.
    pub(super) peak_kib: u64,
}

/// A process that ended successfully.
#[derive(Debug)]
pub(super) struct Timed {
    pub(super) cost: Cost,
    pub(super) stdout: String,
}

/// Runs `command` under time(1), which writes to `folder`.
pub(super) fn timed(folder: &Path, command: &mut Command) -> Result<Timed> {
    let peak = folder.join("peak-memory.txt");
    let mut whole = Command::new("time");
    whole.args(["--format", "%M", "--output"]).arg(&peak);
    whole.arg(command.get_program()).args(command.get_args());
    whole.stdin(Stdio::null()).stderr(Stdio::inherit());
    let start = Instant::now();
    let output = whole.output().context("time is not installed: make setup")?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let text = fs::read_to_string(&peak)?;
    let peak_kib =
        text.trim().parse().with_context(|| format!("'{}' is not a size in KiB", text.trim()))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Timed { cost: Cost { seconds, peak_kib }, stdout })
}
