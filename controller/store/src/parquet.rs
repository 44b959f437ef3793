//! Samples as Parquet (zstd). Columns are named as everywhere (`dwell_record::Column`); `state` is
//! the number of the state, whose names are in the file's metadata under `dwell.states`.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_engine::stamps::State;
use dwell_record::{Batch, Column};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use crate::error::StoreError;

/// Rows of a row group: what is held in memory while writing.
const GROUP: usize = 1 << 19;

/// Rows handed over at once while reading: few enough to stay in a CPU's cache.
const PIECE: usize = 1 << 14;

/// Rows that are looked at together: most often all of them are alike.
const RUN: usize = 128;

/// Columns that every file has, before those of [`Column`].
const ROW: [&str; 4] = ["id", "state", "reordered", "void"];

/// Writes one file. It appears under its name when it is whole.
#[derive(Debug)]
pub(crate) struct SampleWriter {
    path: PathBuf,
    partial: PathBuf,
    /// Columns that the file is to have, whatever comes; the first group decides on the others.
    wanted: Vec<Column>,
    open: Option<Open>,
    group: Vec<Arc<Batch>>,
    rows_in_group: usize,
    rows: u64,
}

#[derive(Debug)]
struct Open {
    writer: SerializedFileWriter<Summed>,
    columns: Vec<Column>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) rows: u64,
    /// Of the whole file; `None` when there is none.
    pub(crate) crc32: Option<u32>,
}

/// A file and the checksum of what was written to it: pages of Parquet have none here, and a flipped
/// bit in one would pass for a delay.
struct Summed {
    file: File,
    hasher: crc32fast::Hasher,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Whether the file at `path` is the one that was written.
pub(crate) fn verify(path: &Path, crc32: u32) -> Result<(), StoreError> {
    let mut file = File::open(path).map_err(StoreError::file("open", path))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => hasher.update(&buffer[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(StoreError::file("read", path)(error)),
        }
    }
    if hasher.finalize() == crc32 {
        return Ok(());
    }
    let source = ParquetError::General("the file is not the one that was written".to_owned());
    Err(StoreError::Samples { what: "read", path: path.to_owned(), source })
}

impl SampleWriter {
    pub(crate) fn new(path: &Path, wanted: &[Column]) -> Self {
        Self {
            path: path.to_owned(),
            partial: path.with_extension("partial"),
            wanted: wanted.to_vec(),
            open: None,
            group: Vec::new(),
            rows_in_group: 0,
            rows: 0,
        }
    }

    /// Takes rows.
    pub(crate) fn push(&mut self, batch: Arc<Batch>) -> Result<(), StoreError> {
        self.rows += batch.len() as u64;
        self.rows_in_group += batch.len();
        self.group.push(batch);
        if self.rows_in_group >= GROUP { self.close_group() } else { Ok(()) }
    }

    /// Ends the file.
    pub(crate) fn finish(mut self) -> Result<Written, StoreError> {
        self.close_group()?;
        let Some(Open { writer, .. }) = self.open.take() else { return Ok(Written::default()) };
        let failed =
            |source| StoreError::Samples { what: "write", path: self.partial.clone(), source };
        let Summed { mut file, hasher } = writer.into_inner().map_err(failed)?;
        file.flush()
            .and_then(|()| file.sync_all())
            .map_err(StoreError::file("write", &self.partial))?;
        std::fs::rename(&self.partial, &self.path).map_err(StoreError::file("name", &self.path))?;
        // The name survives a power cut only when its directory is on the disk, too, and the
        // catalogue will say that the file is there.
        let dir = self.path.parent().unwrap_or(&self.path);
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::file("write", dir))?;
        Ok(Written { rows: self.rows, crc32: Some(hasher.finalize()) })
    }

