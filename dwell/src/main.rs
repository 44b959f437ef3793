//! `dwell`: what a person runs. Every command of a node, and (in time) the controller's.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_node_cli::NodeCommand;

/// How long do packets stay, and where?
#[derive(Debug, Parser)]
#[command(name = "dwell", version)]
struct Cli {
    #[command(subcommand)]
    command: NodeCommand,
}

fn main() -> ExitCode {
    dwell_node_cli::conclude(Cli::parse().command.run())
}
