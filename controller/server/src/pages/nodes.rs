//! `/nodes`: the nodes of the fleet, and what is wrong with them.

use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use dwell_hub::store::StoredBadRecord;
use dwell_hub::{NodeReport, Window, delay_text, mesh, time_text};
use dwell_report::model::quantity::{count, share};
use dwell_results::age::ago;
use dwell_results::amounts;
use dwell_rollup::{Name, Status as NodeStatus};
use jiff::Timestamp;

use super::layout::{Layout, Status, render};
use crate::app::App;
use crate::error::Error;
use crate::fleet::{self, FleetNode};
use crate::hub::now_ns;

/// Age of the last record, in seconds, above which a node is silent. It writes its status every 5 min.
const MAX_SILENCE_S: i64 = 20 * 60;

/// Number of bad records on the page of a node.
const MAX_BAD: u64 = 20;

pub(super) fn router() -> Router<App> {
    Router::new().route("/nodes", get(list)).route("/nodes/{name}", get(page))
}

#[derive(Template)]
#[template(path = "nodes.html")]
struct List {
    layout: Layout,
    rows: Vec<Row>,
}

/// A node in the list.
struct Row {
    name: Name,
    status: Status,
    version: String,
    clock: Status,
    spool: String,
    dropped: String,
    schedule: String,
    coverage: String,
    warnings: Vec<String>,
}

fn dash() -> String {
    "-".to_owned()
}

impl Row {
    fn new(node: FleetNode, now: Timestamp) -> Self {
        let FleetNode { report, coverage } = node;
        let of = report.status.as_ref().map(|stored| &stored.status);
        Self {
            status: state(&report, now),
            version: of.map_or_else(dash, |of| of.dwell.clone()),
            clock: clock(of),
            spool: of.map_or_else(dash, spool),
            dropped: count(report.dropped()),
            schedule: of.map_or_else(dash, schedule),
            coverage: coverage.map_or_else(dash, share),
            warnings: report.warnings(),
            name: report.node.name,
        }
    }
}

/// State of a node: paused, silent or heard.
fn state(report: &NodeReport, now: Timestamp) -> Status {
    let Some(last_ns) = report.node.last_arrival_ns else {
        return Status::unknown("no record yet");
    };
    let heard = ago(&time_text(last_ns), now);
    let pause = report.status.as_ref().and_then(|stored| stored.status.pause.as_ref());
    let age_s = now.as_second() - last_ns.div_euclid(1_000_000_000);
    match pause {
        _ if age_s > MAX_SILENCE_S => Status::failed(format!("silent, heard {heard}")),
        Some(_) => Status::stopped(format!("paused, heard {heard}")),
        None => Status::good(format!("heard {heard}")),
    }
}

fn clock(status: Option<&NodeStatus>) -> Status {
    match status {
        None => Status::unknown("unknown"),
        Some(status) => match status.clock_bound_ns.filter(|_| status.clock_synchronised) {
            Some(ns) => {
                let bound = delay_text(i64::try_from(ns).unwrap_or(i64::MAX));
                Status::good(format!("within {bound} of UTC"))
            }
            None if status.clock_synchronised => Status::warning("synchronised, error unknown"),
            None => Status::warning("not synchronised"),
        },
    }
}

fn spool(status: &NodeStatus) -> String {
    let used = amounts::bytes(status.spool_bytes);
    format!("{used} of {}", amounts::bytes(status.spool_limit_bytes))
}

fn schedule(status: &NodeStatus) -> String {
    match status.schedule_version {
        0 => "none".to_owned(),
        version => version.to_string(),
    }
}

async fn list(State(app): State<App>) -> Result<Response, Error> {
    let read = app.read_hub(|transaction| fleet::nodes(transaction, now_ns()));
    let nodes = read.await?.unwrap_or_default();
    let now = Timestamp::now();
    let rows = nodes.into_iter().map(|node| Row::new(node, now)).collect();
    Ok(render(&List { layout: Layout::new("Nodes", "/nodes"), rows }))
}

