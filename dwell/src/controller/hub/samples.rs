//! `dwell hub samples`: requests for samples, which stay on the nodes otherwise.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Context;
use dwell_hub::store::{HubStore, HubTransaction};
use dwell_hub::{
    SampleRequest, SampleRequestState, add_request, collected_nodes, measure, requests,
    samples_object, time_text,
};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_report::Table;
use dwell_results::device::KnownDevice;
use dwell_results::{amounts, owner};
use dwell_rollup::Name;
use dwell_store::{FleetSampleFile, fleet_samples};
use dwell_units::Nanos;
use jiff::Timestamp;

use super::super::data::{DataArgs, say_problem};
use super::super::query::{Pair, duration, instant};
use super::super::show::print_rows;
use super::DatabaseArgs;

/// Arguments of `hub samples`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: SamplesCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SamplesCommand {
    /// Request the samples of a pair in a span
    ///
    /// The hub reads them from the spool of the sender over SSH, so the sender must be a device, and
    /// stores them as Parquet files in samples/DAY of the data directory.
    Request(RequestArgs),
    /// List requests for samples, and the files of samples
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("span").required(true).args(["from", "last"]))]
struct RequestArgs {
    /// Sender and reflector
    #[arg(value_name = "SENDER:REFLECTOR")]
    pair: Pair,

    /// Start of the span: a date or a time in UTC, like 2026-11-26 or 2026-11-26T08:00Z
    #[arg(long, value_name = "TIME", value_parser = instant, requires = "to")]
    from: Option<i64>,

    /// End of the span
    #[arg(long, value_name = "TIME", value_parser = instant, requires = "from")]
    to: Option<i64>,

    /// Span that ends now, like 1h
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "to")]
    last: Option<Nanos>,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Form of the list
    #[arg(long, value_name = "FORM", default_value = "table")]
    format: ListFormat,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ListFormat {
    /// Tables for people
    Table,
    /// One JSON object (dwell.hub-samples/1)
    Json,
}

impl Args {
    /// The data directory.
    pub(super) fn data(&self) -> &DataArgs {
        match &self.command {
            SamplesCommand::Request(args) => &args.data,
            SamplesCommand::List(args) => &args.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        SamplesCommand::Request(args) => request(args),
        SamplesCommand::List(args) => list(args),
    }
}

fn request(args: &RequestArgs) -> Result<Exit, Failure> {
    // A missing database is not created: nothing would answer.
    args.database.open_to_read(&args.data)?;
    let devices = devices(&args.data)?;
    let now_ns = i64::try_from(Timestamp::now().as_nanosecond()).context("the clock is wrong")?;
    let (from_ns, to_ns) = match (args.from, args.to, args.last) {
        (Some(from_ns), Some(to_ns), _) => (from_ns, to_ns),
        (_, _, last) => (now_ns.saturating_sub(last.unwrap_or_default().0).max(0), now_ns),
    };
    if from_ns >= to_ns {
        return Err(Failure::usage("the span is empty: --to must be later than --from".to_owned()));
    }
    let mut store = args.database.open(&args.data)?;
    let mut transaction = store.begin()?;
    check_pair(&mut *transaction, &args.pair)?;
    let Pair { sender, reflector } = args.pair.clone();
    let is_collected = collected_nodes(&mut *transaction)?.contains(&sender);
    if !is_collected {
        check_sender(&sender, &devices)?;
    }
    let request = SampleRequest {
        number: 0,
        sender,
        reflector,
        from_ns,
        to_ns,
        requested_ns: now_ns,
        author: owner(),
        state: SampleRequestState::Pending,
        ended_ns: None,
        gone_before_ns: None,
    };
    let number = add_request(&mut *transaction, request)?;
    transaction.commit()?;
    say(&format!(
        "dwell: request {number}: samples arrive while a hub runs, the last ones 7 min after the end of \
         the span; see `dwell hub samples list`"
    ));
    if !is_collected {
        say(&format!(
            "dwell: no hub collects from {} yet: samples come by SSH only, with `dwell hub --embedded`",
            args.pair.sender
        ));
    }
    Ok(Exit::Measured)
}

/// Refuses a pair that no node measures, such as a misspelt one.
fn check_pair(transaction: &mut dyn HubTransaction, pair: &Pair) -> Result<(), Failure> {
    let Pair { sender, reflector } = pair;
    let streams = transaction.streams(Some(sender))?;
    if streams.iter().any(|of_sender| of_sender.stream.reflector == *reflector) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the hub has no roll-ups of {sender}:{reflector}; `dwell query` lists all pairs"
    )))
}

/// Names of the devices, from which an embedded hub of this directory collects by SSH.
fn devices(data: &DataArgs) -> Result<BTreeSet<String>, Failure> {
    let Some(catalogue) = data.open_if_exists()? else { return Ok(BTreeSet::new()) };
    let devices = KnownDevice::all(&catalogue, &say_problem)?;
    Ok(devices.into_iter().map(|known| known.device.name).collect())
}

/// Refuses a node whose samples cannot arrive.
fn check_sender(sender: &Name, devices: &BTreeSet<String>) -> Result<(), Failure> {
    if devices.contains(sender.as_str()) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "no samples of {sender} can arrive: they are collected by SSH only, and no device has this name; \
         add it by `dwell device add {sender} DESTINATION`, and start `dwell hub --embedded`"
    )))
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let requests = requests(&mut *args.database.open_to_read(&args.data)?.begin_to_read()?)?;
    let (files, failed) = fleet_samples(&args.data.data, &|_| true)?;
    failed.iter().for_each(|error| say_problem(&dwell_results::chain(error)));
    let mut out = terminal::buffered_stdout();
    match args.format {
        ListFormat::Json => writeln!(out, "{:#}", samples_object(&requests, &files))?,
        ListFormat::Table => {
            print_rows(&mut out, &requests_table(&requests, &files))?;
            if !files.is_empty() {
                writeln!(out)?;
                print_rows(&mut out, &files_table(&files))?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Measured)
}

fn requests_table(requests: &[SampleRequest], files: &[FleetSampleFile]) -> Table {
    let row = |request: &SampleRequest| {
        let of_request = files.iter().filter(|file| request.is_answered_by(&file.about));
        vec![
            request.number.to_string(),
            format!("{}:{}", request.sender, request.reflector),
            time_text(request.from_ns),
            time_text(request.to_ns),
            request.state.name().to_owned(),
            of_request.count().to_string(),
            request.gone_before_ns.map_or("-".to_owned(), time_text),
            request.author.clone(),
        ]
    };
    let columns =
        ["request", "pair", "from", "to", "state", "files", "gone before", "requested by"];
    let columns = columns.map(str::to_owned).to_vec();
    Table { columns, rows: requests.iter().map(row).collect() }
}

fn files_table(files: &[FleetSampleFile]) -> Table {
    let row = |file: &FleetSampleFile| {
        let about = &file.about;
        let entry = about.entry.parse::<Name>();
        vec![
            file.path.display().to_string(),
            format!("{}:{}", about.sender, about.reflector),
            entry.map_or_else(|_| about.entry.clone(), |entry| measure(&entry)),
            about.protocol.clone(),
            time_text(about.from_ns),
            time_text(about.to_ns),
            about.samples.to_string(),
            amounts::bytes(file.len),
        ]
    };
    let columns = ["file", "pair", "measure", "protocol", "from", "to", "samples", "size"];
    let columns = columns.map(str::to_owned).to_vec();
    Table { columns, rows: files.iter().map(row).collect() }
}
