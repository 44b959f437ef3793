//! Reads selected columns of sample files in batches, in writing order.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use dwell_record::{Batch, Column};
use dwell_sample::State;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::{FIXED_COLUMNS, general, typed};
use crate::error::StoreError;

/// Rows passed on at once; small enough for a CPU cache.
const READ_ROWS: usize = 1 << 14;

/// Rows examined together: usually all are alike.
const RUN_ROWS: usize = 128;

/// Reads one file.
pub(crate) struct ParquetReader {
    path: PathBuf,
    reader: SerializedFileReader<File>,
}

impl ParquetReader {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::file("open", path))?;
        let failed = |source| StoreError::Samples { what: "read", path: path.to_owned(), source };
        let reader = SerializedFileReader::new(file).map_err(failed)?;
        Ok(Self { path: path.to_owned(), reader })
    }

    /// Returns the columns of the file.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        schema.columns().iter().filter_map(|column| Column::named(column.name())).collect()
    }

    /// Returns the metadata of the file.
    pub(crate) fn metadata(&self) -> BTreeMap<String, String> {
        let pairs = self.reader.metadata().file_metadata().key_value_metadata();
        let pairs = pairs.into_iter().flatten();
        pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?))).collect()
    }

    /// Passes all rows to `each` in batches, with these columns.
    pub(crate) fn read(
        &self,
        columns: &[Column],
        each: &mut dyn FnMut(&Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.read_groups(0..self.groups(), columns, each)
    }

    /// Returns the number of row groups.
    pub(crate) fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Passes the rows of some row groups to `each`.
    pub(crate) fn read_groups(
        &self,
        groups: Range<usize>,
        columns: &[Column],
        each: &mut dyn FnMut(&Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |source| StoreError::Samples { what: "read", path: self.path.clone(), source };
        let (mut batch, mut scratch) = (Batch::default(), Scratch::default());
        for number in groups {
            let mut group = Group::open(&self.reader, number, columns, scratch).map_err(failed)?;
            while group.fill(&mut batch).map_err(failed)? {
                each(&batch)?;
            }
            scratch = group.scratch;
        }
        Ok(())
    }
}

/// The open columns of a row group.
struct Group {
    id: ColumnReaderImpl<Int64Type>,
    state: ColumnReaderImpl<Int32Type>,
    reordered: ColumnReaderImpl<BoolType>,
    void: ColumnReaderImpl<BoolType>,
    numbers: Vec<(Column, ColumnReaderImpl<Int64Type>)>,
    scratch: Scratch,
}

/// Scratch buffers, kept to reuse their memory.
#[derive(Default)]
struct Scratch {
    ids: Vec<i64>,
    states: Vec<i32>,
    levels: Vec<i16>,
    values: Vec<i64>,
    spread: Vec<i64>,
}

impl Group {
    fn open(
        reader: &SerializedFileReader<File>,
        number: usize,
        columns: &[Column],
        scratch: Scratch,
    ) -> Result<Self, ParquetError> {
        let group = reader.get_row_group(number)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let place = |name: &str| schema.columns().iter().position(|column| column.name() == name);
        let open = |name: &str| {
            let place =
                place(name).ok_or_else(|| general(&format!("there is no column {name}")))?;
            group.get_column_reader(place)
        };
        let mut numbers = Vec::new();
        for column in columns.iter().filter(|column| place(column.name()).is_some()) {
            numbers.push((*column, typed(open(column.name())?)?));
        }
        let [id, state, reordered, void] = FIXED_COLUMNS;
        Ok(Self {
            id: typed(open(id)?)?,
            state: typed(open(state)?)?,
            reordered: typed(open(reordered)?)?,
            void: typed(open(void)?)?,
            numbers,
            scratch,
        })
    }

    /// Reads the next rows into `batch`. Returns false at the end of the row group.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ParquetError> {
        batch.clear();
        let Scratch { ids, states, levels, values, spread } = &mut self.scratch;
        ids.clear();
        let (rows, ..) = self.id.read_records(READ_ROWS, None, None, ids)?;
        if rows == 0 {
            return Ok(false);
        }
        batch.id.extend(ids.iter().map(|id| *id as u64));
        states.clear();
        self.state.read_records(rows, None, None, states)?;
        for run in states.chunks(RUN_ROWS) {
            let known = |code: i32| {
                let state = usize::try_from(code).ok().and_then(|code| State::ALL.get(code));
                state.copied().ok_or_else(|| general("unknown state code"))
            };
            if run.iter().fold(true, |same, code| same & (*code == run[0])) {
                batch.state.resize(batch.state.len() + run.len(), known(run[0])?);
            } else {
                for code in run {
                    batch.state.push(known(*code)?);
                }
            }
        }
        self.reordered.read_records(rows, None, None, &mut batch.reordered)?;
        self.void.read_records(rows, None, None, &mut batch.void)?;
        let same = [batch.state.len(), batch.reordered.len(), batch.void.len()];
        if same.iter().any(|len| *len != rows) {
            return Err(general("columns have different lengths"));
        }
        for (column, reader) in &mut self.numbers {
            levels.clear();
            values.clear();
            reader.read_records(rows, Some(levels), None, values)?;
            if values.is_empty() {
                continue;
            }
            if levels.len() != rows {
                return Err(general("columns have different lengths"));
            }
            if values.len() < rows {
                spread_out(values, levels, spread);
                std::mem::swap(values, spread);
            }
            *values = batch.swap_column(*column, std::mem::take(values));
        }
        Ok(true)
    }
}

/// Distributes values to the rows whose level marks a value.
fn spread_out(values: &[i64], levels: &[i16], all: &mut Vec<i64>) {
    all.clear();
    all.reserve(levels.len());
    let mut rest = values;
    for run in levels.chunks(RUN_ROWS) {
        if let Some((here, later)) = rest.split_at_checked(run.len())
            && run.iter().fold(true, |all, level| all & (*level != 0))
        {
            all.extend_from_slice(here);
            rest = later;
            continue;
        }
        for level in run {
            let value = if *level == 0 { None } else { rest.split_first() };
            if let Some((_, later)) = value {
                rest = later;
            }
            all.push(value.map_or(Batch::ABSENT, |(value, _)| *value));
        }
    }
}
