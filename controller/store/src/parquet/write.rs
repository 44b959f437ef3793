//! Writes sample files: row groups whose columns are encoded as rows arrive, with a checksum per
//! file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use dwell_record::{Batch, Column};
use dwell_sample::State;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::schema::types::{Type, TypePtr};

use super::chunk::Chunk;
use super::partial::{FileWriter, PartialFile};
use super::{FIXED_COLUMNS, field, properties};
use crate::error::StoreError;

/// Rows per row group; bounds the memory for encoded rows.
const GROUP_ROWS: usize = 1 << 18;

/// Writes one file, which appears under its name when it is complete.
pub(crate) struct SampleWriter {
    file: PartialFile,
    /// Columns that the file always has. The first row group may add others.
    columns: Vec<Column>,
    /// Metadata besides the usual ones.
    about: Vec<(&'static str, String)>,
    group: Option<Group>,
    rows: u64,
}

/// A row group being written.
struct Group {
    id: Chunk,
    state: Chunk,
    reordered: Chunk,
    void: Chunk,
    numbers: BTreeMap<Column, Chunk>,
    /// Whether columns may still be added.
    is_first: bool,
    rows: usize,
    /// Ids as signed integers; kept to reuse the memory.
    ids: Vec<i64>,
}

/// The result of writing a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) rows: u64,
    /// Checksum of the whole file; `None` without a file.
    pub(crate) crc32: Option<u32>,
}

impl SampleWriter {
    pub(crate) fn new(path: &Path, wanted: &[Column]) -> Self {
        let file = PartialFile::new(path.to_owned());
        Self { file, columns: wanted.to_vec(), about: Vec::new(), group: None, rows: 0 }
    }

    /// With more metadata.
    pub(crate) fn with_metadata(self, about: Vec<(&'static str, String)>) -> Self {
        Self { about, ..self }
    }

    /// Appends rows.
    pub(crate) fn push(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.rows += batch.len() as u64;
        let mut group = self.take_group()?;
        group.push(batch).map_err(|source| self.file.failed(source))?;
        if group.rows >= GROUP_ROWS {
            return self.write(group);
        }
        self.group = Some(group);
        Ok(())
    }

    /// Finishes the file.
    pub(crate) fn finish(mut self) -> Result<Written, StoreError> {
        let group = self.take_group()?;
        self.write(group)?;
        let crc32 = self.file.finish(|_, _| Ok(()))?;
        Ok(Written { rows: self.rows, crc32 })
    }

    /// Takes the current row group, or creates one.
    fn take_group(&mut self) -> Result<Group, StoreError> {
        let new = || Group::new(&self.columns, !self.file.is_created());
        let group = self.group.take().map_or_else(new, Ok);
        group.map_err(|source| self.file.failed(source))
    }

    fn write(&mut self, group: Group) -> Result<(), StoreError> {
        if !self.file.is_created() {
            self.columns = group.numbers.keys().copied().collect();
            self.file.create(layout(&self.columns, std::mem::take(&mut self.about)))?;
        }
        if group.rows == 0 {
            return Ok(());
        }
        self.file.write(|writer| group.write(writer))
    }
}

impl fmt::Debug for SampleWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleWriter").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Group {
    fn new(columns: &[Column], is_first: bool) -> Result<Self, ParquetError> {
        let mut numbers = BTreeMap::new();
        for column in columns {
            numbers.insert(*column, Chunk::sparse_integers()?);
        }
        Ok(Self {
            id: Chunk::integers()?,
            state: Chunk::states()?,
            reordered: Chunk::flags()?,
            void: Chunk::flags()?,
            numbers,
            is_first,
            rows: 0,
            ids: Vec::new(),
        })
    }

    fn push(&mut self, batch: &Batch) -> Result<(), ParquetError> {
        self.ids.clear();
        self.ids.extend(batch.id.iter().map(|id| *id as i64));
        self.id.push_integers(&self.ids)?;
        self.state.push_states(&batch.state)?;
        self.reordered.push_flags(&batch.reordered)?;
        self.void.push_flags(&batch.void)?;
        if self.is_first {
            for column in Column::ALL {
                if batch.column(column).is_some() && !self.numbers.contains_key(&column) {
                    let mut late = Chunk::sparse_integers()?;
                    late.push_absent(self.rows)?;
                    self.numbers.insert(column, late);
                }
            }
        }
        for (column, chunk) in &mut self.numbers {
            match batch.column(*column) {
                Some(values) => chunk.push_integers(values)?,
                None => chunk.push_absent(batch.len())?,
            }
        }
        self.rows += batch.len();
        Ok(())
    }

    fn write(self, writer: &mut FileWriter) -> Result<(), ParquetError> {
        let columns = writer.schema_descr().columns().to_vec();
        let mut rows = writer.next_row_group()?;
        let fixed = [self.id, self.state, self.reordered, self.void];
        for (chunk, column) in fixed.into_iter().chain(self.numbers.into_values()).zip(columns) {
            let (bytes, close) = chunk.close(column)?;
            rows.append_column(&bytes::Bytes::from(bytes), close)?;
        }
        rows.close()?;
        Ok(())
    }
}

fn layout(
    columns: &[Column],
    mut about: Vec<(&'static str, String)>,
) -> Result<(TypePtr, WriterPropertiesPtr), ParquetError> {
    let integer = |bit_width, is_signed| Some(LogicalType::integer(bit_width, is_signed));
    let [id, state, reordered, void] = FIXED_COLUMNS;
    let mut fields = vec![
        field(id, Physical::INT64, Repetition::REQUIRED, integer(64, false))?,
        field(state, Physical::INT32, Repetition::REQUIRED, integer(8, true))?,
        field(reordered, Physical::BOOLEAN, Repetition::REQUIRED, None)?,
        field(void, Physical::BOOLEAN, Repetition::REQUIRED, None)?,
    ];
    for column in columns {
        fields.push(field(column.name(), Physical::INT64, Repetition::OPTIONAL, None)?);
    }
    let schema = Type::group_type_builder("samples").with_fields(fields).build()?;
    let states: Vec<_> = State::ALL.iter().map(|state| state.name()).collect();
    about.push(("dwell.states", states.join(",")));
    let properties = properties("samples/1", &about);
    Ok((Arc::new(schema), Arc::new(properties.build())))
}
