//! Stores samples: writes them as Parquet and summarises them, in one pass and in parallel.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dwell_record::segment::{self, Record, SegmentEnd, SegmentError};
use dwell_record::{Batch, BatchStatistics, Column, DepartureCollector, Summary, all_valid};
use dwell_sample::State;
use dwell_stats::{ClockRelation, Delays};

use crate::error::StoreError;
use crate::parquet::{SampleWriter, Written};
use crate::stage::{BatchConsumer, Stage};
use crate::views::{SeriesBuilder, StoredSeries};

/// Columns drawn in figures. Each takes space in the catalogue, so only the delay components of
/// Miya 2020 and the round trip of Ramstetter's driver are included. The others are in the samples, and
/// their figures in the summary.
const DRAWN_COLUMNS: [Column; 16] = [
    Column::Rtt,
    Column::RttKernel,
    Column::RttDriver,
    Column::OneWayForward,
    Column::OneWayBackward,
    Column::Residence,
    Column::ScheduleError,
    Column::Gap,
    Column::GapError,
    Column::EndToEnd,
    Column::NodeDelay,
    Column::NodeDelayNetfilter,
    Column::NodeDelayDriver,
    Column::Processing,
    Column::ProcessingWithSend,
    Column::LinkDelay,
];

/// Columns that give the time of a row, in order of preference.
const TIME_COLUMNS: [Column; 9] = [
    Column::TxApp,
    Column::Capture,
    Column::Intended,
    Column::RxApp,
    Column::NodeRxApp,
    Column::NodeTxApp,
    Column::NodePreRouting,
    Column::NodePostRouting,
    Column::NodeRxDriver,
];

/// Rows examined together: usually all have the same state.
const RUN_ROWS: usize = 128;

/// Rows of a batch made from a segment.
const BATCH_ROWS: usize = 1 << 16;

/// Rows of a batch of departures, whose segments are often short.
const DEPARTURE_BATCH_ROWS: usize = 1 << 14;

/// Samples of one trial being stored. Methods fail if the file cannot be written.
#[derive(Debug)]
pub struct Ingest {
    writer: Stage<SampleWriter>,
    summary: Stage<IngestSummary>,
    far_clock: Option<ClockRelation>,
}

/// The result of an ingest.
pub struct Ingested {
    /// Number of rows.
    pub samples: u64,
    /// Checksum of the sample file.
    pub(crate) crc32: Option<u32>,
    /// Send time of the first probe, in nanoseconds since the epoch; `None` if no row has a time.
    pub first_ns: Option<i64>,
    /// The figures, if requested with [`Ingest::with_figures`].
    pub columns: BatchStatistics,
    pub(crate) series: BTreeMap<String, StoredSeries>,
}

/// Data computed from samples while they are stored.
#[derive(Debug, Default)]
struct IngestSummary {
    builders: Vec<(Column, SeriesBuilder)>,
    columns: Option<BatchStatistics>,
    first: Option<i64>,
    /// Time of a row without a timestamp: that of the previous row. Without any timestamps, the sum
    /// of all previous round trips.
    elapsed: i64,
    /// Whether `at` is sorted.
    is_sorted: bool,
    /// Time of each row of a piece; kept to reuse its memory.
    at: Vec<i64>,
}

impl Ingest {
    pub(crate) fn new(path: &Path, wanted: &[Column]) -> Self {
        Self {
            writer: Stage::new(SampleWriter::new(path, wanted)),
            summary: Stage::new(IngestSummary::default()),
            far_clock: None,
        }
    }

    /// Also computes one-way delays of samples whose far end has another clock, by its relation to
    /// the near end's.
    #[must_use]
    pub fn with_far_clock(self, far_clock: Option<ClockRelation>) -> Self {
        Self { far_clock, ..self }
    }

    /// Also computes the figures of a summary, for samples that come without any. Must be called
    /// before the first row.
    #[must_use]
    pub fn with_figures(self) -> Self {
        let gathered =
            IngestSummary { columns: Some(BatchStatistics::default()), ..IngestSummary::default() };
        Self { summary: Stage::new(gathered), ..self }
    }

