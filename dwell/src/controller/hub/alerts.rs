//! `dwell hub alerts`: rules, history and state of alerts.

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use dwell_hub::alert::{
    AlertError, AlertReport, AlertRules, AppliedRules, Contact, Event, Fleet, Phase, Subjects,
    Watch, alert_history_object, alerts_object, apply_rules, claim, complete, deliveries, events,
    test_receiver,
};
use dwell_hub::store::HubStore;
use dwell_hub::time_text;
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_report::Table;
use dwell_results::{chain, owner};

use super::super::data::DataArgs;
use super::super::show::print_rows;
use super::schedule::read;
use super::{DatabaseArgs, now_ns};

/// Time to wait for a running hub that sends the message of a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(150);

const TEST_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `hub alerts`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: AlertsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AlertsCommand {
    /// Show what alert rules watch, without applying them
    Check(FileArgs),
    /// Show what alert rules watch, and apply them
    ///
    /// The rules replace the applied ones. A running hub follows within 10 s.
    Apply(FileArgs),
    /// List alerts that fired and cleared, with the receivers that were notified
    History(FormatArgs),
    /// List alerts that are firing or pending, undelivered messages and maintenance
    Status(FormatArgs),
    /// Send a message to a receiver of the applied rules
    Test(TestArgs),
}

#[derive(Debug, clap::Args)]
struct FileArgs {
    /// Alert rules (TOML), or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct FormatArgs {
    /// Form of the answer
    #[arg(long, value_name = "FORM", default_value = "table")]
    format: Format,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table for people
    Table,
    /// One JSON object (dwell.alert-history/1, dwell.alerts/1)
    Json,
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    /// Name of the receiver: NAME of [notify.NAME]
    #[arg(value_name = "NAME")]
    receiver: String,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    data: DataArgs,
}

