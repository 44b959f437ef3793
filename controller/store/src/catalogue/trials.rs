//! The trials of runs.

use std::collections::BTreeMap;

use dwell_record::TrialState;
use dwell_record::series::Series;
use rusqlite::{Row, params};

use super::{Store, SummaryRow, json, text, time_text};
use crate::error::StoreError;
use crate::run::{NewTrial, Role, RunRow, RunState, TrialRow};
use crate::views::{StoredBin, StoredSeries};

impl Store {
    /// Adds a trial to a run. Imports learn the number of trials only while reading.
    pub fn add_trial(&mut self, run: &RunRow, trial: &NewTrial) -> Result<TrialRow, StoreError> {
        self.db.execute(
            "INSERT INTO trials (run_id, number, cell, repetition, position, state, parameters)
             VALUES (?1, ?2, ?3, ?4, ?2, 'planned', ?5)",
            params![run.id, trial.number, trial.cell, trial.repetition, text(&trial.parameters)],
        )?;
        Ok(TrialRow {
            id: self.db.last_insert_rowid(),
            number: trial.number,
            cell: trial.cell,
            repetition: trial.repetition,
            position: trial.number,
            state: TrialState::Planned,
            reason: None,
            parameters: trial.parameters.clone(),
            damaged: None,
            first_ns: None,
            samples: None,
            samples_crc32: None,
        })
    }

    /// Records the start of a trial. Removes all data of an earlier attempt.
    pub fn begin_trial(&mut self, trial: &TrialRow) -> Result<(), StoreError> {
        self.remove_series(trial)?;
        let transaction = self.db.transaction()?;
        transaction.execute("DELETE FROM summaries WHERE trial_id = ?1", [trial.id])?;
        transaction.execute("DELETE FROM series WHERE trial_id = ?1", [trial.id])?;
        transaction.execute(
            "UPDATE trials SET state = 'running', reason = NULL, started = ?2, finished = NULL,
             first_ns = NULL, samples = NULL, samples_crc32 = NULL, not_run = 0 WHERE id = ?1",
            params![trial.id, time_text(jiff::Timestamp::now())],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the trials of a run, by number.
    pub fn trials(&self, run: &RunRow) -> Result<Vec<TrialRow>, StoreError> {
        let mut select = self.db.prepare(
            "SELECT id, number, cell, repetition, position, CASE WHEN not_run THEN 'not-run' ELSE state END, reason, parameters, first_ns,
                    samples, samples_crc32
             FROM trials WHERE run_id = ?1 ORDER BY number",
        )?;
        let mut rows = select.query([run.id])?;
        let mut trials = Vec::new();
        while let Some(row) = rows.next()? {
            let mut trial = trial_row(row)?;
            if trial.state == TrialState::Running && run.state == RunState::Interrupted {
                // It ended with its runner and will be repeated.
                trial.state = TrialState::Planned;
            }
            trials.push(trial);
        }
        Ok(trials)
    }

    /// Returns the summaries of a trial, with role and node.
    ///
    /// # Errors
    /// The catalogue cannot be read, or the trial's parameters are damaged.
    pub fn summaries(&self, trial: &TrialRow) -> Result<Vec<SummaryRow>, StoreError> {
        trial.check_parameters()?;
        let mut select = self.db.prepare_cached(
            "SELECT role, node, summary FROM summaries WHERE trial_id = ?1 ORDER BY id",
        )?;
        let mut rows = select.query([trial.id])?;
        let mut summaries = Vec::new();
        while let Some(row) = rows.next()? {
            let role: String = row.get(0)?;
            let role = Role::named(&role).unwrap_or(Role::Measurement);
            let of = || format!("trial {}", trial.number);
            summaries.push((role, row.get(1)?, json(&row.get::<_, String>(2)?, "summary", of)?));
        }
        Ok(summaries)
    }

    /// Returns the series of a trial that figures draw, by metric. A series with damaged data is
    /// left out.
    ///
    /// # Errors
    /// The catalogue cannot be read, or the trial's parameters are damaged.
    pub fn series(&self, trial: &TrialRow) -> Result<BTreeMap<String, Series>, StoreError> {
        trial.check_parameters()?;
        let mut select = self.db.prepare_cached(
            "SELECT id, metric, histogram, below, points, hampel FROM series WHERE trial_id = ?1",
        )?;
        let mut bins = self.db.prepare_cached(
            "SELECT from_ns, to_ns, lost, min_ns, max_ns, histogram FROM bins
             WHERE series_id = ?1 ORDER BY bin",
        )?;
        let mut rows = select.query([trial.id])?;
        let mut series = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let of = || format!("trial {}", trial.number);
            let hampel: Option<String> = row.get(5)?;
            let stored = StoredSeries {
                histogram: row.get(2)?,
                below: row.get(3)?,
                bins: bins
                    .query_map([row.get::<_, i64>(0)?], StoredBin::of_row)?
                    .collect::<Result<_, _>>()?,
                points: json(&row.get::<_, String>(4)?, "points", of)?,
                hampel: hampel.map(|text| json(&text, "hampel", of)).transpose()?,
            };
            if let Some(drawn) = stored.series() {
                series.insert(row.get(1)?, drawn);
            }
        }
        Ok(series)
    }
}

impl TrialRow {
    /// Fails if the trial's parameters are damaged: its results then have no meaning.
    pub(crate) fn check_parameters(&self) -> Result<(), StoreError> {
        self.damaged.as_deref().map_or(Ok(()), |text| parameters(self.number, text).map(drop))
    }
}

fn parameters(trial: u32, text: &str) -> Result<BTreeMap<String, String>, StoreError> {
    json(text, "parameters", || format!("trial {trial}"))
}

fn trial_row(row: &Row<'_>) -> Result<TrialRow, StoreError> {
    let number: u32 = row.get(1)?;
    let state: String = row.get(5)?;
    let samples: Option<i64> = row.get(9)?;
    let text: String = row.get(7)?;
    // Damage affects only its own trial: reading the trial's results fails.
    let parameters = parameters(number, &text).ok();
    Ok(TrialRow {
        id: row.get(0)?,
        number,
        cell: row.get(2)?,
        repetition: row.get(3)?,
        position: row.get(4)?,
        state: TrialState::named(&state).unwrap_or(TrialState::Failed),
        reason: row.get(6)?,
        damaged: parameters.is_none().then_some(text),
        parameters: parameters.unwrap_or_default(),
        first_ns: row.get(8)?,
        samples: samples.map(|samples| samples.max(0) as u64),
        samples_crc32: row.get(10)?,
    })
}
