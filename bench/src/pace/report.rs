//! Terminal output of the comparison: goals first, then the whole grid.

use std::array;
use std::collections::BTreeMap;

use super::arena::PAIRS;
use super::contestant::CONTESTANTS;
use super::gaps::Gaps;
use super::goals::{Measured, PAIR_SIZES, PaceVerdict, median_error, median_of_known};
use super::grid::Cell;
use super::limits::{LimitVerdict, VerdictPosition};
use crate::judge::median;
use crate::{Machine, Table};

/// Prints all tables.
pub(super) fn print(
    machine: &Machine,
    measured: &Measured,
    verdicts: &[PaceVerdict],
    controls: &[PaceVerdict],
) {
    match median(&measured.load) {
        Some(load) => {
            println!("{machine}; load before a round {load:.2}");
            let rounds = measured.load.len();
            println!("medians over {rounds} rounds; timestamps of arrivals at the far end\n");
        }
        None => println!("{machine}\n"),
    }
    judged("goal", verdicts);
    if !controls.is_empty() {
        judged("C spin (lower bound)", controls);
    }
    let micros = |ns: f64| format!("{:.3}", ns / 1e3);
    if !measured.streams.is_empty() {
        grid(measured, "median |gap error|, us (* rate not kept)", median_error, micros, true);
        grid(measured, "p95 |gap error|, us", |gaps| gaps.p95_ns, micros, false);
        grid(measured, "error of the first gap, us", |gaps| gaps.first_ns, micros, false);
        let share = |ratio: f64| format!("{ratio:.3}");
        grid(measured, "rate / requested rate", |gaps| gaps.rate_ratio, share, false);
    }
    if !measured.pairs_ns.is_empty() {
        let heading = format!("median gap of {PAIRS} pairs, ns");
        let sizes = PAIR_SIZES.map(|size| format!("{size} B"));
        let mut table = Table::new([&heading, &sizes[0], &sizes[1]]);
        for (name, gaps) in &measured.pairs_ns {
            let [small, large] = PAIR_SIZES.map(|size| {
                let gap = gaps.get(&size).and_then(|turns| median_of_known(turns));
                gap.map_or("-".to_owned(), |gap| format!("{gap:.0}"))
            });
            table.row([(*name).to_owned(), small, large]);
        }
        println!("{table}");
    }
    if !measured.found.is_empty() {
        print_found(measured);
    }
    if !measured.missing.is_empty() {
        println!("not installed, left out: {}", measured.missing.join(", "));
    }
    if measured.unseen > 0 {
        println!("the witness dropped {} packets: results are not valid", measured.unseen);
    }
    for failure in &measured.failures {
        println!("not measured: {failure}");
    }
    for (name, at) in measured.incomplete() {
        println!("not judged, too many failed turns: {name}, {at}");
    }
}

/// Prints one row per verdict.
fn judged(heading: &str, verdicts: &[PaceVerdict]) {
    let headings = [heading, "value", "limit", "", "worst", "any shown to be", "judged"];
    let mut table = Table::new(headings);
    for verdict in verdicts {
        let value = verdict.value.map_or("not measured".to_owned(), |value| format!("{value:.3}"));
        let word = verdict.outcome.word();
        let limit = format!("at most {}", verdict.limit);
        let worst = verdict.worst.clone().unwrap_or_default();
        let shown = verdict.shown.map_or(String::new(), |shown| format!("at least {shown:.2}"));
        let cells = verdict.cells.map(|cells| format!("in {} of {}", cells.judged, cells.of));
        let cells = cells.unwrap_or_default();
        table.row([verdict.goal.into(), value, limit, word.into(), worst, shown, cells]);
    }
    println!("{table}");
}

/// Prints one row per limit, size and verdict, then the reasons of wrong verdicts.
fn print_found(measured: &Measured) {
    let mut times: BTreeMap<_, (&LimitVerdict, u64)> = BTreeMap::new();
    for found in &measured.found {
        let limit = found.limit_mbits.unwrap_or(u32::MAX);
        times.entry((limit, found.ip_size, found.largest_rate_bps)).or_insert((found, 0)).1 += 1;
    }
    let heading = format!("times of {}", measured.runs);
    let mut table = Table::new(["found behind a limit", "verdict", &heading, ""]);
    for (found, times) in times.values() {
        let word = match found.place() {
            VerdictPosition::Right => "",
            VerdictPosition::TooLow => "too low",
            VerdictPosition::TooHigh => "too high",
        };
        table.row([found.cell(), found.rate(), times.to_string(), word.to_owned()]);
    }
    println!("{table}\n{}", measured.patience);
    for found in measured.found.iter().filter(|found| found.place() != VerdictPosition::Right) {
        let reason = found.reason.as_deref().unwrap_or("all rates are accurate");
        println!("{}: {}: {reason}", found.cell(), found.rate());
    }
}

/// Prints one row per size and rate, one column per contestant.
fn grid(
    measured: &Measured,
    heading: &str,
    of: fn(&Gaps) -> f64,
    show: impl Fn(f64) -> String,
    mark: bool,
) {
    const COLUMNS: usize = CONTESTANTS.len() + 1;
    let column = |i: usize| i.checked_sub(1).map(|i| CONTESTANTS[i].name);
    let headings: [&str; COLUMNS] = array::from_fn(|i| column(i).unwrap_or(heading));
    let mut table = Table::new(headings);
    for cell in Cell::all() {
        let row: [String; COLUMNS] = array::from_fn(|i| {
            let Some(name) = column(i) else { return cell.name() };
            let Some(value) = measured.figure(name, cell, of) else { return "-".to_owned() };
            let star = mark && measured.kept_rate(name, cell) == Some(false);
            show(value) + if star { "*" } else { "" }
        });
        table.row(row);
    }
    println!("{table}");
}
