//! Runs in the form that reports need.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use dwell_documents::{judge_claims, published};
use dwell_fleet::ClockDomain;
use dwell_record::{Column, Warning};
use dwell_report::collect;
use dwell_report::model::{Axis, MachineData, RunData, RunPlan, TrialData};
use dwell_store::{Role, RunNode, RunRow, Store, StoreError, TrialRow};

use super::stored_rows::StoredRows;
use crate::{OnProblem, chain};

/// Returns a run with all data that findings and figures need, except judged claims and example
/// packets.
pub fn run_data(
    store: &Store,
    run: &RunRow,
    on_problem: OnProblem<'_>,
) -> Result<RunData, StoreError> {
    collected(store, run, false, on_problem)
}

/// As [`run_data`], with judged claims and, for a page, example packets.
pub fn judged_data(
    store: &Store,
    run: &RunRow,
    packets: bool,
    on_problem: OnProblem<'_>,
) -> Result<RunData, StoreError> {
    let mut data = collected(store, run, packets, on_problem)?;
    judge(&mut data);
    Ok(data)
}

/// Returns a run with all that verdicts on its senders need, without figures; `None` if the run
/// measures no send-time accuracy, or its plan is unreadable.
pub fn verdict_data(
    store: &Store,
    run: &RunRow,
    on_problem: OnProblem<'_>,
) -> Result<Option<RunData>, StoreError> {
    let Some(text) = run.plan.clone() else { return Ok(None) };
    let plan = RunPlan::read(text, run.settings.clone());
    if plan.parsed.as_ref().is_none_or(|plan| plan.measurement.pace().is_none()) {
        return Ok(None);
    }
    let rows = store.trials(run)?;
    let trials = rows.iter().map(|trial| trial_data(store, trial, false, on_problem));
    let trials = trials.collect::<Result<_, StoreError>>()?;
    Ok(Some(assembled(run, trials, Some(Arc::new(plan)))))
}

/// Judges the claims of the document that the plan names.
pub fn judge(data: &mut RunData) {
    let document = data.plan().and_then(|plan| plan.claims.as_deref());
    data.claims = document.and_then(|document| judge_claims(data, document));
}

fn collected(
    store: &Store,
    run: &RunRow,
    packets: bool,
    on_problem: OnProblem<'_>,
) -> Result<RunData, StoreError> {
    let rows = store.trials(run)?;
    let nodes = store.nodes(run)?;
    let with_damage = |trial: &TrialRow| {
        let mut data = trial_data(store, trial, true, on_problem)?;
        if let (Some(damage), Some(summary)) = (damage(store, run, trial), &mut data.summary) {
            summary.trust.warn(damage);
        }
        Ok(data)
    };
    let trials = rows.iter().map(with_damage).collect::<Result<_, StoreError>>()?;
    let text = run.plan.clone();
    let plan = text.map(|text| Arc::new(RunPlan::read(text, run.settings.clone())));
    let mut data = assembled(run, trials, plan);
    data.notes = store.notes(run)?;
    data.one_machine = !nodes.is_empty() && nodes.iter().all(is_namespace);
    data.published = Arc::new(published(&data));
    collect(
        &mut data,
        &StoredRows { store, run, trials: &rows, nodes: &nodes, on_problem },
        packets,
    )?;
    Ok(data)
}

/// Returns a run with these trials, without notes and published values.
fn assembled(run: &RunRow, trials: Vec<TrialData>, plan: Option<Arc<RunPlan>>) -> RunData {
    RunData {
        id: run.run.clone(),
        name: run.name.clone(),
        title: run.title.clone(),
        started: run.started.clone(),
        finished: run.finished.clone(),
        dwell: run.dwell.clone(),
        axes: axes(run),
        trials,
        notes: Vec::new(),
        claims: None,
        published: Arc::default(),
        packets: Vec::new(),
        host: None,
        plan,
        one_machine: false,
        accurate: None,
    }
}

