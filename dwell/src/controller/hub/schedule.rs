//! `dwell hub schedule`: who measures whom, how and when.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dwell_hub::schedule::{Expansion, NodeCost, Schedule, ScheduleError, costs, expand};
use dwell_hub::{schedule_object, schedules_object, time_text};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_report::Table;
use dwell_results::device::KnownDevice;
use dwell_results::{amounts, owner};
use dwell_rollup::Name;
use jiff::Timestamp;

use super::super::data::{DataArgs, say_problem};
use super::super::show::print_rows;
use super::DatabaseArgs;

/// Maximum length of a schedule in bytes that is read; the parser has a lower limit.
const MAX_FILE_LEN: u64 = 2 << 20;

/// Arguments of `hub schedule`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ScheduleCommand {
    /// Show what a schedule costs each node, without applying it
    Check(FileArgs),
    /// Show what a schedule costs each node, and apply it
    ///
    /// The hub sends each node its part. It acts within 60 s over SSH.
    Apply(FileArgs),
    /// List the applied schedules
    History(HistoryArgs),
}

#[derive(Debug, clap::Args)]
struct FileArgs {
    /// Schedule (TOML), or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the cost as one JSON object (dwell.schedule/1)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct HistoryArgs {
    /// Print the schedule of this version
    #[arg(value_name = "VERSION")]
    version: Option<u64>,

    /// Print the list as one JSON object (dwell.schedules/1)
    #[arg(long, conflicts_with = "version")]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

impl Args {
    /// The data directory.
    pub(super) fn data(&self) -> &DataArgs {
        match &self.command {
            ScheduleCommand::Check(args) | ScheduleCommand::Apply(args) => &args.data,
            ScheduleCommand::History(args) => &args.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        ScheduleCommand::Check(args) => {
            let checked = check(args)?;
            print_cost(args, None, &checked.costs)?;
            Ok(Exit::Measured)
        }
        ScheduleCommand::Apply(args) => apply(args),
        ScheduleCommand::History(args) => history(args),
    }
}

/// A valid schedule.
struct Checked {
    text: String,
    expansion: Expansion,
    costs: BTreeMap<Name, NodeCost>,
}

fn check(args: &FileArgs) -> Result<Checked, Failure> {
    let text = read(&args.file)?;
    let wrong = |error: ScheduleError| Failure::usage(format!("{}: {error}", args.file.display()));
    let schedule = Schedule::parse(&text).map_err(wrong)?;
    let expansion = expand(&schedule, &known_nodes(&args.data)?).map_err(wrong)?;
    let costs = costs(&expansion, &schedule.limits).map_err(wrong)?;
    for node in expansion.nodes.keys() {
        expansion.part(1, node).map_err(wrong)?;
    }
    Ok(Checked { text, expansion, costs })
}

/// Reads a schedule or alert rules.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let mut read = |from: &mut dyn Read| from.take(MAX_FILE_LEN).read_to_string(&mut text);
    let outcome = if path == Path::new("-") {
        read(&mut io::stdin().lock())
    } else {
        fs::File::open(path).and_then(|mut file| read(&mut file))
    };
    outcome.map_err(|error| Failure {
        exit: Exit::Usage,
        error: anyhow::Error::from(error).context(format!("cannot read {}", path.display())),
    })?;
    Ok(text)
}

/// Returns the devices of the data directory with the addresses that probes are sent to.
pub(super) fn known_nodes(data: &DataArgs) -> Result<BTreeMap<Name, Option<IpAddr>>, Failure> {
    let Some(store) = data.open_if_exists()? else { return Ok(BTreeMap::new()) };
    let devices = KnownDevice::all(&store, &say_problem)?.into_iter();
    let named = devices.filter_map(|known| {
        let name = known.device.name.parse().ok()?;
        Some((name, known.device.addresses.first().copied()))
    });
    Ok(named.collect())
}

fn print_cost(
    args: &FileArgs,
    version: Option<u64>,
    costs: &BTreeMap<Name, NodeCost>,
) -> io::Result<()> {
    let mut out = terminal::buffered_stdout();
    if args.json {
        writeln!(out, "{:#}", schedule_object(version, costs))?;
        return out.flush();
    }
    let row = |(node, cost): (&Name, &NodeCost)| {
        vec![
            node.to_string(),
            cost.streams.to_string(),
            cost.reflected_streams.to_string(),
            format!("{:.1}", cost.packets_per_second),
            amounts::bytes(cost.bytes_per_day),
        ]
    };
    let columns = ["node", "streams", "reflected", "packets/s", "bytes/day"];
    let columns = columns.map(str::to_owned).to_vec();
    print_rows(&mut out, &Table { columns, rows: costs.iter().map(row).collect() })?;
    out.flush()
}

fn apply(args: &FileArgs) -> Result<Exit, Failure> {
    let Checked { text, expansion, costs } = check(args)?;
    let mut store = args.database.open(&args.data)?;
    let mut transaction = store.begin()?;
    // Nodes that the schedule no longer names stop measuring.
    let nodes = transaction.nodes()?.into_iter().map(|node| node.name);
    let devices = known_nodes(&args.data)?.into_keys();
    let nodes: Vec<Name> = nodes.chain(devices).chain(expansion.nodes.keys().cloned()).collect();
    let parts = |version: u64| {
        let part = |node: &Name| {
            // Each part was checked above.
            let part = expansion.part(version, node).ok()?;
            Some((node.clone(), part.to_json()))
        };
        nodes.iter().filter_map(part).collect()
    };
    let now_ns = i64::try_from(Timestamp::now().as_nanosecond()).context("the clock is wrong")?;
    let version = transaction.add_schedule(now_ns, &owner(), &text, &parts)?;
    transaction.commit()?;
    print_cost(args, Some(version), &costs)?;
    say(&format!(
        "dwell: applied as version {version}; nodes follow within 60 s while a hub runs; \
                  `dwell hub nodes` shows them"
    ));
    Ok(Exit::Measured)
}

fn history(args: &HistoryArgs) -> Result<Exit, Failure> {
    let mut store = args.database.open_to_read(&args.data)?;
    let schedules = store.begin_to_read()?.schedules()?;
    let mut out = terminal::buffered_stdout();
    if let Some(version) = args.version {
        let Some(schedule) = schedules.iter().find(|it| it.version == version) else {
            let newest = schedules.len();
            return Err(Failure::usage(format!(
                "there is no schedule version {version}; the newest is {newest}"
            )));
        };
        write!(out, "{}", schedule.text)?;
    } else if args.json {
        writeln!(out, "{:#}", schedules_object(&schedules))?;
    } else {
        let row = |schedule: &dwell_hub::store::AppliedSchedule| {
            let version = schedule.version.to_string();
            vec![version, time_text(schedule.applied_ns), schedule.author.clone()]
        };
        let columns = ["version", "applied", "by"].map(str::to_owned).to_vec();
        print_rows(&mut out, &Table { columns, rows: schedules.iter().map(row).collect() })?;
    }
    out.flush()?;
    Ok(Exit::Measured)
}
