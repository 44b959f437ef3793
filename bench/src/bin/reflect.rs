//! `reflect`, run by `make bench-reflect`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::reflect::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(reflect::run(&Args::parse()))
}
