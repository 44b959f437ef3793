//! `rtt`, run by `make bench-rtt`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::rtt::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(rtt::run(&Args::parse()))
}