impl Args {
    /// The data directory.
    pub(super) fn data(&self) -> &DataArgs {
        match &self.command {
            AlertsCommand::Check(args) | AlertsCommand::Apply(args) => &args.data,
            AlertsCommand::History(args) | AlertsCommand::Status(args) => &args.data,
            AlertsCommand::Test(args) => &args.data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        AlertsCommand::Check(args) => {
            let (_, watches) = check(args)?;
            print_watches(&watches)?;
        }
        AlertsCommand::Apply(args) => {
            let (text, watches) = check(args)?;
            let applied = AppliedRules { applied_ns: now_ns(), author: owner(), text };
            apply_rules(&mut *args.database.open(&args.data)?, &applied)?;
            print_watches(&watches)?;
            say("dwell: applied; a running hub follows within 10 s");
        }
        AlertsCommand::History(args) => history(args)?,
        AlertsCommand::Status(args) => status(args)?,
        AlertsCommand::Test(args) => return test(args),
    }
    Ok(Exit::Measured)
}

fn check(args: &FileArgs) -> Result<(String, Vec<Watch>), Failure> {
    let text = read(&args.file)?;
    let wrong = |error: &AlertError| Failure::usage(format!("{}: {error}", args.file.display()));
    let rules = AlertRules::parse(&text).map_err(|error| wrong(&error))?;
    let mut store = args.database.open_to_read(&args.data)?;
    let fleet = Fleet::read(&mut *store.begin_to_read()?)?;
    let watches = fleet.watches(&rules);
    match watches.iter().flat_map(|watch| &watch.problems).next() {
        Some(problem) => Err(wrong(problem)),
        None => Ok((text, watches)),
    }
}

fn print_watches(watches: &[Watch]) -> io::Result<()> {
    let row = |watch: &Watch| {
        let watched = match &watch.subjects {
            Some(Subjects::Streams(streams)) => counted(streams.len(), "stream"),
            Some(Subjects::Sites(sites)) => {
                let nodes: usize = sites.iter().map(|site| site.nodes.len()).sum();
                format!("{} of {}", counted(nodes, "node"), counted(sites.len(), "site"))
            }
            None => "-".to_owned(),
        };
        let rule = &watch.rule;
        vec![rule.name.clone(), rule.when.to_string(), watched, rule.notify.join(", ")]
    };
    print_table(&["alert", "condition", "watches", "notify"], watches.iter().map(row).collect())
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn print_table(columns: &[&str], rows: Vec<Vec<String>>) -> io::Result<()> {
    let mut out = terminal::buffered_stdout();
    let columns = columns.iter().map(|&column| column.to_owned()).collect();
    print_rows(&mut out, &Table { columns, rows })?;
    out.flush()
}

fn print_object(object: &serde_json::Value) -> io::Result<()> {
    let mut out = terminal::buffered_stdout();
    writeln!(out, "{object:#}")?;
    out.flush()
}

fn history(args: &FormatArgs) -> Result<(), Failure> {
    let mut store = args.database.open_to_read(&args.data)?;
    let events = events(&mut *store.begin_to_read()?)?;
    if args.format == Format::Json {
        return Ok(print_object(&alert_history_object(&events))?);
    }
    let mut rows = Vec::new();
    for event in &events {
        let cells = |alert: String, notified: String| {
            let kind = event.kind.name().to_owned();
            vec![
                event.id.to_string(),
                time_text(event.at_ns),
                kind,
                event.rule.clone(),
                alert,
                notified,
            ]
        };
        let mut notified = notified_text(event);
        if event.alerts.is_empty() {
            rows.push(cells("-".to_owned(), notified.clone()));
        }
        for alert in &event.alerts {
            rows.push(cells(event.details(alert), std::mem::take(&mut notified)));
        }
        let listed = event.alerts.len() as u64;
        if event.count > listed {
            rows.push(cells(format!("and {} more", event.count - listed), String::new()));
        }
    }
    Ok(print_table(&["event", "time", "what", "rule", "alert", "notified"], rows)?)
}

fn notified_text(event: &Event) -> String {
    let texts = event.outcomes.iter().map(|outcome| match &outcome.error {
        None => outcome.receiver.clone(),
        Some(error) => format!("{} failed: {error}", outcome.receiver),
    });
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}

fn status(args: &FormatArgs) -> Result<(), Failure> {
    let mut store = args.database.open_to_read(&args.data)?;
    let report = AlertReport::read(&mut *store.begin_to_read()?, now_ns())?;
    if args.format == Format::Json {
        return Ok(print_object(&alerts_object(&report))?);
    }
    let row = |state: &dwell_hub::alert::AlertState| {
        let phase = if state.phase == Phase::Firing { "firing" } else { "pending" };
        let silent = state.nodes.iter().filter(|(_, contact)| **contact != Contact::Back);
        let silent: Vec<_> = silent.map(|(node, _)| node.to_string()).collect();
        let value = report.value_text(state);
        let value = value.unwrap_or_else(|| format!("silent: {}", silent.join(", ")));
        let subject = state.subject.to_string();
        vec![state.rule.clone(), subject, phase.to_owned(), time_text(state.since_ns), value]
    };
    let rows = report.alerts.iter().map(row).collect();
    print_table(&["rule", "alert", "state", "since", "value"], rows)?;
    let mut out = terminal::buffered_stdout();
    match (&report.applied, &report.lease) {
        (None, _) => writeln!(out, "note: no alert rules are applied")?,
        (Some(_), None) => writeln!(out, "note: no hub has evaluated the rules yet")?,
        (Some(_), Some(lease)) => {
            let (hub, at) = (&lease.hub, time_text(lease.evaluated_ns));
            writeln!(out, "evaluated by {hub} at {at}")?;
        }
    }
    for problem in &report.problems {
        writeln!(out, "note: {problem}")?;
    }
    for delivery in &report.deliveries {
        let (receiver, way, next) =
            (&delivery.receiver, &delivery.way, time_text(delivery.next_ns));
        let reason = delivery.error.as_deref().unwrap_or("not sent yet");
        writeln!(
            out,
            "note: event {} waits for {receiver} {way}, {} attempts, next at {next}: {reason}",
            delivery.event, delivery.attempts
        )?;
    }
    for (node, of) in &report.maintenance {
        for it in of {
            let to = time_text(it.to_ns);
            writeln!(out, "note: {node} is in maintenance until {to}: {}", it.reason)?;
        }
    }
    Ok(out.flush()?)
}

/// Sends a message now, unless a running hub is faster.
fn test(args: &TestArgs) -> Result<Exit, Failure> {
    let _ = args.database.open_to_read(&args.data)?;
    let mut store = args.database.open(&args.data)?;
    let receiver = &args.receiver;
    let Some(id) = test_receiver(&mut store, receiver, now_ns())? else {
        return Err(Failure::usage(format!(
            "there is no receiver [notify.{receiver}] in the applied rules; apply some with `dwell hub \
             alerts apply FILE`"
        )));
    };
    let started = Instant::now();
    while started.elapsed() < TEST_TIMEOUT {
        while let Some(claimed) = claim(&mut store, Some(id), now_ns())? {
            let sent = dwell_notify::send(&claimed.target, &claimed.message);
            complete(&mut store, &claimed, sent.map_err(|error| chain(&error)), now_ns())?;
        }
        let mut transaction = store.begin_to_read()?;
        let waiting = deliveries(&mut *transaction)?;
        let failed = waiting.iter().find(|it| it.event == id && it.error.is_some());
        if let Some(failed) = failed {
            let reason = failed.error.clone().unwrap_or_default();
            return Err(anyhow::anyhow!("{receiver} {}: {reason}", failed.way).into());
        }
        if waiting.iter().all(|it| it.event != id) {
            let event = events(&mut *transaction)?.into_iter().find(|event| event.id == id);
            let notified = event.map(|event| notified_text(&event)).unwrap_or_default();
            say(&format!("dwell: sent to {notified}"));
            return Ok(Exit::Measured);
        }
        drop(transaction);
        thread::sleep(TEST_POLL_INTERVAL);
    }
    Err(anyhow::anyhow!(
        "a hub has claimed the message and not sent it; see `dwell hub alerts status`"
    )
    .into())
}
