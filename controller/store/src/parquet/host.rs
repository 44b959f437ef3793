//! Host activity during a trial, as Parquet (zstd) with one row per value. A checksum follows the
//! first four bytes of the file, where Parquet readers do not look.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_host::HostSample;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use super::checksum::ChecksumWriter;
use crate::error::StoreError;

/// The columns.
const COLUMNS: [&str; 4] = ["node", "at_ns", "name", "value"];

/// Rows per row group; bounds the memory while writing.
const GROUP_ROWS: usize = 1 << 16;

/// Rows read at once.
const READ_ROWS: usize = 1 << 12;

/// Position of the file's CRC-32 (IEEE, little-endian), which is computed with zeros in its place.
const CHECKSUM_RANGE: std::ops::Range<usize> = 4..8;

/// One value of a host series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostRow<'a> {
    /// The machine.
    pub node: &'a str,
    /// CLOCK_REALTIME, in nanoseconds.
    pub at_ns: i64,
    /// Name of the metric, including its unit (`dwell_host::HostSample`).
    pub name: &'a str,
    /// The value.
    pub value: f64,
}

/// Writes the host series of one trial. The file appears under its name when it is complete.
pub struct HostWriter {
    path: PathBuf,
    partial: PathBuf,
    open: Option<SerializedFileWriter<ChecksumWriter>>,
    group: Group,
    /// The first error; returned by `finish`.
    failure: Option<StoreError>,
}

#[derive(Default)]
struct Group {
    node: Vec<ByteArray>,
    at: Vec<i64>,
    name: Vec<ByteArray>,
    value: Vec<f64>,
}

impl HostWriter {
    pub(crate) fn new(path: PathBuf) -> Self {
        let partial = path.with_extension("partial");
        Self { path, partial, open: None, group: Group::default(), failure: None }
    }

    /// Adds the values of a machine at one time. Errors are returned by [`Self::finish`].
    pub fn push(&mut self, node: &str, sample: &HostSample) {
        if self.failure.is_some() {
            return;
        }
        for (name, value) in &sample.values {
            self.group.node.push(node.into());
            self.group.at.push(sample.at_ns);
            self.group.name.push(name.as_str().into());
            self.group.value.push(*value);
        }
        if self.group.at.len() >= GROUP_ROWS {
            self.failure = self.close_group().err();
        }
    }

    /// Finishes the file. Without any values, no file is created and an existing one is removed.
    pub fn finish(mut self) -> Result<(), StoreError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.close_group()?;
        let Some(writer) = self.open.take() else { return remove(&self.path) };
        let written = writer.into_inner().map_err(|source| self.failed(source));
        let named = written.and_then(|file| {
            let sum = file.finish().map_err(StoreError::file("write", &self.partial))?;
            write_checksum(&self.partial, sum).map_err(StoreError::file("write", &self.partial))?;
            std::fs::rename(&self.partial, &self.path)
                .map_err(StoreError::file("rename", &self.path))
        });
        if named.is_err() {
            let _ = std::fs::remove_file(&self.partial);
        }
        named
    }

    fn close_group(&mut self) -> Result<(), StoreError> {
        let group = std::mem::take(&mut self.group);
        if group.at.is_empty() {
            return Ok(());
        }
        let mut writer = match self.open.take() {
            Some(writer) => writer,
            None => {
                let file = File::create(&self.partial);
                let file =
                    ChecksumWriter::new(file.map_err(StoreError::file("create", &self.partial))?);
                schema()
                    .and_then(|schema| {
                        let mut writer = SerializedFileWriter::new(file, schema, properties()?)?;
                        writer.write_all(&[0; CHECKSUM_RANGE.end - CHECKSUM_RANGE.start])?;
                        Ok(writer)
                    })
                    .map_err(|source| self.failed(source))?
            }
        };
        let written = group.write(&mut writer);
        self.open = Some(writer);
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: ParquetError) -> StoreError {
        StoreError::Samples { what: "write", path: self.partial.clone(), source }
    }
}

