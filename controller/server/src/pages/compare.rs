//! `/compare`: runs compared with a baseline, as `dwell compare` does it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dwell_record::Column;
use dwell_report::{Finding, Table, assets, comparison_parts, table_html};
use dwell_results::compare::{percent_ends, time_text};
use dwell_results::run_data;
use dwell_stats::RealInterval;
use dwell_store::{RunFilter, RunRow};
use serde_json::Value;

use super::layout::{Layout, render};
use super::run::{Content, json};
use super::{ignore_problem, query_text};
use crate::app::App;
use crate::command::WORK_TIMEOUT;
use crate::error::Error;

/// Maximum number of runs of a comparison.
const MAX_RUNS: usize = 8;

/// Number of runs that the form offers.
const MAX_CHOICES: u32 = 50;

/// End of an interval in percent above which it says nothing.
const MAX_PERCENT: f64 = 1e6;

/// Number of comparisons that are kept.
const MAX_KEPT: usize = 8;

pub(super) fn router() -> Router<App> {
    Router::new().route("/compare", get(page)).route("/compare/figures.json", get(figures))
}

/// The runs that are compared, the baseline first, and the metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Selection {
    runs: Vec<String>,
    metric: Option<String>,
}

impl Selection {
    /// Reads the query: `runs=A,B`, or `runs` several times as forms send it, with `baseline`.
    fn new(query: &[(String, String)]) -> Self {
        let all = |name: &'static str| {
            let values = query.iter().filter(move |(given, _)| given == name);
            values
                .flat_map(|(_, value)| value.split(','))
                .map(str::trim)
                .filter(|it| !it.is_empty())
        };
        let mut runs: Vec<String> = Vec::new();
        for run in all("baseline").chain(all("runs")) {
            if !runs.iter().any(|known| known == run) {
                runs.push(run.to_owned());
            }
        }
        Self { runs, metric: all("metric").next().map(str::to_owned) }
    }

    /// Query of the address of this comparison.
    fn query(&self) -> String {
        let runs = query_text(&self.runs.join(","));
        let metric = self.metric.as_ref().map(|name| format!("&metric={}", query_text(name)));
        format!("runs={runs}{}", metric.unwrap_or_default())
    }
}

/// The comparisons that were asked for last, with what they depend on.
#[derive(Debug, Default)]
pub(crate) struct Comparisons(Mutex<VecDeque<(String, Arc<Content>)>>);

impl Comparisons {
    fn get(&self, key: &str) -> Option<Arc<Content>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(of, _)| of == key).map(|(_, content)| content.clone())
    }

    fn put(&self, key: String, content: Arc<Content>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_front((key, content));
        all.truncate(MAX_KEPT);
    }
}

#[derive(Template)]
#[template(path = "compare.html")]
struct Page {
    layout: Layout,
    choices: Vec<Choice>,
    /// Runs that the form does not offer.
    older: usize,
    metrics: Vec<Metric>,
    content: Option<Arc<Content>>,
    mistake: Option<String>,
    /// The run if one was chosen only.
    only: Option<String>,
    figures: String,
}

struct Metric {
    name: &'static str,
    selected: bool,
}

/// A run in the form.
struct Choice {
    run: RunRow,
    selected: bool,
    baseline: bool,
}

