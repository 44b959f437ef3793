//! `dwell note`: writes a remark beside a run.

use dwell_node_cli::{Exit, Failure};

use super::data::{DataArgs, find};

/// Arguments of `note`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run, or last for the newest
    run: String,

    /// What there is to say of it: `dwell show` and its report say it too
    text: String,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let text = args.text.trim();
    if text.is_empty() {
        return Err(Failure::usage("invalid value '' for TEXT: a note has words"));
    }
    let mut store = args.data.open_existing()?;
    let run = find(&store, &args.run)?;
    store.note(&run, text)?;
    super::print(&format!("noted beside run {}", run.run))?;
    Ok(Exit::Measured)
}
