//! One column of one row group, encoded as rows arrive, so that rows are not buffered. Pages are
//! written by the crate parquet; the parent module gives the reason for encoding them here.

use dwell_record::Batch;
use dwell_sample::State;
use dwell_stats::extremes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::delta::DeltaEncoder;
use super::runs::RunEncoder;

/// Rows per page.
const PAGE_ROWS: usize = 1 << 16;

/// Rows examined together: usually all have a value.
const RUN_ROWS: usize = 128;

/// Level 1: the remaining differences are noise, which higher levels do not compress further.
const ZSTD_LEVEL: i32 = 1;

/// Bits per state code.
const STATE_BITS: usize = 3;

/// A column of a row group being written.
pub(super) struct Chunk {
    values: Values,
    /// Which rows have a value; `None` if all have.
    levels: Option<RunEncoder>,
    rows_in_page: usize,
    rows: usize,
    absent: u64,
    min: i64,
    max: i64,
    compressor: zstd::bulk::Compressor<'static>,
    pages: TrackedWrite<Vec<u8>>,
    data_offset: u64,
    uncompressed: u64,
    // Scratch buffers, kept to reuse their memory: present values of a run, a page.
    present: Vec<i64>,
    page: Vec<u8>,
}

enum Values {
    Integers(Box<DeltaEncoder>),
    States(RunEncoder),
    Flags(RunEncoder),
}

impl Chunk {
    /// A column of integers that are never absent.
    pub(super) fn integers() -> Result<Self, ParquetError> {
        Self::new(Values::Integers(Box::new(DeltaEncoder::new())), None)
    }

    /// A column of integers, [`Batch::ABSENT`] if unavailable.
    pub(super) fn sparse_integers() -> Result<Self, ParquetError> {
        Self::new(Values::Integers(Box::new(DeltaEncoder::new())), Some(RunEncoder::new(1)))
    }

    pub(super) fn states() -> Result<Self, ParquetError> {
        let mut chunk = Self::new(Values::States(RunEncoder::new(STATE_BITS)), None)?;
        let numbers = State::ALL.iter().flat_map(|state| i32::from(state.code()).to_le_bytes());
        let buf: Vec<u8> = numbers.collect();
        chunk.write(&buf, |buf| Page::DictionaryPage {
            buf,
            num_values: State::ALL.len() as u32,
            encoding: Encoding::PLAIN,
            is_sorted: true,
        })?;
        chunk.data_offset = chunk.pages.bytes_written() as u64;
        Ok(chunk)
    }

    pub(super) fn flags() -> Result<Self, ParquetError> {
        Self::new(Values::Flags(RunEncoder::new(1)), None)
    }

    fn new(values: Values, levels: Option<RunEncoder>) -> Result<Self, ParquetError> {
        let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?;
        Ok(Self {
            values,
            levels,
            rows_in_page: 0,
            rows: 0,
            absent: 0,
            min: i64::MAX,
            max: i64::MIN,
            compressor,
            pages: TrackedWrite::new(Vec::new()),
            data_offset: 0,
            uncompressed: 0,
            present: Vec::new(),
            page: Vec::new(),
        })
    }

    /// Appends rows of integers.
    pub(super) fn push_integers(&mut self, values: &[i64]) -> Result<(), ParquetError> {
        self.by_page(values, |chunk, values| {
            // In a column that is never absent, `ABSENT` is an ordinary value.
            if chunk.levels.is_none() {
                chunk.push_present(values);
                return;
            }
            for run in values.chunks(RUN_ROWS) {
                let bits = run.iter().fold(0, |bits, value| bits | value);
                let present = |value: &i64| *value != Batch::ABSENT;
                // Most delays are not negative, and then none is absent.
                let all = bits >= 0 || run.iter().fold(true, |all, value| all & present(value));
                let levels = chunk.levels.get_or_insert_with(|| RunEncoder::new(1));
                if all {
                    levels.repeat(1, run.len());
                    chunk.push_present(run);
                    continue;
                }
                levels.push(run.iter().map(|value| u8::from(present(value))));
                let mut some = std::mem::take(&mut chunk.present);
                some.clear();
                some.extend(run.iter().filter(|value| present(value)));
                chunk.absent += (run.len() - some.len()) as u64;
                chunk.push_present(&some);
                chunk.present = some;
            }
        })
    }

    /// Appends rows without a value.
    pub(super) fn push_absent(&mut self, rows: usize) -> Result<(), ParquetError> {
        let mut left = rows;
        while left > 0 {
            let here = left.min(PAGE_ROWS - self.rows_in_page);
            self.levels.get_or_insert_with(|| RunEncoder::new(1)).repeat(0, here);
            self.absent += here as u64;
            self.grow(here)?;
            left -= here;
        }
        Ok(())
    }

