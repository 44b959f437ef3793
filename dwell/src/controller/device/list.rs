//! `dwell device list`: lists the devices.

use std::io::{self, Write};

use dwell_node_cli::{Exit, Failure, terminal};
use dwell_results::device::{
    JudgedDevice, ListedDevice, PLAN, cards, device_table, published, stored_answer, verdict_list,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::data::{DataArgs, say_problem};
use super::super::show::print_rows;
use super::catalogue::{how_to_add, select};

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

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = args.data.open_if_exists()?;
    let has_devices =
        store.as_ref().map_or(Ok(false), |it| it.devices().map(|it| !it.is_empty()))?;
    let Some(store) = store.filter(|_| has_devices) else {
        return empty(args);
    };
    let leases = store.leases()?;
    let listed: Vec<ListedDevice> = select(&store, &args.data, &[], &args.tag)?
        .into_iter()
        .map(|known| ListedDevice::read(&store, &leases, known))
        .collect::<Result<_, _>>()?;
    let mut judged = Vec::new();
    if args.verdicts {
        for of in &listed {
            let answer = of.answer.as_ref().and_then(stored_answer);
            judged.push(JudgedDevice {
                known: &of.known,
                answer,
                cards: cards(&store, &of.known, &say_problem)?,
            });
        }
    }
    let mut out = terminal::buffered_stdout();
    if args.json {
        let object = |(place, of): (usize, &ListedDevice)| of.object(judged.get(place));
        let devices: Vec<Value> = listed.iter().enumerate().map(object).collect();
        writeln!(out, "{:#}", wrapped(args, devices))?;
    } else if args.verdicts {
        print_rows(&mut out, &verdict_list(&judged))?;
        print_remarks(&mut out, &judged)?;
    } else {
        print_rows(&mut out, &device_table(&listed, Timestamp::now()))?;
    }
    out.flush()?;
    Ok(Exit::Measured)
}

/// Prints a list without devices. With `--verdicts`, the published boards are still of use.
fn empty(args: &Args) -> Result<Exit, Failure> {
    let mut out = terminal::stdout();
    if args.json {
        writeln!(out, "{:#}", wrapped(args, Vec::new()))?;
        return Ok(Exit::Measured);
    }
    if args.verdicts {
        print_rows(&mut out, &verdict_list(&[]))?;
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
