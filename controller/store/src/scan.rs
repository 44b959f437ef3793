//! Recomputes the figures of a trial from its samples, in parallel by row group.

use std::ops::Range;
use std::path::Path;
use std::thread;

use dwell_record::{BatchStatistics, Column};

use crate::error::StoreError;
use crate::parquet::ParquetReader;

/// Scans the samples of one file.
pub(crate) fn scan(path: &Path) -> Result<BatchStatistics, StoreError> {
    let reader = ParquetReader::open(path)?;
    let groups = reader.groups();
    let all = reader.columns();
    let wanted: Vec<Column> = BatchStatistics::USED_COLUMNS
        .iter()
        .copied()
        .filter(|column| all.contains(column))
        .collect();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(groups).max(1);
    let part = |number: usize| number * groups / threads..(number + 1) * groups / threads;
    // Each thread reads consecutive row groups, so that only the ends of its part need joining.
    let parts = thread::scope(|scope| {
        let wanted = &wanted;
        let others: Vec<_> = (1..threads)
            .map(|number| scope.spawn(move || scan_groups(path, part(number), wanted)))
            .collect();
        let first = scan_groups(path, part(0), wanted);
        let others = others.into_iter().map(|other| match other.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(others).collect::<Result<Vec<_>, _>>()
    })?;
    let mut columns = BatchStatistics::default();
    for part in &parts {
        if columns.shares_an_id(part) {
            // Rare enough to reread the whole file.
            return scan_groups(path, 0..groups, &wanted);
        }
        columns.append(part);
    }
    Ok(columns)
}

fn scan_groups(
    path: &Path,
    groups: Range<usize>,
    wanted: &[Column],
) -> Result<BatchStatistics, StoreError> {
    let mut columns = BatchStatistics::default();
    ParquetReader::open(path)?.read_groups(groups, wanted, &mut |batch| {
        columns.take(batch);
        Ok(())
    })?;
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use dwell_record::{Batch, Figures, Scalar};
    use dwell_sample::State;

    use super::*;
    use crate::ingest::{Ingest, Ingested};

    /// Enough rows for several row groups, so that several threads read.
    const ROWS: u64 = 600_000;

    /// Round trips with losses, late replies, rising timestamps and negative schedule errors.
    fn ingested(path: &Path, sizes: &[usize]) -> Ingested {
        let mut ingest = Ingest::new(path, &[]).with_figures();
        let mut sizes = sizes.iter().cycle();
        let mut batch = Batch::default();
        let mut full = *sizes.next().unwrap();
        for id in 0..ROWS {
            let noise = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
            let lost = noise % 1_000 == 7;
            batch.push(id, if lost { State::Lost } else { State::Received });
            batch.set(Column::ScheduleError, noise as i64 % 900 - 300);
            batch.set(Column::TxApp, 1_700_000_000_000_000_000 + id as i64 * 100_000);
            if !lost {
                batch.set(Column::Rtt, 170_000 + noise as i64);
            } else if id % 3 == 0 {
                batch.push(id, State::Late);
                batch.set(Column::Rtt, 2_000_000_000);
            }
            if batch.len() >= full {
                ingest.push(std::mem::take(&mut batch)).unwrap();
                full = *sizes.next().unwrap();
            }
        }
        ingest.push(batch).unwrap();
        ingest.finish().unwrap()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= b.abs() * 1e-9
    }

    #[test]
    fn scan_equals_figures_of_the_ingest() {
        let dir = tempfile::tempdir().unwrap();
        for sizes in [&[65_536][..], &[40_000, 1, 100_000, 7], &[999]] {
            let path = dir.path().join(format!("{}.parquet", sizes.len()));
            let (metrics, values, packets) = ingested(&path, sizes).columns.figures();
            let scanned = scan(&path).unwrap();
            assert!(ParquetReader::open(&path).unwrap().groups() > 1);
            let (again, again_values, again_packets) = scanned.figures();
            assert_eq!(again_packets, packets);
            assert_eq!(packets.unwrap().sent, ROWS);
            assert!(
                ["rtt_ns", "ipdv_ns", "pdv_ns", "schedule_error_ns"]
                    .iter()
                    .all(|name| metrics[*name].count > 500_000)
            );
            assert_eq!(again.keys().collect::<Vec<_>>(), metrics.keys().collect::<Vec<_>>());
            for (name, figures) in &metrics {
                let other = &again[name];
                let exact = |figures: &Figures| Figures { stddev: None, ..*figures };
                assert_eq!(exact(other), exact(figures), "{name}");
                // Squares are summed in another order.
                assert!(near(other.stddev.unwrap(), figures.stddev.unwrap()), "{name}");
            }
            for (name, value) in &values {
                // With this many samples only every second one is used, and parts start anew.
                let is_end = name.ends_with("_low_ns") || name.ends_with("_high_ns");
                let within = if is_end { 0.01 } else { 1e-9 };
                let (Some(Scalar::Real(a)), Some(Scalar::Real(b))) = (&again_values[name], value)
                else {
                    panic!("{name} {value:?}");
                };
                assert!((a - b).abs() <= b.abs() * within, "{name}: {a} {b}");
            }
        }
    }

    #[test]
    fn repeated_id_across_scan_parts_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        // The last ids of a row group are repeated at the beginning of the next.
        let again = |row: u64| row > 4 && row % (1 << 18) < 4;
        let ids = (0..ROWS).map(|row| if again(row) { row - 4 } else { row });
        let mut ingest = Ingest::new(&path, &[]).with_figures();
        let mut batch = Batch::default();
        for (row, id) in ids.enumerate() {
            batch.push(id, State::Received);
            batch.set(Column::Rtt, 170_000 + (row as i64 * 7_919) % 10_007);
            if batch.len() == 1 << 16 {
                ingest.push(std::mem::take(&mut batch)).unwrap();
            }
        }
        ingest.push(batch).unwrap();
        let (metrics, ..) = ingest.finish().unwrap().columns.figures();
        assert!(ParquetReader::open(&path).unwrap().groups() > 1);
        let (again, ..) = scan(&path).unwrap().figures();
        let exact = |figures: &Figures| Figures { stddev: None, ..*figures };
        assert_eq!(exact(&again["ipdv_ns"]), exact(&metrics["ipdv_ns"]));
    }

    #[test]
    fn scan_distinguishes_truncated_from_empty_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        Ingest::new(&path, &[Column::Rtt]).finish().unwrap();
        let (metrics, _, packets) = scan(&path).unwrap().figures();
        assert!(metrics.is_empty() && packets.is_none());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        let error = scan(&path).unwrap_err().to_string();
        assert!(error.contains("1.parquet"), "{error}");
    }
}
