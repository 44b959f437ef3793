//! `dwell-node`: the node commands as a small binary for small devices.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

use std::process::ExitCode;
use std::thread;

use dwell_node_cli::{NodeProgram, examples, terms};

fn main() -> ExitCode {
    if let Some(printed) = terms::help(std::env::args_os()) {
        return dwell_node_cli::conclude(printed);
    }
    let parse = || examples::parse::<NodeProgram>(&examples::node_tables());
    // Parsing uses 200 KiB of stack, which a thread returns to the system when it ends.
    let program = match thread::Builder::new().spawn(parse) {
        Ok(parser) => parser.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(_) => parse(),
    };
    dwell_node_cli::conclude(program.command.run())
}
