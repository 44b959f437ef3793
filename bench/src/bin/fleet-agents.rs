//! `fleet-agents`, a generator of the bench `fleet`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::fleet::generator::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(generator::run(&Args::parse()))
}
