//! `/runs`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dwell_results::{judged_data, run_object, run_row_object};
use dwell_store::{RunFilter, RunKind, RunRow, RunState, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, ChangeErrors, CommonErrors};
use super::extract::{Json, Path, Query};
use super::page;
use crate::app::App;
use crate::command::CHANGE_TIMEOUT;
use crate::deleted_runs::deleted_runs;
use crate::error::Error;
use crate::experiments::UNDO_TIMEOUT;
use crate::parquet_file::parquet_file;

/// Maximum length of a note, in bytes.
const MAX_NOTE_LEN: usize = 16 << 10;

/// Maximum length of all remembered objects, in bytes.
const MAX_OBJECTS_LEN: usize = 8 << 20;

/// Objects of finished runs, which do not change unless a note is added.
#[derive(Debug, Default)]
pub(crate) struct RunObjects(Mutex<HashMap<String, RunObject>>);

/// An object, with what it depends on.
type RunObject = (Vec<String>, Arc<str>);

impl RunObjects {
    fn get(&self, run: &RunRow, notes: &[String]) -> Option<Arc<str>> {
        let objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, object) = objects.get(&run.run)?;
        (*of == version(run, notes)).then(|| Arc::clone(object))
    }

    fn put(&self, run: &RunRow, notes: &[String], object: &Arc<str>) {
        if run.state != RunState::Finished || object.len() > MAX_OBJECTS_LEN {
            return;
        }
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let length = |all: &HashMap<String, RunObject>| {
            all.values().map(|(_, object)| object.len()).sum::<usize>()
        };
        if length(&objects) + object.len() > MAX_OBJECTS_LEN {
            objects.clear();
        }
        objects.insert(run.run.clone(), (version(run, notes), Arc::clone(object)));
    }
}

/// What a run's object depends on.
fn version(run: &RunRow, notes: &[String]) -> Vec<String> {
    let mut version = vec![run.started.clone(), run.finished.clone().unwrap_or_default()];
    version.extend_from_slice(notes);
    version
}

/// Which runs are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsQuery {
    /// Maximum number of runs, 1 to 1000; 100 if absent
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Number of runs to skip
    #[param(value_type = Option<i64>, minimum = 0, maximum = 4294967295_i64)]
    offset: Option<u32>,
    /// Only runs of the plan or imported file with this name
    plan: Option<String>,
    /// Only runs in this state
    state: Option<StateName>,
    /// Only measured or only imported runs
    kind: Option<KindName>,
    /// Only runs that were deleted and can be restored
    deleted: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StateName {
    Running,
    Finished,
    Stopped,
    Interrupted,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Run,
    Import,
}

impl From<StateName> for RunState {
    fn from(state: StateName) -> Self {
        match state {
            StateName::Running => Self::Running,
            StateName::Finished => Self::Finished,
            StateName::Stopped => Self::Stopped,
            StateName::Interrupted => Self::Interrupted,
        }
    }
}

/// A page of runs, the newest first. `dwell.runs/1` with three more fields.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunsPage {
    /// `dwell.runs/1`.
    schema: &'static str,
    /// The runs.
    runs: Vec<Value>,
    /// Number of all runs that match.
    total: u64,
    /// Number of runs that were skipped.
    offset: u32,
    /// Maximum number of runs.
    limit: u32,
}

/// Lists runs, the newest first
#[utoipa::path(get, path = "/runs", tag = "runs", params(RunsQuery),
    responses((status = 200, body = RunsPage), CommonErrors))]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<RunsQuery>,
) -> Result<axum::Json<RunsPage>, ApiError> {
    let (offset, limit) = page(query.offset, query.limit)?;
    let data = app.config().data.clone();
    let found = app.read(move |store| {
        let marked = deleted_runs(&data).into_keys().collect();
        let (hidden, only) = match query.deleted {
            Some(true) => (Vec::new(), Some(marked)),
            _ => (marked, None),
        };
        let kind = query.kind.map(|kind| match kind {
            KindName::Run => RunKind::Run,
            KindName::Import => RunKind::Import,
        });
        let state = query.state.map(RunState::from);
        let filter = RunFilter { name: query.plan, kind, state, hidden, only };
        let (runs, total) = store.run_page(&filter, offset, limit)?;
        let objects = runs.iter().map(|run| run_row_object(run, store.samples_bytes(run)));
        Ok((objects.collect::<Vec<_>>(), total))
    });
    let (runs, total) = found.await?.unwrap_or_default();
    Ok(axum::Json(RunsPage { schema: "dwell.runs/1", runs, total, offset, limit }))
}

