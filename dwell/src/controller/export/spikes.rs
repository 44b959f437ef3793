//! Exports the causes of long delays, one row per part of a delay.

use std::io::{self, Write};

use dwell_node_cli::Failure;
use dwell_record::Spike;
use dwell_store::{RunRow, Store};
use serde_json::json;

use super::{Style, begin, is_damaged, quoted, row_start};

const NAMES: [&str; 10] =
    ["id", "at_ns", "rtt_ns", "main", "cause", "by", "pid", "ns", "page_faults", "complete"];

/// Writes the spikes of all trials. Returns the number of damaged ones, which are left out.
pub(super) fn rows(
    store: &Store,
    run: &RunRow,
    out: &mut dyn Write,
    style: Style,
) -> Result<usize, Failure> {
    let axes = begin(run, out, style, NAMES.into_iter())?;
    let mut left_out = 0;
    for trial in store.trials(run)? {
        let start = row_start(&trial, &axes, style);
        let mut written = Ok(());
        let read = store.spikes(run, &trial, &mut |spike| {
            if written.is_ok() {
                written = write_spike(out, &start, spike, style);
            }
        });
        written?;
        left_out += usize::from(is_damaged(&trial, &read));
    }
    Ok(left_out)
}

fn write_spike(out: &mut dyn Write, start: &str, spike: &Spike, style: Style) -> io::Result<()> {
    let Spike { id, at_ns, rtt_ns, page_faults, complete, .. } = spike;
    for part in &spike.parts {
        let main = part.cause == spike.cause;
        let (cause, by, pid, ns) =
            (part.cause.kind.name(), &part.cause.by, part.cause.pid, part.ns);
        match style {
            Style::Csv => {
                let by = by.as_deref().map_or(String::new(), quoted);
                let pid = pid.map_or(String::new(), |pid| pid.to_string());
                writeln!(
                    out,
                    "{start}{id},{at_ns},{rtt_ns},{main},{cause},{by},{pid},{ns},{page_faults},\
                     {complete}"
                )?;
            }
            Style::JsonLines => {
                let (by, pid) = (json!(by), json!(pid));
                writeln!(
                    out,
                    r#"{start},"id":{id},"at_ns":{at_ns},"rtt_ns":{rtt_ns},"main":{main},"cause":"{cause}","by":{by},"pid":{pid},"ns":{ns},"page_faults":{page_faults},"complete":{complete}}}"#
                )?;
            }
        }
    }
    Ok(())
}
