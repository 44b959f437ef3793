//! `dwell device`: machines that are reached by SSH.

mod add;
pub(super) mod catalogue;
mod check;
mod description;
mod edit;
mod list;
mod remove;
mod show;

use dwell_node_cli::{Exit, Failure};

use super::data::DataArgs;

/// Arguments of `device`.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
A device is reached by your own ssh(1): keys, agent, jump hosts and ~/.ssh/config apply. dwell stores \
no secret and never disables the check of host keys. See docs/devices.md."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DeviceCommand {
    /// Add a device: its name and how ssh reaches it
    Add(Box<add::Args>),
    /// List the devices
    List(list::Args),
    /// Connect to devices and find what they can measure
    Check(check::Args),
    /// Show a device: its last check, what it lacks, its runs and its verdict card
    Show(show::Args),
    /// Change or clear fields of a device
    Edit(Box<edit::Args>),
    /// Remove devices, and the node program that was copied to them
    Remove(remove::Args),
}

impl Args {
    /// The data directory of the subcommand.
    pub(super) fn data(&self) -> &DataArgs {
        match &self.command {
            DeviceCommand::Add(args) => &args.data,
            DeviceCommand::List(args) => &args.data,
            DeviceCommand::Check(args) => &args.data,
            DeviceCommand::Show(args) => &args.data,
            DeviceCommand::Edit(args) => &args.data,
            DeviceCommand::Remove(args) => &args.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        DeviceCommand::Add(args) => add::run(args),
        DeviceCommand::List(args) => list::run(args),
        DeviceCommand::Check(args) => check::run(args),
        DeviceCommand::Show(args) => show::run(args),
        DeviceCommand::Edit(args) => edit::run(args),
        DeviceCommand::Remove(args) => remove::run(args),
    }
}
