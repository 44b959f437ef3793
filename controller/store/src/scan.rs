//! The figures of a trial from its samples alone, on all cores: row groups are independent.

use std::ops::Range;
use std::path::Path;
use std::thread;

use dwell_record::{Column, Columns};

use crate::error::StoreError;
use crate::parquet::SampleReader;

/// Scans the samples of one file.
pub(crate) fn scan(path: &Path) -> Result<Columns, StoreError> {
    let reader = SampleReader::open(path)?;
    let groups = reader.groups();
    let all = reader.columns();
    let wanted: Vec<Column> =
        Columns::TAKEN.iter().copied().filter(|column| all.contains(column)).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(groups).max(1);
    let part = |number: usize| number * groups / threads..(number + 1) * groups / threads;
    // Each reads a stretch of the file, so that what is left to join are the ends of stretches.
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
    let mut columns = Columns::default();
    parts.iter().for_each(|part| columns.append(part));
    Ok(columns)
}

fn scan_groups(
    path: &Path,
    groups: Range<usize>,
    wanted: &[Column],
) -> Result<Columns, StoreError> {
    let mut columns = Columns::default();
    SampleReader::open(path)?.read_groups(groups, wanted, &mut |batch| {
        columns.take(batch);
        Ok(())
    })?;
    Ok(columns)
}
