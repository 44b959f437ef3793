//! The experiment as `dwell` commands: `run`, `show`, `export` and `report` as child processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dwell_node_cli::{Exit, Failure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::case::Case;
use crate::lab::sibling;
use crate::{Finished, Interrupt, RoundTrips, finish};

/// Runs the commands of one experiment.
#[derive(Debug)]
pub(super) struct Product<'a> {
    dwell: PathBuf,
    /// Data directory; `None`: the default of `dwell`.
    data: Option<&'a Path>,
    interrupt: &'a Interrupt,
}

/// Output of `dwell run --json` (dwell.run-end/1), as far as needed here.
#[derive(Debug, Deserialize)]
pub(super) struct RunEnd {
    /// Name of the run.
    pub(super) run: String,
    /// How the run ended, as text.
    pub(super) end: String,
    /// Number of trials measured.
    pub(super) finished: u32,
}

/// Output of `dwell show --json` (dwell.run/1), as far as needed here.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) findings: Vec<Finding>,
    pub(super) trials: Vec<Trial>,
}

/// A sentence derived from the data.
#[derive(Debug, Deserialize)]
pub(super) struct Finding {
    pub(super) text: String,
}

/// A trial; fields of measured trials are `None` in others.
#[derive(Debug, Deserialize)]
pub(super) struct Trial {
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) packets: Option<Packets>,
    pub(super) metrics: Option<BTreeMap<String, RoundTrips>>,
    pub(super) trust: Option<Trust>,
    pub(super) environment: Option<Environment>,
    /// Summary of each load (dwell.summary/1).
    pub(super) loads: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Packets {
    pub(super) sent: u64,
    pub(super) received: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Trust {
    pub(super) warnings: Vec<Warning>,
}

/// A warning of a trial.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Warning {
    pub(super) code: String,
    pub(super) text: String,
    /// Node, load or interface.
    pub(super) on: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Environment {
    /// Queueing discipline that emulates the link.
    pub(super) qdisc: Option<String>,
}

impl Run {
    /// Returns the trials of a case, one per repetition.
    pub(super) fn trials(&self, case: Case) -> impl Iterator<Item = &Trial> {
        let has = move |trial: &&Trial| {
            trial.parameters.get("load").is_some_and(|load| load == case.load())
        };
        self.trials.iter().filter(has)
    }
}

impl<'a> Product<'a> {
    /// Uses the `dwell` binary next to this program.
    pub(super) fn new(data: Option<&'a Path>, interrupt: &'a Interrupt) -> Result<Self> {
        Ok(Self { dwell: sibling("dwell")?, data, interrupt })
    }

    /// Runs the plan with these settings. Returns the end of the run if any trial was measured or
    /// the run was interrupted.
    ///
    /// # Errors
    /// No trial was measured; `dwell` has printed the reason on standard error.
    pub(super) fn run(&self, plan: &Path, settings: &[String]) -> Result<(RunEnd, Exit), Failure> {
        let mut command = self.command("run");
        command.arg(plan).arg("--json");
        for setting in settings {
            command.args(["--set", setting]);
        }
        let finished = finish(command, self.interrupt)?;
        let exit = exit(&finished);
        if exit == Exit::Measured || exit == Exit::Interrupted || !finished.stdout.is_empty() {
            let end: RunEnd = object("run", &finished)?;
            if end.finished > 0 || exit == Exit::Interrupted {
                return Ok((end, exit));
            }
        }
        let error =
            anyhow::anyhow!("nothing was measured: dwell run ended with {}", finished.status);
        Err(Failure { exit, error })
    }

    /// Returns the results of a run.
    pub(super) fn show(&self, run: &str) -> Result<Run> {
        let mut command = self.command("show");
        command.args([run, "--json"]);
        object("show", &self.succeeded(command)?)
    }

    /// Writes every cycle of a run to `file`.
    pub(super) fn export(&self, run: &str, file: &Path) -> Result<()> {
        let mut command = self.command("export");
        command.args([run, "--format", "csv", "--output"]).arg(file);
        self.succeeded(command).map(drop)
    }

    /// Writes the report of a run to `file`.
    pub(super) fn report(&self, run: &str, file: &Path) -> Result<()> {
        let mut command = self.command("report");
        command.args([run, "--output"]).arg(file);
        self.succeeded(command).map(drop)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.dwell);
        command.arg(name);
        if let Some(data) = self.data {
            command.arg("--data").arg(data);
        }
        command
    }

    /// Runs a command on stored data to its end, also after a ^C; a second ^C ends this process and
    /// the child.
    fn succeeded(&self, command: Command) -> Result<Finished> {
        let what = command.get_args().next().unwrap_or_default().to_string_lossy().into_owned();
        let finished = finish(command, &Interrupt::never())?;
        ensure!(finished.status.success(), "dwell {what} ended with {}", finished.status);
        Ok(finished)
    }
}

fn exit(finished: &Finished) -> Exit {
    let known = [Exit::Measured, Exit::Usage, Exit::Unsupported, Exit::Interrupted];
    let code = finished.status.code();
    known.into_iter().find(|exit| code == Some(*exit as i32)).unwrap_or(Exit::Failed)
}

fn object<T: DeserializeOwned>(command: &str, finished: &Finished) -> Result<T> {
    serde_json::from_str(&finished.stdout)
        .with_context(|| format!("cannot read the output of dwell {command} --json"))
}
