//! `roundtrip`, run by `make run`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::roundtrip::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(roundtrip::run(&Args::parse()))
}
