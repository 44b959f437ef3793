//! `dwell`: what a person runs. Every command of a node, and the controller's: plans, runs, reports.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod controller;
mod generate;

use std::process::ExitCode;

use clap::Parser;
use controller::ControllerCommand;
use dwell_node_cli::NodeCommand;

/// How long do packets stay, and where?
#[derive(Debug, Parser)]
#[command(name = "dwell", version)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(flatten)]
    Node(NodeCommand),
    #[command(flatten)]
    Controller(ControllerCommand),
    /// Write the man pages or the shell completions
    #[command(hide = true, subcommand)]
    Generate(generate::Generate),
}

fn main() -> ExitCode {
    dwell_node_cli::conclude(match Program::parse().command {
        Command::Node(command) => command.run(),
        Command::Controller(command) => command.run(),
        Command::Generate(what) => what.run(),
    })
}
