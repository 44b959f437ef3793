//! `/experiments`: the experiments, and the page of one while it runs and afterwards.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::{Redirect, Response};
use axum::routing::{get, post};
use dwell_record::Figures;
use dwell_results::compare::time_text;
use dwell_store::Role;

use super::layout::{Layout, Status, render};
use super::pager::{ListQuery, Pager};
use super::redirect;
use super::topology::Drawing;
use crate::app::App;
use crate::error::Error;
use crate::experiments::topology::plan_topology;
use crate::experiments::{Experiment, ExperimentState, Summary};

/// Maximum number of experiments that are searched.
const MAX_EXPERIMENTS: usize = 10_000;

/// Maximum number of deleted experiments that the list can restore.
const MAX_DELETED: usize = 5;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/experiments", get(list))
        .route("/experiments/{id}", get(page))
        .route("/experiments/{id}/stop", post(stop))
        .route("/experiments/{id}/resume", post(resume))
        .route("/experiments/{id}/delete", post(delete))
        .route("/experiments/{id}/undo", post(undo))
}

/// An experiment in a list.
pub(super) struct Listed {
    pub(super) experiment: Experiment,
    pub(super) status: Status,
}

impl Listed {
    /// Devices by role.
    fn devices(&self) -> String {
        let on = self.experiment.on.iter().map(|(role, device)| format!("{role} {device}"));
        on.collect::<Vec<_>>().join(", ")
    }

    /// Trials that have ended, of all.
    pub(super) fn trials(&self) -> String {
        match (self.experiment.done, self.experiment.all) {
            (_, 0) => "-".to_owned(),
            (done, all) if done == all => all.to_string(),
            (done, all) => format!("{done} of {all}"),
        }
    }

    pub(super) fn title(&self) -> &str {
        self.experiment.title.as_deref().unwrap_or_default()
    }
}

impl From<Experiment> for Listed {
    fn from(experiment: Experiment) -> Self {
        Self { status: status(experiment.state), experiment }
    }
}

fn status(state: ExperimentState) -> Status {
    let name = state.name();
    match state {
        ExperimentState::Queued => Status::waiting(name),
        ExperimentState::Running => Status::running(name),
        ExperimentState::Stopped | ExperimentState::Interrupted => Status::stopped(name),
        ExperimentState::Failed => Status::failed(name),
        ExperimentState::Finished => Status::good(name),
    }
}

#[derive(Template)]
#[template(path = "experiments.html")]
struct List {
    layout: Layout,
    rows: Vec<Listed>,
    deleted: Vec<Experiment>,
    pager: Pager,
}

