//! `/compare`: differences between runs, computed by `dwell compare`.

use std::ffi::OsString;

use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::error::{ApiError, ChangeErrors, CommonErrors};
use super::extract::Query;
use crate::app::App;
use crate::command::WORK_TIMEOUT;
use crate::error::Error;

/// Maximum number of runs of a comparison.
const MAX_RUNS: usize = 20;

/// Which runs are compared.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CompareQuery {
    /// Names of 2 to 20 runs, separated by commas; the first is the baseline
    runs: String,
    /// Delay to compare, such as rtt_ns; the main delay of the runs if absent
    metric: Option<String>,
}

/// Compares runs with the first one: `dwell.comparison/1`
#[utoipa::path(get, path = "/compare", tag = "runs", params(CompareQuery),
    responses((status = 200, body = Value), CommonErrors, ChangeErrors))]
pub(super) async fn compare(
    State(app): State<App>,
    Query(query): Query<CompareQuery>,
) -> Result<axum::Json<Value>, ApiError> {
    let names: Vec<&str> = query.runs.split(',').map(str::trim).collect();
    if !(2..=MAX_RUNS).contains(&names.len()) {
        let text = format!("runs: give 2 to {MAX_RUNS} names, separated by commas");
        return Err(Error::Invalid(text).into());
    }
    for name in &names {
        app.run_row(name).await?;
    }
    let mut arguments: Vec<OsString> = vec!["compare".into(), "--json".into()];
    arguments.extend(query.metric.map(|metric| OsString::from(format!("--metric={metric}"))));
    arguments.push("--".into());
    arguments.extend(names.into_iter().map(OsString::from));
    let text = app.command(arguments, WORK_TIMEOUT).await?.success()?;
    let object = serde_json::from_str(&text)
        .map_err(|error| Error::Command(format!("dwell compare printed no JSON: {error}")))?;
    Ok(axum::Json(object))
}
