//! pandas and pyarrow in a separate virtual environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::timed::{Cost, timed};

const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/figures.py");
const PARQUET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/parquet.py");

/// A Python interpreter with pandas and pyarrow.
#[derive(Debug)]
pub(super) struct Pandas {
    python: PathBuf,
}

impl Pandas {
    /// Installs both into `folder` unless they are there.
    pub(super) fn install(folder: &Path) -> Result<Self> {
        let venv = folder.join("venv");
        let python = venv.join("bin/python");
        let has = |python: &Path| {
            let mut import = Command::new(python);
            import.args(["-c", "import pandas, pyarrow"]).stderr(Stdio::null());
            import.status().is_ok_and(|status| status.success())
        };
        if !has(&python) {
            eprintln!("installing pandas and pyarrow into {}", venv.display());
            run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "pandas", "pyarrow"]);
            run(&mut pip)?;
        }
        Ok(Self { python })
    }

    /// Computes the figures of a file; returns them and the cost of the process.
    pub(super) fn figures(&self, folder: &Path, file: &Path) -> Result<(Cost, Value)> {
        let mut command = Command::new(&self.python);
        let ran = timed(folder, command.arg(FIGURES).arg(file))?;
        Ok((
            ran.cost,
            serde_json::from_str(&ran.stdout).context("cannot read the output of pandas")?,
        ))
    }

    /// Checks that pyarrow reads dwell's Parquet: the same rows and round trips.
    pub(super) fn check(&self, parquet: &Path, rows: u64, figures: &Value) -> Result<()> {
        let output = Command::new(&self.python).arg(PARQUET).arg(parquet).output()?;
        ensure!(output.status.success(), "pyarrow cannot read {}", parquet.display());
        let read: Value =
            serde_json::from_slice(&output.stdout).context("cannot read the output of pyarrow")?;
        ensure!(read["rows"] == rows, "pyarrow reads {} rows of {rows}", read["rows"]);
        ensure!(read["count"] == figures["count"], "pyarrow finds {} values", read["count"]);
        let mean = read["sum"].as_f64().unwrap_or(0.0) / read["count"].as_f64().unwrap_or(1.0);
        let expected = figures["mean"].as_f64().unwrap_or(0.0);
        ensure!((mean - expected).abs() < 1e-3, "the mean is {expected}, pyarrow finds {mean}");
        Ok(())
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
