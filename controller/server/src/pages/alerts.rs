//! `/alerts`: alerts that fire or are pending, what was sent last, and what is not evaluated.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use dwell_hub::alert::{
    AlertReport, AlertState, Contact, Event, EventKind, Phase, Subject, events,
};
use dwell_hub::time_text;
use dwell_report::model::quantity::count;
use dwell_results::age::ago;
use dwell_rollup::Name;
use jiff::Timestamp;

use super::layout::{Layout, Status, render};
use crate::app::App;
use crate::error::Error;
use crate::hub::now_ns;

const SECOND_NS: i64 = 1_000_000_000;

/// Maximum number of alerts in a table.
const MAX_ALERTS: usize = 500;

/// Maximum number of problems.
const MAX_PROBLEMS: usize = 20;

/// Number of events.
const MAX_EVENTS: usize = 30;

/// Maximum number of alerts that are listed of an event.
const MAX_EVENT_ALERTS: usize = 5;

/// Time since the last evaluation, in seconds, above which no hub evaluates. A hub does every 10 s.
const MAX_EVALUATION_AGE_S: u64 = 120;

pub(super) fn router() -> Router<App> {
    Router::new().route("/alerts", get(page))
}

#[derive(Template)]
#[template(path = "alerts.html")]
struct Page {
    layout: Layout,
    /// `None` without a hub.
    alerts: Option<Alerts>,
}

/// What the page shows of a hub.
struct Alerts {
    status: Status,
    has_rules: bool,
    /// The last evaluation: time and hub.
    evaluated: Option<(String, String)>,
    /// Why nothing is evaluated now.
    unevaluated: Option<String>,
    problems: Vec<String>,
    more_problems: usize,
    tables: Vec<Table>,
    events: Vec<EventRow>,
    /// Messages that wait: receiver, next attempt, reason.
    waiting: Vec<(String, String, String)>,
}

/// Alerts of a phase.
struct Table {
    id: &'static str,
    title: &'static str,
    rows: Vec<Row>,
    more: usize,
}

/// An alert.
struct Row {
    rule: String,
    subject: String,
    /// Address of the page about it.
    link: Option<String>,
    since: String,
    value: String,
    maintenance: String,
    notified: String,
}

/// An event.
struct EventRow {
    time: String,
    status: Status,
    rule: String,
    lines: Vec<String>,
    notified: String,
}

fn dash() -> String {
    "-".to_owned()
}

/// Formats a time in whole seconds.
fn second_text(ns: i64) -> String {
    time_text(ns.div_euclid(SECOND_NS).saturating_mul(SECOND_NS))
}

impl Row {
    fn new(report: &AlertReport, state: &AlertState, now_ns: i64) -> Self {
        let silent = state.nodes.iter().filter(|(_, contact)| **contact != Contact::Back);
        let silent: Vec<&str> = silent.map(|(node, _)| node.as_str()).collect();
        let value = match (report.value_text(state), state.value) {
            (Some(text), Some(value)) => format!("{text} (n = {})", count(value.n)),
            _ if silent.is_empty() => dash(),
            _ => format!("silent: {}", silent.join(", ")),
        };
        let nodes: Vec<&Name> = match &state.subject {
            Subject::Pair { sender, reflector, .. } => vec![sender, reflector],
            Subject::Node(node) => vec![node],
            Subject::Site(_) => state.nodes.keys().collect(),
        };
        let maintenance = nodes.into_iter().filter_map(|node| {
            let active = report.maintenance.get(node)?.iter().find(|it| it.is_at(now_ns))?;
            Some(format!("{node} until {}: {}", second_text(active.to_ns), active.reason))
        });
        let maintenance: Vec<String> = maintenance.collect();
        Self {
            rule: state.rule.clone(),
            subject: state.subject.to_string(),
            link: match &state.subject {
                Subject::Pair { sender, reflector, .. } => {
                    Some(format!("/mesh/{sender}/{reflector}"))
                }
                Subject::Node(node) => Some(format!("/nodes/{node}")),
                Subject::Site(_) => None,
            },
            since: second_text(state.since_ns),
            value,
            maintenance: if maintenance.is_empty() { dash() } else { maintenance.join("; ") },
            notified: state.notified_ns.map_or_else(dash, second_text),
        }
    }
}

