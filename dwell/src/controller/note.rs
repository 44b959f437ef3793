//! `dwell note`: adds a note to a run.

use dwell_node_cli::{Exit, Failure};

use super::data::{DataArgs, find};

/// Arguments of `note`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run name, or last for the newest run
    run: String,

    /// Text of the note, shown by `dwell show` and in the report
    text: String,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let text = args.text.trim();
    if text.is_empty() {
        return Err(Failure::usage("invalid value '' for TEXT: a note must not be empty"));
    }
    let mut store = args.data.open_existing()?;
    let run = find(&store, &args.run)?;
    store.note(&run, text)?;
    super::print(&format!("added a note to run {}", run.run))?;
    Ok(Exit::Measured)
}
