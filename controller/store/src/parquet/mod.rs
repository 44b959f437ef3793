//! Samples as Parquet (zstd). Columns have the names of `dwell_record::Column`. `state` holds state
//! codes, whose names are in the file's metadata under `dwell.states`.
//!
//! The crate parquet reads files and writes their metadata, pages and footers. Columns of samples
//! are encoded here ([`chunk`], [`delta`], [`runs`]), because its column writers, which encode value
//! by value, were too slow: with them, importing 10 million round trips took 0.60 s of CPU time, a
//! third of it for encoding, and missed the goal of `make bench-data`. With the encoders here and
//! the other changes of that day it took 0.34 s and reached it (`docs/performance.md`).

mod checksum;
mod chunk;
mod delta;
mod host;
mod partial;
mod read;
mod runs;
mod sealed;
mod spikes;
mod write;

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::{Type, TypePtr};

pub(crate) use checksum::verify;
pub(crate) use host::read as read_host;
pub use host::{HostRow, HostWriter};
pub(crate) use read::ParquetReader;
pub(crate) use sealed::remove;
pub use spikes::SpikeWriter;
pub(crate) use spikes::read as read_spikes;
pub(crate) use write::{SampleWriter, Written};

/// Columns of every file, before those of [`dwell_record::Column`].
const FIXED_COLUMNS: [&str; 4] = ["id", "state", "reordered", "void"];

fn field(
    name: &str,
    physical: Physical,
    repetition: Repetition,
    logical: Option<LogicalType>,
) -> Result<TypePtr, ParquetError> {
    let field = Type::primitive_type_builder(name, physical).with_repetition(repetition);
    field.with_logical_type(logical).build().map(Arc::new)
}

/// Properties of a file in `format`, with metadata about it.
fn properties(format: &str, about: &[(&str, String)]) -> WriterPropertiesBuilder {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let pair = |(key, value): &(&str, String)| KeyValue::new((*key).to_owned(), value.clone());
    let mut all = vec![pair(&("dwell.format", format.to_owned()))];
    all.extend(about.iter().map(pair));
    all.push(pair(&("dwell.version", version)));
    WriterProperties::builder()
        .set_created_by(concat!("dwell ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(all))
}

/// The reader of a column of type `T`.
fn typed<T: DataType>(reader: ColumnReader) -> Result<ColumnReaderImpl<T>, ParquetError> {
    T::get_column_reader(reader).ok_or_else(|| general("a column has an unexpected type"))
}

fn general(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

#[cfg(test)]
mod tests {
    use dwell_record::{Batch, Column};
    use dwell_sample::State;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

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
    fn samples_round_trip_over_several_groups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        let mut writer = SampleWriter::new(&path, &[Column::Residence]);
        for piece in 0..10 {
            writer.push(&batch(piece * 60_000, 60_000)).unwrap();
        }
        assert!(!path.exists(), "the file must not exist before it is complete");
        let written = writer.finish().unwrap();
        assert_eq!(written.rows, 600_000);
        verify(&path, written.crc32.unwrap()).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[1_000] ^= 4;
        let flipped = dir.path().join("2.parquet");
        std::fs::write(&flipped, &bytes).unwrap();
        let error = verify(&flipped, written.crc32.unwrap()).unwrap_err();
        assert!(error.to_string().contains("2.parquet"), "{error}");
        let reader = ParquetReader::open(&path).unwrap();
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
    fn random_samples_round_trip_for_any_batch_size() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut all = Batch::default();
        for row in 0..150_000_u64 {
            let wild = random.random::<u64>();
            // Alternates stretches of equal rows with stretches of random rows.
            let calm = row / 1_000 % 3 > 0;
            let id = if calm { row } else { wild };
            let state = if calm { 0 } else { wild as usize % State::ALL.len() };
            all.push(id, State::ALL[state]);
            let last = row as usize;
            all.reordered[last] = !calm && wild & 1 == 1;
            all.void[last] = row > 70_000 && !calm && wild & 2 == 2;
            if calm || wild & 4 == 4 {
                let width = if calm { 20 } else { wild >> 8 & 63 };
                all.set(Column::Rtt, (random.random::<u64>() >> width) as i64);
            }
            if row > 20_000 {
                all.set(Column::TxApp, 1_700_000_000_000_000_000 + row as i64 * 10_000);
            }
            all.set(Column::ScheduleError, random.random::<u64>().max(1 << 63 | 1) as i64);
        }
        let columns = [Column::Rtt, Column::ScheduleError, Column::TxApp];
        for piece in [1, 63, 4_097, 70_000, all.len()] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("1.parquet");
            let mut writer = SampleWriter::new(&path, &[]);
            let rows = if piece == 1 { 3_000 } else { all.len() };
            for start in (0..rows).step_by(piece) {
                let mut batch = Batch::default();
                for row in start..rows.min(start + piece) {
                    batch.push(all.id[row], all.state[row]);
                    let last = batch.len() - 1;
                    (batch.reordered[last], batch.void[last]) = (all.reordered[row], all.void[row]);
                    for column in columns {
                        all.number(row, column)
                            .into_iter()
                            .for_each(|value| batch.set(column, value));
                    }
                }
                writer.push(&batch).unwrap();
            }
            writer.finish().unwrap();
            let mut row = 0;
            let mut each = |read: &Batch| {
                let rows = row..row + read.len();
                assert_eq!(read.id, all.id[rows.clone()], "{piece} {row}");
                assert_eq!(read.state, all.state[rows.clone()], "{piece} {row}");
                assert_eq!(read.reordered, all.reordered[rows.clone()], "{piece} {row}");
                assert_eq!(read.void, all.void[rows.clone()], "{piece} {row}");
                for (column, place) in
                    columns.iter().flat_map(|c| (0..read.len()).map(move |p| (*c, p)))
                {
                    assert_eq!(
                        read.number(place, column),
                        all.number(row + place, column),
                        "{piece} {row}"
                    );
                }
                row += read.len();
                Ok(())
            };
            ParquetReader::open(&path).unwrap().read(&columns, &mut each).unwrap();
            assert_eq!(row, rows, "{piece}");
        }
    }

    #[test]
    fn dropped_writer_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        let mut writer = SampleWriter::new(&path, &[]);
        for piece in 0..10 {
            writer.push(&batch(piece * 60_000, 60_000)).unwrap();
        }
        drop(writer);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn invalid_file_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        std::fs::write(&path, b"PAR1 something else").unwrap();
        let error = ParquetReader::open(&path).err().unwrap();
        assert!(error.to_string().contains("1.parquet"), "{error}");
    }
}
