//! Samples on their way into the store: written as Parquet and summarised, in one pass and side by
//! side.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dwell_engine::stamps::State;
use dwell_record::segment::{self, Record, SegmentEnd, SegmentError};
use dwell_record::{Batch, Column, Columns};

use crate::error::StoreError;
use crate::parquet::{SampleWriter, Written};
use crate::stage::{Stage, Take};
use crate::views::{Growing, StoredSeries};

/// Metrics that figures draw, by column. Each takes room in the catalogue: of the parts of a way, those
/// that S0 drew; the others are in the samples, and their figures in the summary.
const DRAWN: [Column; 14] = [
    Column::Rtt,
    Column::RttKernel,
    Column::OneWayForward,
    Column::OneWayBackward,
    Column::Residence,
    Column::ScheduleError,
    Column::Gap,
    Column::EndToEnd,
    Column::NodeDelay,
    Column::NodeDelayNetfilter,
    Column::NodeDelayDriver,
    Column::Processing,
    Column::ProcessingS0,
    Column::LinkDelay,
];

/// Rows that are looked at together: most often all of them are alike.
const RUN: usize = 128;

/// Rows of a batch that is made from a segment.
const BATCH: usize = 1 << 16;

/// Samples of one trial, on their way in.
#[derive(Debug)]
pub struct Ingest {
    writer: Stage<SampleWriter>,
    summary: Stage<Gathered>,
}

/// What came in.
pub struct Ingested {
    /// Rows.
    pub samples: u64,
    /// Checksum of their file.
    pub(crate) crc32: Option<u32>,
    /// When the first probe was sent, in nanoseconds since the epoch; `None` where no row says.
    pub first_ns: Option<i64>,
    /// The figures, where [`Ingest::with_figures`] asked for them.
    pub columns: Columns,
    pub(crate) series: BTreeMap<String, StoredSeries>,
}

/// What is kept of samples besides themselves.
#[derive(Debug, Default)]
struct Gathered {
    growing: Vec<(Column, Growing)>,
    columns: Option<Columns>,
    first: Option<i64>,
    /// Where a sample without any time stands: after the round trips before it.
    elapsed: i64,
    // What is worked with, kept so that its memory is taken once.
    at: Vec<i64>,
    values: Vec<i64>,
    value_at: Vec<i64>,
}

impl Ingest {
    pub(crate) fn new(path: &Path, wanted: &[Column]) -> Self {
        Self {
            writer: Stage::new(SampleWriter::new(path, wanted)),
            summary: Stage::new(Gathered::default()),
        }
    }

    /// Computes the figures of a summary too, because no node told any. To be called before any
    /// rows come.
    #[must_use]
    pub fn with_figures(self) -> Self {
        let gathered = Gathered { columns: Some(Columns::default()), ..Gathered::default() };
        Self { summary: Stage::new(gathered), ..self }
    }

