//! The host series of trials, and delays in windows as wide as those series need.

use std::fs;
use std::path::PathBuf;

use dwell_record::series::TimeBin;
use rusqlite::OptionalExtension;

use super::Store;
use crate::error::StoreError;
use crate::parquet::{self, HostRow, HostWriter};
use crate::run::{RunRow, TrialRow};
use crate::views::{StoredBin, joined};

impl Store {
    /// Begins to take in what machines did while a trial was measured. To be finished even where
    /// they told nothing: what an earlier attempt left is gone then.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn host_writer(&self, run: &RunRow, trial: &TrialRow) -> Result<HostWriter, StoreError> {
        let path = self.host_path(&run.run, trial.number);
        let dir = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(dir).map_err(StoreError::file("make", dir))?;
        Ok(HostWriter::new(path))
    }

    /// Where the host series of a trial is, if there is one.
    pub fn host_path(&self, run: &str, trial: u32) -> PathBuf {
        self.dir.join("samples").join(run).join("host").join(format!("{trial}.parquet"))
    }

    /// Hands over what machines did while a trial was measured, by machine and in order of time. A
    /// trial of which nobody told that has no rows.
    ///
    /// # Errors
    /// The file is damaged or cannot be read; nothing of it was handed over if it is damaged. The
    /// trial's parameters are damaged.
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
        trial.whole()?;
        parquet::read_host(&path, each)
    }

    /// A metric of a trial in windows of at least `least_ns`; each has as many of the stretches of
    /// its series as it takes. Percentiles are those of all values in the window. Nothing for a
    /// metric that the trial has not, or whose bytes are damaged.
    ///
    /// # Errors
    /// The catalogue cannot be read.
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

    /// What an earlier attempt at a trial left of what machines did is gone afterwards.
    pub(super) fn forget_host(&self, trial: &TrialRow) -> Result<(), StoreError> {
        let run: Option<String> = self
            .db
            .query_row(
                "SELECT run FROM runs JOIN trials ON run_id = runs.id WHERE trials.id = ?1",
                [trial.id],
                |row| row.get(0),
            )
            .optional()?;
        run.map_or(Ok(()), |run| parquet::remove_host(&self.host_path(&run, trial.number)))
    }
}
