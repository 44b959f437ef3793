//! `/reports`: reports as single HTML files, which work offline.

use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dwell_results::judged_data;

use super::ignore_problem;
use super::layout::{Layout, render};
use super::pager::{ListQuery, Pager};
use super::runs::{ListedRun, listed};
use crate::app::App;
use crate::error::Error;

pub(super) fn router() -> Router<App> {
    Router::new().route("/reports", get(list)).route("/reports/{file}", get(report))
}

#[derive(Template)]
#[template(path = "reports.html")]
struct List {
    layout: Layout,
    rows: Vec<ListedRun>,
    pager: Pager,
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Response, Error> {
    let (rows, pager) = listed(&app, "/reports", query).await?;
    Ok(render(&List { layout: Layout::new("Reports", "/reports"), rows, pager }))
}

/// Sends the report of a run, as `dwell report` writes it.
async fn report(State(app): State<App>, Path(file): Path<String>) -> Result<Response, Error> {
    let missing =
        || Error::NotFound(format!("there is no report '{file}'; they are named RUN.html"));
    let run = file.strip_suffix(".html").ok_or_else(missing)?.to_owned();
    let report = app.read(move |store| {
        let row = store.run(&run)?;
        let data = judged_data(store, &row, true, &ignore_problem)?;
        Ok((row.run, dwell_report::page(&data)))
    });
    let (run, page) = report.await?.ok_or_else(missing)?;
    // It is saved, not shown: its scripts are in the file, which the policy of pages forbids.
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{run}.html\"")),
    ];
    Ok((headers, page).into_response())
}