impl std::fmt::Debug for HostWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for HostWriter {
    /// Deletes an unfinished file.
    fn drop(&mut self) {
        if self.open.is_some() {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

impl Group {
    fn write(&self, writer: &mut SerializedFileWriter<ChecksumWriter>) -> Result<(), ParquetError> {
        let mut rows = writer.next_row_group()?;
        let mut place = 0;
        while let Some(mut column) = rows.next_column()? {
            match place {
                0 => column.typed::<ByteArrayType>().write_batch(&self.node, None, None)?,
                1 => column.typed::<Int64Type>().write_batch(&self.at, None, None)?,
                2 => column.typed::<ByteArrayType>().write_batch(&self.name, None, None)?,
                _ => column.typed::<DoubleType>().write_batch(&self.value, None, None)?,
            };
            column.close()?;
            place += 1;
        }
        rows.close()?;
        Ok(())
    }
}

/// Writes the checksum into its place.
fn write_checksum(path: &Path, sum: u32) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(CHECKSUM_RANGE.start as u64))?;
    file.write_all(&sum.to_le_bytes())?;
    file.sync_all()
}

/// Verifies the checksum, because the Parquet reader does not validate its input.
fn is_intact(file: &mut File) -> std::io::Result<bool> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    let mut head = [0; CHECKSUM_RANGE.end];
    if file.metadata()?.len() < head.len() as u64 {
        return Ok(false);
    }
    file.read_exact(&mut head)?;
    let stored: [u8; 4] = [head[4], head[5], head[6], head[7]];
    head[CHECKSUM_RANGE].fill(0);
    hasher.update(&head);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => hasher.update(&buffer[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.finalize().to_le_bytes() == stored)
}

/// Removes a host series if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::file("delete", path)(error))
        }
        _ => Ok(()),
    }
}

/// Passes the rows of the file at `path` to `each`, in writing order.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(&HostRow<'_>)) -> Result<(), StoreError> {
    let mut file = File::open(path).map_err(StoreError::file("open", path))?;
    let failed = |source| StoreError::Samples { what: "read", path: path.to_owned(), source };
    if !is_intact(&mut file).map_err(StoreError::file("read", path))? {
        return Err(failed(general("the checksum does not match")));
    }
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    rows(&reader, each).map_err(failed)
}

fn rows(
    reader: &SerializedFileReader<File>,
    each: &mut dyn FnMut(&HostRow<'_>),
) -> Result<(), ParquetError> {
    let schema = reader.metadata().file_metadata().schema_descr();
    if !schema.columns().iter().map(|column| column.name()).eq(COLUMNS) {
        return Err(general("unexpected columns"));
    }
    let (mut nodes, mut at, mut names, mut values) = (vec![], vec![], vec![], vec![]);
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number)?;
        let mut node = bytes(group.get_column_reader(0)?)?;
        let ColumnReader::Int64ColumnReader(mut times) = group.get_column_reader(1)? else {
            return Err(other_type());
        };
        let mut name = bytes(group.get_column_reader(2)?)?;
        let ColumnReader::DoubleColumnReader(mut numbers) = group.get_column_reader(3)? else {
            return Err(other_type());
        };
        loop {
            for texts in [&mut nodes, &mut names] {
                texts.clear();
            }
            at.clear();
            values.clear();
            node.read_records(READ_ROWS, None, None, &mut nodes)?;
            times.read_records(READ_ROWS, None, None, &mut at)?;
            name.read_records(READ_ROWS, None, None, &mut names)?;
            numbers.read_records(READ_ROWS, None, None, &mut values)?;
            let len = at.len();
            if [nodes.len(), names.len(), values.len()] != [len; 3] {
                return Err(general("columns have different lengths"));
            }
            if len == 0 {
                break;
            }
            for (((node, at), name), value) in nodes.iter().zip(&at).zip(&names).zip(&values) {
                let (node, name) = (node.as_utf8()?, name.as_utf8()?);
                each(&HostRow { node, at_ns: *at, name, value: *value });
            }
        }
    }
    Ok(())
}

fn bytes(reader: ColumnReader) -> Result<ColumnReaderImpl<ByteArrayType>, ParquetError> {
    match reader {
        ColumnReader::ByteArrayColumnReader(reader) => Ok(reader),
        _ => Err(other_type()),
    }
}

