//! The `dwell` program: the commands of a node, and the controller's plans, runs and reports.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod completions;
mod controller;
mod live;

use std::process::ExitCode;

use clap::{FromArgMatches, Parser};
use controller::ControllerCommand;
use dwell_node_cli::examples::{self, Examples};
use dwell_node_cli::{NodeCommand, terms};

/// Measure where packets spend their time
#[derive(Debug, Parser)]
#[command(name = "dwell", version, after_help = "`help terms` explains every metric and value.")]
#[command(mut_subcommands(live::add_flag))]
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
    /// Print shell completions to standard output
    Completions(completions::Args),
}

/// Examples for `dwell` itself and the commands defined here.
const EXAMPLES: &[Examples] = &[
    ("", ["ping 192.0.2.7", "run plans/quick.toml"]),
    ("completions", ["completions bash", "completions zsh"]),
];

/// Examples of all commands of `dwell`.
fn example_tables() -> [&'static [Examples]; 3] {
    [EXAMPLES, examples::NODE, controller::EXAMPLES]
}

fn main() -> ExitCode {
    if let Some(printed) = terms::help(std::env::args_os()) {
        return dwell_node_cli::conclude(printed);
    }
    let matches = examples::command::<Program>(&example_tables()).get_matches();
    let program = Program::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    dwell_node_cli::conclude(match program.command {
        Command::Node(NodeCommand::Ping(args)) if live::is_requested(&matches) => live::ping(&args),
        Command::Node(command) => command.run(),
        Command::Controller(command) => command.run(),
        Command::Completions(args) => args.run(),
    })
}

#[cfg(test)]
mod example_tests;
#[cfg(test)]
mod generated;
