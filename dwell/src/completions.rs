//! `dwell completions`: the completions of a shell, for a user without the repository's files.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use dwell_node_cli::{Exit, Failure};

use crate::Program;
use crate::generate::completion_script;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell to print completions for
    shell: Shell,
}

impl Args {
    /// Prints the script.
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let script = completion_script(self.shell, &Program::command());
        let mut out = io::stdout().lock();
        out.write_all(&script)?;
        out.flush()?;
        Ok(Exit::Measured)
    }
}
