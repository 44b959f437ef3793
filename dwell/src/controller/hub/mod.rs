//! `dwell hub`: the hub of a fleet.

mod nodes;
mod schedule;

use dwell_hub::{HubError, SqliteStore};
use dwell_node_cli::{Exit, Failure};

use super::data::DataArgs;

/// Arguments of `hub`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: HubCommand,
}

#[derive(Debug, clap::Subcommand)]
enum HubCommand {
    /// Check, apply and list schedules: who measures whom, how and when
    Schedule(schedule::Args),
    /// List the nodes that the hub knows, with what is wrong with them
    Nodes(nodes::Args),
}

impl Args {
    /// The data directory.
    pub(super) fn data(&self) -> &DataArgs {
        match &self.command {
            HubCommand::Schedule(args) => args.data(),
            HubCommand::Nodes(args) => &args.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    args.data().check()?;
    match &args.command {
        HubCommand::Schedule(args) => schedule::run(args),
        HubCommand::Nodes(args) => nodes::run(args),
    }
}

/// Opens the hub's database for reading. A missing one is a usage error.
pub(super) fn open_to_read(data: &DataArgs) -> Result<SqliteStore, Failure> {
    SqliteStore::open_to_read(&data.data).map_err(|error| match error {
        HubError::Missing(_) => Failure::usage(error.to_string()),
        error => error.into(),
    })
}
