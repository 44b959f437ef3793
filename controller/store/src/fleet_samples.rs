//! Samples of continuous measurement: immutable Parquet files with the columns of trials.
//!
//! ```text
//! DIR/samples/2026-11-27/NODE-INCARNATION-SEQUENCE.parquet
//! ```
//!
//! A file has samples of one stream from blocks of one start of an agent, and is named by the day (UTC)
//! and the sequence number of its first block. Its metadata name the stream and all its blocks, so no
//! catalogue is needed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use dwell_record::segment::{self, Record, SegmentEnd};
use dwell_record::{Batch, Column};
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil::Date};

use crate::error::StoreError;
use crate::parquet::{ParquetReader, SampleWriter};

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;

/// Rows of a batch made from segments.
const BATCH_ROWS: usize = 1 << 16;

/// What a file of samples contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSamples {
    /// Node that sent the probes.
    pub sender: String,
    /// Node that reflected them.
    pub reflector: String,
    /// Protocol of the probes.
    pub protocol: String,
    /// Entry of the schedule.
    pub entry: String,
    /// Start of the agent.
    pub incarnation: String,
    /// Sequence number of the first block.
    pub first_sequence: u64,
    /// Sequence numbers of all blocks, as ranges like `1-5,7`.
    pub sequences: String,
    /// Smallest intended send time in nanoseconds since 1970, by the clock of the sender.
    pub from_ns: i64,
    /// Largest intended send time.
    pub to_ns: i64,
    /// Number of samples.
    pub samples: u64,
}

/// A file of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSampleFile {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
    /// Its content.
    pub about: FleetSamples,
}

impl FleetSamples {
    /// Directory of the file in the data directory `dir`.
    fn day_dir(&self, dir: &Path) -> Result<PathBuf, StoreError> {
        let time = Timestamp::from_nanosecond(self.from_ns.into()).unwrap_or_default();
        let day = dir.join("samples").join(time.to_zoned(TimeZone::UTC).date().to_string());
        if !day.is_dir() {
            fs::create_dir_all(&day).map_err(StoreError::file("create", &day))?;
            // Its name must survive a power failure, as the files do.
            for above in [dir.join("samples"), dir.to_owned()] {
                let synced = File::open(&above).and_then(|above| above.sync_all());
                synced.map_err(StoreError::file("write", &above))?;
            }
        }
        Ok(day)
    }

    /// Stores the samples of complete segments. When this returns, the file is on the medium.
    ///
    /// # Errors
    /// The file cannot be written, or a segment is damaged. There is no file then.
    pub fn store(&self, dir: &Path, segments: &[&[u8]]) -> Result<PathBuf, StoreError> {
        let name = format!("{}-{}-{}.parquet", self.sender, self.incarnation, self.first_sequence);
        let path = self.day_dir(dir)?.join(name);
        let writer = SampleWriter::new(&path, &Column::ALL[..Column::MEASURED]);
        let mut writer = writer.with_metadata(self.metadata());
        let mut batch = Batch::default();
        for segment in segments {
            let read = segment::read(&mut &segment[..], &mut |record| {
                if let Record::Sample(sample, bridge, near) = record {
                    batch.push_sample(sample, bridge, near);
                }
            });
            if !read.is_ok_and(is_whole) {
                return Err(StoreError::file("store", &path)(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a block of samples is damaged",
                )));
            }
            if batch.len() >= BATCH_ROWS {
                writer.push(&batch)?;
                batch.clear();
            }
        }
        writer.push(&batch)?;
        writer.finish()?;
        Ok(path)
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        vec![
            ("dwell.sender", self.sender.clone()),
            ("dwell.reflector", self.reflector.clone()),
            ("dwell.protocol", self.protocol.clone()),
            ("dwell.entry", self.entry.clone()),
            ("dwell.incarnation", self.incarnation.clone()),
            ("dwell.first_sequence", self.first_sequence.to_string()),
            ("dwell.sequences", self.sequences.clone()),
            ("dwell.from_ns", self.from_ns.to_string()),
            ("dwell.to_ns", self.to_ns.to_string()),
            ("dwell.samples", self.samples.to_string()),
        ]
    }

    fn of_metadata(mut metadata: BTreeMap<String, String>) -> Option<Self> {
        let mut text = |key: &str| metadata.remove(&format!("dwell.{key}"));
        Some(Self {
            sender: text("sender")?,
            reflector: text("reflector")?,
            protocol: text("protocol")?,
            entry: text("entry")?,
            incarnation: text("incarnation")?,
            first_sequence: text("first_sequence")?.parse().ok()?,
            sequences: text("sequences")?,
            from_ns: text("from_ns")?.parse().ok()?,
            to_ns: text("to_ns")?.parse().ok()?,
            samples: text("samples")?.parse().ok()?,
        })
    }
}

