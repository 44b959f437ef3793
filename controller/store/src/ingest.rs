//! Samples on their way into the store: written as Parquet and summarised, in one pass.

use std::collections::BTreeMap;
use std::path::Path;

use dwell_engine::stamps::State;
use dwell_record::segment::{self, Record, SegmentEnd, SegmentError};
use dwell_record::{Batch, Column};

use crate::error::StoreError;
use crate::parquet::SampleWriter;
use crate::views::{Growing, StoredSeries};

/// Metrics that figures draw, by column.
const DRAWN: [Column; 7] = [
    Column::Rtt,
    Column::RttKernel,
    Column::OneWayForward,
    Column::OneWayBackward,
    Column::Residence,
    Column::ScheduleError,
    Column::Gap,
];

/// Rows of a batch that is made from a segment.
const BATCH: usize = 1 << 16;

/// Samples of one trial, on their way in.
pub struct Ingest {
    writer: SampleWriter,
    growing: Vec<(Column, Growing)>,
    first: Option<i64>,
    /// Where a sample without any time stands: after the round trips before it.
    elapsed: i64,
}

/// What came in.
pub struct Ingested {
    /// Rows.
    pub samples: u64,
    /// When the first probe was sent, in nanoseconds since the epoch; `None` where no row says.
    pub first_ns: Option<i64>,
    pub(crate) series: BTreeMap<String, StoredSeries>,
}

impl Ingest {
    pub(crate) fn new(path: &Path, wanted: &[Column]) -> Self {
        Self {
            writer: SampleWriter::new(path, wanted),
            growing: Vec::new(),
            first: None,
            elapsed: 0,
        }
    }

    /// Takes rows in.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, batch: Batch) -> Result<(), StoreError> {
        self.summarise(&batch);
        self.writer.push(batch)
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
        let samples = self.writer.finish()?;
        let series = self
            .growing
            .into_iter()
            .filter(|(_, growing)| !growing.is_empty())
            .map(|(column, growing)| (column.name().to_owned(), growing.finish()))
            .collect();
        Ok(Ingested { samples, first_ns: self.first, series })
    }

    fn summarise(&mut self, batch: &Batch) {
        let times = [Column::TxApp, Column::Capture, Column::Intended, Column::RxApp]
            .into_iter()
            .find_map(|column| batch.column(column));
        if let (Some(times), None) = (times, self.first) {
            self.first = times.iter().copied().find(|time| *time != Batch::ABSENT);
        }
        let at: Vec<i64> = match times {
            Some(times) => {
                let first = self.first.unwrap_or(0);
                let mut last = 0;
                let since = |time: &i64| {
                    if *time != Batch::ABSENT {
                        last = time.saturating_sub(first);
                    }
                    last
                };
                times.iter().map(since).collect()
            }
            // Cycles follow each other, so that each begins when those before it have ended.
            None => {
                let rtt = batch.column(Column::Rtt);
                (0..batch.len())
                    .map(|row| {
                        let at = self.elapsed;
                        let took = rtt.map_or(0, |rtt| rtt[row]);
                        self.elapsed = self.elapsed.saturating_add(took.max(0));
                        at
                    })
                    .collect()
            }
        };
        for column in DRAWN {
            let Some(values) = batch.column(column) else { continue };
            let place = self.growing.iter().position(|(known, _)| *known == column);
            let place = place.unwrap_or_else(|| {
                self.growing.push((column, Growing::new()));
                self.growing.len() - 1
            });
            let growing = &mut self.growing[place].1;
            for (row, value) in values.iter().enumerate() {
                match batch.state[row] {
                    State::Received if *value != Batch::ABSENT => growing.value(at[row], *value),
                    State::Lost => growing.lost(at[row]),
                    _ => {}
                }
            }
        }
    }
}
