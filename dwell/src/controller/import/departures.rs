//! Imports segments of paced packets (`dwell pace --samples`): the gap before each packet and its
//! deviation from the schedule.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Read;
use std::path::Path;

use dwell_node_cli::{Exit, Failure};
use dwell_record::segment::Record;
use dwell_record::{Column, Environment, Kind, SEGMENT, Stamps, Summary, TrustWarning, by_name};
use dwell_sample::TimestampSource;
use dwell_store::{RunRow, Store, StoreError};

use super::segment::{cut_short, damaged, no_data_error, parameters, segment_error, texts};
use super::{Args, add_trial, end_trial, file_name, finish};

/// Maximum number of bytes imported, about 50 million packets. A segment is read twice but a pipe
/// only once, so the bytes are kept in memory.
const MAX_SEGMENT_LEN: u64 = 1 << 30;

pub(super) fn import(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    input: &mut dyn Read,
) -> Result<Exit, Failure> {
    let bytes = read_whole(&args.file, input, MAX_SEGMENT_LEN)?;
    let name = file_name(&args.file);
    let trial = add_trial(store, run, 1, &name)?;
    let mut ingest = store.ingest_columns(run, &trial, &Column::PACED)?.with_figures();
    let mut host = store.host_writer(run, &trial)?;
    let metadata = RefCell::new(SegmentMetadata::default());
    let read = ingest.push_departures(
        || Ok::<_, StoreError>(bytes.as_slice()),
        &mut |record| match record {
            Record::Host(sample) => host.push(&name, sample),
            record => metadata.borrow_mut().take(record),
        },
        || Cow::Owned(metadata.borrow().summary()),
    )?;
    let metadata = metadata.into_inner();
    let mut summary = metadata.summary();
    let end = read.map_err(|error| segment_error(args, &error))?;
    let short = cut_short(&end);
    if end.samples == 0 {
        return Err(no_data_error(
            args,
            "packet",
            &short.map_or("the file has none".into(), |warning| warning.to_string()),
        ));
    }
    let ingested = ingest.finish()?;
    host.finish()?;
    let of_file = short.into_iter().chain(damaged(&end));
    let warnings: Vec<TrustWarning> = of_file.map(TrustWarning::from).collect();
    let (metrics, mut values, packets) = ingested.columns.figures();
    // Without a sink, losses are unknown.
    summary.packets = packets.filter(|_| metadata.arrived);
    if summary.packets.is_none() {
        values.insert("loss_ratio".into(), None);
        values.insert("late_ratio".into(), None);
    }
    summary.parameters.extend(parameters(&end, []));
    let texts = texts(&warnings);
    summary.trust.warnings = warnings;
    summary.trust.ring_dropped = end.totals.map_or(0, |totals| totals.ring_dropped);
    summary.metrics = metrics;
    summary.values = values;
    end_trial(store, &trial, &name, summary, Some(&ingested))?;
    finish(args, store, run, SEGMENT, ingested.samples, &texts, 0)
}

/// Reads a file of at most `max` bytes into memory.
fn read_whole(file: &Path, input: &mut dyn Read, max: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    input.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(Failure::usage(format!(
            "{}: the segment has more than {max} bytes; record fewer packets per file",
            file.display()
        )));
    }
    Ok(bytes)
}

/// Metadata collected in the first pass over a segment.
#[derive(Default)]
struct SegmentMetadata {
    target: String,
    environment: Environment,
    source: TimestampSource,
    stamped: bool,
    arrived: bool,
}

impl SegmentMetadata {
    fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Header(header) => {
                self.target.clone_from(&header.target);
                self.environment.dwell.clone_from(&header.dwell);
            }
            Record::Sample(sample, _, near) => {
                self.source = *near;
                self.stamped |= sample.tx.kernel.is_some();
                self.arrived |= sample.remote.is_some();
            }
            _ => {}
        }
    }

    /// Returns the timestamps that the sender used as departure times, according to its source.
    fn departures(&self) -> &'static str {
        match (self.source, self.stamped, self.arrived) {
            (TimestampSource::User, ..) => "tx_app",
            (_, true, _) => "tx_kernel",
            (_, false, true) => "sink",
            (_, false, false) => "tx_app",
        }
    }

    fn summary(&self) -> Summary {
        Summary {
            parameters: by_name([("departures", self.departures().into())]),
            stamps: Stamps { tx: Some(self.source), ..Stamps::default() },
            environment: self.environment.clone(),
            ..Summary::new(Kind::Import, &*self.target, SEGMENT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_beyond_the_maximum_is_refused_not_cut() {
        let read = |len: usize| read_whole(Path::new("big.samples"), &mut &vec![7; len][..], 10);
        assert_eq!(read(10).unwrap(), [7; 10]);
        let failure = read(11).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(
            failure.error.to_string().contains("big.samples: the segment has more than 10 bytes")
        );
    }
}
