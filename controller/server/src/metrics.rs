//! `/metrics`: OpenMetrics 1.0 for Prometheus.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dwell_record::{Scalar, TrialState};
use dwell_rollup::{Level, Status};
use dwell_store::{Role, RunState, Store};
use tokio::time::timeout;

use crate::api::ApiError;
use crate::app::App;
use crate::error::Error;
use crate::fleet::{self, FleetNode};
use crate::hub::now_ns;

/// Time during which the same figures are sent again, so that frequent requests cost nothing.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Time for reading the database of the hub. A scrape of Prometheus ends after 10 s, with the loss of all
/// metrics.
const HUB_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of plans, those with the newest runs, whose last figures are sent.
const MAX_PLANS: u32 = 50;

/// Delays of which the first that a trial has is its main one.
const MAIN_DELAYS: [&str; 4] = ["rtt_ns", "node_delay_ns", "one_way_forward_ns", "gap_error_ns"];

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The last figures.
#[derive(Debug, Default)]
pub(crate) struct Cached(Mutex<Option<(Instant, String)>>);

/// Returns the metrics.
pub(crate) async fn page(State(app): State<App>) -> Result<Response, ApiError> {
    let fresh = {
        let cached = app.metrics().0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().filter(|(at, _)| at.elapsed() < MAX_AGE).map(|(_, text)| text.clone())
    };
    let text = match fresh {
        Some(text) => text,
        None => {
            let mut text = app.read(figures).await?.unwrap_or_default();
            text.push_str(&fleet_metrics(&app).await?);
            text.push_str("# EOF\n");
            let mut cached = app.metrics().0.lock().unwrap_or_else(PoisonError::into_inner);
            *cached = Some((Instant::now(), text.clone()));
            text
        }
    };
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

/// A figure of a trial; `None` if it is unavailable.
type Figure = fn(&LastTrial) -> Option<f64>;

/// Figures of the last finished trial of a plan.
struct LastTrial {
    plan: String,
    run: String,
    /// Name of the delay.
    metric: &'static str,
    p50_seconds: Option<f64>,
    p99_seconds: Option<f64>,
    loss_ratio: Option<f64>,
}

fn figures(store: &Store) -> Result<String, Error> {
    let counts = store.counts()?;
    let mut text = String::new();
    let mut family = Family { text: &mut text };
    family.begin("dwell_runs", "Runs by state.");
    let count = |name: &str| {
        let found = counts.runs.iter().find(|(state, _)| state == name);
        found.map_or(0, |(_, count)| *count)
    };
    // A run whose runner died is running in the catalogue.
    let running = [RunState::Running, RunState::Interrupted].map(|state| {
        let filter = dwell_store::RunFilter { state: Some(state), ..Default::default() };
        store.run_page(&filter, 0, 0).map(|(_, total)| total)
    });
    let [running, interrupted] = running;
    for (state, count) in [
        ("running", running?),
        ("interrupted", interrupted?),
        ("finished", count("finished")),
        ("stopped", count("stopped")),
    ] {
        family.sample("dwell_runs", &[("state", state)], count as f64);
    }
    family.begin("dwell_trials", "Trials by state.");
    for state in ["planned", "running", "finished", "failed", "not_run"] {
        let found = counts.trials.iter().find(|(name, _)| name == state);
        family.sample("dwell_trials", &[("state", state)], found.map_or(0, |(_, n)| *n) as f64);
    }
    family.begin("dwell_devices", "Devices in the catalogue.");
    family.sample("dwell_devices", &[], counts.devices as f64);
    family.begin("dwell_devices_answered", "Devices that answered their last check.");
    family.sample("dwell_devices_answered", &[], store.answering_devices()? as f64);
    let last = last_trials(store)?;
    let families: [(&str, &str, Figure); 3] = [
        (
            "dwell_last_delay_p50_seconds",
            "Median of the main delay in the last finished trial of a plan.",
            |trial| trial.p50_seconds,
        ),
        (
            "dwell_last_delay_p99_seconds",
            "99th percentile of the main delay in the last finished trial of a plan.",
            |trial| trial.p99_seconds,
        ),
        (
            "dwell_last_loss_ratio",
            "Share of lost probes in the last finished trial of a plan.",
            |trial| trial.loss_ratio,
        ),
    ];
    for (name, help, value) in families {
        family.begin(name, help);
        for trial in &last {
            if let Some(value) = value(trial) {
                let labels =
                    [("plan", &*trial.plan), ("run", &*trial.run), ("metric", trial.metric)];
                family.sample(name, &labels, value);
            }
        }
    }
    Ok(text)
}

/// Returns the metrics of the nodes of a fleet; nothing without a hub. A hub that cannot be read does
/// not hide the others.
async fn fleet_metrics(app: &App) -> Result<String, Error> {
    let now_ns = now_ns();
    let read = app.read_hub(move |transaction| fleet::nodes(transaction, now_ns));
    let nodes = match timeout(HUB_TIMEOUT, read).await {
        Ok(Ok(None)) => return Ok(String::new()),
        Ok(Ok(Some(nodes))) => Some(nodes),
        Ok(Err(Error::Hub(_))) | Err(_) => None,
        Ok(Err(error)) => return Err(error),
    };
    let mut text = String::new();
    let mut family = Family { text: &mut text };
    family.begin("dwell_hub_readable", "Whether the database of the hub can be read.");
    family.sample("dwell_hub_readable", &[], f64::from(u8::from(nodes.is_some())));
    if let Some(nodes) = nodes {
        node_families(&mut family, &nodes, now_ns);
    }
    Ok(text)
}

/// A figure of a node; `None` if it is unavailable.
type NodeFigure = fn(&FleetNode) -> Option<f64>;

/// A number of records of a node.
type NodeCount = fn(&FleetNode) -> u64;

fn status(node: &FleetNode) -> Option<&Status> {
    node.report.status.as_ref().map(|stored| &stored.status)
}

/// Writes the metrics of nodes: never of pairs, whose number grows with its square.
fn node_families(family: &mut Family<'_>, nodes: &[FleetNode], now_ns: i64) {
    let name = "dwell_node_last_arrival_age_seconds";
    family.begin(name, "Age of the last record of a node.");
    for node in nodes {
        if let Some(last_ns) = node.report.node.last_arrival_ns {
            let age = now_ns.saturating_sub(last_ns) as f64 / 1e9;
            family.sample(name, &[("node", node.report.node.name.as_str())], age);
        }
    }
    let families: [(&str, &str, NodeFigure); 7] = [
        (
            "dwell_node_coverage_ratio",
            "Share of the probes due in the last hour of a node's streams that the hub has.",
            |node| node.coverage,
        ),
        ("dwell_node_spool_bytes", "Bytes in the spool of a node.", |node| {
            status(node).map(|status| status.spool_bytes as f64)
        }),
        ("dwell_node_spool_limit_bytes", "Maximum size of the spool of a node.", |node| {
            status(node).map(|status| status.spool_limit_bytes as f64)
        }),
        (
            "dwell_node_clock_bound_seconds",
            "Maximum error of the clock of a node against UTC.",
            |node| status(node)?.clock_bound_ns.map(|ns| ns as f64 / 1e9),
        ),
        ("dwell_node_paused", "Whether a node is paused.", |node| {
            status(node).map(|status| f64::from(u8::from(status.pause.is_some())))
        }),
        ("dwell_node_schedule_version", "Version of the schedule that a node follows.", |node| {
            status(node).map(|status| status.schedule_version as f64)
        }),
        ("dwell_node_warnings", "Number of warnings about a node.", |node| {
            Some(node.report.warnings().len() as f64)
        }),
    ];
    for (name, help, value) in families {
        family.begin(name, help);
        for node in nodes {
            if let Some(value) = value(node) {
                family.sample(name, &[("node", node.report.node.name.as_str())], value);
            }
        }
    }
    let counts: [(&str, NodeCount); 4] = [
        ("stored", |node| node.report.node.counts.stored),
        ("bad", |node| node.report.node.counts.bad),
        ("duplicate", |node| node.report.node.counts.duplicates),
        ("expired", |node| node.report.node.counts.expired),
    ];
    family.begin_counter("dwell_node_records", "Records of a node by what the hub did with them.");
    for node in nodes {
        for (kind, count) in counts {
            let labels = [("node", node.report.node.name.as_str()), ("kind", kind)];
            family.sample("dwell_node_records_total", &labels, count(node) as f64);
        }
    }
    family.begin_counter(
        "dwell_node_dropped_records",
        "Records that a node dropped since its spool was created, by level.",
    );
    for node in nodes {
        let Some(dropped) = status(node).map(|status| status.dropped) else { continue };
        for (level, count) in [
            (Level::Samples, dropped.samples),
            (Level::TenSeconds, dropped.ten_seconds),
            (Level::FiveMinutes, dropped.five_minutes),
        ] {
            let labels = [("node", node.report.node.name.as_str()), ("level", level.name())];
            family.sample("dwell_node_dropped_records_total", &labels, count as f64);
        }
    }
}

fn last_trials(store: &Store) -> Result<Vec<LastTrial>, Error> {
    let mut last = Vec::new();
    for run in store.last_run_of_each_plan(MAX_PLANS)? {
        let trials = store.trials(&run)?;
        let finished = trials.iter().filter(|trial| trial.state == TrialState::Finished);
        let Some(trial) = finished.max_by_key(|trial| trial.position) else { continue };
        // An unreadable summary is reported where the run is shown.
        let summaries = store.summaries(trial).unwrap_or_default();
        let measured = summaries.into_iter().find(|(role, _, _)| *role == Role::Measurement);
        let Some((_, _, summary)) = measured else { continue };
        let named = |name: &&&str| summary.metrics.contains_key(**name);
        let metric = MAIN_DELAYS.iter().find(named).copied().unwrap_or_default();
        let delay = summary.metrics.get(metric);
        let seconds = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1e9);
        last.push(LastTrial {
            plan: run.name,
            metric,
            run: run.run,
            p50_seconds: seconds(delay.and_then(|delay| delay.p50)),
            p99_seconds: seconds(delay.and_then(|delay| delay.p99)),
            loss_ratio: summary.values.get("loss_ratio").copied().flatten().map(Scalar::as_f64),
        });
    }
    Ok(last)
}

/// Writes families.
struct Family<'a> {
    text: &'a mut String,
}

impl Family<'_> {
    /// Begins a family of gauges.
    fn begin(&mut self, name: &str, help: &str) {
        self.begin_kind(name, "gauge", help);
    }

    /// Begins a family of counters; the names of its samples end with `_total`.
    fn begin_counter(&mut self, name: &str, help: &str) {
        self.begin_kind(name, "counter", help);
    }

    fn begin_kind(&mut self, name: &str, kind: &str, help: &str) {
        // The order of the example in the specification; writing to a string cannot fail.
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        if let Some(unit) =
            ["seconds", "ratio", "bytes"].into_iter().find(|unit| name.ends_with(unit))
        {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_cannot_end_its_sample() {
        let mut text = String::new();
        let mut family = Family { text: &mut text };
        family.begin("x_seconds", "Help.");
        family.sample("x_seconds", &[("plan", "a\"} 1\nevil{b=\"\\")], 0.5);
        assert_eq!(
            text,
            "# TYPE x_seconds gauge\n# UNIT x_seconds seconds\n# HELP x_seconds Help.\n\
             x_seconds{plan=\"a\\\"} 1\\nevil{b=\\\"\\\\\"} 0.5\n"
        );
    }
}
