//! `/`: what runs now, the last results, and devices that failed.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use dwell_store::RunRow;

use super::layout::{Layout, render};
use crate::app::App;
use crate::error::Error;

/// Number of runs on the page.
const MAX_RUNS: usize = 5;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    layout: Layout,
    runs: Vec<RunRow>,
}

pub(crate) async fn page(State(app): State<App>) -> Result<Response, Error> {
    let runs = app.read(|store| Ok(store.runs()?)).await?.unwrap_or_default();
    let runs = runs.into_iter().take(MAX_RUNS).collect();
    Ok(render(&Overview { layout: Layout::new("Overview", "/"), runs }))
}
