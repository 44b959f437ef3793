//! Exports host activity, one row per value.

use std::io::{self, Write};

use dwell_node_cli::Failure;
use dwell_store::{RunRow, Store};
use serde_json::json;

use super::{Style, begin, is_damaged, quoted, row_start};

/// Writes the series of all trials. Returns the number of damaged ones, which are left out.
pub(super) fn rows(
    store: &Store,
    run: &RunRow,
    out: &mut dyn Write,
    style: Style,
) -> Result<usize, Failure> {
    let axes = begin(run, out, style, ["node", "at_ns", "name", "value"].into_iter())?;
    let mut left_out = 0;
    for trial in store.trials(run)? {
        let start = row_start(&trial, &axes, style);
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
                    let [node, name] = [row.node, row.name].map(|text| json!(text));
                    writeln!(
                        out,
                        r#"{start},"node":{node},"at_ns":{at},"name":{name},"value":{value}}}"#
                    )
                }
            };
        });
        written?;
        left_out += usize::from(is_damaged(&trial, &read));
    }
    Ok(left_out)
}
