//! `/runs`: the list of runs.

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use dwell_store::{RunFilter, RunKind, RunRow, RunState};

use super::deletions::Deletion;
use super::layout::{Layout, Status, render};
use super::pager::{ListQuery, Pager};
use crate::app::App;
use crate::error::Error;

pub(super) fn router() -> Router<App> {
    Router::new().route("/runs", get(list))
}

#[derive(Template)]
#[template(path = "runs.html")]
struct List {
    layout: Layout,
    deletions: Vec<Deletion>,
    rows: Vec<ListedRun>,
    pager: Pager,
}

/// A run in a list.
pub(super) struct ListedRun {
    pub(super) row: RunRow,
    pub(super) status: Status,
    /// Trials that have ended, of all.
    pub(super) trials: String,
}

impl ListedRun {
    pub(super) fn title(&self) -> &str {
        self.row.title.as_deref().unwrap_or_default()
    }

    pub(super) fn is_running(&self) -> bool {
        self.row.state == RunState::Running
    }

    pub(super) fn is_import(&self) -> bool {
        self.row.kind == RunKind::Import
    }
}

impl From<RunRow> for ListedRun {
    fn from(row: RunRow) -> Self {
        let ended = row.trials_finished + row.trials_failed + row.trials_not_run;
        let trials = match ended == row.trials {
            true => row.trials.to_string(),
            false => format!("{ended} of {}", row.trials),
        };
        Self { status: Status::of_run(row.state, row.trials_failed), trials, row }
    }
}

/// Returns the runs that a list shows, of those that are not deleted.
pub(super) async fn listed(
    app: &App,
    path: &'static str,
    query: ListQuery,
) -> Result<(Vec<ListedRun>, Pager), Error> {
    let (reader, wanted) = (app.clone(), query.clone());
    let read = app.read(move |store| {
        let filter = RunFilter { hidden: reader.hidden_runs(), ..RunFilter::default() };
        if wanted.search().is_empty() {
            let (offset, limit) = wanted.range();
            let (runs, total) = store.run_page(&filter, offset, limit)?;
            if !runs.is_empty() || total == 0 {
                return Ok((runs, wanted.pager(path, total as usize)));
            }
        }
        let mut runs = store.runs()?;
        runs.retain(|run| {
            let title = run.title.as_deref().unwrap_or_default();
            let owner = run.owner.as_deref().unwrap_or_default();
            let texts = [&run.run, &run.name, title, run.state.name(), owner];
            !filter.hidden.contains(&run.run) && wanted.matches(&texts)
        });
        Ok(wanted.page(path, runs))
    });
    let (rows, pager) = read.await?.unwrap_or_else(|| (Vec::new(), query.pager(path, 0)));
    Ok((rows.into_iter().map(ListedRun::from).collect(), pager))
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Response, Error> {
    let (rows, pager) = listed(&app, "/runs", query).await?;
    let deletions = app.deletions().await?;
    Ok(render(&List { layout: Layout::new("Runs", "/runs"), deletions, rows, pager }))
}
