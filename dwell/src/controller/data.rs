//! The data directory, and a run in it as the report sees it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use dwell_node_cli::Failure;
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
    let data = |trial: &TrialRow| {
        let mut data = trial_data(store, trial)?;
        if let (Some(damage), Some(summary)) = (damage(store, run, trial), &mut data.summary) {
            summary.trust.warnings.push(damage);
        }
        Ok(data)
    };
    let trials = trials.iter().map(data).collect::<Result<_, StoreError>>()?;
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
    })
}

/// What a glance at the file of a trial's samples shows to be wrong: it is gone, or does not begin
/// and end as Parquet does. Bytes in its middle are left to
/// `dwell show --recompute`, which verifies all of them.
fn damage(store: &Store, run: &RunRow, trial: &TrialRow) -> Option<String> {
    trial.samples.filter(|samples| *samples > 0)?;
    let path = store.samples_path(&run.run, trial.number);
    let why = match whole(&path) {
        Ok(true) => return None,
        Ok(false) => "no whole Parquet file".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "samples of trial {} are damaged or gone ({}: {why}); figures are those stored when they \
         were taken in, and `dwell show {} --recompute` verifies samples",
        trial.number,
        path.display(),
        run.run
    ))
}

/// Whether a file begins and ends as Parquet does, with a footer that fits in.
fn whole(path: &Path) -> std::io::Result<bool> {
    const MAGIC: &[u8; 4] = b"PAR1";
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length < 12 {
        return Ok(false);
    }
    let (mut head, mut tail) = ([0; 4], [0; 8]);
    file.read_exact(&mut head)?;
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut tail)?;
    let [a, b, c, d, magic @ ..] = tail;
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    Ok(head == *MAGIC && magic == *MAGIC && footer + 12 <= length)
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
            Role::Measurement => summary = Some(told),
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
