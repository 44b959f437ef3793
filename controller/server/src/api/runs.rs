//! `/runs`.

use axum::Json;
use axum::extract::State;
use dwell_results::run_row_object;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::app::App;

/// Lists the runs, the newest first.
pub(crate) async fn list(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let runs = app.read(|store| {
        let runs = store.runs()?;
        let objects = runs.iter().map(|run| run_row_object(run, store.samples_bytes(run)));
        Ok(objects.collect::<Vec<_>>())
    });
    let runs = runs.await?.unwrap_or_default();
    Ok(Json(json!({ "schema": "dwell.runs/1", "runs": runs })))
}
