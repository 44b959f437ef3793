//! `dwell load`.

use crate::{Exit, Failure};

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::unsupported("load is being written"))
}