    fn close_group(&mut self) -> Result<(), StoreError> {
        let failed =
            |source| StoreError::Samples { what: "write", path: self.partial.clone(), source };
        if self.open.is_none() {
            let columns: Vec<_> = Column::ALL
                .into_iter()
                .filter(|column| {
                    let has = |batch: &Arc<Batch>| batch.column(*column).is_some();
                    self.wanted.contains(column) || self.group.iter().any(has)
                })
                .collect();
            let file =
                File::create(&self.partial).map_err(StoreError::file("make", &self.partial))?;
            let to = Summed { file, hasher: crc32fast::Hasher::new() };
            let writer =
                SerializedFileWriter::new(to, schema(&columns).map_err(failed)?, properties());
            self.open = Some(Open { writer: writer.map_err(failed)?, columns });
        }
        let Some(Open { writer, columns }) = &mut self.open else { return Ok(()) };
        write_group(writer, columns, &self.group).map_err(failed)?;
        self.group.clear();
        self.rows_in_group = 0;
        Ok(())
    }
}

impl Drop for SampleWriter {
    /// What was not finished is no file.
    fn drop(&mut self) {
        if self.open.is_some() {
            let _ = std::fs::remove_file(&self.partial);
        }
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
    let mut fields = vec![
        field("id", Physical::INT64, Repetition::REQUIRED, integer(64, false))?,
        field("state", Physical::INT32, Repetition::REQUIRED, integer(8, true))?,
        field("reordered", Physical::BOOLEAN, Repetition::REQUIRED, None)?,
        field("void", Physical::BOOLEAN, Repetition::REQUIRED, None)?,
    ];
    for column in columns {
        fields.push(field(column.name(), Physical::INT64, Repetition::OPTIONAL, None)?);
    }
    Ok(Arc::new(Type::group_type_builder("samples").with_fields(fields).build()?))
}

fn properties() -> Arc<WriterProperties> {
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    let states: Vec<_> = State::ALL.iter().map(|state| state.name()).collect();
    let about = vec![
        KeyValue::new("dwell.format".to_owned(), "samples/1".to_owned()),
        KeyValue::new("dwell.states".to_owned(), states.join(",")),
        KeyValue::new("dwell.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_dictionary_enabled(false)
        // Stamps rise and delays are alike: differences are small.
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(2 * GROUP))
        .set_created_by(concat!("dwell ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(about));
    for name in ["reordered", "void"] {
        builder = builder.set_column_encoding(ColumnPath::from(name), Encoding::RLE);
    }
    Arc::new(builder.build())
}

fn write_group(
    writer: &mut SerializedFileWriter<Summed>,
    columns: &[Column],
    group: &[Arc<Batch>],
) -> Result<(), ParquetError> {
    let mut rows = writer.next_row_group()?;
    write_column::<Int64Type>(&mut rows, group, |batch, out| {
        out.extend(batch.id.iter().map(|id| *id as i64));
    })?;
    write_column::<Int32Type>(&mut rows, group, |batch, out| {
        out.extend(batch.state.iter().map(|state| i32::from(state.code())));
    })?;
    write_column::<BoolType>(&mut rows, group, |batch, out| out.extend(&batch.reordered))?;
    write_column::<BoolType>(&mut rows, group, |batch, out| out.extend(&batch.void))?;
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for column in columns {
        let Some(mut out) = rows.next_column()? else { break };
        let typed = out.typed::<Int64Type>();
        for batch in group {
            values.clear();
            levels.clear();
            match batch.column(*column) {
                Some(all) => {
                    levels.extend(all.iter().map(|value| i16::from(*value != Batch::ABSENT)));
                    for (run, levels) in all.chunks(RUN).zip(levels.chunks(RUN)) {
                        if levels.iter().fold(true, |all, level| all & (*level != 0)) {
                            values.extend_from_slice(run);
                        } else {
                            let present = run.iter().filter(|value| **value != Batch::ABSENT);
                            values.extend(present);
                        }
                    }
                }
                None => levels.resize(batch.len(), 0),
            }
            typed.write_batch(&values, Some(&levels), None)?;
        }
        out.close()?;
    }
    rows.close()?;
    Ok(())
}

/// Writes a column that is never absent.
fn write_column<T: DataType>(
    rows: &mut SerializedRowGroupWriter<'_, Summed>,
    group: &[Arc<Batch>],
    take: impl Fn(&Batch, &mut Vec<T::T>),
) -> Result<(), ParquetError> {
    let Some(mut out) = rows.next_column()? else { return Ok(()) };
    let mut values = Vec::new();
    for batch in group {
        values.clear();
        take(batch, &mut values);
        out.typed::<T>().write_batch(&values, None, None)?;
    }
    out.close()
}

/// Reads one file.
pub(crate) struct SampleReader {
    path: PathBuf,
    reader: SerializedFileReader<File>,
}

impl SampleReader {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::file("open", path))?;
        let failed = |source| StoreError::Samples { what: "read", path: path.to_owned(), source };
        let reader = SerializedFileReader::new(file).map_err(failed)?;
        Ok(Self { path: path.to_owned(), reader })
    }

    /// The columns that it has.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        schema.columns().iter().filter_map(|column| Column::named(column.name())).collect()
    }

    /// Hands over all rows, with these columns, some at a time.
    pub(crate) fn read(
        &self,
        columns: &[Column],
        each: &mut dyn FnMut(&Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.read_groups(0..self.groups(), columns, each)
    }

    /// How many row groups it has.
    pub(crate) fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Hands over the rows of some row groups.
    pub(crate) fn read_groups(
        &self,
        groups: Range<usize>,
        columns: &[Column],
        each: &mut dyn FnMut(&Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |source| StoreError::Samples { what: "read", path: self.path.clone(), source };
        let mut batch = Batch::default();
        for number in groups {
            let mut group = Group::open(&self.reader, number, columns).map_err(failed)?;
            while group.fill(&mut batch).map_err(failed)? {
                each(&batch)?;
            }
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
    levels: Vec<i16>,
    values: Vec<i64>,
}

impl Group {
    fn open(
        reader: &SerializedFileReader<File>,
        number: usize,
        columns: &[Column],
    ) -> Result<Self, ParquetError> {
        let group = reader.get_row_group(number)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let place = |name: &str| schema.columns().iter().position(|column| column.name() == name);
        let open = |name: &str| {
            let place = place(name)
                .ok_or_else(|| ParquetError::General(format!("there is no column {name}")))?;
            group.get_column_reader(place)
        };
        let mut numbers = Vec::new();
        for column in columns.iter().filter(|column| place(column.name()).is_some()) {
            numbers.push((*column, int64(open(column.name())?)?));
        }
        let [id, state, reordered, void] = ROW;
        let kind = |_| ParquetError::General("a column of another type".to_owned());
        Ok(Self {
            id: int64(open(id)?)?,
            state: match open(state)? {
                ColumnReader::Int32ColumnReader(reader) => reader,
                _ => return Err(kind(())),
            },
            reordered: boolean(open(reordered)?)?,
            void: boolean(open(void)?)?,
            numbers,
            levels: Vec::new(),
            values: Vec::new(),
        })
    }

    /// Reads the next rows into `batch`; returns whether there were any.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ParquetError> {
        batch.clear();
        let mut ids = Vec::with_capacity(PIECE);
        let (rows, ..) = self.id.read_records(PIECE, None, None, &mut ids)?;
        if rows == 0 {
            return Ok(false);
        }
        batch.id.extend(ids.into_iter().map(|id| id as u64));
        let mut states = Vec::with_capacity(rows);
        self.state.read_records(rows, None, None, &mut states)?;
        for run in states.chunks(RUN) {
            let known = |code: i32| {
                let state = usize::try_from(code).ok().and_then(|code| State::ALL.get(code));
                let unknown = || ParquetError::General("a state of an unknown number".to_owned());
                state.copied().ok_or_else(unknown)
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
            return Err(ParquetError::General("columns of different lengths".to_owned()));
        }
        for (column, reader) in &mut self.numbers {
            self.levels.clear();
            self.values.clear();
            reader.read_records(rows, Some(&mut self.levels), None, &mut self.values)?;
            if self.values.is_empty() {
                continue;
            }
            if self.levels.len() != rows {
                return Err(ParquetError::General("columns of different lengths".to_owned()));
            }
            let numbers = if self.values.len() == rows {
                std::mem::take(&mut self.values)
            } else {
                spread(&self.values, &self.levels)
            };
            batch.set_column(*column, numbers);
        }
        Ok(true)
    }
}

/// Puts values in the rows whose level says that there is one.
fn spread(values: &[i64], levels: &[i16]) -> Vec<i64> {
    let mut all = Vec::with_capacity(levels.len());
    let mut rest = values;
    for run in levels.chunks(RUN) {
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
    all
}

fn int64(reader: ColumnReader) -> Result<ColumnReaderImpl<Int64Type>, ParquetError> {
    match reader {
        ColumnReader::Int64ColumnReader(reader) => Ok(reader),
        _ => Err(ParquetError::General("a column of another type".to_owned())),
    }
}

fn boolean(reader: ColumnReader) -> Result<ColumnReaderImpl<BoolType>, ParquetError> {
    match reader {
        ColumnReader::BoolColumnReader(reader) => Ok(reader),
        _ => Err(ParquetError::General("a column of another type".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(from: u64, rows: u64) -> Batch {
        let mut batch = Batch::default();
        for id in from..from + rows {
            let state = if id % 7 == 3 { State::Lost } else { State::Received };
            batch.push(id, state);
            if state == State::Received {
                batch.set(Column::Rtt, 1_000 + (id as i64 * 37) % 500);
            }
            if id >= 5 {
                batch.set(Column::TxApp, 1_700_000_000_000_000_000 + id as i64);
            }
        }
        batch
    }

    #[test]
    fn rows_come_back_as_they_were_written_over_several_groups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        let mut writer = SampleWriter::new(&path, &[Column::Residence]);
        for piece in 0..10 {
            writer.push(Arc::new(batch(piece * 60_000, 60_000))).unwrap();
        }
        assert!(!path.exists(), "not before it is whole");
        let written = writer.finish().unwrap();
        assert_eq!(written.rows, 600_000);
        verify(&path, written.crc32.unwrap()).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[1_000] ^= 4;
        let flipped = dir.path().join("2.parquet");
        std::fs::write(&flipped, &bytes).unwrap();
        let error = verify(&flipped, written.crc32.unwrap()).unwrap_err();
        assert!(error.to_string().contains("2.parquet"), "{error}");
        let reader = SampleReader::open(&path).unwrap();
        let columns = [Column::Rtt, Column::Residence, Column::TxApp];
        assert_eq!(reader.columns(), columns);
        let mut next = 0;
        reader
            .read(&columns, &mut |read| {
                let expected = batch(next, read.len() as u64);
                assert_eq!(read.id, expected.id);
                assert_eq!(read.state, expected.state);
                assert_eq!(read.column(Column::Rtt), expected.column(Column::Rtt));
                assert_eq!(read.column(Column::TxApp), expected.column(Column::TxApp));
                assert_eq!(read.column(Column::Residence), None);
                next += read.len() as u64;
                Ok(())
            })
            .unwrap();
        assert_eq!(next, 600_000);
    }

    #[test]
    fn what_is_given_up_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        let mut writer = SampleWriter::new(&path, &[]);
        for piece in 0..10 {
            writer.push(Arc::new(batch(piece * 60_000, 60_000))).unwrap();
        }
        drop(writer);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_no_parquet_names_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        std::fs::write(&path, b"PAR1 something else").unwrap();
        let error = SampleReader::open(&path).err().unwrap();
        assert!(error.to_string().contains("1.parquet"), "{error}");
    }
}