#[derive(Template)]
#[template(path = "node.html")]
struct Page {
    layout: Layout,
    name: Name,
    status: Status,
    facts: Vec<(&'static str, String)>,
    warnings: Vec<String>,
    /// Pauses: start, end or `now`, reason.
    pauses: Vec<(String, String, String)>,
    bad: Vec<Bad>,
    /// Number of bad records that ever arrived.
    bad_count: u64,
    /// Pairs that it sends to, and those that send to it.
    reflectors: Vec<Name>,
    senders: Vec<Name>,
}

/// A bad record.
struct Bad {
    arrival: String,
    arrivals: u64,
    bytes: usize,
    reason: String,
}

impl From<StoredBadRecord> for Bad {
    fn from(bad: StoredBadRecord) -> Self {
        let StoredBadRecord { arrival_ns, arrivals, reason, raw, .. } = bad;
        Self { arrival: time_text(arrival_ns), arrivals, bytes: raw.len(), reason }
    }
}

async fn page(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Error> {
    let name: Name = name
        .parse()
        .map_err(|error: dwell_rollup::NameError| Error::NotFound(error.to_string()))?;
    let wanted = name.clone();
    let read = app.read_hub(move |transaction| {
        let nodes = transaction.nodes()?;
        let Some(node) = nodes.into_iter().find(|node| node.name == wanted) else {
            return Ok(None);
        };
        let bad = transaction.bad(Some(node.id), MAX_BAD)?;
        let mesh = mesh(transaction, Window::Hour, now_ns())?;
        let coverage = fleet::coverage(&mesh).get(&wanted).copied();
        let node = FleetNode { report: NodeReport::read(transaction, node)?, coverage };
        Ok(Some((node, bad, mesh)))
    });
    let missing = || Error::NotFound(format!("the hub knows no node '{name}'"));
    let (node, bad, mesh) = read.await?.flatten().ok_or_else(missing)?;
    let FleetNode { report, coverage } = node;
    let now = Timestamp::now();
    let of_node = |is_sender: bool| {
        let streams = mesh.streams.iter().filter_map(|of| {
            let (own, other) = match is_sender {
                true => (&of.sender, &of.stream.reflector),
                false => (&of.stream.reflector, &of.sender),
            };
            (*own == name).then(|| other.clone())
        });
        let mut names: Vec<Name> = streams.collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    Ok(render(&Page {
        layout: Layout::new(format!("Node {name}"), "/nodes"),
        status: state(&report, now),
        facts: facts(&report, coverage),
        warnings: report.warnings(),
        pauses: pauses(&report),
        bad: bad.into_iter().map(Bad::from).collect(),
        bad_count: report.node.counts.bad,
        reflectors: of_node(true),
        senders: of_node(false),
        name,
    }))
}

fn pauses(report: &NodeReport) -> Vec<(String, String, String)> {
    let Some(stored) = &report.status else { return Vec::new() };
    let status = &stored.status;
    let ended = status.pauses.iter().map(|pause| {
        let (from, to) = (time_text(pause.from_wall_ns), time_text(pause.to_wall_ns));
        (from, to, pause.reason.clone())
    });
    let now = status
        .pause
        .iter()
        .map(|pause| (time_text(pause.since_wall_ns), "goes on".to_owned(), pause.reason.clone()));
    now.chain(ended).collect()
}

fn facts(report: &NodeReport, coverage: Option<f64>) -> Vec<(&'static str, String)> {
    let counts = &report.node.counts;
    let mut facts = vec![
        ("last record", report.node.last_arrival_ns.map_or_else(dash, time_text)),
        ("coverage of the last hour", coverage.map_or_else(dash, share)),
        ("records stored", count(counts.stored)),
        ("duplicates", count(counts.duplicates)),
        ("expired", count(counts.expired)),
        ("bad", count(counts.bad)),
        ("without a plausible time", count(report.node.undated)),
        ("missing", count(report.missing())),
        ("dropped by the node", count(report.dropped())),
        ("starts of the agent", count(report.incarnations.len() as u64)),
    ];
    if let Some(stored) = &report.status {
        let status = &stored.status;
        let bound = status.clock_bound_ns.map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        let is = |is: bool| if is { "yes" } else { "no" }.to_owned();
        facts.extend([
            ("status of", time_text(stored.wall_ns)),
            ("agent", status.dwell.clone()),
            ("clock synchronised", is(status.clock_synchronised)),
            ("maximum error of the clock", bound.map_or_else(|| "unknown".to_owned(), delay_text)),
            ("steps of the clock", count(status.clock_steps)),
            ("schedule version", schedule(status)),
            ("streams", count(status.streams)),
            ("refused entries", count(status.refused.len() as u64)),
            ("failing entries", count(status.faults.len() as u64)),
            ("spool", spool(status)),
            ("damaged in the spool", amounts::bytes(status.damaged_bytes)),
            ("samples lost", count(status.samples_lost)),
            ("late replies", count(status.replies_after_record)),
        ]);
    }
    facts
}
