//! `dwell completions`: the completions of a shell, for a user without the repository's files.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use dwell_node_cli::{Exit, Failure};

use crate::Program;

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

/// Returns the completions of a program for one shell.
pub(crate) fn completion_script(shell: Shell, program: &Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(program), program.get_name(), &mut script);
    script
}

/// Returns the command without its hidden parts, which the generators would include.
fn visible(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|a| !a.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|c| !c.is_hide_set()).map(visible));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
}
