//! `/runs/RUN`: the page of a run, with the content of its report, and its forms.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use dwell_report::{assets, findings, parts};
use dwell_results::judged_data;
use dwell_store::{RunKind, RunRow, RunState};
use serde::Deserialize;
use serde_json::Value;

use super::layout::{Layout, Status, render, render_refused};
use super::{ignore_problem, redirect};
use crate::app::App;
use crate::error::Error;

/// Number of runs whose pages are kept.
const MAX_RENDERED: usize = 8;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/runs/{run}", get(page))
        .route("/runs/{run}/figures.json", get(figures))
        .route("/runs/{run}/note", post(note))
        .route("/runs/{run}/delete", post(delete))
        .route("/runs/{run}/undo", post(undo))
        .route("/figures/dark.json", get(dark))
}

/// The content of a run's page.
#[derive(Debug)]
pub(crate) struct Content {
    /// Title.
    pub(crate) title: String,
    /// Paragraphs about the run, in HTML.
    pub(crate) about: String,
    /// Sections, in HTML.
    pub(crate) main: String,
    /// Id and title of each figure.
    pub(crate) figures: Vec<(String, String)>,
    /// Specifications by id of the figure, as a JSON object.
    pub(crate) specifications: String,
    /// The first finding.
    pub(crate) lead: String,
}

/// What the content depends on: a run that has ended changes by notes only.
type Version = (String, Option<String>, u32, usize);

/// The content of the runs that were asked for last.
#[derive(Debug, Default)]
pub(crate) struct Rendered(Mutex<VecDeque<(Version, Arc<Content>)>>);

impl Rendered {
    fn get(&self, version: &Version) -> Option<Arc<Content>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(of, _)| of == version).map(|(_, content)| content.clone())
    }

    fn put(&self, version: Version, content: Arc<Content>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(of, _)| of.0 != version.0);
        all.push_front((version, content));
        all.truncate(MAX_RENDERED);
    }
}

impl App {
    /// Returns a run with the content of its page.
    pub(super) async fn run_content(&self, run: &str) -> Result<(RunRow, Arc<Content>), Error> {
        let (wanted, app) = (run.to_owned(), self.clone());
        let read = self.read(move |store| {
            let row = store.run(&wanted)?;
            let ended = row.trials_finished + row.trials_failed + row.trials_not_run;
            let notes = store.notes(&row)?.len();
            let version = (row.run.clone(), row.finished.clone(), ended, notes);
            if let Some(content) = app.pages().rendered.get(&version) {
                return Ok((row, content));
            }
            let data = judged_data(store, &row, true, &ignore_problem)?;
            let parts = parts(&data);
            let lead = findings(&data).into_iter().next();
            let content = Arc::new(Content {
                title: parts.title,
                about: parts.about,
                main: parts.main,
                figures: parts.figures,
                specifications: Value::Object(parts.specifications).to_string(),
                lead: lead.map_or_else(String::new, |it| it.lead_and_details().0.into_owned()),
            });
            app.pages().rendered.put(version, content.clone());
            Ok((row, content))
        });
        let missing = || Error::NotFound(format!("there is no run '{run}'"));
        read.await?.ok_or_else(missing)
    }
}

#[derive(Template)]
#[template(path = "run.html")]
struct Page<'a> {
    layout: Layout,
    run: RunRow,
    status: Status,
    content: &'a Content,
    how_to_read: &'static str,
    /// Address of the specifications of the figures.
    figures: String,
    /// The experiment that created it.
    experiment: Option<String>,
    /// A note that was not accepted, with the reason.
    refused_note: Option<(String, String)>,
}

impl Page<'_> {
    /// Whether its runner works on it now.
    fn is_running(&self) -> bool {
        self.run.state == RunState::Running
    }

    /// Whether it can be resumed in a terminal.
    fn is_unfinished(&self) -> bool {
        self.run.kind == RunKind::Run && self.run.finished.is_none() && !self.is_running()
    }

    fn has_plan(&self) -> bool {
        self.run.plan.is_some()
    }

    fn ended(&self) -> u32 {
        self.run.trials_finished + self.run.trials_failed + self.run.trials_not_run
    }
}

async fn page(State(app): State<App>, Path(run): Path<String>) -> Result<Response, Error> {
    run_page(&app, &run, None).await
}

async fn run_page(
    app: &App,
    run: &str,
    refused_note: Option<(String, String)>,
) -> Result<Response, Error> {
    if app.hidden_runs().iter().any(|hidden| hidden == run) {
        return Err(Error::NotFound(format!(
            "run {run} is deleted; the list of runs can restore it"
        )));
    }
    let (row, content) = app.run_content(run).await?;
    let experiment = match row.finished.is_some() {
        true => None,
        false => app.experiments().of_run(run).await?.map(|experiment| experiment.id),
    };
    let layout = Layout::new(&*content.title, "/runs");
    let layout = if content.figures.is_empty() { layout } else { layout.with_figures() };
    let refused = refused_note.is_some();
    let page = Page {
        layout,
        status: Status::of_run(row.state, row.trials_failed),
        figures: format!("/runs/{}/figures.json", row.run),
        run: row,
        content: &content,
        how_to_read: assets::HOW_TO_READ,
        experiment,
        refused_note,
    };
    Ok(if refused { render_refused(&page) } else { render(&page) })
}

/// Sends the specifications of the figures.
async fn figures(State(app): State<App>, Path(run): Path<String>) -> Result<Response, Error> {
    let (_, content) = app.run_content(&run).await?;
    Ok(json(content.specifications.clone()))
}

/// Sends the configuration of figures in dark mode.
async fn dark() -> Response {
    json(assets::dark_theme().to_string())
}

pub(super) fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[derive(Deserialize)]
struct Note {
    note: String,
}

async fn note(
    State(app): State<App>,
    Path(run): Path<String>,
    Form(Note { note }): Form<Note>,
) -> Result<Response, Error> {
    match app.add_note(&run, note.clone()).await {
        Ok(()) => Ok(redirect(&format!("/runs/{run}#notes")).into_response()),
        Err(Error::Invalid(reason) | Error::Command(reason)) => {
            run_page(&app, &run, Some((note, reason))).await
        }
        Err(error) => Err(error),
    }
}

async fn delete(State(app): State<App>, Path(run): Path<String>) -> Result<Redirect, Error> {
    app.delete_run(&run).await?;
    Ok(redirect("/runs"))
}

async fn undo(State(app): State<App>, Path(run): Path<String>) -> Result<Redirect, Error> {
    app.undo_delete_run(&run).await?;
    Ok(redirect("/runs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Arc<Content> {
        let text = String::new;
        Arc::new(Content {
            title: text(),
            about: text(),
            main: text(),
            figures: Vec::new(),
            specifications: text(),
            lead: text(),
        })
    }

    #[test]
    fn content_is_kept_for_one_version_of_a_run() {
        let rendered = Rendered::default();
        let version = |run: usize, notes| (run.to_string(), None, 3, notes);
        rendered.put(version(1, 0), content());
        assert!(rendered.get(&version(1, 0)).is_some() && rendered.get(&version(1, 1)).is_none());
        rendered.put(version(1, 1), content());
        assert!(rendered.get(&version(1, 0)).is_none());
        (2..2 + MAX_RENDERED).for_each(|run| rendered.put(version(run, 0), content()));
        assert!(rendered.get(&version(1, 1)).is_none());
        assert!(rendered.get(&version(2, 0)).is_some());
    }
}
