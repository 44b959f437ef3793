//! `/experiments` and `/plans/check`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, ChangeErrors, CommonErrors};
use super::extract::{Json, Path, Query};
use super::page;
use super::runs::Deletion;
use crate::app::App;
use crate::experiments::plan::PlanCheck;
use crate::experiments::{Experiment, NewExperiment};

/// Which experiments are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExperimentsQuery {
    /// Maximum number of experiments, 1 to 1000; 100 if absent
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Number of experiments to skip
    #[param(value_type = Option<i64>, minimum = 0, maximum = 4294967295_i64)]
    offset: Option<u32>,
    /// Only experiments that were deleted and can be restored
    deleted: Option<bool>,
}

/// A page of experiments, the newest first, without their plans.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExperimentsPage {
    /// `dwell.experiments/1`.
    schema: &'static str,
    /// The experiments.
    experiments: Vec<Experiment>,
    /// Number of all experiments.
    total: usize,
    /// Number of experiments that were skipped.
    offset: u32,
    /// Maximum number of experiments.
    limit: u32,
}

/// Lists experiments, the newest first
#[utoipa::path(get, path = "/experiments", tag = "experiments", params(ExperimentsQuery),
    responses((status = 200, body = ExperimentsPage), CommonErrors))]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<ExperimentsQuery>,
) -> Result<axum::Json<ExperimentsPage>, ApiError> {
    let (offset, limit) = page(query.offset, query.limit)?;
    let deleted = query.deleted.unwrap_or(false);
    let found = app.experiments().list(offset as usize, limit as usize, deleted).await?;
    Ok(axum::Json(ExperimentsPage {
        schema: "dwell.experiments/1",
        experiments: found.experiments,
        total: found.total,
        offset,
        limit,
    }))
}

/// A plan with settings.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanRequest {
    /// Text of the plan: TOML, docs/plans.md.
    plan: String,
    /// Fields to set, as `PATH=VALUE`.
    #[serde(default)]
    settings: Vec<String>,
}

/// Checks a plan: mistakes, trials and cost. Nothing is started
#[utoipa::path(post, path = "/plans/check", tag = "experiments", request_body = PlanRequest,
    responses((status = 200, body = PlanCheck), CommonErrors, ChangeErrors))]
pub(super) async fn check(
    State(app): State<App>,
    Json(request): Json<PlanRequest>,
) -> Result<axum::Json<PlanCheck>, ApiError> {
    Ok(axum::Json(app.experiments().check(request.plan, request.settings).await?))
}

/// An experiment to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentRequest {
    /// Text of the plan: TOML, docs/plans.md.
    plan: String,
    /// Device by role, for plans with roles.
    #[serde(default)]
    on: BTreeMap<String, String>,
    /// Fields to set, as `PATH=VALUE`.
    #[serde(default)]
    settings: Vec<String>,
    /// Seed of the order of trials, unless the plan has one; random if absent.
    seed: Option<u64>,
    /// Whether to start a plan that needs confirmation (409, `needs-confirmation`).
    #[serde(default)]
    confirmed: bool,
}

/// Creates an experiment and starts it. It waits while another run is active
#[utoipa::path(post, path = "/experiments", tag = "experiments", request_body = ExperimentRequest,
    responses((status = 201, body = Experiment, headers(("Location" = String))), CommonErrors, ChangeErrors))]
pub(super) async fn create(
    State(app): State<App>,
    Json(request): Json<ExperimentRequest>,
) -> Result<Response, ApiError> {
    let ExperimentRequest { plan, on, settings, seed, confirmed } = request;
    let new = NewExperiment { plan, on, settings, seed, confirmed };
    let created = app.experiments().create(new).await?;
    let location = [(header::LOCATION, format!("/api/v1/experiments/{}", created.id))];
    Ok((StatusCode::CREATED, location, axum::Json(created)).into_response())
}

/// Returns an experiment with its plan
#[utoipa::path(get, path = "/experiments/{id}", tag = "experiments",
    params(("id" = String, Path, description = "Name of the experiment")),
    responses((status = 200, body = Experiment), CommonErrors))]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<axum::Json<Experiment>, ApiError> {
    Ok(axum::Json(app.experiments().get(&id).await?))
}

/// Stops an experiment. The current trial is discarded
#[utoipa::path(post, path = "/experiments/{id}/stop", tag = "experiments",
    params(("id" = String, Path, description = "Name of the experiment")),
    responses((status = 202, body = Experiment), CommonErrors, ChangeErrors))]
pub(super) async fn stop(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<(StatusCode, axum::Json<Experiment>), ApiError> {
    Ok((StatusCode::ACCEPTED, axum::Json(app.experiments().stop(&id).await?)))
}

/// Resumes an experiment that ended early
#[utoipa::path(post, path = "/experiments/{id}/resume", tag = "experiments",
    params(("id" = String, Path, description = "Name of the experiment")),
    responses((status = 202, body = Experiment), CommonErrors, ChangeErrors))]
pub(super) async fn resume(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<(StatusCode, axum::Json<Experiment>), ApiError> {
    Ok((StatusCode::ACCEPTED, axum::Json(app.experiments().resume(&id).await?)))
}

/// Deletes an experiment; its run is kept. It can be restored for ten minutes
#[utoipa::path(delete, path = "/experiments/{id}", tag = "experiments",
    params(("id" = String, Path, description = "Name of the experiment")),
    responses((status = 202, body = Deletion), CommonErrors, ChangeErrors))]
pub(super) async fn delete(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<(StatusCode, axum::Json<Deletion>), ApiError> {
    app.experiments().delete(&id).await?;
    Ok((StatusCode::ACCEPTED, Deletion::of(id)))
}

/// Restores a deleted experiment
#[utoipa::path(post, path = "/experiments/{id}/undo", tag = "experiments",
    params(("id" = String, Path, description = "Name of the experiment")),
    responses((status = 200, body = Experiment), CommonErrors, ChangeErrors))]
pub(super) async fn undo(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<axum::Json<Experiment>, ApiError> {
    Ok(axum::Json(app.experiments().undo(&id).await?))
}
