//! Fuzz target for the importer: every reader must handle any bytes and return consistent data.
//! Shared by the libFuzzer target and the smoke test of `controller/import`.

use std::convert::Infallible;

use dwell_import::{Format, ImportedFlow, detect, read};
use dwell_record::{Batch, Column, Scalar};

pub(crate) fn import(data: &[u8]) {
    let _ = detect(data);
    for format in Format::ALL {
        let (mut rows, mut input) = (0, data);
        let imported = read(format, &mut input, &mut |_, batch| {
            assert!(!batch.is_empty() && batch.len() <= 65_536);
            check_batch(&batch);
            rows += batch.len() as u64;
            Ok::<_, Infallible>(())
        });
        if let Ok(imported) = imported {
            assert_eq!(imported.flows.iter().map(|flow| flow.rows).sum::<u64>(), rows);
            assert!(imported.skipped_lines == 0 || imported.skipped_example.is_some());
            imported.flows.iter().for_each(check_values);
        }
    }
}

/// Checks that no value is impossible, whatever the file contains.
fn check_values(flow: &ImportedFlow) {
    for (name, value) in &flow.values {
        let value = value.map_or(0.0, Scalar::as_f64);
        let limit = if name.ends_with("_ratio") { 1.0 } else { f64::MAX };
        assert!((0.0..=limit).contains(&value), "{name} {value}");
    }
    for (name, figures) in &flow.metrics {
        let is_ordered = figures.min.zip(figures.max).is_none_or(|(min, max)| min <= max + 1_000);
        assert!(is_ordered, "{name} {figures:?}");
    }
}

fn check_batch(batch: &Batch) {
    let rows = batch.len();
    assert_eq!((batch.state.len(), batch.reordered.len(), batch.void.len()), (rows, rows, rows));
    for column in Column::ALL {
        assert!(batch.column(column).is_none_or(|values| values.len() == rows));
    }
}