/// Returns the experiments that the list shows. Only a search reads all of them.
async fn listed(app: &App, query: &ListQuery) -> Result<(Vec<Experiment>, Pager), Error> {
    if query.search().is_empty() {
        let (offset, limit) = query.range();
        let page = app.experiments().list(offset as usize, limit as usize, false).await?;
        if !page.experiments.is_empty() || page.total == 0 {
            return Ok((page.experiments, query.pager("/experiments", page.total)));
        }
    }
    let all = app.experiments().list(0, MAX_EXPERIMENTS, false).await?.experiments;
    let matches = |it: &Experiment| {
        let on = it.on.iter().map(|(role, device)| format!("{role} {device}"));
        let on = on.collect::<Vec<_>>().join(" ");
        let title = it.title.as_deref().unwrap_or_default();
        let run = it.run.as_deref().unwrap_or_default();
        query.matches(&[&it.id, &it.name, title, run, it.state.name(), &it.owner, &on])
    };
    Ok(query.page("/experiments", all.into_iter().filter(matches).collect()))
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Response, Error> {
    let (rows, pager) = listed(&app, &query).await?;
    Ok(render(&List {
        layout: Layout::new("Experiments", "/experiments"),
        rows: rows.into_iter().map(Listed::from).collect(),
        deleted: app.experiments().list(0, MAX_DELETED, true).await?.experiments,
        pager,
    }))
}

/// A trial that ended.
struct EndedRow {
    trial: u32,
    status: Status,
    parameters: String,
    reason: String,
    p50: String,
    p50_ns: i64,
    p99: String,
    lost: String,
}

#[derive(Template)]
#[template(path = "experiment.html")]
struct Page {
    layout: Layout,
    listed: Listed,
    summary: Summary,
    ended: Vec<EndedRow>,
    /// Largest median of the trials that ended, in nanoseconds.
    max_p50: i64,
    parameters: String,
    figures: LiveFigures,
    /// Its topology; `None` if the plan of an earlier dwell cannot be read.
    topology: Option<Drawing>,
}

/// Figures of the current trial as text.
struct LiveFigures {
    sent: String,
    lost: String,
    p50: String,
    p99: String,
}

impl Page {
    fn is_active(&self) -> bool {
        self.listed.experiment.state.is_active()
    }

    fn can_resume(&self) -> bool {
        self.listed.experiment.state.can_resume()
    }

    /// Why it waits, stopped or failed.
    fn reason(&self) -> Option<&str> {
        let waiting = self.summary.waiting.as_deref().filter(|_| self.is_active());
        waiting.or(self.listed.experiment.reason.as_deref())
    }
}

fn time(ns: Option<i64>) -> String {
    ns.map_or("-".to_owned(), time_text)
}

/// Formats lost packets of those that were sent.
fn lost(lost: Option<u64>, sent: Option<u64>) -> String {
    match (lost, sent) {
        (Some(lost), Some(sent @ 1..)) => {
            format!("{lost} ({:.2} %)", lost as f64 * 100.0 / sent as f64)
        }
        (Some(lost), _) => lost.to_string(),
        (None, _) => "-".to_owned(),
    }
}

fn parameters<'a>(all: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let named = all.into_iter().filter(|(_, value)| !value.is_empty());
    named.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Returns the stored figures of the main delay of each trial that ended. Events have
/// those of round trips only.
async fn stored_figures(app: &App, summary: &Summary) -> Result<BTreeMap<u32, Figures>, Error> {
    let Some(run) = summary.run.clone() else { return Ok(BTreeMap::new()) };
    let wanted: BTreeSet<u32> = summary.ended.iter().map(|ended| ended.trial).collect();
    let read = app.read(move |store| {
        let mut figures = BTreeMap::new();
        // The run may have been deleted.
        let Ok(row) = store.run(&run) else { return Ok(figures) };
        for trial in store.trials(&row)?.iter().filter(|trial| wanted.contains(&trial.number)) {
            let summaries = store.summaries(trial).unwrap_or_default().into_iter();
            let measured = summaries.filter(|(role, ..)| *role == Role::Measurement);
            let mut metrics = measured.flat_map(|(_, _, summary)| main_figures(summary));
            if let Some(found) = metrics.next() {
                figures.insert(trial.number, found);
            }
        }
        Ok(figures)
    });
    Ok(read.await?.unwrap_or_default())
}

/// Returns the figures of the delay that `dwell show` prints for a trial.
fn main_figures(mut summary: dwell_record::Summary) -> Option<Figures> {
    let names = ["rtt_ns", "node_delay_ns", "one_way_forward_ns", "gap_ns"];
    names.into_iter().find_map(|name| summary.metrics.remove(name))
}

async fn page(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Error> {
    let snapshot = app.experiments().snapshot(&id).await?;
    let summary = snapshot.summary;
    let stored = stored_figures(&app, &summary).await?;
    let ended = summary.ended.iter().rev().map(|ended| {
        let figures = stored.get(&ended.trial);
        let p50_ns = figures.map_or(ended.p50_ns, |figures| figures.p50);
        EndedRow {
            trial: ended.trial,
            status: match &*ended.state {
                "finished" => Status::good("finished"),
                "not_run" => Status::stopped("not run"),
                _ => Status::failed("failed"),
            },
            parameters: parameters(&ended.parameters),
            reason: ended.reason.clone().unwrap_or_default(),
            p50: time(p50_ns),
            p50_ns: p50_ns.unwrap_or_default(),
            p99: time(figures.map_or(ended.p99_ns, |figures| figures.p99)),
            lost: lost(ended.lost, ended.sent),
        }
    });
    let ended: Vec<EndedRow> = ended.collect();
    let progress = summary.current.as_ref().and_then(|current| current.progress.clone());
    let progress = progress.unwrap_or_default();
    let experiment = &snapshot.experiment;
    let topology = plan_topology(&experiment.plan, &experiment.settings, &experiment.on);
    let listed = Listed::from(snapshot.experiment);
    let title = match listed.title() {
        "" => listed.experiment.name.clone(),
        title => title.to_owned(),
    };
    Ok(render(&Page {
        layout: Layout::new(title, "/experiments"),
        max_p50: ended.iter().map(|row| row.p50_ns).max().unwrap_or_default(),
        parameters: summary
            .current
            .as_ref()
            .map_or_else(String::new, |it| parameters(&it.parameters)),
        figures: LiveFigures {
            sent: progress.sent.map_or("-".to_owned(), |sent| sent.to_string()),
            lost: lost(progress.lost, progress.sent),
            p50: time(progress.p50_ns),
            p99: time(progress.p99_ns),
        },
        topology: topology.as_ref().map(Drawing::new),
        ended,
        listed,
        summary,
    }))
}

async fn stop(State(app): State<App>, Path(id): Path<String>) -> Result<Redirect, Error> {
    app.experiments().stop(&id).await?;
    Ok(redirect(&format!("/experiments/{id}")))
}

async fn resume(State(app): State<App>, Path(id): Path<String>) -> Result<Redirect, Error> {
    app.experiments().resume(&id).await?;
    Ok(redirect(&format!("/experiments/{id}")))
}

async fn delete(State(app): State<App>, Path(id): Path<String>) -> Result<Redirect, Error> {
    app.experiments().delete(&id).await?;
    Ok(redirect("/experiments"))
}

async fn undo(State(app): State<App>, Path(id): Path<String>) -> Result<Redirect, Error> {
    app.experiments().undo(&id).await?;
    Ok(redirect("/experiments"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_has_its_share_of_sent_packets() {
        assert_eq!(lost(Some(3), Some(300)), "3 (1.00 %)");
        assert_eq!(lost(Some(0), Some(0)), "0");
        assert_eq!(lost(None, Some(3)), "-");
    }
}
