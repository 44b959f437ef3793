//! What the fuzz target of the importer does with its bytes: every reader takes them, and what
//! comes out must be whole. Shared by the libFuzzer target and the smoke test of
//! `controller/import`.

use std::convert::Infallible;

use dwell_import::{Format, detect, read};
use dwell_record::{Batch, Column};

pub(crate) fn import(data: &[u8]) {
    let _ = detect(data);
    for format in Format::ALL {
        let (mut rows, mut input) = (0, data);
        let imported = read(format, &mut input, &mut |_, batch| {
            assert!(!batch.is_empty() && batch.len() <= 65_536);
            whole(&batch);
            rows += batch.len() as u64;
            Ok::<_, Infallible>(())
        });
        if let Ok(imported) = imported {
            assert_eq!(imported.flows.iter().map(|flow| flow.rows).sum::<u64>(), rows);
            assert!(imported.skipped_lines == 0 || imported.skipped_example.is_some());
        }
    }
}

fn whole(batch: &Batch) {
    let rows = batch.len();
    assert_eq!((batch.state.len(), batch.reordered.len(), batch.void.len()), (rows, rows, rows));
    for column in Column::ALL {
        assert!(batch.column(column).is_none_or(|values| values.len() == rows));
    }
}
