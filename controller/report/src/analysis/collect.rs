//! Reads what figures need beyond the summaries of a run.

use crate::analysis::host_wanted::host_wanted;
use crate::analysis::packets::{packets_wanted, typical_packets};
use crate::model::host::HostAccumulator;
use crate::model::samples::SampleReader;
use crate::model::{HostData, RunData};

/// Fills in the host activity of the trial that figures show and, for a page, example packets.
///
/// # Errors
/// The first error of `reader`.
pub fn collect<R: SampleReader>(
    run: &mut RunData,
    reader: &R,
    packets: bool,
) -> Result<(), R::Error> {
    run.host = host(run, reader)?;
    if packets {
        for trial in packets_wanted(run) {
            run.packets.extend(typical_packets(trial, reader)?);
        }
    }
    Ok(())
}

fn host<R: SampleReader>(run: &RunData, reader: &R) -> Result<Option<HostData>, R::Error> {
    let Some(wanted) = host_wanted(run) else { return Ok(None) };
    let trial = wanted.trial;
    let windows = reader.windows(trial, &wanted.metric, wanted.window_ns)?;
    let mut accumulator = HostAccumulator::new(wanted, windows);
    let left_out = reader.host(trial, &mut |node, at_ns, name, value| {
        accumulator.take(node, at_ns, name, value);
    })?;
    Ok(accumulator.finish().map(|mut activity| {
        activity.nodes_left_out += left_out;
        if run.one_machine { activity.shared() } else { activity }
    }))
}