fn other_type() -> ParquetError {
    general("a column has an unexpected type")
}

fn general(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

fn schema() -> Result<Arc<Type>, ParquetError> {
    let field = |name: &str, physical, logical| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    };
    let [node, at, name, value] = COLUMNS;
    let fields = vec![
        field(node, Physical::BYTE_ARRAY, Some(LogicalType::String))?,
        field(at, Physical::INT64, None)?,
        field(name, Physical::BYTE_ARRAY, Some(LogicalType::String))?,
        field(value, Physical::DOUBLE, None)?,
    ];
    Ok(Arc::new(Type::group_type_builder("host").with_fields(fields).build()?))
}

fn properties() -> Result<Arc<WriterProperties>, ParquetError> {
    let about = vec![
        KeyValue::new("dwell.format".to_owned(), "host/1".to_owned()),
        KeyValue::new("dwell.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let at = ColumnPath::from(COLUMNS[1]);
    let builder = WriterProperties::builder()
        .set_created_by(concat!("dwell ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_column_dictionary_enabled(at.clone(), false)
        .set_column_encoding(at, Encoding::DELTA_BINARY_PACKED)
        .set_key_value_metadata(Some(about));
    Ok(Arc::new(builder.build()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(n: i64) -> HostSample {
        let values = [
            ("cpu0_busy_ratio".to_owned(), n as f64 / 7.0 % 1.0),
            ("interrupts_per_s".to_owned(), 1_000.0 + n as f64),
        ];
        HostSample { at_ns: 1_795_000_000_000_000_000 + n * 200_000_000, values: values.into() }
    }

    type Row = (String, i64, String, f64);

    fn all(path: &Path) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        read(path, &mut |row| {
            rows.push((row.node.to_owned(), row.at_ns, row.name.to_owned(), row.value));
        })?;
        Ok(rows)
    }

    fn written(path: &Path, samples: i64) -> Vec<Row> {
        let mut writer = HostWriter::new(path.to_owned());
        let mut expected = Vec::new();
        for node in ["n1", "n2"] {
            for n in 0..samples {
                let sample = sample(n);
                writer.push(node, &sample);
                for (name, value) in sample.values {
                    expected.push((node.to_owned(), sample.at_ns, name, value));
                }
            }
        }
        assert!(!path.exists(), "the file must not exist before it is complete");
        writer.finish().unwrap();
        expected
    }

    #[test]
    fn host_series_round_trips_over_several_groups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.host.parquet");
        let expected = written(&path, 20_000);
        assert!(expected.len() > GROUP_ROWS);
        assert_eq!(all(&path).unwrap(), expected);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!(bytes < 10 * expected.len() as u64, "{bytes} bytes");
    }

    #[test]
    fn empty_host_series_removes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.host.parquet");
        written(&path, 5);
        let mut dropped = HostWriter::new(path.clone());
        (0..35_000).for_each(|n| dropped.push("n1", &sample(n)));
        drop(dropped);
        assert_eq!(all(&path).unwrap().len(), 20, "a dropped writer changes nothing");
        HostWriter::new(path.clone()).finish().unwrap();
        HostWriter::new(path.clone()).finish().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn damaged_host_file_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.host.parquet");
        written(&path, 20);
        let whole = std::fs::read(&path).unwrap();
        let bad = dir.path().join("2.host.parquet");
        for place in 0..whole.len() {
            for bit in [1, 0x10, 0x80] {
                let mut bytes = whole.clone();
                bytes[place] ^= bit;
                std::fs::write(&bad, &bytes).unwrap();
                let error = all(&bad).unwrap_err().to_string();
                assert!(error.contains("2.host"), "byte {place}: {error}");
            }
        }
        for len in [0, 7, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&bad, &whole[..len]).unwrap();
            all(&bad).unwrap_err();
        }
    }

    #[test]
    fn host_write_error_is_returned_by_finish() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = HostWriter::new(dir.path().join("gone").join("1.host.parquet"));
        (0..35_000).for_each(|n| writer.push("n1", &sample(n)));
        let error = writer.finish().unwrap_err().to_string();
        assert!(error.contains("1.host.partial"), "{error}");
    }
}
