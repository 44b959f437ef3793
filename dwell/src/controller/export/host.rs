//! Exports host activity, one row per value.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use dwell_node_cli::{Failure, say};
use dwell_store::{RunRow, Store, StoreError, TrialRow};

use super::super::data::axes;
use super::{Style, csv_start, json_start, quoted};

/// Writes the series of all trials. Returns the number of damaged ones, which are left out.
pub(super) fn rows(
    store: &Store,
    run: &RunRow,
    out: &mut dyn Write,
    style: Style,
) -> Result<usize, Failure> {
    let axes: Vec<String> = axes(run).into_iter().map(|axis| axis.name).collect();
    if style == Style::Csv {
        let mut names = vec!["trial".to_owned(), "repetition".to_owned()];
        names.extend(axes.iter().map(|axis| quoted(axis)));
        names.extend(["node", "at_ns", "name", "value"].map(str::to_owned));
        writeln!(out, "{}", names.join(","))?;
    }
    let mut left_out = 0;
    for trial in store.trials(run)? {
        let start = match style {
            Style::Csv => csv_start(&trial, &axes),
            Style::JsonLines => json_start(&trial, &axes),
        };
        let mut written: io::Result<()> = Ok(());
        let read = store.host(run, &trial, &mut |row| {
            if written.is_err() {
                return;
            }
            let (at, value) = (row.at_ns, row.value);
            written = match style {
                Style::Csv => {
                    writeln!(out, "{start}{},{at},{},{value}", quoted(row.node), quoted(row.name))
                }
                Style::JsonLines => {
                    let [node, name] = [row.node, row.name].map(|text| serde_json::json!(text));
                    writeln!(
                        out,
                        r#"{start},"node":{node},"at_ns":{at},"name":{name},"value":{value}}}"#
                    )
                }
            };
        });
        written?;
        left_out += usize::from(is_damaged(&trial, read));
    }
    Ok(left_out)
}

/// Copies the files and writes a table of the trials.
pub(super) fn parquet(store: &Store, run: &RunRow, dir: &Path) -> Result<usize, Failure> {
    let cannot = |what: &Path| format!("cannot write {}", what.display());
    fs::create_dir_all(dir).with_context(|| cannot(dir))?;
    let (mut trials, mut left_out) = (Vec::new(), 0);
    for trial in store.trials(run)? {
        let mut any = false;
        if is_damaged(&trial, store.host(run, &trial, &mut |_| any = true)) {
            left_out += 1;
            continue;
        }
        let name = format!("{}.parquet", trial.number);
        if any {
            let to = dir.join(&name);
            fs::copy(store.host_path(&run.run, trial.number), &to).with_context(|| cannot(&to))?;
        }
        trials.push(serde_json::json!({
            "trial": trial.number,
            "repetition": trial.repetition,
            "parameters": trial.parameters,
            "file": any.then_some(name),
        }));
    }
    let table = dir.join("trials.json");
    let object = serde_json::json!({ "run": run.run, "name": run.name, "trials": trials });
    fs::write(&table, format!("{object:#}\n")).with_context(|| cannot(&table))?;
    Ok(left_out)
}

/// Whether a series could not be read; reports it.
fn is_damaged(trial: &TrialRow, read: Result<(), StoreError>) -> bool {
    if let Err(error) = &read {
        let error = super::super::data::chain(error);
        say(&format!("dwell: trial {} is left out: {error}", trial.number));
    }
    read.is_err()
}
