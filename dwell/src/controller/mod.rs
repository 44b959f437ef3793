//! The controller's commands: plans are run, what they leave is kept, shown, compared and handed on.

mod compare;
mod data;
mod delete;
mod export;
mod import;
mod report;
mod run;
mod runs;
mod show;
mod witness;

use std::io::{self, Write};

use dwell_node_cli::{Exit, Failure};

/// A command of the controller.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ControllerCommand {
    /// Run a plan: every trial of its matrix, kept on disk as it goes
    Run(run::Args),
    /// List the runs in the data directory
    Runs(runs::Args),
    /// Show what a run found
    Show(show::Args),
    /// Write a run as one HTML page that needs nothing else
    Report(report::Args),
    /// Compare runs: what shifted, by how much, and how sure that is
    Compare(compare::Args),
    /// Hand on the samples of a run
    Export(export::Args),
    /// Read what dwell or another program measured
    Import(import::Args),
    /// Delete a run and its samples
    Delete(delete::Args),
}

impl ControllerCommand {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Run(args) => run::run(&args),
            Self::Runs(args) => runs::run(&args),
            Self::Show(args) => show::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Compare(args) => compare::run(&args),
            Self::Export(args) => export::run(&args),
            Self::Import(args) => import::run(&args),
            Self::Delete(args) => delete::run(&args),
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Prints what a command did. A reader that has gone, as `head` goes, changes nothing of that.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
