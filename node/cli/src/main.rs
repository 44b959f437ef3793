//! `dwell-node`: the commands of a node, in one small binary for small devices.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use dwell_node_cli::NodeProgram;

fn main() -> ExitCode {
    dwell_node_cli::conclude(NodeProgram::parse().command.run())
}
