//! Host series and spikes of trials, and delays in windows of matching width.

use std::fs;
use std::path::PathBuf;

use dwell_record::Spike;
use dwell_record::series::TimeBin;
use rusqlite::OptionalExtension;

use super::Store;
use crate::error::StoreError;
use crate::parquet::{self, HostRow, HostWriter, SpikeWriter};
use crate::run::{RunRow, TrialRow};
use crate::views::{StoredBin, joined};

impl Store {
    /// Creates a writer for the host activity of a trial. It must be finished even without any
    /// activity, because that removes the file of an earlier attempt.
    pub fn host_writer(&self, run: &RunRow, trial: &TrialRow) -> Result<HostWriter, StoreError> {
        let path = self.host_path(&run.run, trial.number);
        let dir = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(dir).map_err(StoreError::file("create", dir))?;
        Ok(HostWriter::new(path))
    }

    /// Creates a writer for the spikes of a trial. It must be finished even without any spikes,
    /// because that removes the file of an earlier attempt.
    pub fn spike_writer(&self, run: &RunRow, trial: &TrialRow) -> SpikeWriter {
        SpikeWriter::new(self.spikes_path(&run.run, trial.number))
    }

    /// Returns the path of a trial's host series, whether or not it exists.
    pub fn host_path(&self, run: &str, trial: u32) -> PathBuf {
        self.dir.join("samples").join(run).join("host").join(format!("{trial}.parquet"))
    }

    /// Returns the path of a trial's spikes, whether or not it exists.
    pub fn spikes_path(&self, run: &str, trial: u32) -> PathBuf {
        self.dir.join("samples").join(run).join("spikes").join(format!("{trial}.parquet"))
    }

    /// Passes the spikes of a trial to `each`, by id. A trial whose delays were not divided has
    /// none.
    ///
    /// # Errors
    /// Those of [`Self::host`].
    pub fn spikes(
        &self,
        run: &RunRow,
        trial: &TrialRow,
        each: &mut dyn FnMut(&Spike),
    ) -> Result<(), StoreError> {
        let path = self.spikes_path(&run.run, trial.number);
        if !path.exists() {
            return Ok(());
        }
        trial.check_parameters()?;
        parquet::read_spikes(&path, each)
    }

    /// Passes the host activity of a trial to `each`, by machine and time. A trial without recorded
    /// activity has no rows.
    ///
    /// # Errors
    /// The file is damaged or unreadable, or the trial's parameters are damaged. No rows of a
    /// damaged file are passed on.
    pub fn host(
        &self,
        run: &RunRow,
        trial: &TrialRow,
        each: &mut dyn FnMut(&HostRow<'_>),
    ) -> Result<(), StoreError> {
        let path = self.host_path(&run.run, trial.number);
        if !path.exists() {
            return Ok(());
        }
        trial.check_parameters()?;
        parquet::read_host(&path, each)
    }

    /// Returns a metric of a trial in windows of at least `least_ns`. A window combines consecutive
    /// stored bins, and its percentiles are computed from all values in it. Empty if the trial has
    /// no such metric or its data is damaged.
    pub fn windows(
        &self,
        trial: &TrialRow,
        metric: &str,
        least_ns: i64,
    ) -> Result<Vec<TimeBin>, StoreError> {
        let mut select = self.db.prepare_cached(
            "SELECT from_ns, to_ns, lost, min_ns, max_ns, histogram FROM bins
             WHERE series_id = (SELECT id FROM series WHERE trial_id = ?1 AND metric = ?2)
             ORDER BY bin",
        )?;
        let bins = select.query_map(rusqlite::params![trial.id, metric], StoredBin::of_row)?;
        let bins: Vec<StoredBin> = bins.collect::<Result<_, _>>()?;
        let width = bins.first().map_or(1, |bin| bin.to.saturating_sub(bin.from).max(1));
        let together = (least_ns.max(1) as u64).div_ceil(width as u64) as usize;
        Ok(bins.chunks(together).map(joined).collect::<Option<_>>().unwrap_or_default())
    }

    /// Removes the host series and the spikes of an earlier attempt at a trial.
    pub(super) fn remove_series(&self, trial: &TrialRow) -> Result<(), StoreError> {
        let run: Option<String> = self
            .db
            .query_row(
                "SELECT run FROM runs JOIN trials ON run_id = runs.id WHERE trials.id = ?1",
                [trial.id],
                |row| row.get(0),
            )
            .optional()?;
        let Some(run) = run else { return Ok(()) };
        parquet::remove(&self.host_path(&run, trial.number))?;
        parquet::remove(&self.spikes_path(&run, trial.number))
    }
}
