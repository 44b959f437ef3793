//! Runs the short form of every bench and prints one table of their goals. `--save` keeps the rows;
//! `--baseline` compares with saved rows and lists the rows that became worse beyond both intervals.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use dwell_node_cli::{Exit, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::judge::{Bound, Judged, conclude, table};
use crate::lab::sibling;
use crate::{Interrupt, Machine};

/// Benches and their arguments. Six rounds are the fewest that support a 95 % interval.
const BENCHES: [(&str, &[&str]); 9] = [
    ("rtt", &["--rounds", "6", "--count", "5000"]),
    ("data", &["--rounds", "6", "--trials", "100"]),
    ("relay", &["--rounds", "6", "--turns", "1", "--count", "30"]),
    ("pace", &["--rounds", "1", "--only", "trains"]),
    ("pace", &["--rounds", "4", "--only", "pairs"]),
    ("reflect", &["--rounds", "6", "--count", "5000", "--probes", "500"]),
    ("hostile", &["--count", "2000000"]),
    ("web", &["--rounds", "6", "--count", "3000", "--seconds", "10"]),
    ("fleet", &FLEET),
];

/// Arguments of the short form of `fleet`.
const FLEET: [&str; 14] = [
    "--agents",
    "300",
    "--seconds",
    "30",
    "--messages",
    "4000",
    "--rounds",
    "6",
    "--spool",
    "30",
    "--nodes",
    "40",
    "--requests",
    "20",
];

/// Run the short form of every bench and print one table
#[derive(Debug, clap::Parser)]
#[command(name = "short", version)]
pub struct Args {
    /// Run only these benches
    #[arg(long, value_name = "BENCH")]
    only: Vec<String>,
    /// Write the rows to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Compare with rows written by --save
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
}

/// A goal of one bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    bench: String,
    #[serde(flatten)]
    judged: Judged,
}

/// Measures, prints and judges. Exit code 3 if goals were missed or became worse than the baseline.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch()?;
    let baseline = args.baseline.as_ref().map(read).transpose()?;
    let machine = Machine::read();
    let mut rows = Vec::new();
    for (bench, arguments) in BENCHES {
        if interrupt.came() || !(args.only.is_empty() || args.only.iter().any(|one| one == bench)) {
            continue;
        }
        let start = Instant::now();
        rows.extend(goals_of(bench, arguments)?);
        eprintln!("{bench}: {:.0} s", start.elapsed().as_secs_f64());
    }
    let named = |row: &Row| Judged {
        goal: format!("{}: {}", row.bench, row.judged.goal),
        ..row.judged.clone()
    };
    let judged: Vec<Judged> = rows.iter().map(named).collect();
    println!("{machine}\n\n{}", table(&judged));
    if let Some(file) = &args.save {
        let all = json!({"schema": "dwell.bench/1", "machine": machine, "rows": rows});
        fs::write(file, format!("{all:#}\n"))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if interrupt.came() {
        return Ok(Exit::Interrupted);
    }
    if let Some(baseline) = baseline {
        let worse: Vec<String> = rows.iter().filter_map(|row| worse_than(row, &baseline)).collect();
        if !worse.is_empty() {
            let error = anyhow::anyhow!("worse than the baseline: {}", worse.join("; "));
            return Err(Failure { exit: Exit::Threshold, error });
        }
        println!("no row is worse than the baseline beyond the intervals");
    }
    conclude(&judged)
}

/// Runs one bench; it may miss goals, but it has to print its object.
fn goals_of(bench: &str, arguments: &[&str]) -> Result<Vec<Row>> {
    eprintln!("bench {bench} {}", arguments.join(" "));
    let mut command = Command::new(sibling(bench)?);
    command.args(arguments).arg("--json").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot run the bench {bench}"))?;
    let object: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the bench {bench} printed no JSON object"))?;
    let goals: Vec<Judged> = serde_json::from_value(object["goals"].clone())
        .with_context(|| format!("the bench {bench} printed no goals"))?;
    Ok(goals.into_iter().map(|judged| Row { bench: bench.to_owned(), judged }).collect())
}

fn read(file: &PathBuf) -> Result<Vec<Row>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut object: Value = serde_json::from_str(&text).context("the baseline is not JSON")?;
    serde_json::from_value(object["rows"].take()).context("the baseline has no rows")
}

/// Describes a row whose whole interval is worse than the whole interval of the baseline. Two values
/// without an interval, such as sizes, are judged by the goal only.
fn worse_than(row: &Row, baseline: &[Row]) -> Option<String> {
    let same = |other: &&Row| other.bench == row.bench && other.judged.goal == row.judged.goal;
    let before = baseline.iter().find(same)?.judged.estimate?;
    let now = row.judged.estimate?;
    if now.is_exact() && before.is_exact() {
        return None;
    }
    let is_worse = match row.judged.bound {
        Bound::AtMost(_) => now.low? > before.high?,
        Bound::AtLeast(_) => now.high? < before.low?,
    };
    is_worse
        .then(|| format!("{}: {} ({} -> {})", row.bench, row.judged.goal, before.value, now.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Estimate, Unit};

    fn row(low: f64, high: f64, bound: Bound) -> Row {
        let estimate =
            Estimate { value: f64::midpoint(low, high), low: Some(low), high: Some(high) };
        Row {
            bench: "rtt".to_owned(),
            judged: Judged::new("one", Some(estimate), bound, Unit::Ratio),
        }
    }

    #[test]
    fn row_is_worse_only_if_intervals_are_apart() {
        let (most, least) = (Bound::AtMost(1.0), Bound::AtLeast(1.0));
        let is_worse = |now: Row, before: Row| worse_than(&now, &[before]).is_some();
        assert!(is_worse(row(1.1, 1.2, most), row(0.9, 1.0, most)));
        assert!(!is_worse(row(0.95, 1.2, most), row(0.9, 1.0, most)));
        assert!(!is_worse(row(1.1, 1.2, least), row(0.9, 1.0, least)));
        assert!(is_worse(row(0.7, 0.8, least), row(0.9, 1.0, least)));
        assert!(
            !is_worse(row(1.2, 1.2, most), row(1.1, 1.1, most)),
            "two values without an interval"
        );
        assert!(is_worse(row(1.2, 1.2, most), row(0.9, 1.0, most)));
    }

    #[test]
    fn saved_rows_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.json");
        let rows = [row(0.9, 1.1, Bound::AtMost(1.05))];
        fs::write(&file, json!({"rows": rows}).to_string()).unwrap();
        let back = read(&file).unwrap();
        assert_eq!(back[0].judged, rows[0].judged);
    }
}
