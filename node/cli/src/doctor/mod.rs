//! `dwell doctor`.

use crate::{Exit, Failure};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::unsupported("doctor is being written"))
}
