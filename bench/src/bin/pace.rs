//! `pace`, run by `make bench-pace`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::pace::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(pace::run(&Args::parse()))
}
