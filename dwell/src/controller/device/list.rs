//! `dwell device list`: lists the devices.

use std::io::{self, Write};

use dwell_node_cli::{Exit, Failure, terminal};
use dwell_report::Table;
use dwell_store::{CheckResult, DeviceCheck, Lease, Store};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::data::DataArgs;
use super::super::show::print_rows;
use super::age::ago;
use super::catalogue::{KnownDevice, how_to_add, select};
use super::check::lease_object;
use super::verdict::{JudgedDevice, PLAN, cards, published, table};
use super::{one_line, show};

/// Maximum length of the reason of a failed check in the table, in characters.
const MAX_REASON_LEN: usize = 60;

/// Arguments of `device list`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List the devices with this tag; may be repeated
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tag: Vec<String>,

    /// Show which networks each device can measure, beside the boards of Mok 2015
    #[arg(long)]
    verdicts: bool,

    /// Print the list as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// A device with its state.
struct Listed {
    known: KnownDevice,
    last: Option<DeviceCheck>,
    answer: Option<DeviceCheck>,
    lease: Option<Lease>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = args.data.open_if_exists()?;
    let has_devices =
        store.as_ref().map_or(Ok(false), |it| it.devices().map(|it| !it.is_empty()))?;
    let Some(store) = store.filter(|_| has_devices) else {
        return empty(args);
    };
    let leases = store.leases()?;
    let listed: Vec<Listed> = select(&store, &args.data, &[], &args.tag)?
        .into_iter()
        .map(|known| listed(&store, &leases, known))
        .collect::<Result<_, _>>()?;
    let mut judged = Vec::new();
    if args.verdicts {
        for of in &listed {
            let answer = of.answer.as_ref().and_then(show::stored_answer);
            judged.push(JudgedDevice {
                known: &of.known,
                answer,
                cards: cards(&store, &of.known)?,
            });
        }
    }
    let mut out = terminal::buffered_stdout();
    if args.json {
        let object = |(place, of): (usize, &Listed)| object(of, judged.get(place));
        let devices: Vec<Value> = listed.iter().enumerate().map(object).collect();
        writeln!(out, "{:#}", wrapped(args, devices))?;
    } else if args.verdicts {
        print_rows(&mut out, &table(&judged))?;
        print_remarks(&mut out, &judged)?;
    } else {
        print_rows(&mut out, &device_table(&listed, Timestamp::now()))?;
    }
    out.flush()?;
    Ok(Exit::Measured)
}

fn listed(store: &Store, leases: &[Lease], known: KnownDevice) -> Result<Listed, Failure> {
    let lease = leases.iter().find(|lease| lease.device == known.row.name).cloned();
    let (last, answer) = (store.last_check(&known.row)?, store.last_answer(&known.row)?);
    Ok(Listed { known, last, answer, lease })
}

/// Prints a list without devices. With `--verdicts`, the published boards are still of use.
fn empty(args: &Args) -> Result<Exit, Failure> {
    let mut out = terminal::stdout();
    if args.json {
        writeln!(out, "{:#}", wrapped(args, Vec::new()))?;
        return Ok(Exit::Measured);
    }
    if args.verdicts {
        print_rows(&mut out, &table(&[]))?;
    }
    writeln!(out, "{}", how_to_add(&args.data))?;
    Ok(Exit::Measured)
}

/// Returns the `dwell.devices/1` object.
fn wrapped(args: &Args, devices: Vec<Value>) -> Value {
    json!({
        "schema": "dwell.devices/1",
        "devices": devices,
        "published": args.verdicts.then(published),
    })
}

fn object(of: &Listed, judged: Option<&JudgedDevice<'_>>) -> Value {
    let last = of.last.as_ref();
    let answer = of.answer.as_ref().map(|check| match &check.result {
        CheckResult::Answer { arch, kernel, build, .. } => {
            json!({ "at": check.at, "arch": arch, "kernel": kernel, "build": build })
        }
        CheckResult::Error(_) => Value::Null,
    });
    json!({
        "device": show::description(&of.known.device),
        "added": of.known.row.added,
        "last_check": last.map(show::check_object),
        "last_answer": answer,
        "lease": of.lease.as_ref().map(lease_object),
        "verdicts": judged.map(|judged| &judged.cards),
    })
}

fn device_table(listed: &[Listed], now: Timestamp) -> Table {
    let columns = ["name", "destination", "model", "arch", "kernel", "last check", "in use"];
    let row = |of: &Listed| {
        let device = &of.known.device;
        let (arch, kernel) = match of.answer.as_ref().map(|check| &check.result) {
            Some(CheckResult::Answer { arch, kernel, .. }) => (arch.clone(), kernel.clone()),
            _ => ("-".to_owned(), "-".to_owned()),
        };
        let last = of.last.as_ref().map_or("never".to_owned(), |check| {
            let ago = ago(&check.at, now);
            match &check.result {
                CheckResult::Answer { .. } => format!("ok, {ago}"),
                CheckResult::Error(reason) => format!("failed, {ago}: {}", shortened(reason)),
            }
        });
        let in_use = of.lease.as_ref().map_or("-".to_owned(), |lease| {
            let stale = if lease.stale { "stale: " } else { "" };
            format!("{stale}{}, run {}, {}", lease.owner, lease.run, ago(&lease.since, now))
        });
        let model = device.model.clone().unwrap_or_else(|| "-".to_owned());
        let cells =
            [device.name.clone(), device.destination.clone(), model, arch, kernel, last, in_use];
        cells.map(|cell| one_line(&cell)).to_vec()
    };
    Table { columns: columns.map(str::to_owned).to_vec(), rows: listed.iter().map(row).collect() }
}

fn shortened(reason: &str) -> String {
    if reason.chars().count() <= MAX_REASON_LEN {
        return reason.to_owned();
    }
    let start: String = reason.chars().take(MAX_REASON_LEN - 3).collect();
    format!("{}...", start.trim_end())
}

/// Explains the columns, and how to fill gaps.
fn print_remarks(out: &mut impl Write, judged: &[JudgedDevice<'_>]) -> io::Result<()> {
    let mut definitions: Vec<&str> =
        judged.iter().flat_map(|judged| &judged.cards).map(|card| &*card.accurate).collect();
    definitions.sort_unstable();
    definitions.dedup();
    writeln!(out)?;
    for definition in definitions {
        writeln!(out, "{definition}")?;
    }
    writeln!(
        out,
        "Rates are without cross traffic. Mok 2015 does not define accurate, and measured with a kernel \
         module."
    )?;
    if judged.iter().any(|judged| judged.cards.is_empty()) {
        writeln!(
            out,
            "A missing verdict is measured by `dwell run {PLAN} --on sender=NAME,receiver=OTHER`."
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reason_is_shortened() {
        assert_eq!(shortened("no route to host"), "no route to host");
        let long = shortened(&"ä ".repeat(100));
        assert!(long.chars().count() <= MAX_REASON_LEN && long.ends_with("ä..."), "{long}");
    }
}
