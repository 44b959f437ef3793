//! `dwell device show`: one device with its last check, its runs and its verdict card.

use std::io::{self, Write};

use dwell_fleet::Device;
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_report::{Table, VerdictCard};
use dwell_store::{CheckResult, DeviceCheck, Lease, RunRow, Store};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::data::DataArgs;
use super::super::show::print_rows;
use super::abilities::{abilities, lacks};
use super::age::ago;
use super::catalogue::{KnownDevice, find, open_to_read};
use super::check::{StoredAnswer, in_use, lease_object, print_lacks};
use super::description::Field;
use super::one_line;
use super::verdict::{cards, how_to_measure, text};

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

/// Everything that is stored about a device.
struct Shown {
    known: KnownDevice,
    lease: Option<Lease>,
    last: Option<DeviceCheck>,
    answered: Option<DeviceCheck>,
    runs: Vec<(RunRow, Vec<String>)>,
    cards: Vec<VerdictCard>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = open_to_read(&args.data)?;
    let shown = read(&store, find(&store, &args.name)?)?;
    let mut out = terminal::buffered_stdout();
    if args.json {
        writeln!(out, "{:#}", object(&shown))?;
    } else {
        print(&mut out, &shown, Timestamp::now())?;
    }
    out.flush()?;
    Ok(Exit::Measured)
}

fn read(store: &Store, known: KnownDevice) -> Result<Shown, Failure> {
    let lease = store.lease_of(&known.row)?;
    let mut runs = Vec::new();
    for run in store.runs_of_device(&known.row)? {
        let nodes = store.nodes_on_device(&run, &known.row)?;
        runs.push((run, nodes));
    }
    Ok(Shown {
        lease,
        last: store.last_check(&known.row)?,
        answered: store.last_answer(&known.row)?,
        cards: cards(store, &known)?,
        runs,
        known,
    })
}

/// Returns the stored answer of a check; `None` if it failed or cannot be read.
pub(super) fn stored_answer(check: &DeviceCheck) -> Option<StoredAnswer> {
    match &check.result {
        CheckResult::Answer { answer, .. } => serde_json::from_str(answer).ok(),
        CheckResult::Error(_) => None,
    }
}

/// Returns the description of a device with a null for each missing field.
pub(super) fn description(device: &Device) -> Value {
    json!({
        "name": device.name,
        "destination": device.destination,
        "model": device.model,
        "role": device.role,
        "interfaces": device.interfaces,
        "addresses": device.addresses,
        "tags": device.tags,
        "notes": device.notes,
        "price": device.price,
        "sudo": device.sudo,
    })
}

/// Returns time and result of a check.
pub(super) fn check_object(check: &DeviceCheck) -> Value {
    let error = match &check.result {
        CheckResult::Answer { .. } => None,
        CheckResult::Error(error) => Some(error),
    };
    json!({ "at": check.at, "answered": error.is_none(), "error": error })
}

/// Returns the `dwell.device/1` object.
fn object(shown: &Shown) -> Value {
    let answer = shown.answered.as_ref().and_then(stored_answer);
    let run = |(run, nodes): &(RunRow, Vec<String>)| {
        json!({
            "run": run.run,
            "plan": run.name,
            "roles": nodes,
            "state": run.state,
            "started": run.started,
            "owner": run.owner,
            "trials": run.trials,
            "trials_finished": run.trials_finished,
        })
    };
    json!({
        "schema": "dwell.device/1",
        "device": description(&shown.known.device),
        "added": shown.known.row.added,
        "lease": shown.lease.as_ref().map(lease_object),
        "last_check": shown.last.as_ref().map(check_object),
        "answered_at": shown.answered.as_ref().map(|check| &check.at),
        "privileges": answer.as_ref().and_then(|answer| lacks(&shown.known.device, answer)),
        "answer": answer,
        "runs": shown.runs.iter().map(run).collect::<Vec<_>>(),
        "verdicts": shown.cards,
    })
}

fn print(out: &mut impl Write, shown: &Shown, now: Timestamp) -> io::Result<()> {
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
        writeln!(out, "{}", one_line(&text(card)))?;
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

fn print_check(out: &mut impl Write, shown: &Shown, now: Timestamp) -> io::Result<()> {
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
    let machine = &doctor["machine"];
    let mut parts = vec![answer.arch.clone(), format!("Linux {}", answer.kernel)];
    parts.extend(machine["cpu"].as_str().map(str::to_owned));
    parts.extend(machine["cores"].as_u64().map(|cores| format!("{cores} CPUs")));
    parts.extend(machine["governor"].as_str().map(|governor| format!("governor {governor}")));
    let user = match answer.uid {
        0 => "as root".to_owned(),
        uid if device.sudo => format!("as root by sudo of uid {uid}"),
        uid => format!("as uid {uid}"),
    };
    let clock = &doctor["clocks"];
    let synchronised = match clock["utc_error_ns"].as_i64() {
        Some(ns) => format!("synchronised to UTC within {:.3} ms", ns as f64 / 1e6),
        None => "not synchronised to UTC".to_owned(),
    };
    let source = clock["source"].as_str().unwrap_or("unknown source");
    let rows = [
        ("machine", parts.join(", ")),
        ("node", format!("{} {user}, {}", answer.build, answer.program)),
        ("clock", format!("{source}, {synchronised}")),
        ("interfaces", interfaces(doctor)),
    ];
    for (name, value) in rows {
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

/// Lists the interfaces that are up, except loopback.
fn interfaces(doctor: &Value) -> String {
    let all = doctor["interfaces"].as_array().into_iter().flatten();
    let up = all.filter(|found| found["up"] == true && found["name"] != "lo");
    let words = up.filter_map(|found| {
        let driver = found["driver"].as_str().unwrap_or("unknown driver");
        Some(format!("{} ({driver})", found["name"].as_str()?))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none up".to_owned() } else { words.join(", ") }
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
