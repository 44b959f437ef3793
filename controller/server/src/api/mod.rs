//! The HTTP API, version 1: one module per resource, described by `openapi.json`.

mod compare;
mod data;
mod devices;
mod error;
mod events;
mod experiments;
mod extract;
mod query;
mod runs;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use self::data::upload_folder;
pub(crate) use self::error::ApiError;
use self::error::CommonErrors;
pub(crate) use self::events::RunWatches;
pub(crate) use self::runs::{ExportData, ExportFormat, RunObjects};
use crate::app::App;

/// Maximum number of elements of a page of a list.
const MAX_LIMIT: u32 = 1_000;

/// Number of elements of a page unless the request has one.
const DEFAULT_LIMIT: u32 = 100;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "dwell",
        version = "1",
        description = "The API of the web controller of dwell, a delay testbed. docs/api.md has examples. \
            Times are RFC 3339 in UTC, delays are nanoseconds, unavailable values are null.",
        license(name = "Apache-2.0 OR MIT")
    ),
    servers((url = "/api/v1")),
    components(schemas(error::ErrorBody, error::ErrorDetails)),
    tags(
        (name = "runs", description = "Measured and imported runs"),
        (name = "experiments", description = "Plans that were started here, and their progress"),
        (name = "devices", description = "Machines that are reached by SSH"),
        (name = "fleet", description = "Continuous measurement between the nodes of a hub"),
        (name = "data", description = "The data directory")
    )
)]
struct Description;

/// Returns the routes of the API.
pub(crate) fn router() -> Router<App> {
    let (router, _) = documented().split_for_parts();
    router
        .route("/openapi.json", get(openapi_json))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::wrong_method)
}

fn documented() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(version))
        .routes(routes!(runs::list))
        .routes(routes!(runs::get, runs::delete))
        .routes(routes!(runs::undo))
        .routes(routes!(runs::note))
        .routes(routes!(runs::samples))
        .routes(routes!(runs::parquet))
        .routes(routes!(events::run))
        .routes(routes!(compare::compare))
        .routes(routes!(experiments::list, experiments::create))
        .routes(routes!(experiments::check))
        .routes(routes!(experiments::get, experiments::delete))
        .routes(routes!(experiments::stop))
        .routes(routes!(experiments::resume))
        .routes(routes!(experiments::undo))
        .routes(routes!(events::experiment))
        .routes(routes!(devices::list, devices::add))
        .routes(routes!(devices::get, devices::edit, devices::remove))
        .routes(routes!(devices::undo))
        .routes(routes!(devices::check))
        .routes(routes!(query::query))
        .routes(routes!(data::sizes))
        .routes(routes!(data::import))
}

/// Returns the description of the API, as JSON.
pub fn openapi() -> String {
    let mut text = documented().get_openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

async fn openapi_json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi()).into_response()
}

/// Versions of the server.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    /// Version of dwell.
    dwell: &'static str,
    /// Version of the API.
    api: u32,
}

/// Returns the version of dwell and of the API
#[utoipa::path(get, path = "/version", tag = "data", responses((status = 200, body = Version), CommonErrors))]
async fn version() -> axum::Json<Version> {
    axum::Json(Version { dwell: env!("CARGO_PKG_VERSION"), api: 1 })
}

/// Checks the part of a list that is wanted; returns offset and limit.
fn page(offset: Option<u32>, limit: Option<u32>) -> Result<(u32, u32), ApiError> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok((offset.unwrap_or(0), limit));
    }
    let text = format!("invalid query: limit: {limit} is not 1 to {MAX_LIMIT}");
    Err(ApiError::request(axum::http::StatusCode::BAD_REQUEST, "bad-request", text))
}