/// Returns the files of samples in the data directory `dir`, by day and name, and why others cannot be
/// read. `is_wanted` selects by name.
///
/// # Errors
/// A directory cannot be read.
pub fn fleet_samples(
    dir: &Path,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<(Vec<FleetSampleFile>, Vec<StoreError>), StoreError> {
    let (mut files, mut failed) = (Vec::new(), Vec::new());
    for (_, day) in days(dir)? {
        for path in entries(&day)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(".parquet") && is_wanted(name) {
                match read_metadata(&path) {
                    Ok(file) => files.extend(file),
                    Err(error) => failed.push(error),
                }
            }
        }
    }
    Ok((files, failed))
}

/// Whether a block of samples is a complete segment.
pub fn is_whole_segment(mut segment: &[u8]) -> bool {
    segment::read(&mut segment, &mut |_| {}).is_ok_and(is_whole)
}

fn is_whole(end: SegmentEnd) -> bool {
    end.totals.is_some() && (end.damaged, end.tail) == (0, 0)
}

/// The content of a file; `None` if it was removed.
fn read_metadata(path: &Path) -> Result<Option<FleetSampleFile>, StoreError> {
    let Ok(found) = fs::metadata(path) else { return Ok(None) };
    let about = FleetSamples::of_metadata(ParquetReader::open(path)?.metadata());
    let about = about.ok_or_else(|| {
        let reason = "it names no stream; move it elsewhere";
        StoreError::file("read", path)(io::Error::new(io::ErrorKind::InvalidData, reason))
    })?;
    Ok(Some(FleetSampleFile { path: path.to_owned(), len: found.len(), about }))
}

