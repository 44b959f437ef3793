//! `dwell hub nodes`: the nodes that the hub knows.

use std::io::Write;

use dwell_hub::store::HubStore;
use dwell_hub::{NodeReport, nodes_object, time_text};
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_report::Table;
use dwell_results::age::ago;
use jiff::Timestamp;

use super::super::data::DataArgs;
use super::super::show::print_rows;
use super::open_to_read;

/// Arguments of `hub nodes`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the list as one JSON object (dwell.hub-nodes/1)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut store = open_to_read(&args.data)?;
    let reports = NodeReport::read_all(&mut *store.begin_to_read()?)?;
    let mut out = terminal::buffered_stdout();
    if args.json {
        writeln!(out, "{:#}", nodes_object(&reports))?;
        out.flush()?;
        return Ok(Exit::Measured);
    }
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
    print_rows(&mut out, &Table { columns, rows: reports.iter().map(row).collect() })?;
    for report in &reports {
        for warning in report.warnings() {
            writeln!(out, "note: {}: {warning}", report.node.name)?;
        }
    }
    out.flush()?;
    Ok(Exit::Measured)
}