async fn page(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, Error> {
    let selection = Selection::new(&query);
    let (trash, wanted) = (app.clone(), selection.runs.clone());
    let runs = app.read(move |store| {
        let hidden = trash.hidden_runs();
        let filter = RunFilter { hidden: [&hidden[..], &wanted].concat(), ..RunFilter::default() };
        let selected = wanted.iter().filter_map(|name| store.run(name).ok());
        let selected: Vec<RunRow> = selected.filter(|run| !hidden.contains(&run.run)).collect();
        let (others, total) = store.run_page(&filter, 0, MAX_CHOICES)?;
        let older = (total as usize).saturating_sub(others.len());
        Ok((selected, others, older))
    });
    let (selected, others, older) = runs.await?.unwrap_or_default();
    let (content, mistake) = match selection.runs.len() {
        0 | 1 => (None, None),
        2..=MAX_RUNS => match compared(&app, &selection).await {
            Ok(content) => (Some(content), None),
            Err(Error::Command(reason) | Error::NotFound(reason)) => (None, Some(reason)),
            Err(error) => return Err(error),
        },
        _ => (None, Some(format!("compare at most {MAX_RUNS} runs at once"))),
    };
    let is_selected = |run: &RunRow| selection.runs.contains(&run.run);
    let only = match &selected[..] {
        [run] if selection.runs.len() == 1 => Some(run.run.clone()),
        _ => None,
    };
    let choices = selected.into_iter().chain(others).map(|run| Choice {
        selected: is_selected(&run),
        baseline: selection.runs.first() == Some(&run.run),
        run,
    });
    let metric = |column: &Column| Metric {
        name: column.name(),
        selected: selection.metric.as_deref() == Some(column.name()),
    };
    let layout = Layout::new("Compare", "/compare");
    let has_figures = content.as_ref().is_some_and(|content| !content.figures.is_empty());
    let status = if mistake.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let page = Page {
        layout: if has_figures { layout.with_figures() } else { layout },
        choices: choices.collect(),
        older,
        metrics: Column::ALL.iter().filter(|it| it.name().ends_with("_ns")).map(metric).collect(),
        content,
        mistake,
        only,
        figures: format!("/compare/figures.json?{}", selection.query()),
    };
    Ok((status, render(&page)).into_response())
}

/// Sends the specifications of the figures.
async fn figures(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, Error> {
    let selection = Selection::new(&query);
    if !(2..=MAX_RUNS).contains(&selection.runs.len()) {
        return Err(Error::Invalid(format!("compare 2 to {MAX_RUNS} runs")));
    }
    Ok(json(compared(&app, &selection).await?.specifications.clone()))
}

/// Compares runs by the command, and returns the page about them.
async fn compared(app: &App, selection: &Selection) -> Result<Arc<Content>, Error> {
    let names = selection.runs.clone();
    let rows = app.read(move |store| {
        names.iter().map(|name| Ok(store.run(name)?)).collect::<Result<Vec<RunRow>, Error>>()
    });
    let rows = rows.await?.ok_or_else(|| Error::NotFound("there are no runs".to_owned()))?;
    let version: Vec<String> =
        rows.iter().map(|row| format!("{} {}", row.run, row.trials_finished)).collect();
    let key = format!("{} {:?}", version.join(" "), selection.metric);
    if let Some(content) = app.pages().comparisons.get(&key) {
        return Ok(content);
    }
    let metric = selection.metric.iter().map(|name| format!("--metric={name}"));
    let arguments = ["compare", "--json"].map(String::from).into_iter().chain(metric);
    let runs = rows.iter().map(|row| row.run.clone());
    let arguments = arguments.chain(["--".to_owned()]).chain(runs).map(OsString::from);
    let output = app.command(arguments, WORK_TIMEOUT).await?;
    let object: Value = match (output.code, serde_json::from_str(&output.stdout)) {
        (Some(0), Ok(object)) => object,
        _ => return Err(Error::Command(output.reason())),
    };
    let content = app.read(move |store| {
        let data = rows.iter().map(|row| run_data(store, row, &ignore_problem));
        let data = data.collect::<Result<Vec<_>, _>>()?;
        let metric = object["metric"].as_str().unwrap_or_default();
        let findings = findings(&object);
        let parts = comparison_parts(&data, metric, &findings);
        let table = table_html(&shifts(&object), &format!("Differences of {metric}"));
        Ok(Content {
            title: parts.title,
            about: parts.about,
            main: format!(
                "<section id=\"differences\" aria-labelledby=\"differences-title\"><h2 \
                 id=\"differences-title\">Differences</h2>{table}</section>{}",
                parts.main
            ),
            figures: parts.figures,
            specifications: Value::Object(parts.specifications).to_string(),
            lead: String::new(),
        })
    });
    let content = content.await?.ok_or_else(|| Error::NotFound("there are no runs".to_owned()))?;
    let content = Arc::new(content);
    app.pages().comparisons.put(key, content.clone());
    Ok(content)
}

/// Returns the findings of `dwell.comparison/1`.
fn findings(object: &Value) -> Vec<Finding> {
    let all = object["findings"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.map(|it| Finding { id: text(&it["id"]), text: text(&it["text"]) }).collect()
}

/// Returns one row per run, cell and percentile of `dwell.comparison/1`.
fn shifts(object: &Value) -> Table {
    let columns =
        ["run", "cell", "percentile", "baseline", "value", "change", "95 % interval", "verdict"];
    let mut rows = Vec::new();
    let time = |value: &Value| value.as_i64().map_or("-".to_owned(), time_text);
    let cell = |value: &Value| match value.as_str() {
        None | Some("") => "-".to_owned(),
        Some(text) => text.to_owned(),
    };
    for compared in object["cells"].as_array().into_iter().flatten() {
        for shift in compared["shifts"].as_array().into_iter().flatten() {
            let percent = shift["shift_percent"].as_f64();
            let change = match (shift["shift_ns"].as_i64(), percent) {
                (Some(ns), Some(percent)) => format!("{} ({percent:+.1}%)", time_text(ns)),
                (Some(ns), None) => time_text(ns),
                (None, _) => "-".to_owned(),
            };
            let ends = (shift["low_percent"].as_f64(), shift["high_percent"].as_f64());
            let interval = match ends {
                (None, None) => "-".to_owned(),
                (low, high) => percent_ends(RealInterval {
                    low: low.unwrap_or(f64::NEG_INFINITY),
                    high: high.filter(|high| *high < MAX_PERCENT).unwrap_or(f64::INFINITY),
                }),
            };
            rows.push(vec![
                cell(&compared["run"]),
                cell(&compared["cell"]),
                cell(&shift["quantile"]).replace('_', "."),
                time(&shift["baseline_ns"]),
                time(&shift["other_ns"]),
                change,
                interval,
                cell(&shift["verdict"]).replace("cannot-tell", "cannot tell"),
            ]);
        }
    }
    Table { columns: columns.map(str::to_owned).to_vec(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(query: &[(&str, &str)]) -> Selection {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Selection::new(&query.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn form_and_link_select_the_same_runs() {
        let of_form = selection(&[("runs", "b"), ("runs", "a"), ("baseline", "a"), ("metric", "")]);
        assert_eq!(of_form.runs, ["a", "b"]);
        assert_eq!(of_form, selection(&[("runs", "a,b")]));
        assert_eq!(of_form.query(), "runs=a,b");
        let with_metric = selection(&[("runs", "a, b ,a"), ("metric", "rtt_ns")]);
        assert_eq!(with_metric.query(), "runs=a,b&metric=rtt_ns");
    }

    #[test]
    fn missing_values_of_a_comparison_are_dashes() {
        let object = serde_json::json!({ "cells": [{
            "run": "b", "cell": "",
            "shifts": [
                { "quantile": "p99_9", "baseline_ns": 1_500, "other_ns": 3_000, "shift_ns": 1_500,
                  "shift_percent": 100.0, "low_percent": null, "high_percent": 120.0,
                  "verdict": "cannot-tell" },
                { "quantile": "p50" },
            ],
        }] });
        let [first, second] = &shifts(&object).rows[..] else { panic!("two rows") };
        assert_eq!(
            first[2..],
            ["p99.9", "1.50 us", "3.00 us", "1.50 us (+100.0%)", "any to +120.0%", "cannot tell"]
        );
        assert_eq!(second[3..], ["-"; 5]);
        assert_eq!(findings(&object), []);
    }
}
