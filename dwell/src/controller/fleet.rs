//! The nodes of stored runs.

use anyhow::Context;
use dwell_fleet::{Fleet, FleetHandle};
use dwell_node_cli::Failure;
use dwell_store::RunRow;

/// Returns the fleet of a run; `None` for an import.
pub(super) fn of_run(run: &RunRow) -> Result<Option<Box<dyn Fleet>>, Failure> {
    let Some(text) = &run.fleet else { return Ok(None) };
    let handle: FleetHandle = serde_json::from_str(text)
        .with_context(|| format!("cannot tell where the nodes of run {} are", run.run))?;
    let program = std::env::current_exe().context("cannot locate the dwell executable")?;
    Ok(Some(handle.open(program)))
}
