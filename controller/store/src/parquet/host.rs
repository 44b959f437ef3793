//! Host activity during a trial, as Parquet (zstd) with one row per value, in a [`sealed`] file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_host::HostSample;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::partial::{FileWriter, PartialFile};
use super::{field, general, properties, sealed, typed};
use crate::error::StoreError;

/// The columns.
const COLUMNS: [&str; 4] = ["node", "at_ns", "name", "value"];

/// Rows per row group; bounds the memory while writing.
const GROUP_ROWS: usize = 1 << 16;

/// Rows read at once.
const READ_ROWS: usize = 1 << 12;

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
    file: PartialFile,
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
        Self { file: PartialFile::new(path), group: Group::default(), failure: None }
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
            self.failure = self.write_group().err();
        }
    }

    /// Finishes the file. Without any values, no file is created and an existing one is removed.
    pub fn finish(mut self) -> Result<(), StoreError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.write_group()?;
        sealed::finish(self.file)
    }

    fn write_group(&mut self) -> Result<(), StoreError> {
        let group = std::mem::take(&mut self.group);
        if group.at.is_empty() {
            return Ok(());
        }
        if !self.file.is_created() {
            sealed::create(&mut self.file, layout())?;
        }
        self.file.write(|writer| group.write(writer))
    }
}

impl std::fmt::Debug for HostWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostWriter").field("path", &self.file.path()).finish_non_exhaustive()
    }
}

impl Group {
    fn write(&self, writer: &mut FileWriter) -> Result<(), ParquetError> {
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

/// Passes the rows of the file at `path` to `each`, in writing order.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(&HostRow<'_>)) -> Result<(), StoreError> {
    sealed::read(path, &mut |reader| rows(reader, each))
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
        let mut node = typed::<ByteArrayType>(group.get_column_reader(0)?)?;
        let mut times = typed::<Int64Type>(group.get_column_reader(1)?)?;
        let mut name = typed::<ByteArrayType>(group.get_column_reader(2)?)?;
        let mut numbers = typed::<DoubleType>(group.get_column_reader(3)?)?;
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

fn layout() -> Result<(TypePtr, WriterPropertiesPtr), ParquetError> {
    let required =
        |name: &str, physical, logical| field(name, physical, Repetition::REQUIRED, logical);
    let [node, at, name, value] = COLUMNS;
    let fields = vec![
        required(node, Physical::BYTE_ARRAY, Some(LogicalType::String))?,
        required(at, Physical::INT64, None)?,
        required(name, Physical::BYTE_ARRAY, Some(LogicalType::String))?,
        required(value, Physical::DOUBLE, None)?,
    ];
    let schema = Type::group_type_builder("host").with_fields(fields).build()?;
    let at = ColumnPath::from(at);
    let properties = properties("host/1", &[])
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_column_dictionary_enabled(at.clone(), false)
        .set_column_encoding(at, Encoding::DELTA_BINARY_PACKED);
    Ok((Arc::new(schema), Arc::new(properties.build())))
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
