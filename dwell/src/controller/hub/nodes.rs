//! `dwell hub nodes`: the nodes that the hub knows.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use dwell_hub::store::HubStore;
use dwell_hub::{HubError, NodeReport, nodes_object, time_text};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_report::Table;
use dwell_results::age::ago;
use dwell_rollup::Name;
use dwell_store::HubLock;
use dwell_units::Nanos;
use jiff::Timestamp;

use super::super::data::DataArgs;
use super::super::show::print_rows;
use super::DatabaseArgs;
use super::schedule::known_nodes;

/// Time between looks at the database while waiting.
const WAIT_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `hub nodes`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Wait at most this long until each device has delivered records and follows the newest schedule;
    /// exit code 1 if one does not
    #[arg(long, value_name = "TIME")]
    wait: Option<Nanos>,

    /// Print the list as one JSON object (dwell.hub-nodes/1)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    // A hub that was just started creates or migrates the database.
    let waiting = match args.wait {
        Some(time) => wait(args, time.to_std())?,
        None => Vec::new(),
    };
    let mut store = args.database.open_to_read(&args.data)?;
    let mut reports = NodeReport::read_all(&mut *store.begin_to_read()?)?;
    let has_hub = has_hub(args);
    if !has_hub {
        // Those of a killed hub say nothing about now.
        reports.iter_mut().for_each(|report| report.collection_fault = None);
    }
    let mut out = terminal::buffered_stdout();
    if args.json {
        writeln!(out, "{:#}", nodes_object(&reports))?;
    } else {
        print(&mut out, &reports)?;
        if !has_hub {
            let dir = args.data.data.display();
            writeln!(out, "note: no hub is running on {dir}; start it by `dwell hub --embedded`")?;
        }
    }
    out.flush()?;
    if waiting.is_empty() && (args.wait.is_none() || has_hub) {
        return Ok(Exit::Measured);
    }
    if waiting.is_empty() {
        say("dwell: no hub is running");
        return Ok(Exit::Failed);
    }
    let names = waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    say(&format!("dwell: without records, or not yet on the newest schedule: {names}"));
    Ok(Exit::Failed)
}

/// Whether a hub runs. Those on a database server may run on other machines.
fn has_hub(args: &Args) -> bool {
    args.database.is_shared() || HubLock::is_held(&args.data.data)
}

fn print(out: &mut impl Write, reports: &[NodeReport]) -> std::io::Result<()> {
    let columns = ["node", "last record", "stored", "missing", "dropped", "schedule", "state"];
    let now = Timestamp::now();
    let row = |report: &NodeReport| {
        let last = report.node.last_arrival_ns.map(time_text);
        let version = report.status.as_ref().map(|it| it.status.schedule_version.to_string());
        let is_paused = report.status.as_ref().is_some_and(|it| it.status.pause.is_some());
        vec![
            report.node.name.to_string(),
            last.map_or("never".to_owned(), |last| ago(&last, now)),
            report.node.counts.stored.to_string(),
            report.missing().to_string(),
            report.dropped().to_string(),
            version.unwrap_or_else(|| "-".to_owned()),
            if is_paused { "paused" } else { "-" }.to_owned(),
        ]
    };
    let columns = columns.map(str::to_owned).to_vec();
    print_rows(out, &Table { columns, rows: reports.iter().map(row).collect() })?;
    for report in reports {
        for warning in report.warnings() {
            writeln!(out, "note: {}: {warning}", report.node.name)?;
        }
    }
    Ok(())
}

/// Waits until a hub runs, and all devices deliver records and follow the newest schedule. Returns those that
/// do not. The hub may be starting on a database that is as it has to be.
fn wait(args: &Args, time: Duration) -> Result<Vec<Name>, Failure> {
    let devices: Vec<Name> = known_nodes(&args.data)?.into_keys().collect();
    if devices.is_empty() {
        let advice = "add each node by `dwell device add NAME DESTINATION --address ADDRESS`";
        return Err(Failure::usage(format!("there is no device to wait for; {advice}")));
    }
    let end = Instant::now() + time;
    loop {
        let waiting = match args.database.open_if_ready(&args.data)? {
            Some(mut store) => waiting(&mut *store, &devices)?,
            None => devices.clone(),
        };
        if (waiting.is_empty() && has_hub(args)) || Instant::now() >= end {
            return Ok(waiting);
        }
        thread::sleep(WAIT_POLL_INTERVAL);
    }
}

fn waiting(store: &mut dyn HubStore, devices: &[Name]) -> Result<Vec<Name>, HubError> {
    let mut transaction = store.begin_to_read()?;
    let newest = transaction.newest_version()?.unwrap_or(0);
    let mut waiting = devices.to_vec();
    for node in transaction.nodes()? {
        let status = transaction.last_status(node.id)?;
        if status.is_some_and(|stored| stored.status.schedule_version == newest) {
            waiting.retain(|name| *name != node.name);
        }
    }
    Ok(waiting)
}
