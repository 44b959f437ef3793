//! The experiment's way through the product: `dwell run`, `show`, `export` and `report` as child
//! processes, the way a person types them.

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

/// The commands of one experiment.
#[derive(Debug)]
pub(super) struct Product<'a> {
    dwell: PathBuf,
    /// Where runs are kept; `None` is where `dwell` keeps them by itself.
    data: Option<&'a Path>,
    interrupt: &'a Interrupt,
}

/// What `dwell run --json` prints (dwell.run-end/1), as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct RunEnd {
    /// The name of the run.
    pub(super) run: String,
    /// How it ended, in words.
    pub(super) end: String,
    /// Trials that were measured.
    pub(super) finished: u32,
}

/// What `dwell show --json` prints (dwell.run/1), as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) findings: Vec<Finding>,
    pub(super) trials: Vec<Trial>,
}

/// A sentence that follows from the data.
#[derive(Debug, Deserialize)]
pub(super) struct Finding {
    pub(super) text: String,
}

/// A trial; what only a measured one has is `None` in the others.
#[derive(Debug, Deserialize)]
pub(super) struct Trial {
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) packets: Option<Packets>,
    pub(super) metrics: Option<BTreeMap<String, RoundTrips>>,
    pub(super) trust: Option<Trust>,
    pub(super) environment: Option<Environment>,
    /// What each load says it did (dwell.summary/1).
    pub(super) loads: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Packets {
    pub(super) sent: u64,
    pub(super) received: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Trust {
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Environment {
    /// What queues on the link, and so emulates it.
    pub(super) qdisc: Option<String>,
}

impl Run {
    /// The trials of a case, one for each repetition.
    pub(super) fn trials(&self, case: Case) -> impl Iterator<Item = &Trial> {
        let has = move |trial: &&Trial| {
            trial.parameters.get("load").is_some_and(|load| load == case.load())
        };
        self.trials.iter().filter(has)
    }
}

impl<'a> Product<'a> {
    /// Drives the `dwell` that was built beside this program.
    pub(super) fn new(data: Option<&'a Path>, interrupt: &'a Interrupt) -> Result<Self> {
        Ok(Self { dwell: sibling("dwell")?, data, interrupt })
    }

    /// Runs the plan with these settings. Whatever became of it, an object was printed if a trial
    /// could be begun; its exit says the rest.
    ///
    /// # Errors
    /// There is no run. What `dwell` said of it is on our standard error already.
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

    /// What a run found.
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

    /// Writes the page of a run to `file`.
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

    /// What is made of a run that is on disk is made to its end, also after a ^C; a second one ends
    /// us, and with us the child.
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
        .with_context(|| format!("cannot read what dwell {command} --json printed"))
}
