//! Pages: one module per subject, with its forms.

mod layout;
pub(crate) mod login;
mod overview;

use axum::Router;
use axum::routing::get;

use crate::app::App;

/// Returns the routes of all pages.
pub(crate) fn router() -> Router<App> {
    Router::new().route("/", get(overview::page)).merge(login::router())
}
