//! `dwell ping`.

use crate::{Exit, Failure};

/// Arguments of `ping`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::unsupported("ping is being written"))
}
