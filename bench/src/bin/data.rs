//! `data`, run by `make bench-data`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::data::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(data::run(&Args::parse()))
}