    /// Stores rows. Threads process large batches after this returns, so an error may belong to
    /// earlier rows.
    pub fn push(&mut self, batch: Batch) -> Result<(), StoreError> {
        let batch = Arc::new(batch);
        self.summary.push(&batch)?;
        self.writer.push(&batch)
    }

    /// Stores a segment up to its first damage; `each` sees every record before it is stored.
    ///
    /// # Errors
    /// The outer result fails if the file cannot be written, the inner one if the segment cannot be
    /// read at all.
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
                if let Some(far) = &self.far_clock {
                    let delays = Delays::of(sample, bridge, near).with_far_clock(sample, far);
                    let both = [
                        (Column::OneWayForward, delays.one_way_forward),
                        (Column::OneWayBackward, delays.one_way_backward),
                    ];
                    for (column, delay) in both {
                        delay.into_iter().for_each(|delay| batch.set(column, delay.0));
                    }
                }
                if batch.len() == BATCH_ROWS {
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

    /// Stores a segment of paced packets, with the gap before each packet and its deviation from
    /// the schedule. The segment is read twice because gaps are known only after all departures:
    /// `open` returns a new reader. `each` sees every record once before it is stored; then
    /// `sender` returns the sender's summary.
    ///
    /// # Errors
    /// The outer result fails if `open` fails or the file cannot be written, the inner one if the
    /// segment cannot be read at all.
    pub fn push_departures<'a, R: std::io::Read, E: From<StoreError>>(
        &mut self,
        mut open: impl FnMut() -> Result<R, E>,
        each: &mut dyn FnMut(&Record<'_>),
        sender: impl FnOnce() -> Cow<'a, Summary>,
    ) -> Result<Result<SegmentEnd, SegmentError>, E> {
        let mut collector = DepartureCollector::default();
        // Errors are reported by the second pass.
        let _ = segment::read(&mut open()?, &mut |record| {
            if let Record::Sample(sample, bridge, _) = &record {
                collector.take(sample, bridge.is_none());
            }
            each(&record);
        });
        let departures = collector.by(&sender());
        let mut batch = Batch::default();
        let mut full = Ok(());
        let end = segment::read(&mut open()?, &mut |record| {
            let Record::Sample(sample, bridge, near) = record else { return };
            departures.push(&mut batch, sample, bridge, near);
            if batch.len() == DEPARTURE_BATCH_ROWS && full.is_ok() {
                full = self.push(std::mem::take(&mut batch));
            }
        });
        full?;
        self.push(batch)?;
        Ok(end)
    }

    /// Finishes the file, which then appears under its name.
    pub fn finish(self) -> Result<Ingested, StoreError> {
        let Self { writer, summary, .. } = self;
        let gathered = summary.finish()?.unwrap_or_default();
        // The figures are completed while the last rows are written.
        let first_ns = gathered.first;
        let columns = gathered.columns.unwrap_or_default();
        let series = gathered
            .builders
            .into_iter()
            .filter(|(_, builder)| !builder.is_empty())
            .map(|(column, builder)| {
                let counted = columns.distribution(column).filter(|_| is_counted(column));
                (column.name().to_owned(), builder.finish(counted))
            })
            .collect();
        let written = writer.finish()?.map_or(Ok(Written::default()), SampleWriter::finish)?;
        Ok(Ingested { samples: written.rows, crc32: written.crc32, first_ns, columns, series })
    }
}

impl BatchConsumer for SampleWriter {
    fn take(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError> {
        self.push(batch)
    }
}

impl BatchConsumer for IngestSummary {
    fn take(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError> {
        if let Some(columns) = &mut self.columns {
            columns.take(batch);
        }
        for start in (0..batch.len()).step_by(PIECE_ROWS) {
            let rows = start..batch.len().min(start + PIECE_ROWS);
            self.compute_times(batch, rows.clone());
            self.draw(batch, &rows);
        }
        Ok(())
    }
}

impl IngestSummary {
    /// Adds rows to the drawn series, after [`Self::compute_times`].
    fn draw(&mut self, batch: &Batch, rows: &Range<usize>) {
        for column in DRAWN_COLUMNS {
            let Some(values) = batch.column(column) else { continue };
            let place = self.builders.iter().position(|(known, _)| *known == column);
            let place = place.unwrap_or_else(|| {
                let builder = match self.columns.is_some() && is_counted(column) {
                    true => SeriesBuilder::counted_elsewhere(),
                    false => SeriesBuilder::new(),
                };
                self.builders.push((column, builder));
                self.builders.len() - 1
            });
            let builder = &mut self.builders[place].1;
            let is_of_departure = matches!(column, Column::Gap | Column::GapError);
            for start in rows.clone().step_by(RUN_ROWS) {
                let run = start..rows.end.min(start + RUN_ROWS);
                let at = &self.at[run.start - rows.start..run.end - rows.start];
                let values = &values[run.clone()];
                let (states, void) = (&batch.state[run.clone()], &batch.void[run]);
                if all_valid(states, void, values) {
                    builder.push(at, values);
                    continue;
                }
                for (((&at, &value), &state), void) in at.iter().zip(values).zip(states).zip(void) {
                    let counts = matches!(state, State::Received | State::Sent)
                        || (state == State::Lost && is_of_departure);
                    if counts && !void && value != Batch::ABSENT {
                        builder.push(&[at], &[value]);
                    } else if state == State::Lost {
                        builder.lost(at);
                    }
                }
            }
            builder.process(self.is_sorted);
        }
    }

