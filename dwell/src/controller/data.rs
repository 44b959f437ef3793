//! The data directory, and a run in it as the report sees it.

use std::path::PathBuf;

use dwell_node_cli::Failure;
use dwell_plan::{Plan, Source};
use dwell_report::data::{Axis, RunData, TrialData, TrialState};
use dwell_store::{Role, RunRow, Store, StoreError, TrialRow};

/// Where runs are kept.
#[derive(Debug, clap::Args)]
pub(super) struct DataArgs {
    /// Directory of runs and samples
    #[arg(long, value_name = "DIR", env = "DWELL_DATA", default_value = "dwell-data")]
    pub(super) data: PathBuf,
}

impl DataArgs {
    /// Opens it, and makes it if it is not there.
    pub(super) fn open(&self) -> Result<Store, Failure> {
        Ok(Store::open(&self.data)?)
    }

    /// Opens it to look at what is there. Nothing is made for one that is not there.
    pub(super) fn open_existing(&self) -> Result<Store, Failure> {
        if !self.data.join("catalogue.sqlite").exists() {
            return Err(Failure::from(anyhow::anyhow!(
                "there are no runs in {}; `dwell run PLAN` or `dwell import FILE` makes one, and \
                 --data DIR looks elsewhere",
                self.data.display()
            )));
        }
        self.open()
    }
}

/// The run of this name. One that is not there is a wrong command line.
pub(super) fn find(store: &Store, name: &str) -> Result<RunRow, Failure> {
    store.run(name).map_err(|error| match error {
        StoreError::NoRun(_) => Failure::usage(error.to_string()),
        other => other.into(),
    })
}

/// A run with all that figures and findings need.
pub(super) fn run_data(store: &Store, run: &RunRow) -> Result<RunData, StoreError> {
    let trials = store.trials(run)?;
    let trials = trials.iter().map(|trial| trial_data(store, trial)).collect::<Result<_, _>>()?;
    Ok(RunData {
        id: run.run.clone(),
        name: run.name.clone(),
        title: run.title.clone(),
        started: run.started.clone(),
        finished: run.finished.clone(),
        dwell: run.dwell.clone(),
        axes: axes(run),
        trials,
        notes: store.notes(run)?,
        claims: claims(run),
        packets: Vec::new(),
    })
}

/// The claims that the run's plan names.
fn claims(run: &RunRow) -> Option<String> {
    let mut source = Source::parse(run.plan.as_deref()?).ok()?;
    for setting in &run.settings {
        source.set(setting).ok()?;
    }
    Some(Plan::read(&source).ok()?.claims?.name().to_owned())
}

/// The axes of a run; none when they cannot be read.
pub(super) fn axes(run: &RunRow) -> Vec<Axis> {
    serde_json::from_value(run.axes.clone()).unwrap_or_default()
}

fn trial_data(store: &Store, trial: &TrialRow) -> Result<TrialData, StoreError> {
    let mut summary = None;
    let mut loads = Vec::new();
    for (role, _, told) in store.told(trial)? {
        match role {
            // Of a trial that several machines measured, what they found together comes first.
            Role::Measurement => summary = summary.or(Some(told)),
            Role::Load => loads.push(told),
            // They are no part of what figures draw.
            Role::Server | Role::Witness => {}
        }
    }
    Ok(TrialData {
        trial: trial.number,
        repetition: trial.repetition,
        order: trial.position,
        state: state(trial.state),
        reason: trial.reason.clone(),
        parameters: trial.parameters.clone(),
        started_ns: trial.first_ns,
        summary,
        loads,
        series: store.series(trial)?,
    })
}

pub(super) fn state(state: dwell_store::TrialState) -> TrialState {
    use dwell_store::TrialState as Stored;
    match state {
        Stored::Planned => TrialState::Planned,
        Stored::Running => TrialState::Running,
        Stored::Finished => TrialState::Finished,
        Stored::Failed => TrialState::Failed,
    }
}