    /// Appends rows of states.
    pub(super) fn push_states(&mut self, states: &[State]) -> Result<(), ParquetError> {
        self.by_page(states, |chunk, states| {
            if let Values::States(runs) = &mut chunk.values {
                runs.push(states.iter().map(|state| state.code()));
            }
        })
    }

    /// Appends rows of flags.
    pub(super) fn push_flags(&mut self, flags: &[bool]) -> Result<(), ParquetError> {
        self.by_page(flags, |chunk, flags| {
            if let Values::Flags(runs) = &mut chunk.values {
                runs.push(flags.iter().map(|flag| u8::from(*flag)));
            }
        })
    }

    /// Returns the bytes of the column and its metadata.
    pub(super) fn close(
        mut self,
        column: ColumnDescPtr,
    ) -> Result<(Vec<u8>, ColumnCloseResult), ParquetError> {
        self.close_page()?;
        let bytes = self.pages.into_inner()?;
        // Ids are unsigned; the signed order of the statistics is wrong for values beyond i64::MAX.
        let ordered = self.levels.is_some() || self.min >= 0;
        let extreme = |value| (self.min <= self.max && ordered).then_some(value);
        let (encoding, statistics) = match self.values {
            Values::Integers(_) => {
                let (min, max) = (extreme(self.min), extreme(self.max));
                let statistics = Statistics::int64(min, max, None, Some(self.absent), false);
                (Encoding::DELTA_BINARY_PACKED, Some(statistics))
            }
            Values::States(_) => (Encoding::RLE_DICTIONARY, None),
            Values::Flags(_) => (Encoding::RLE, None),
        };
        let dictionary = (encoding == Encoding::RLE_DICTIONARY).then_some(0);
        let mut encodings = vec![Encoding::RLE];
        encodings.extend(dictionary.map(|_| Encoding::PLAIN));
        encodings.extend((encoding != Encoding::RLE).then_some(encoding));
        let mut metadata = ColumnChunkMetaData::builder(column)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings(encodings)
            .set_num_values(self.rows as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_data_page_offset(self.data_offset as i64)
            .set_dictionary_page_offset(dictionary);
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((bytes, close))
    }

    fn push_present(&mut self, values: &[i64]) {
        let (min, max) = extremes(values);
        (self.min, self.max) = (self.min.min(min), self.max.max(max));
        if let Values::Integers(differences) = &mut self.values {
            differences.push(values);
        }
    }

    /// Passes rows to `take` in pieces that end at page boundaries.
    fn by_page<T>(
        &mut self,
        rows: &[T],
        mut take: impl FnMut(&mut Self, &[T]),
    ) -> Result<(), ParquetError> {
        let mut rest = rows;
        while !rest.is_empty() {
            let (here, later) = rest.split_at(rest.len().min(PAGE_ROWS - self.rows_in_page));
            take(self, here);
            self.grow(here.len())?;
            rest = later;
        }
        Ok(())
    }

    fn grow(&mut self, rows: usize) -> Result<(), ParquetError> {
        self.rows += rows;
        self.rows_in_page += rows;
        if self.rows_in_page == PAGE_ROWS { self.close_page() } else { Ok(()) }
    }

    fn close_page(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows_in_page);
        if rows == 0 {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.page);
        bytes.clear();
        if let Some(levels) = &mut self.levels {
            with_length(levels, &mut bytes);
        }
        let encoding = match &mut self.values {
            Values::Integers(differences) => {
                differences.finish(&mut bytes);
                Encoding::DELTA_BINARY_PACKED
            }
            Values::States(runs) => {
                bytes.push(STATE_BITS as u8);
                runs.finish(&mut bytes);
                Encoding::RLE_DICTIONARY
            }
            Values::Flags(runs) => {
                with_length(runs, &mut bytes);
                Encoding::RLE
            }
        };
        self.write(&bytes, |buf| Page::DataPage {
            buf,
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })?;
        self.page = bytes;
        Ok(())
    }

    fn write(
        &mut self,
        bytes: &[u8],
        page: impl FnOnce(bytes::Bytes) -> Page,
    ) -> Result<(), ParquetError> {
        let compressed = self.compressor.compress(bytes).map_err(failed)?;
        let page = CompressedPage::new(page(compressed.into()), bytes.len());
        let written = SerializedPageWriter::new(&mut self.pages).write_page(page)?;
        self.uncompressed += written.uncompressed_size as u64;
        Ok(())
    }
}

/// Appends runs with a length prefix, for use where other data follows.
fn with_length(runs: &mut RunEncoder, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    runs.finish(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn failed(error: std::io::Error) -> ParquetError {
    ParquetError::General(error.to_string())
}