    /// Takes rows in. Where they come by the ten thousand, threads work on them while this returns,
    /// and an error may be that of earlier rows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, batch: Batch) -> Result<(), StoreError> {
        let batch = Arc::new(batch);
        self.summary.push(&batch)?;
        self.writer.push(&batch)
    }

    /// Takes a segment in, as far as it is whole.
    ///
    /// # Errors
    /// The outer: the file cannot be written. The inner: the segment cannot be read at all.
    pub fn push_segment(
        &mut self,
        from: &mut dyn std::io::Read,
    ) -> Result<Result<SegmentEnd, SegmentError>, StoreError> {
        self.push_segment_with(from, &mut |_| {})
    }

    /// The same; `each` sees everything in it before it is written.
    ///
    /// # Errors
    /// As [`Self::push_segment`].
    pub fn push_segment_with(
        &mut self,
        from: &mut dyn std::io::Read,
        each: &mut dyn FnMut(&Record<'_>),
    ) -> Result<Result<SegmentEnd, SegmentError>, StoreError> {
        let mut batch = Batch::default();
        let mut failure = None;
        let end = segment::read(from, &mut |record| {
            if failure.is_some() {
                return;
            }
            each(&record);
            if let Record::Sample(sample, bridge, near) = record {
                batch.push_sample(sample, bridge, near);
                if batch.len() == BATCH {
                    failure = self.push(std::mem::take(&mut batch)).err();
                }
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        if !batch.is_empty() {
            self.push(batch)?;
        }
        Ok(end)
    }

    /// Ends the file; it stands under its name afterwards.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<Ingested, StoreError> {
        let Self { writer, summary } = self;
        let gathered = summary.finish()?.unwrap_or_default();
        // What the figures need at their end goes on while the last rows are written.
        let first_ns = gathered.first;
        let columns = gathered.columns.unwrap_or_default();
        let series = gathered
            .growing
            .into_iter()
            .filter(|(_, growing)| !growing.is_empty())
            .map(|(column, growing)| (column.name().to_owned(), growing.finish()))
            .collect();
        let written = writer.finish()?.map_or(Ok(Written::default()), SampleWriter::finish)?;
        Ok(Ingested { samples: written.rows, crc32: written.crc32, first_ns, columns, series })
    }
}

impl Take for SampleWriter {
    fn take(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError> {
        self.push(Arc::clone(batch))
    }
}

impl Take for Gathered {
    fn take(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError> {
        if let Some(columns) = &mut self.columns {
            columns.take(batch);
        }
        self.place(batch);
        for column in DRAWN {
            let Some(values) = batch.column(column) else { continue };
            let place = self.growing.iter().position(|(known, _)| *known == column);
            let place = place.unwrap_or_else(|| {
                self.growing.push((column, Growing::new()));
                self.growing.len() - 1
            });
            let growing = &mut self.growing[place].1;
            self.values.clear();
            self.value_at.clear();
            let runs = self.at.chunks(RUN).zip(values.chunks(RUN)).zip(batch.state.chunks(RUN));
            for ((at, values), states) in runs {
                let valid = |state: State, value: i64| {
                    (state == State::Received) & (value != Batch::ABSENT)
                };
                let rows = states.iter().zip(values);
                if rows.fold(true, |all, (state, value)| all & valid(*state, *value)) {
                    self.values.extend_from_slice(values);
                    self.value_at.extend_from_slice(at);
                    continue;
                }
                for ((&at, &value), &state) in at.iter().zip(values).zip(states) {
                    if valid(state, value) {
                        self.values.push(value);
                        self.value_at.push(at);
                    } else if state == State::Lost {
                        growing.lost(at);
                    }
                }
            }
            growing.take(&self.value_at, &self.values);
        }
        Ok(())
    }
}

impl Gathered {
    /// Places every row of the batch in time, in nanoseconds since the first.
    fn place(&mut self, batch: &Batch) {
        let times = [Column::TxApp, Column::Capture, Column::Intended, Column::RxApp]
            .into_iter()
            .find_map(|column| batch.column(column));
        if let (Some(times), None) = (times, self.first) {
            self.first = times.iter().copied().find(|time| *time != Batch::ABSENT);
        }
        self.at.clear();
        match times {
            Some(times) => {
                let first = self.first.unwrap_or(0);
                let mut last = 0;
                self.at.extend(times.iter().map(|time| {
                    if *time != Batch::ABSENT {
                        last = time.saturating_sub(first);
                    }
                    last
                }));
            }
            // Cycles follow each other, so that each begins when those before it have ended.
            None => {
                let rtt = batch.column(Column::Rtt);
                let elapsed = &mut self.elapsed;
                self.at.extend((0..batch.len()).map(|row| {
                    let at = *elapsed;
                    let took = rtt.map_or(0, |rtt| rtt[row]);
                    *elapsed = at.saturating_add(took.max(0));
                    at
                }));
            }
        }
    }
}
