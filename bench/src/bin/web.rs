//! `web`, run by `make bench-web`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use dwell_bench::web::{self, Args};

fn main() -> ExitCode {
    dwell_node_cli::conclude(web::run(&Args::parse()))
}