impl EventRow {
    fn new(event: &Event) -> Self {
        let name = event.kind.name();
        let mut lines: Vec<String> =
            event.alerts.iter().take(MAX_EVENT_ALERTS).map(|alert| event.details(alert)).collect();
        let more = event.count.saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("and {} more", count(more)));
        }
        let outcomes = event.outcomes.iter().map(|outcome| match &outcome.error {
            None => outcome.receiver.clone(),
            Some(error) => format!("{} failed: {error}", outcome.receiver),
        });
        let outcomes: Vec<String> = outcomes.collect();
        Self {
            time: second_text(event.at_ns),
            status: match event.kind {
                EventKind::Fired | EventKind::Reminder => Status::failed(name),
                EventKind::Cleared => Status::good(name),
                EventKind::Test => Status::unknown(name),
            },
            rule: event.rule.clone(),
            lines,
            notified: if outcomes.is_empty() { dash() } else { outcomes.join(", ") },
        }
    }
}

impl Alerts {
    fn new(report: &AlertReport, events: &[Event], now_ns: i64) -> Self {
        let now = Timestamp::from_nanosecond(now_ns.into()).unwrap_or_default();
        let table = |phase: Phase, id: &'static str, title: &'static str| {
            let states: Vec<&AlertState> =
                report.alerts.iter().filter(|state| state.phase == phase).collect();
            let rows = states.iter().take(MAX_ALERTS).map(|state| Row::new(report, state, now_ns));
            let (rows, all): (Vec<Row>, usize) = (rows.collect(), states.len());
            Table { id, title, more: all - rows.len(), rows }
        };
        let firing = table(Phase::Firing, "firing", "Firing");
        let pending = table(Phase::Pending, "pending", "Pending");
        let counted = |table: &Table| count((table.rows.len() + table.more) as u64);
        // A hub whose clock was ahead may have left a later time.
        let age_s = report
            .lease
            .as_ref()
            .map(|lease| now_ns.abs_diff(lease.evaluated_ns) / SECOND_NS.unsigned_abs());
        let unevaluated = match age_s {
            _ if report.applied.is_none() => None,
            None => Some("no hub has evaluated the rules yet; start one: dwell hub --embedded"),
            Some(age_s) if age_s > MAX_EVALUATION_AGE_S => Some(
                "no hub evaluates the rules now, so this page is not current; start one: dwell hub \
                 --embedded",
            ),
            Some(_) => None,
        };
        let status = match (firing.rows.is_empty(), pending.rows.is_empty()) {
            _ if report.applied.is_none() => Status::unknown("no alert rules are applied"),
            (false, _) => {
                let (firing, pending) = (counted(&firing), counted(&pending));
                Status::failed(format!("{firing} firing, {pending} pending"))
            }
            (true, false) => {
                Status::warning(format!("none is firing, {} pending", counted(&pending)))
            }
            (true, true) if unevaluated.is_some() => Status::unknown("not evaluated"),
            (true, true) if !report.problems.is_empty() => {
                Status::warning("none is firing, but not all rules are evaluated")
            }
            (true, true) => Status::good("none is firing"),
        };
        let problems = report.problems.iter().take(MAX_PROBLEMS).map(ToString::to_string);
        let problems: Vec<String> = problems.collect();
        let waiting = report.deliveries.iter().map(|delivery| {
            let receiver = format!("{} {}", delivery.receiver, delivery.way);
            let reason = delivery.error.clone().unwrap_or_else(|| "not sent yet".to_owned());
            (receiver, second_text(delivery.next_ns), reason)
        });
        Self {
            status,
            has_rules: report.applied.is_some(),
            evaluated: report.lease.as_ref().map(|lease| {
                let at = second_text(lease.evaluated_ns);
                (format!("{at}, {}", ago(&at, now)), lease.hub.clone())
            }),
            unevaluated: unevaluated.map(str::to_owned),
            more_problems: report.problems.len() - problems.len(),
            problems,
            tables: vec![firing, pending],
            events: events.iter().rev().take(MAX_EVENTS).map(EventRow::new).collect(),
            waiting: waiting.take(MAX_EVENTS).collect(),
        }
    }
}

async fn page(State(app): State<App>) -> Result<Response, Error> {
    let now_ns = now_ns();
    let read = app.read_hub(move |transaction| {
        let report = AlertReport::read(transaction, now_ns)?;
        Ok(Alerts::new(&report, &events(transaction)?, now_ns))
    });
    let alerts = read.await?;
    Ok(render(&Page { layout: Layout::new("Alerts", "/alerts"), alerts }))
}
