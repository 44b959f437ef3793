//! `dwell hub`: the hub of a fleet.

mod embedded;
mod faults;
mod nodes;
mod schedule;

use dwell_hub::{HubError, SqliteStore};
use dwell_node_cli::{Exit, Failure};

use super::data::DataArgs;

/// Arguments of `hub`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<HubCommand>,

    #[command(flatten)]
    embedded: embedded::EmbeddedArgs,

    #[command(flatten)]
    data: DataArgs,
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
            Some(HubCommand::Schedule(args)) => args.data(),
            Some(HubCommand::Nodes(args)) => &args.data,
            None => &self.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    args.data().check()?;
    match &args.command {
        Some(HubCommand::Schedule(args)) => schedule::run(args),
        Some(HubCommand::Nodes(args)) => nodes::run(args),
        None => embedded::run(&args.embedded, &args.data),
    }
}

/// Opens the hub's database for reading. A missing one is a usage error.
pub(super) fn open_to_read(data: &DataArgs) -> Result<SqliteStore, Failure> {
    SqliteStore::open_to_read(&data.data).map_err(|error| match error {
        HubError::Missing(_) => Failure::usage(error.to_string()),
        error => error.into(),
    })
}
