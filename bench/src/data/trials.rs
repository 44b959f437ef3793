//! Overhead per trial: the wall time of a plan of tiny trials, divided by their number.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::timed::timed;

/// Round trips per trial; their time is negligible.
const COUNT: u64 = 10;

/// Returns milliseconds per trial, including the lab, which is created once, and the ten round
/// trips.
pub(super) fn overhead_ms(dwell: &Path, folder: &Path, trials: u64) -> Result<f64> {
    let plan = folder.join("tiny.toml");
    fs::write(
        &plan,
        format!(
            "version = 1\nname = \"tiny\"\n\n[topology]\nlab = \"line:2\"\n\n[ping]\nfrom = \
             \"n1\"\nto = \"n2\"\nclosed_loop = true\ncount = {COUNT}\nwarm_up = 0\n\n[matrix]\n\
             size = [\"64B\", \"100B\"]\n\n[trials]\nrepetitions = {}\norder = \"as-written\"\n",
            trials / 2
        ),
    )?;
    let data = folder.join("tiny");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    let mut run = Command::new(dwell);
    run.arg("run").arg(&plan).args(["--yes", "--quiet", "--json", "--data"]).arg(&data);
    let ran = timed(folder, &mut run)?;
    let said: Value = serde_json::from_str(&ran.stdout).context("dwell run --json")?;
    let finished = said["finished"].as_u64().context("dwell run reported no count of trials")?;
    ensure!(finished == trials / 2 * 2, "{finished} of {trials} trials finished");
    Ok(ran.cost.seconds * 1e3 / finished as f64)
}