/// Returns the main delay of the runs: that of the first run which all runs have, or else the first
/// run's.
pub fn main_column(
    store: &Store,
    runs: &[RunRow],
    on_problem: OnProblem<'_>,
) -> Result<Column, StoreError> {
    let data: Vec<RunData> =
        runs.iter().map(|run| run_data(store, run, on_problem)).collect::<Result<_, _>>()?;
    let has = |run: &RunData, name: &str| run.trials.iter().any(|it| it.series.contains_key(name));
    let names = || data.iter().filter_map(dwell_report::main_metric);
    let shared = names().find(|name| data.iter().all(|run| has(run, name)));
    let name = shared.or_else(|| names().next());
    Ok(name.and_then(Column::named).unwrap_or(Column::Rtt))
}

/// Whether a node is a namespace of the controller's machine.
fn is_namespace(node: &RunNode) -> bool {
    node.clock.as_deref() == Some(ClockDomain::CONTROLLER)
}

/// Describes obvious damage of a trial's sample file: it is missing, or does not begin and end like
/// a Parquet file. Other damage is found by `dwell show --recompute`, which verifies the whole
/// file.
fn damage(store: &Store, run: &RunRow, trial: &TrialRow) -> Option<Warning> {
    trial.samples.filter(|samples| *samples > 0)?;
    let path = store.samples_path(&run.run, trial.number);
    let why = match is_complete_parquet(&path) {
        Ok(true) => return None,
        Ok(false) => "not a complete Parquet file".to_owned(),
        Err(error) => error.to_string(),
    };
    let path = path.display().to_string();
    Some(Warning::DamagedSamples(trial.number, path, why, run.run.clone()))
}

/// Whether a file begins and ends like a Parquet file, with a footer that fits into it.
fn is_complete_parquet(path: &Path) -> std::io::Result<bool> {
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

/// Returns the axes of a run; none if they are unreadable.
pub fn axes(run: &RunRow) -> Vec<Axis> {
    serde_json::from_value(run.axes.clone()).unwrap_or_default()
}

/// Returns the readable data of a trial, with or without the series of its figures. Unreadable data
/// is reported and left out.
fn trial_data(
    store: &Store,
    trial: &TrialRow,
    with_series: bool,
    on_problem: OnProblem<'_>,
) -> Result<TrialData, StoreError> {
    let mut unreadable = None;
    let summaries = readable(store.summaries(trial), &mut unreadable, on_problem)?;
    let series = match with_series {
        true => readable(store.series(trial), &mut unreadable, on_problem)?,
        false => BTreeMap::new(),
    };
    let mut summary = None;
    let (mut loads, mut witnesses, mut machines) = (Vec::new(), Vec::new(), Vec::new());
    for (role, node, reported) in summaries {
        match role {
            // The joined measurement of several machines comes first.
            Role::Measurement => summary = summary.or(Some(reported)),
            Role::Load => loads.push(reported),
            Role::Witness => witnesses.push(reported),
            Role::Server => machines.push(MachineData { node, summary: reported }),
        }
    }
    Ok(TrialData {
        trial: trial.number,
        repetition: trial.repetition,
        order: trial.position,
        state: trial.state,
        reason: trial.reason.clone().or(unreadable),
        parameters: trial.parameters.clone(),
        started_ns: trial.first_ns,
        summary,
        loads,
        witnesses,
        machines,
        series,
    })
}

/// Returns what was read, or an empty value if a row of the catalogue is damaged, so that other
/// trials are not affected.
fn readable<T: Default>(
    read: Result<T, StoreError>,
    unreadable: &mut Option<String>,
    on_problem: OnProblem<'_>,
) -> Result<T, StoreError> {
    match read {
        Err(error @ StoreError::Json { .. }) => {
            let text = chain(&error);
            if unreadable.as_ref() != Some(&text) {
                on_problem(&format!("{text}; it is left out"));
            }
            unreadable.get_or_insert(text);
            Ok(T::default())
        }
        read => read,
    }
}
