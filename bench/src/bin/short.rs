//! `short`, run by `make bench`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::short::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(short::run(&Args::parse()))
}
