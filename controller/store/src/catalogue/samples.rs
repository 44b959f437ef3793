//! Writes and reads the samples of trials.

use std::fs;
use std::path::PathBuf;

use dwell_record::{Batch, BatchStatistics, Column};

use super::Store;
use crate::error::StoreError;
use crate::ingest::Ingest;
use crate::parquet::{ParquetReader, verify};
use crate::run::{RunKind, RunRow, TrialRow};
use crate::scan::scan;

impl Store {
    /// Creates a writer for the samples of a trial.
    pub fn ingest(&self, run: &RunRow, trial: &TrialRow) -> Result<Ingest, StoreError> {
        let wanted = match run.kind {
            RunKind::Run => &Column::ALL[..Column::MEASURED],
            RunKind::Import => &[],
        };
        self.ingest_columns(run, trial, wanted)
    }

    /// Like [`Self::ingest`], for samples with other columns than those of a ping.
    pub fn ingest_columns(
        &self,
        run: &RunRow,
        trial: &TrialRow,
        wanted: &[Column],
    ) -> Result<Ingest, StoreError> {
        let path = self.samples_path(&run.run, trial.number);
        let dir = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(dir).map_err(StoreError::file("create", dir))?;
        Ok(Ingest::new(&path, wanted))
    }

    /// Passes the samples of a trial to `each` in batches, with these columns or, for `None`, all
    /// columns. A trial without samples has no rows.
    ///
    /// # Errors
    /// The file cannot be read, or `each` fails.
    pub fn samples(
        &self,
        run: &RunRow,
        trial: &TrialRow,
        columns: Option<&[Column]>,
        each: &mut dyn FnMut(&Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if trial.samples.is_none_or(|samples| samples == 0) {
            return Ok(());
        }
        let reader = ParquetReader::open(&self.verified(run, trial)?)?;
        let all = reader.columns();
        reader.read(columns.unwrap_or(&all), each)
    }

    /// Recomputes the figures of a trial from its samples, on all cores. A trial without samples
    /// has none.
    pub fn recompute(&self, run: &RunRow, trial: &TrialRow) -> Result<BatchStatistics, StoreError> {
        if trial.samples.is_none_or(|samples| samples == 0) {
            return Ok(BatchStatistics::default());
        }
        scan(&self.verified(run, trial)?)
    }

    /// Returns the path of a trial's samples after verifying their checksum.
    ///
    /// # Errors
    /// The file is damaged or missing, or the trial's parameters are damaged.
    pub fn verified(&self, run: &RunRow, trial: &TrialRow) -> Result<PathBuf, StoreError> {
        trial.check_parameters()?;
        let path = self.samples_path(&run.run, trial.number);
        if let Some(crc32) = trial.samples_crc32 {
            verify(&path, crc32)?;
        }
        Ok(path)
    }

    /// Returns the path of a trial's samples.
    pub fn samples_path(&self, run: &str, trial: u32) -> PathBuf {
        self.samples_of(run).join(format!("{trial}.parquet"))
    }

    pub(super) fn samples_of(&self, run: &str) -> PathBuf {
        self.dir.join("samples").join(run)
    }

    /// Returns the size of all samples of a run, in bytes.
    pub fn samples_bytes(&self, run: &RunRow) -> u64 {
        let dir = self.dir.join("samples").join(&run.run);
        let files = [dir.join("host"), dir].into_iter().flat_map(fs::read_dir).flatten();
        let files = files.filter_map(|file| file.ok()?.metadata().ok()).filter(|it| it.is_file());
        files.map(|metadata| metadata.len()).sum()
    }
}
