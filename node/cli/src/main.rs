//! `dwell-node`: the commands of a node, in one small binary for small devices.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_node_cli::NodeCommand;

/// Measure how long packets stay, and where: the commands that run on a node
#[derive(Debug, Parser)]
#[command(name = "dwell-node", version)]
struct Cli {
    #[command(subcommand)]
    command: NodeCommand,
}

fn main() -> ExitCode {
    dwell_node_cli::conclude(Cli::parse().command.run())
}