/// Returns a run with its trials, findings and verdicts: `dwell.run/1`
#[utoipa::path(get, path = "/runs/{run}", tag = "runs",
    params(("run" = String, Path, description = "Name of the run, or last")),
    responses((status = 200, body = Value, content_type = "application/json"), CommonErrors))]
pub(super) async fn get(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Response, ApiError> {
    let run = if run == "last" { newest(&app).await? } else { app.run_row(&run).await? };
    let reader = app.clone();
    let object = app.read(move |store| object(&reader, store, &run)).await?;
    let object = object.ok_or_else(|| Error::NotFound("there are no runs".to_owned()))?;
    let body = Body::from(axum::body::Bytes::from(object.as_bytes().to_vec()));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Returns the newest run that is not deleted.
async fn newest(app: &App) -> Result<RunRow, Error> {
    let data = app.config().data.clone();
    let newest = app.read(move |store| {
        let hidden = deleted_runs(&data).into_keys().collect();
        Ok(store.run_page(&RunFilter { hidden, ..RunFilter::default() }, 0, 1)?.0)
    });
    let newest = newest.await?.unwrap_or_default().into_iter().next();
    newest.ok_or_else(|| Error::NotFound("there are no runs".to_owned()))
}

fn object(app: &App, store: &Store, run: &RunRow) -> Result<Arc<str>, Error> {
    let notes = store.notes(run)?;
    if let Some(object) = app.run_objects().get(run, &notes) {
        return Ok(object);
    }
    // Damage is part of the object.
    let data = judged_data(store, run, false, &|_| {})?;
    let nodes = store.nodes(run)?;
    let object: Arc<str> = run_object(run, &nodes, &data).to_string().into();
    app.run_objects().put(run, &notes, &object);
    Ok(object)
}

/// A deletion.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Deletion {
    /// What was deleted.
    name: String,
    /// Time in which it can be restored, in seconds.
    undo_seconds: u64,
}

impl Deletion {
    pub(super) fn of(name: String) -> axum::Json<Self> {
        axum::Json(Self { name, undo_seconds: UNDO_TIMEOUT.as_secs() })
    }
}

/// Deletes a run and its samples. It can be restored for ten minutes
#[utoipa::path(delete, path = "/runs/{run}", tag = "runs",
    params(("run" = String, Path, description = "Name of the run")),
    responses((status = 202, body = Deletion), CommonErrors, ChangeErrors))]
pub(super) async fn delete(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<(StatusCode, axum::Json<Deletion>), ApiError> {
    app.delete_run(&run).await?;
    Ok((StatusCode::ACCEPTED, Deletion::of(run)))
}

/// Restores a deleted run
#[utoipa::path(post, path = "/runs/{run}/undo", tag = "runs",
    params(("run" = String, Path, description = "Name of the run")),
    responses((status = 204, description = "Restored"), CommonErrors, ChangeErrors))]
pub(super) async fn undo(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.undo_delete_run(&run).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A note.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewNote {
    /// Text, not empty.
    #[schema(min_length = 1, max_length = 16384)]
    text: String,
}

/// Adds a note to a run
#[utoipa::path(post, path = "/runs/{run}/notes", tag = "runs", request_body = NewNote,
    params(("run" = String, Path, description = "Name of the run")),
    responses((status = 204, description = "Added"), CommonErrors, ChangeErrors))]
