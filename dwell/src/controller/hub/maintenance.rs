//! `dwell hub maintenance`: times in which no alert fires about a node.

use dwell_hub::alert::{Maintenance, announce, end};
use dwell_hub::store::HubStore;
use dwell_hub::time_text;
use dwell_node_cli::{Exit, Failure, say};
use dwell_results::owner;
use dwell_rollup::Name;
use dwell_units::Nanos;

use super::super::data::DataArgs;
use super::{DatabaseArgs, now_ns};

/// Longest maintenance in nanoseconds.
const MAX_MAINTENANCE_NS: i64 = 90 * dwell_hub::DAY_NS;

/// Arguments of `hub maintenance`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Node
    #[arg(value_name = "NODE")]
    node: Name,

    /// Time from now, like 2h; at most 2160h
    #[arg(long = "for", value_name = "TIME", value_parser = duration, required_unless_present = "end")]
    duration: Option<Nanos>,

    /// Reason, for other people
    #[arg(long, value_name = "TEXT", default_value = "maintenance")]
    reason: String,

    /// End the maintenance now
    #[arg(long, conflicts_with = "duration")]
    end: bool,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

fn duration(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: dwell_units::UnitError| error.to_string())?;
    if time <= Nanos::ZERO || time.0 > MAX_MAINTENANCE_NS {
        return Err(format!("'{text}' must be above 0s and at most 2160h"));
    }
    Ok(time)
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let node = &args.node;
    let is_known = {
        let mut store = args.database.open_to_read(&args.data)?;
        let mut transaction = store.begin_to_read()?;
        let nodes = transaction.nodes()?;
        let version = transaction.newest_version()?;
        let part = version.map(|version| transaction.node_schedule(version, node)).transpose()?;
        nodes.iter().any(|known| known.name == *node) || part.flatten().is_some()
    };
    if !is_known {
        return Err(Failure::usage(format!(
            "the hub knows no node {node}; `dwell hub nodes` lists those that it knows"
        )));
    }
    let mut store = args.database.open(&args.data)?;
    let from_ns = now_ns();
    let Some(duration) = args.duration else {
        let was_active = end(&mut store, node, from_ns)?;
        let text = if was_active { "maintenance has ended" } else { "there was no maintenance" };
        say(&format!("dwell: {node}: {text}"));
        return Ok(Exit::Measured);
    };
    let to_ns = from_ns.saturating_add(duration.0);
    let (reason, author) = (args.reason.clone(), owner());
    announce(&mut store, node, Maintenance { from_ns, to_ns, reason, author })?;
    say(&format!("dwell: {node}: no alerts until {}", time_text(to_ns)));
    Ok(Exit::Measured)
}
