//! `hostile`, run by `make bench-hostile`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::hostile::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(hostile::run(&Args::parse()))
}
