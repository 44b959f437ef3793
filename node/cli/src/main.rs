//! `dwell-node`: the node commands as a small binary for small devices.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

use std::process::ExitCode;

use dwell_node_cli::{NodeProgram, examples, terms};

fn main() -> ExitCode {
    if let Some(printed) = terms::help(std::env::args_os()) {
        return dwell_node_cli::conclude(printed);
    }
    let program: NodeProgram = examples::parse(&examples::node_tables());
    dwell_node_cli::conclude(program.command.run())
}
