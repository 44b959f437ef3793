//! The HTTP API, version 1: one module per resource.

mod error;
mod runs;

use axum::Router;
use axum::routing::get;

use crate::app::App;

/// Returns the routes of the API.
pub(crate) fn router() -> Router<App> {
    Router::new().route("/runs", get(runs::list))
}
