//! `dwell reflect`.

use crate::{Exit, Failure};

/// Arguments of `reflect`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::unsupported("reflect is being written"))
}
