//! `dwell device show`: one device with its last check, its runs and its verdict card.

use std::io::{self, Write};

use dwell_fleet::Device;
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_report::Table;
use dwell_results::age::ago;
use dwell_results::device::{
    DeviceDetails, StoredAnswer, abilities, answer_rows, card_text, how_to_measure, in_use, lacks,
    one_line, stored_answer,
};
use dwell_store::{CheckResult, Lease, RunRow};
use jiff::Timestamp;
use serde_json::Value;

use super::super::data::{DataArgs, say_problem};
use super::super::show::print_rows;
use super::catalogue::{find, open_to_read};
use super::check::print_lacks;
use super::description::Field;

/// Maximum number of runs in the text.
const MAX_RUNS: usize = 10;

/// Arguments of `device show`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the device
    name: String,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = open_to_read(&args.data)?;
    let shown = DeviceDetails::read(&store, find(&store, &args.name)?, &say_problem)?;
    let mut out = terminal::buffered_stdout();
    if args.json {
        writeln!(out, "{:#}", shown.object())?;
    } else {
        print(&mut out, &shown, Timestamp::now())?;
    }
    out.flush()?;
    Ok(Exit::Measured)
}

fn print(out: &mut impl Write, shown: &DeviceDetails, now: Timestamp) -> io::Result<()> {
    let device = &shown.known.device;
    writeln!(out, "device {}  {}", device.name, device.destination)?;
    let fields = Field::ALL.map(|field| (field.name(), field.value(device)));
    let added = ("added", shown.known.row.added.clone());
    let lease = shown.lease.as_ref().map(|lease| ("lease", lease_text(lease)));
    for (name, value) in fields.into_iter().chain([added]).chain(lease) {
        if !value.is_empty() {
            writeln!(out, "  {name:10} {}", one_line(&value))?;
        }
    }
    writeln!(out)?;
    if shown.cards.is_empty() {
        writeln!(out, "{}", how_to_measure(&device.name))?;
    }
    for card in &shown.cards {
        writeln!(out, "{}", one_line(&card_text(card)))?;
    }
    if let Some(card) = shown.cards.first() {
        writeln!(out, "  {}", card.accurate)?;
    }
    writeln!(out)?;
    print_check(out, shown, now)?;
    print_runs(out, &shown.runs)
}

fn lease_text(lease: &Lease) -> String {
    let stale =
        if lease.stale { "; stale: its runner has ended, and any run replaces it" } else { "" };
    format!("{}{stale}", in_use(lease))
}

fn print_check(out: &mut impl Write, shown: &DeviceDetails, now: Timestamp) -> io::Result<()> {
    let device = &shown.known.device;
    let Some(last) = &shown.last else {
        return writeln!(out, "never checked; `dwell device check {}` connects to it", device.name);
    };
    if let CheckResult::Error(reason) = &last.result {
        writeln!(out, "last check {}, {}: failed", last.at, ago(&last.at, now))?;
        writeln!(out, "  {}", one_line(reason))?;
    }
    let Some(answered) = &shown.answered else { return Ok(()) };
    writeln!(out, "answered {}, {}", answered.at, ago(&answered.at, now))?;
    let Some(answer) = stored_answer(answered) else {
        return writeln!(out, "  the stored answer cannot be read; check the device again");
    };
    print_answer(out, device, &answer)?;
    if let Some(lacks) = lacks(device, &answer) {
        writeln!(out)?;
        print_lacks(out, &lacks, &[&device.name])?;
    }
    Ok(())
}

fn print_answer(out: &mut impl Write, device: &Device, answer: &StoredAnswer) -> io::Result<()> {
    let doctor = &answer.doctor;
    for (name, value) in answer_rows(device, answer) {
        writeln!(out, "  {name:10} {}", one_line(&value))?;
    }
    let abilities = abilities(doctor);
    let width = abilities.iter().map(|ability| ability.name.chars().count()).max().unwrap_or(0);
    for ability in abilities {
        let mark = match ability.available {
            Some(true) => "ok",
            Some(false) => "missing",
            None => "untried",
        };
        let reason = one_line(ability.reason.as_deref().unwrap_or_default());
        let line = format!("  {mark:7}  {:width$}  {reason}", one_line(&ability.name));
        writeln!(out, "{}", line.trim_end())?;
    }
    let has_advice = doctor["advice"].as_array().is_some_and(|advice| !advice.is_empty());
    if has_advice {
        writeln!(out, "  advice")?;
    }
    for advice in doctor["advice"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        writeln!(out, "  - {}", one_line(advice))?;
    }
    Ok(())
}

fn print_runs(out: &mut impl Write, runs: &[(RunRow, Vec<String>)]) -> io::Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let columns = ["run", "role", "plan", "state", "started", "trials", "owner"];
    let row = |(run, nodes): &(RunRow, Vec<String>)| {
        let owner = run.owner.clone().unwrap_or_else(|| "-".to_owned());
        let cells = [
            run.run.clone(),
            nodes.join(", "),
            run.name.clone(),
            run.state.name().to_owned(),
            run.started.clone(),
            format!("{}/{}", run.trials_finished, run.trials),
            owner,
        ];
        cells.map(|cell| one_line(&cell)).to_vec()
    };
    let rows = runs.iter().take(MAX_RUNS).map(row).collect();
    writeln!(out)?;
    print_rows(out, &Table { columns: columns.map(str::to_owned).to_vec(), rows })?;
    if runs.len() > MAX_RUNS {
        writeln!(out, "{} more; `dwell runs` lists all", runs.len() - MAX_RUNS)?;
    }
    Ok(())
}
