//! Writes sample files: row groups whose columns are encoded as rows arrive, with a checksum per
//! file.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_record::{Batch, Column};
use dwell_sample::State;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::FIXED_COLUMNS;
use super::checksum::ChecksumWriter;
use super::chunk::Chunk;
use crate::error::StoreError;

/// Rows per row group; bounds the memory for encoded rows.
const GROUP_ROWS: usize = 1 << 18;

/// Writes one file, which appears under its name when it is complete.
pub(crate) struct SampleWriter {
    path: PathBuf,
    partial: PathBuf,
    /// Columns that the file always has. The first row group may add others.
    wanted: Vec<Column>,
    open: Option<Open>,
    group: Option<Group>,
    rows: u64,
}

struct Open {
    writer: SerializedFileWriter<ChecksumWriter>,
    columns: Vec<Column>,
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
        Self {
            path: path.to_owned(),
            partial: path.with_extension("partial"),
            wanted: wanted.to_vec(),
            open: None,
            group: None,
            rows: 0,
        }
    }

    /// Appends rows.
    pub(crate) fn push(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.rows += batch.len() as u64;
        let pushed = self.group().and_then(|group| {
            group.push(batch)?;
            Ok(group.rows)
        });
        let rows = pushed.map_err(|source| self.failed(source))?;
        if rows >= GROUP_ROWS { self.close_group() } else { Ok(()) }
    }

    /// Finishes the file.
    pub(crate) fn finish(mut self) -> Result<Written, StoreError> {
        self.close_group()?;
        let Some(Open { writer, .. }) = self.open.take() else { return Ok(Written::default()) };
        let summed = writer.into_inner().map_err(|source| self.failed(source))?;
        let crc32 = summed.finish().map_err(StoreError::file("write", &self.partial))?;
        std::fs::rename(&self.partial, &self.path)
            .map_err(StoreError::file("rename", &self.path))?;
        // The directory must be synced too, or the file could lose its name in a power failure
        // after the catalogue has recorded it.
        let dir = self.path.parent().unwrap_or(&self.path);
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::file("write", dir))?;
        Ok(Written { rows: self.rows, crc32: Some(crc32) })
    }

    /// Returns the current row group, creating it if necessary.
    fn group(&mut self) -> Result<&mut Group, ParquetError> {
        let group = match self.group.take() {
            Some(group) => group,
            None => match &self.open {
                Some(open) => Group::new(&open.columns, false)?,
                None => Group::new(&self.wanted, true)?,
            },
        };
        Ok(self.group.insert(group))
    }

    fn close_group(&mut self) -> Result<(), StoreError> {
        let group = match self.group() {
            Ok(_) => self.group.take(),
            Err(source) => return Err(self.failed(source)),
        };
        let Some(group) = group else { return Ok(()) };
        if self.open.is_none() {
            let columns: Vec<Column> = group.numbers.keys().copied().collect();
            let file =
                File::create(&self.partial).map_err(StoreError::file("create", &self.partial))?;
            let writer = schema(&columns).and_then(|schema| {
                SerializedFileWriter::new(ChecksumWriter::new(file), schema, properties())
            });
            let writer = writer.map_err(|source| self.failed(source))?;
            self.open = Some(Open { writer, columns });
        }
        let Some(Open { writer, .. }) = &mut self.open else { return Ok(()) };
        let written = if group.rows == 0 { Ok(()) } else { group.write(writer) };
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: ParquetError) -> StoreError {
        StoreError::Samples { what: "write", path: self.partial.clone(), source }
    }
}

impl fmt::Debug for SampleWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, rows, .. } = self;
        f.debug_struct("SampleWriter")
            .field("path", path)
            .field("rows", rows)
            .finish_non_exhaustive()
    }
}

impl Drop for SampleWriter {
    /// Deletes an unfinished file.
    fn drop(&mut self) {
        if self.open.is_some() {
            let _ = std::fs::remove_file(&self.partial);
        }
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

    fn write(self, writer: &mut SerializedFileWriter<ChecksumWriter>) -> Result<(), ParquetError> {
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

fn schema(columns: &[Column]) -> Result<Arc<Type>, ParquetError> {
    let field = |name: &str, physical, repetition, logical: Option<LogicalType>| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    };
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
    Ok(Arc::new(Type::group_type_builder("samples").with_fields(fields).build()?))
}

fn properties() -> Arc<WriterProperties> {
    let states: Vec<_> = State::ALL.iter().map(|state| state.name()).collect();
    let about = vec![
        KeyValue::new("dwell.format".to_owned(), "samples/1".to_owned()),
        KeyValue::new("dwell.states".to_owned(), states.join(",")),
        KeyValue::new("dwell.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let builder = WriterProperties::builder()
        .set_created_by(concat!("dwell ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(about));
    Arc::new(builder.build())
}
