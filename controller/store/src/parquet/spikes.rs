//! Causes of long delays in a trial, as Parquet (zstd) with one row per part of a delay, in a
//! [`sealed`] file. `id` is that of the sample.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_record::{Cause, CauseKind, Spike, SpikePart};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::{Type, TypePtr};

use super::checksum::ChecksumWriter;
use super::partial::{FileWriter, PartialFile};
use super::{field, general, properties, sealed, typed};
use crate::error::StoreError;

/// The columns.
const COLUMNS: [&str; 10] =
    ["id", "at_ns", "rtt_ns", "main", "cause", "by", "pid", "ns", "page_faults", "complete"];

/// Rows per row group; bounds the memory.
const GROUP_ROWS: usize = 1 << 16;

/// Writes the spikes of one trial. The file appears under its name when it is complete.
pub struct SpikeWriter {
    file: PartialFile,
    rows: Rows,
    /// The first error; returned by `finish`.
    failure: Option<StoreError>,
}

/// Values of a row group, by column.
#[derive(Default)]
struct Rows {
    id: Vec<i64>,
    at: Vec<i64>,
    rtt: Vec<i64>,
    main: Vec<bool>,
    cause: Vec<ByteArray>,
    by: Optional<ByteArray>,
    pid: Optional<i32>,
    ns: Vec<i64>,
    page_faults: Vec<i32>,
    complete: Vec<bool>,
}

/// Values of a column of which some are null.
struct Optional<T> {
    /// 1 for each row with a value, 0 for each other.
    levels: Vec<i16>,
    values: Vec<T>,
}

impl SpikeWriter {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { file: PartialFile::new(path), rows: Rows::default(), failure: None }
    }

    /// Adds the parts of a spike. Errors are returned by [`Self::finish`].
    pub fn push(&mut self, spike: &Spike) {
        if self.failure.is_some() {
            return;
        }
        self.rows.push(spike);
        if self.rows.id.len() >= GROUP_ROWS {
            self.failure = self.write_group().err();
        }
    }

    /// Finishes the file. Without any spikes, no file is created and an existing one is removed.
    pub fn finish(mut self) -> Result<(), StoreError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.write_group()?;
        sealed::finish(self.file)
    }

    fn write_group(&mut self) -> Result<(), StoreError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.id.is_empty() {
            return Ok(());
        }
        if !self.file.is_created() {
            // Most runs have no spikes, and then no directory.
            if let Some(dir) = self.file.path().parent() {
                fs::create_dir_all(dir).map_err(StoreError::file("create", dir))?;
            }
            sealed::create(&mut self.file, layout())?;
        }
        self.file.write(|writer| rows.write(writer))
    }
}

impl std::fmt::Debug for SpikeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpikeWriter").field("path", &self.file.path()).finish_non_exhaustive()
    }
}

impl<T> Default for Optional<T> {
    fn default() -> Self {
        Self { levels: Vec::new(), values: Vec::new() }
    }
}

impl<T> Optional<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }

    /// Returns the value of each row.
    fn into_rows(self) -> Vec<Option<T>> {
        let mut values = self.values.into_iter();
        self.levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect()
    }
}

impl Rows {
    fn push(&mut self, spike: &Spike) {
        for part in &spike.parts {
            self.id.push(spike.id as i64);
            self.at.push(spike.at_ns);
            self.rtt.push(spike.rtt_ns);
            self.main.push(part.cause == spike.cause);
            self.cause.push(part.cause.kind.name().into());
            self.by.push(part.cause.by.as_deref().map(ByteArray::from));
            self.pid.push(part.cause.pid.map(|pid| pid as i32));
            self.ns.push(part.ns);
            self.page_faults.push(spike.page_faults as i32);
            self.complete.push(spike.complete);
        }
    }

    fn write(&self, writer: &mut FileWriter) -> Result<(), ParquetError> {
        let mut group = writer.next_row_group()?;
        write::<Int64Type>(&mut group, &self.id, None)?;
        write::<Int64Type>(&mut group, &self.at, None)?;
        write::<Int64Type>(&mut group, &self.rtt, None)?;
        write::<BoolType>(&mut group, &self.main, None)?;
        write::<ByteArrayType>(&mut group, &self.cause, None)?;
        write::<ByteArrayType>(&mut group, &self.by.values, Some(&self.by.levels))?;
        write::<Int32Type>(&mut group, &self.pid.values, Some(&self.pid.levels))?;
        write::<Int64Type>(&mut group, &self.ns, None)?;
        write::<Int32Type>(&mut group, &self.page_faults, None)?;
        write::<BoolType>(&mut group, &self.complete, None)?;
        group.close().map(drop)
    }
}

/// Writes the next column of a row group; `levels` marks the rows with a value.
fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, ChecksumWriter>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(general("too many columns"));
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Passes the spikes of the file at `path` to `each`, by id.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(&Spike)) -> Result<(), StoreError> {
    sealed::read(path, &mut |reader| spikes(reader, each))
}

