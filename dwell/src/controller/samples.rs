//! Rows of a run in the store, for the figures that need more than summaries.

use dwell_node_cli::say;
use dwell_record::{Batch, Column};
use dwell_report::model::{SampleReader, TimeBin};
use dwell_store::{RunRow, Store, StoreError, TrialRow};

use super::data::chain;

/// Rows of a run.
pub(super) struct StoredRows<'a> {
    pub(super) store: &'a Store,
    pub(super) run: &'a RunRow,
    pub(super) trials: &'a [TrialRow],
}

impl StoredRows<'_> {
    fn trial(&self, number: u32) -> Option<&TrialRow> {
        self.trials.iter().find(|trial| trial.number == number)
    }
}

impl SampleReader for StoredRows<'_> {
    type Error = StoreError;

    fn samples(
        &self,
        trial: u32,
        columns: &[Column],
        each: &mut dyn FnMut(&Batch),
    ) -> Result<(), StoreError> {
        let Some(trial) = self.trial(trial) else { return Ok(()) };
        self.store.samples(self.run, trial, Some(columns), &mut |batch| {
            each(batch);
            Ok(())
        })
    }

    /// A damaged file is reported and left out.
    fn host(
        &self,
        trial: u32,
        each: &mut dyn FnMut(&str, i64, &str, f64),
    ) -> Result<(), StoreError> {
        let Some(trial) = self.trial(trial) else { return Ok(()) };
        let read = self.store.host(self.run, trial, &mut |row| {
            each(row.node, row.at_ns, row.name, row.value);
        });
        if let Err(error) = read {
            let error = chain(&error);
            say(&format!("dwell: host activity of trial {} is left out: {error}", trial.number));
        }
        Ok(())
    }

    fn windows(&self, trial: u32, metric: &str, width_ns: i64) -> Result<Vec<TimeBin>, StoreError> {
        let trial = self.trial(trial);
        trial.map_or_else(|| Ok(Vec::new()), |it| self.store.windows(it, metric, width_ns))
    }
}
