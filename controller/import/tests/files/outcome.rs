//! Imports files and keeps their samples.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dwell_import::{Format, ImportError, Imported, read, recognise};
use dwell_record::{Batch, Column, Scalar};
use dwell_sample::State;

/// The result of an import.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) imported: Imported,
    /// The batches of each flow, in order.
    pub(crate) batches: BTreeMap<String, Vec<Batch>>,
}

/// The bytes of a recorded file.
pub(crate) fn recorded(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Imports a recorded file, whose format is detected.
pub(crate) fn import(name: &str) -> Outcome {
    let bytes = recorded(name);
    import_as(recognise(&bytes).unwrap(), &bytes).unwrap()
}

/// Imports bytes as `format`.
pub(crate) fn import_as(format: Format, mut bytes: &[u8]) -> Result<Outcome, ImportError> {
    let mut batches = BTreeMap::<String, Vec<Batch>>::new();
    let imported = read(format, &mut bytes, &mut |flow, batch| {
        batches.entry(flow.to_owned()).or_default().push(batch);
        Ok::<_, std::convert::Infallible>(())
    })?;
    Ok(Outcome { imported, batches })
}

impl Outcome {
    /// Returns all values of a column of a flow.
    pub(crate) fn column(&self, flow: &str, column: Column) -> Vec<i64> {
        let batches = self.batches.get(flow).into_iter().flatten();
        batches
            .flat_map(|batch| (0..batch.len()).filter_map(move |row| batch.number(row, column)))
            .collect()
    }

    /// Returns the ids of a flow's rows with this state.
    pub(crate) fn ids(&self, flow: &str, state: State) -> Vec<u64> {
        let batches = self.batches.get(flow).into_iter().flatten();
        let rows = batches.flat_map(|batch| batch.id.iter().zip(&batch.state));
        rows.filter(|(_, found)| **found == state).map(|(id, _)| *id).collect()
    }

    /// Panics if a figure is impossible.
    pub(crate) fn assert_possible(&self) {
        let Self { imported, batches } = self;
        for flow in &imported.flows {
            for (name, value) in &flow.values {
                let value = value.map_or(0.0, Scalar::as_f64);
                let limit = if name.ends_with("_ratio") { 1.0 } else { f64::MAX };
                assert!((0.0..=limit).contains(&value), "{name} {value}");
            }
        }
        for batch in batches.values().flatten() {
            for column in [Column::Rtt, Column::Residence] {
                let values = batch.column(column).unwrap_or_default().iter();
                assert!(values.clone().all(|ns| *ns >= 0 || *ns == Batch::ABSENT), "{column:?}");
            }
        }
    }

    /// Returns minimum, mean and maximum of a column of the unnamed flow.
    pub(crate) fn spread(&self, column: Column) -> (i64, f64, i64) {
        spread(&self.column("", column))
    }
}

/// Returns minimum, mean and maximum.
pub(crate) fn spread(values: &[i64]) -> (i64, f64, i64) {
    let sum: i64 = values.iter().sum();
    let least = *values.iter().min().expect("there are values");
    (least, sum as f64 / values.len() as f64, *values.iter().max().expect("there are values"))
}