/// Removes the samples of days that ended more than `keep` days ago. Returns the number of days.
///
/// # Errors
/// A directory cannot be read or removed.
pub fn remove_fleet_samples(dir: &Path, keep: u32, now_ns: i64) -> Result<u64, StoreError> {
    let mut removed = 0;
    for (date, day) in days(dir)? {
        let start_ns = date.to_zoned(TimeZone::UTC).map(|day| day.timestamp().as_nanosecond());
        let end_ns = start_ns.unwrap_or_default() + i128::from(DAY_NS) * (i128::from(keep) + 1);
        if end_ns < now_ns.into() {
            fs::remove_dir_all(&day).map_err(StoreError::file("remove", &day))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes incomplete files, which a killed hub left. No hub may be active.
///
/// # Errors
/// A directory cannot be read, or a file not removed.
pub fn remove_partial_samples(dir: &Path) -> Result<(), StoreError> {
    for (_, day) in days(dir)? {
        let partial = |path: &PathBuf| path.extension().is_some_and(|it| it == "partial");
        for path in entries(&day)?.into_iter().filter(partial) {
            fs::remove_file(&path).map_err(StoreError::file("remove", &path))?;
        }
    }
    Ok(())
}

/// Whether an entry of the directory of samples is a day of continuous measurement.
pub(crate) fn is_day(name: &str) -> bool {
    name.len() == 10 && name.parse::<Date>().is_ok()
}

/// The days with samples, the oldest first.
fn days(dir: &Path) -> Result<Vec<(Date, PathBuf)>, StoreError> {
    let days = entries(&dir.join("samples"))?.into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str().filter(|name| is_day(name))?;
        Some((name.parse().ok()?, path))
    });
    Ok(days.collect())
}

/// The paths in a directory, by name; none if it does not exist.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let unreadable = StoreError::file("read", dir);
    let read = match fs::read_dir(dir) {
        Ok(read) => read.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let mut paths = read.map_err(unreadable)?;
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use dwell_record::segment::{Header, SegmentWriter};
    use dwell_sample::{RxStamps, Sample, State, TimestampSource, TxStamps};
    use dwell_units::{Instant, Nanos, Pairing};

    use super::*;

    const NOW_NS: i64 = 1_795_766_400_000_000_000;

    fn segment(ids: std::ops::Range<u64>) -> Vec<u8> {
        let pairing = Pairing {
            real: Instant::from_nanos(NOW_NS),
            mono: Instant::from_nanos(7),
            width: Nanos(30),
        };
        let header = Header::of_ping("stamp://192.0.2.1".to_owned());
        let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
        for id in ids {
            let app = Instant::from_nanos(NOW_NS + id as i64 * 1_000);
            let rx = RxStamps { hw: None, driver: None, kernel: None, app: app + Nanos(250) };
            let sample = Sample {
                id,
                state: State::Received,
                reordered: false,
                intended: Instant::from_nanos(7 + id as i64 * 1_000),
                tx: TxStamps { app, sched: None, tcx: None, kernel: None, hw: None },
                rx: Some(rx),
                remote: None,
            };
            writer.push(&sample, Some(&pairing), TimestampSource::User);
        }
        writer.finish(0).unwrap()
    }

    fn about(from_ns: i64) -> FleetSamples {
        FleetSamples {
            sender: "a.b-c".to_owned(),
            reflector: "d".to_owned(),
            protocol: "stamp".to_owned(),
            entry: "mesh+d".to_owned(),
            incarnation: "00000000000000aa".to_owned(),
            first_sequence: 3,
            sequences: "3,5".to_owned(),
            from_ns,
            to_ns: from_ns + 9,
            samples: 30,
        }
    }

    #[test]
    fn file_has_the_samples_of_its_blocks_and_names_them() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (segment(0..10), segment(10..30));
        let path = about(NOW_NS).store(dir.path(), &[&first, &second]).unwrap();
        let name = "samples/2026-11-27/a.b-c-00000000000000aa-3.parquet";
        assert_eq!(path, dir.path().join(name));
        let (files, failed) = fleet_samples(dir.path(), &|_| true).unwrap();
        assert_eq!((&files[0].about, files.len(), failed.len()), (&about(NOW_NS), 1, 0));
        let reader = ParquetReader::open(&path).unwrap();
        let mut rows = Vec::new();
        reader
            .read(&[Column::Rtt], &mut |batch| {
                rows.extend(
                    (0..batch.len()).map(|row| (batch.id[row], batch.number(row, Column::Rtt))),
                );
                Ok(())
            })
            .unwrap();
        assert_eq!(rows, (0..30).map(|id| (id, Some(250))).collect::<Vec<_>>());
        assert!(fleet_samples(dir.path(), &|name| name.starts_with("b")).unwrap().0.is_empty());
        fs::write(dir.path().join("samples/2026-11-27/b-1-1.parquet"), "noise").unwrap();
        assert_eq!(fleet_samples(dir.path(), &|_| true).unwrap().1.len(), 1);
    }

    #[test]
    fn damaged_block_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut cut = segment(0..10);
        cut.truncate(cut.len() - 3);
        assert!(is_whole_segment(&segment(0..3)) && !is_whole_segment(&cut));
        let error = about(NOW_NS).store(dir.path(), &[&segment(0..3), &cut]).unwrap_err();
        assert!(error.to_string().contains("cannot store"), "{error}");
        assert!(entries(&dir.path().join("samples/2026-11-27")).unwrap().is_empty());
    }

    #[test]
    fn old_days_and_partial_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for days in [0, 1, 2, 40] {
            about(NOW_NS - days * DAY_NS).store(dir.path(), &[&segment(0..3)]).unwrap();
        }
        let samples = dir.path().join("samples");
        fs::create_dir(samples.join("20260101-1")).unwrap();
        fs::write(samples.join("2026-11-27/x.partial"), "").unwrap();
        remove_partial_samples(dir.path()).unwrap();
        assert_eq!(entries(&samples.join("2026-11-27")).unwrap().len(), 1);
        // It is 8:00 of the day.
        assert_eq!(remove_fleet_samples(dir.path(), 1, NOW_NS).unwrap(), 2);
        let left = entries(&samples).unwrap();
        let names: Vec<_> = left.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["2026-11-26", "2026-11-27", "20260101-1"]);
    }
}
