//! `dwell delete`: deletes a run.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_results::amounts;
use dwell_store::{RunRow, RunState};
use serde_json::json;

use super::data::{DataArgs, find};
use super::fleet;

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run name, or last for the newest run
    run: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut store = args.data.open_existing()?;
    let run = find(&store, &args.run)?;
    let bytes = store.samples_bytes(&run);
    if !args.yes {
        let what = format!(
            "run {} ({}, {}): {} trials and {} of samples",
            run.run,
            run.name,
            run.started,
            run.trials,
            amounts::bytes(bytes)
        );
        if !io::stdin().is_terminal() {
            return Err(Failure::usage(format!("{what} would be deleted; confirm with --yes")));
        }
        let what = terminal::escaped(&what);
        write!(io::stderr(), "{what} will be deleted permanently. Continue? [y/N] ")?;
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            say("nothing was deleted");
            print_result(args, &run, false, bytes)?;
            return Ok(Exit::Measured);
        }
    }
    // The lock excludes a runner, which could not continue without its run.
    let _lock = store.lock()?;
    clear_fleet(&run)?;
    store.delete(&run)?;
    print_result(args, &run, true, bytes)?;
    Ok(Exit::Measured)
}

/// Removes what a killed runner left of its nodes. The handle of the nodes is stored only with the
/// run.
fn clear_fleet(run: &RunRow) -> Result<(), Failure> {
    if !matches!(run.state, RunState::Running | RunState::Interrupted) {
        return Ok(());
    }
    let Some(mut fleet) = fleet::of_run(run)? else { return Ok(()) };
    fleet.clear().with_context(|| {
        format!("cannot remove the nodes of run {}; the run is not deleted", run.run)
    })?;
    Ok(())
}

fn print_result(args: &Args, run: &RunRow, deleted: bool, bytes: u64) -> io::Result<()> {
    if args.json {
        let object = json!({
            "schema": "dwell.delete/1",
            "run": run.run,
            "deleted": deleted,
            "samples_bytes": bytes,
        });
        return super::print(&format!("{object:#}"));
    }
    if deleted { super::print(&format!("deleted run {}", run.run)) } else { Ok(()) }
}
