//! The nodes of stored runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use dwell_fleet::{DeviceBindings, Fleet, FleetHandle, Opener};
use dwell_node_cli::Failure;
use dwell_store::RunRow;

/// Returns the fleet of a run, to remove what its runner left; `None` for an import.
pub(super) fn of_run(run: &RunRow) -> Result<Option<Box<dyn Fleet>>, Failure> {
    open(run, false, Arc::default())
}

/// Returns the fleet of a run; `None` for an import. `waits` is whether the run waits for devices that
/// another run uses, `stop` ends all waits for devices.
pub(super) fn open(
    run: &RunRow,
    waits: bool,
    stop: Arc<AtomicBool>,
) -> Result<Option<Box<dyn Fleet>>, Failure> {
    let Some(handle) = handle(run)? else { return Ok(None) };
    let program = std::env::current_exe().context("cannot locate the dwell executable")?;
    Ok(Some(handle.open(Opener { program, run: run.run.clone(), waits, stop })))
}

/// Returns the devices of a run; `None` for a lab and for an import.
pub(super) fn devices(run: &RunRow) -> Result<Option<DeviceBindings>, Failure> {
    Ok(match handle(run)? {
        Some(FleetHandle::Devices(devices)) => Some(devices),
        Some(FleetHandle::Lab(_) | FleetHandle::LabOfProgram { .. }) | None => None,
    })
}

fn handle(run: &RunRow) -> Result<Option<FleetHandle>, Failure> {
    let Some(text) = &run.fleet else { return Ok(None) };
    let handle = serde_json::from_str(text)
        .with_context(|| format!("cannot tell where the nodes of run {} are", run.run))?;
    Ok(Some(handle))
}
