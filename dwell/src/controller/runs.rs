//! `dwell runs`: lists the runs.

use std::io::Write;

use dwell_node_cli::{Exit, Failure, terminal};
use dwell_results::{amounts, run_row_object};
use serde_json::json;

use super::data::DataArgs;

/// Arguments of `runs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the list as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = args.data.open_if_exists()?;
    let runs = store.as_ref().map_or(Ok(Vec::new()), dwell_store::Store::runs)?;
    let bytes = |run| store.as_ref().map_or(0, |store| store.samples_bytes(run));
    let mut out = terminal::stdout();
    if args.json {
        let runs = runs.iter().map(|run| run_row_object(run, bytes(run)));
        let runs: Vec<_> = runs.collect();
        writeln!(out, "{:#}", json!({ "schema": "dwell.runs/1", "runs": runs }))?;
        return Ok(Exit::Measured);
    }
    if runs.is_empty() {
        writeln!(
            out,
            "no runs in {} yet; create one with `dwell run PLAN` or `dwell import FILE`",
            args.data.data.display()
        )?;
        return Ok(Exit::Measured);
    }
    let width = runs.iter().map(|run| run.name.chars().count()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "{:12} {:width$}  {:11} {:20} {:>16} {:>10}",
        "run", "name", "state", "started", "trials", "samples"
    )?;
    for run in &runs {
        let failed = match (run.trials_failed, run.trials_not_run) {
            (0, 0) => String::new(),
            (failed, 0) => format!(" ({failed} failed)"),
            (0, not_run) => format!(" ({not_run} not run)"),
            (failed, not_run) => format!(" ({failed} failed, {not_run} not run)"),
        };
        let trials = format!("{}/{}{failed}", run.trials_finished, run.trials);
        writeln!(
            out,
            "{:12} {:width$}  {:11} {:20} {trials:>16} {:>10}",
            run.run,
            run.name,
            run.state.name(),
            run.started,
            size(bytes(run))
        )?;
    }
    Ok(Exit::Measured)
}

fn size(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { amounts::bytes(bytes) }
}