fn spikes(
    reader: &SerializedFileReader<File>,
    each: &mut dyn FnMut(&Spike),
) -> Result<(), ParquetError> {
    let schema = reader.metadata().file_metadata().schema_descr();
    if !schema.columns().iter().map(|column| column.name()).eq(COLUMNS) {
        return Err(general("unexpected columns"));
    }
    let mut open: Option<Spike> = None;
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number)?;
        let len = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
        if len > 2 * GROUP_ROWS {
            return Err(general("a row group is too long"));
        }
        let all = |column: usize| group.get_column_reader(column);
        let id = column::<Int64Type>(all(0)?, len)?.values;
        let at = column::<Int64Type>(all(1)?, len)?.values;
        let rtt = column::<Int64Type>(all(2)?, len)?.values;
        let main = column::<BoolType>(all(3)?, len)?.values;
        let cause = column::<ByteArrayType>(all(4)?, len)?.values;
        let by = column::<ByteArrayType>(all(5)?, len)?.into_rows();
        let pid = column::<Int32Type>(all(6)?, len)?.into_rows();
        let ns = column::<Int64Type>(all(7)?, len)?.values;
        let page_faults = column::<Int32Type>(all(8)?, len)?.values;
        let complete = column::<BoolType>(all(9)?, len)?.values;
        let lens = [id.len(), at.len(), rtt.len(), main.len(), cause.len(), by.len(), pid.len()];
        if lens != [len; 7] || [ns.len(), page_faults.len(), complete.len()] != [len; 3] {
            return Err(general("columns have different lengths"));
        }
        for row in 0..len {
            let kind = CauseKind::named(cause[row].as_utf8()?);
            let kind = kind.ok_or_else(|| general("unknown cause"))?;
            let by = by[row].as_ref().map(|by| by.as_utf8().map(str::to_owned)).transpose()?;
            let part = SpikePart {
                cause: Cause { kind, by, pid: pid[row].map(|pid| pid as u32) },
                ns: ns[row],
            };
            if open.as_ref().is_some_and(|spike| spike.id != id[row] as u64) {
                open.take().iter().for_each(&mut *each);
            }
            let spike = open.get_or_insert_with(|| Spike {
                id: id[row] as u64,
                at_ns: at[row],
                rtt_ns: rtt[row],
                cause: part.cause.clone(),
                parts: Vec::new(),
                page_faults: page_faults[row] as u32,
                complete: complete[row],
            });
            if main[row] {
                spike.cause = part.cause.clone();
            }
            spike.parts.push(part);
        }
    }
    open.iter().for_each(each);
    Ok(())
}

/// Reads a column of a row group with `len` rows.
fn column<T: DataType>(reader: ColumnReader, len: usize) -> Result<Optional<T::T>, ParquetError> {
    let mut column = Optional::default();
    let levels = Some(&mut column.levels);
    typed::<T>(reader)?.read_records(len, levels, None, &mut column.values)?;
    Ok(column)
}

fn layout() -> Result<(TypePtr, WriterPropertiesPtr), ParquetError> {
    let text = || Some(LogicalType::String);
    let unsigned = |bits| Some(LogicalType::integer(bits, false));
    let types = [
        (Physical::INT64, Repetition::REQUIRED, unsigned(64)),
        (Physical::INT64, Repetition::REQUIRED, None),
        (Physical::INT64, Repetition::REQUIRED, None),
        (Physical::BOOLEAN, Repetition::REQUIRED, None),
        (Physical::BYTE_ARRAY, Repetition::REQUIRED, text()),
        (Physical::BYTE_ARRAY, Repetition::OPTIONAL, text()),
        (Physical::INT32, Repetition::OPTIONAL, unsigned(32)),
        (Physical::INT64, Repetition::REQUIRED, None),
        (Physical::INT32, Repetition::REQUIRED, unsigned(32)),
        (Physical::BOOLEAN, Repetition::REQUIRED, None),
    ];
    let fields = COLUMNS
        .into_iter()
        .zip(types)
        .map(|(name, (physical, repetition, logical))| field(name, physical, repetition, logical));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("spikes").with_fields(fields).build()?;
    let properties =
        properties("spikes/1", &[]).set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?));
    Ok((Arc::new(schema), Arc::new(properties.build())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spike(id: u64) -> Spike {
        let by = id.is_multiple_of(3).then(|| format!("hog {id}"));
        let waiting = Cause { kind: CauseKind::Waiting, pid: by.as_ref().map(|_| id as u32), by };
        let mut parts = vec![
            SpikePart { cause: Cause::of(CauseKind::Own), ns: 10 },
            SpikePart { cause: waiting.clone(), ns: 1_000 + id as i64 },
        ];
        parts.rotate_left(id as usize % 2);
        Spike {
            id,
            at_ns: 1_795_000_000_000_000_000 + id as i64 * 1_000_000,
            rtt_ns: 1_010 + id as i64,
            cause: waiting,
            parts,
            page_faults: id as u32 % 4,
            complete: !id.is_multiple_of(5),
        }
    }

    fn write_all(path: &Path, ids: &[u64]) {
        let mut writer = SpikeWriter::new(path.to_owned());
        ids.iter().for_each(|id| writer.push(&spike(*id)));
        assert!(!path.exists(), "the file must not exist before it is complete");
        writer.finish().unwrap();
    }

    fn all(path: &Path) -> Result<Vec<Spike>, StoreError> {
        let mut spikes = Vec::new();
        read(path, &mut |spike| spikes.push(spike.clone()))?;
        Ok(spikes)
    }

    #[test]
    fn spikes_round_trip_over_several_groups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        let ids: Vec<u64> = (0..GROUP_ROWS as u64).chain([u64::MAX]).collect();
        write_all(&path, &ids[..100]);
        assert_eq!(all(&path).unwrap(), ids[..100].iter().map(|id| spike(*id)).collect::<Vec<_>>());
        let mut writer = SpikeWriter::new(path.clone());
        ids.iter().for_each(|id| writer.push(&Spike { id: *id, ..spike(7) }));
        writer.finish().unwrap();
        assert!(all(&path).unwrap().iter().map(|spike| spike.id).eq(ids));
    }

    #[test]
    fn trial_without_spikes_removes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        write_all(&path, &[4]);
        SpikeWriter::new(path.clone()).finish().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn damaged_spike_file_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        write_all(&path, &[1, 2, 3]);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        let error = all(&path).unwrap_err().to_string();
        assert!(error.contains("1.parquet"), "{error}");
    }
}
