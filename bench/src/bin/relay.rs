//! `relay`, run by `make bench-relay`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::relay::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(relay::run(&Args::parse()))
}
