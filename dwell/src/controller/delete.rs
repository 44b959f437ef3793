//! `dwell delete`: deletes a run.

use std::io::{self, IsTerminal, Write};

use dwell_node_cli::{Exit, Failure, say};
use dwell_store::RunRow;
use serde_json::json;

use super::data::{DataArgs, find};
use super::human;

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run
    run: String,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Print what was deleted as one JSON object
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
            human::bytes(bytes)
        );
        if !io::stdin().is_terminal() {
            return Err(Failure::usage(format!("{what} would be deleted; --yes does it")));
        }
        write!(io::stderr(), "{what} will be gone for good. Delete it? [y/N] ")?;
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            say("nothing was deleted");
            tell(args, &run, false, bytes)?;
            return Ok(Exit::Measured);
        }
    }
    // A runner that is at work on it would go on with nothing to go on with.
    let _lock = store.lock()?;
    store.delete(&run)?;
    tell(args, &run, true, bytes)?;
    Ok(Exit::Measured)
}

fn tell(args: &Args, run: &RunRow, deleted: bool, bytes: u64) -> io::Result<()> {
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