    /// Computes the times of rows, in nanoseconds since the first row.
    fn compute_times(&mut self, batch: &Batch, rows: Range<usize>) {
        let times = TIME_COLUMNS.iter().find_map(|column| batch.column(*column));
        if let (Some(times), None) = (times, self.first) {
            self.first = times.iter().copied().find(|time| *time != Batch::ABSENT);
        }
        self.at.clear();
        match (times, batch.column(Column::Rtt)) {
            (Some(times), _) => {
                let first = self.first.unwrap_or(0);
                let last = &mut self.elapsed;
                self.at.extend(times[rows].iter().map(|time| {
                    if *time != Batch::ABSENT {
                        *last = time.saturating_sub(first);
                    }
                    *last
                }));
                self.is_sorted = self.at.is_sorted();
            }
            // Cycles follow each other: each begins when those before it have ended.
            (None, Some(rtt)) => {
                let rtt = &rtt[rows];
                let bits = rtt.iter().fold(0, |bits, took| bits | (*took).max(0));
                let elapsed = &mut self.elapsed;
                // Sums of short round trips cannot overflow.
                if bits < MAX_SUMMABLE_RTT_NS && *elapsed < i64::MAX / 2 {
                    self.at.extend(rtt.iter().map(|took| {
                        let at = *elapsed;
                        *elapsed += (*took).max(0);
                        at
                    }));
                } else {
                    self.at.extend(rtt.iter().map(|took| {
                        let at = *elapsed;
                        *elapsed = at.saturating_add((*took).max(0));
                        at
                    }));
                }
                self.is_sorted = true;
            }
            (None, None) => {
                self.at.resize(rows.len(), self.elapsed);
                self.is_sorted = true;
            }
        }
    }
}

/// Rows processed at once; small enough for a CPU cache.
const PIECE_ROWS: usize = 1 << 14;

/// Upper limit of round trips whose sum over a piece cannot overflow, in nanoseconds.
const MAX_SUMMABLE_RTT_NS: i64 = i64::MAX / 4 / PIECE_ROWS as i64;

/// Whether the figures of a column count the same values as the drawn series. Figures of schedule
/// errors also count lost probes.
fn is_counted(column: Column) -> bool {
    column != Column::ScheduleError
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ingest_write_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone").join("1.parquet");
        for rows in [10, BATCH_ROWS] {
            let mut ingest = Ingest::new(&path, &[]).with_figures();
            let mut outcome = Ok(());
            for first in 0..20 {
                let mut batch = Batch::default();
                (first..first + rows as u64).for_each(|id| batch.push(id, State::Received));
                outcome = outcome.and_then(|()| ingest.push(batch));
            }
            let outcome = outcome.and_then(|()| ingest.finish().map(|_| ()));
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("1.partial"), "{error}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
