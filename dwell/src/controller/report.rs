//! `dwell report`: writes an HTML page about a run.

use std::path::PathBuf;

use anyhow::Context;
use dwell_node_cli::{Exit, Failure};

use dwell_results::judged_data;

use super::data::{AccurateArgs, DataArgs, find, say_problem};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run name, or last for the newest run
    #[arg(default_value = "last")]
    run: String,

    /// Output file [default: RUN.html in the data directory]
    #[arg(short = 'o', long, value_name = "FILE.html")]
    output: Option<PathBuf>,

    #[command(flatten)]
    accurate: AccurateArgs,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = args.data.open_to_read()?;
    let run = find(&store, &args.run)?;
    let mut data = judged_data(&store, &run, true, &say_problem)?;
    data.accurate = args.accurate.accurate;
    let page = dwell_report::page(&data);
    let path = args.output.clone().unwrap_or_else(|| store.dir().join(format!("{}.html", run.run)));
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    super::print(&path.display().to_string())?;
    Ok(Exit::Measured)
}