pub(super) async fn note(
    State(app): State<App>,
    Path(run): Path<String>,
    Json(note): Json<NewNote>,
) -> Result<StatusCode, ApiError> {
    app.add_note(&run, note.text).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl App {
    /// Adds a note to a run.
    ///
    /// # Errors
    /// No run has this name; the note is empty or too long, or the command failed.
    pub(crate) async fn add_note(&self, run: &str, text: String) -> Result<(), Error> {
        let run = self.run_row(run).await?.run;
        if text.len() > MAX_NOTE_LEN {
            let text = format!("the note is longer than {MAX_NOTE_LEN} bytes");
            return Err(Error::Invalid(text));
        }
        if text.trim().is_empty() {
            return Err(Error::Invalid("a note must not be empty".to_owned()));
        }
        let arguments = ["note".into(), "--".into(), run.into(), text.into()];
        self.command(arguments, CHANGE_TIMEOUT).await?.success()?;
        Ok(())
    }
}

/// What to export, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    /// Format; csv if absent
    format: Option<ExportFormat>,
    /// Data; samples if absent
    what: Option<ExportData>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExportFormat {
    Csv,
    Jsonl,
    Hdr,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExportData {
    Samples,
    Host,
    Spikes,
}

/// Streams the samples, host activity or spikes of a run, as `dwell export` prints them
#[utoipa::path(get, path = "/runs/{run}/samples", tag = "runs",
    params(("run" = String, Path, description = "Name of the run"), ExportQuery),
    responses(
        (status = 200, content((String = "text/csv"), (String = "application/jsonl"), (String = "text/plain"))),
        CommonErrors, ChangeErrors))]
pub(super) async fn samples(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(query): Query<ExportQuery>,
) -> Result<Response, ApiError> {
    let format = query.format.unwrap_or(ExportFormat::Csv);
    Ok(app.export(&run, format, query.what.unwrap_or(ExportData::Samples)).await?)
}

impl App {
    /// Streams data of a run, as `dwell export` prints them, as a file to save.
    ///
    /// # Errors
    /// No run has this name, or it has no such data.
    pub(crate) async fn export(
        &self,
        run: &str,
        format: ExportFormat,
        what: ExportData,
    ) -> Result<Response, Error> {
        let run = self.run_row(run).await?.run;
        let (format, kind) = match format {
            ExportFormat::Csv => ("csv", "text/csv; charset=utf-8"),
            ExportFormat::Jsonl => ("jsonl", "application/jsonl"),
            ExportFormat::Hdr => ("hdr", "text/plain; charset=utf-8"),
        };
        let what = match what {
            ExportData::Samples => "samples",
            ExportData::Host => "host",
            ExportData::Spikes => "spikes",
        };
        let arguments = ["export", "--format", format, "--what", what, "--", &run];
        let body = self.stream(arguments.map(OsString::from)).await?;
        let name = format!("attachment; filename=\"{run}-{what}.{format}\"");
        let kind = kind.to_owned();
        let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
        Ok((headers, body).into_response())
    }
}

/// Returns the samples of a trial as a Parquet file
#[utoipa::path(get, path = "/runs/{run}/trials/{trial}/samples.parquet", tag = "runs",
    params(("run" = String, Path, description = "Name of the run"),
        ("trial" = u32, Path, description = "Number of the trial")),
    responses((status = 200, body = Vec<u8>, content_type = "application/vnd.apache.parquet"),
        CommonErrors, ChangeErrors))]
pub(super) async fn parquet(
    State(app): State<App>,
    Path((run, trial)): Path<(String, u32)>,
) -> Result<Response, ApiError> {
    let row = app.run_row(&run).await?;
    let missing = move || Error::NotFound(format!("trial {trial} of run {run} has no samples"));
    let path = app.read(move |store| {
        let found = store.trials(&row)?.into_iter().find(|it| it.number == trial);
        let trial = found.filter(|trial| trial.samples.is_some());
        Ok(trial.map(|trial| store.verified(&row, &trial)).transpose()?)
    });
    let path = path.await?.flatten().ok_or_else(&missing)?;
    parquet_file(&path).await.map_err(|_| missing().into())
}

/// The state of a run's trials, for streams of events.
pub(super) fn progress_object(run: &RunRow) -> Value {
    json!({
        "run": run.run,
        "state": run.state,
        "finished": run.finished,
        "trials": run.trials,
        "trials_finished": run.trials_finished,
        "trials_failed": run.trials_failed,
        "trials_not_run": run.trials_not_run,
    })
}
