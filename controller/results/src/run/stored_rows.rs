//! Rows of a run in the store, for the figures that need more than summaries.

use std::collections::BTreeSet;

use dwell_plan::{Source, expand};
use dwell_record::{Batch, Column};
use dwell_report::model::{SampleReader, TimeBin};
use dwell_store::{RunNode, RunRow, Store, StoreError, TrialRow};

use crate::{OnProblem, chain};

/// Rows of a run.
pub(super) struct StoredRows<'a> {
    pub(super) store: &'a Store,
    pub(super) run: &'a RunRow,
    pub(super) trials: &'a [TrialRow],
    pub(super) nodes: &'a [RunNode],
    pub(super) on_problem: OnProblem<'a>,
}

impl StoredRows<'_> {
    fn trial(&self, number: u32) -> Option<&TrialRow> {
        self.trials.iter().find(|trial| trial.number == number)
    }

    /// Returns the nodes whose clock differs from that of the node that measures a trial. Their
    /// activity has no known time on the axis of the samples.
    fn nodes_with_other_clocks(&self, trial: &TrialRow) -> Vec<&str> {
        if self.nodes.windows(2).all(|pair| pair[0].clock == pair[1].clock) {
            return Vec::new();
        }
        let measuring = self.measuring_node(trial);
        let own = self.nodes.iter().find(|node| Some(&node.node) == measuring.as_ref());
        let clock = own.and_then(|node| node.clock.as_ref());
        let others = |node: &&RunNode| node.clock.is_none() || node.clock.as_ref() != clock;
        self.nodes.iter().filter(others).map(|node| node.node.as_str()).collect()
    }

    /// Returns the node whose samples a trial has; `None` if the plan is unreadable.
    fn measuring_node(&self, trial: &TrialRow) -> Option<String> {
        let mut source = Source::parse(self.run.plan.as_deref()?).ok()?;
        for setting in &self.run.settings {
            source.set(setting).ok()?;
        }
        let plan = expand(&source, self.run.seed).ok()?.plan_of(trial.cell).ok()?;
        Some(plan.measurement.sender().to_owned())
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
    ) -> Result<usize, StoreError> {
        let Some(trial) = self.trial(trial) else { return Ok(0) };
        let other_clocks = self.nodes_with_other_clocks(trial);
        let mut left_out = BTreeSet::new();
        // Kept until the end of the file, because a damaged one is left out as a whole.
        let mut rows = Vec::new();
        let read = self.store.host(self.run, trial, &mut |row| {
            if other_clocks.contains(&row.node) {
                left_out.insert(row.node.to_owned());
            } else {
                rows.push((row.node.to_owned(), row.at_ns, row.name.to_owned(), row.value));
            }
        });
        if let Err(error) = read {
            let error = chain(&error);
            (self.on_problem)(&format!(
                "host activity of trial {} is left out: {error}",
                trial.number
            ));
            return Ok(0);
        }
        rows.iter().for_each(|(node, at_ns, name, value)| each(node, *at_ns, name, *value));
        Ok(left_out.len())
    }

    fn windows(&self, trial: u32, metric: &str, width_ns: i64) -> Result<Vec<TimeBin>, StoreError> {
        let trial = self.trial(trial);
        trial.map_or_else(|| Ok(Vec::new()), |it| self.store.windows(it, metric, width_ns))
    }
}
