//! `dwell lab`.

use crate::{Exit, Failure};

/// Arguments of `lab`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::unsupported("lab is being written"))
}
