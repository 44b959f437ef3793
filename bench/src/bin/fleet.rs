//! `fleet`, run by `make bench-fleet`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::fleet::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(fleet::run(&Args::parse()))
}
