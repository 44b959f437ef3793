//! Records how trials end, with their summaries, and summaries added later.

use dwell_record::{Summary, TrialState};
use rusqlite::params;

use super::{Store, SummaryRow, text, time_text};
use crate::error::StoreError;
use crate::ingest::Ingested;
use crate::run::{Role, TrialRow};

impl Store {
    /// Records how a trial ended and all its summaries, in one transaction.
    ///
    /// # Errors
    /// The catalogue cannot be written; the trial then stays unfinished.
    pub fn end_trial(
        &mut self,
        trial: &TrialRow,
        outcome: Result<(), &str>,
        summaries: &[SummaryRow],
        ingested: Option<&Ingested>,
    ) -> Result<(), StoreError> {
        let state = if outcome.is_ok() { TrialState::Finished } else { TrialState::Failed };
        self.end_trial_as(trial, state, outcome.err(), summaries, ingested)
    }

    /// Records that a trial was not run because its node does not support it.
    ///
    /// # Errors
    /// The catalogue cannot be written; the trial then stays unfinished.
    pub fn end_trial_not_run(
        &mut self,
        trial: &TrialRow,
        reason: &str,
        summaries: &[SummaryRow],
    ) -> Result<(), StoreError> {
        self.end_trial_as(trial, TrialState::NotRun, Some(reason), summaries, None)
    }

    fn end_trial_as(
        &mut self,
        trial: &TrialRow,
        state: TrialState,
        reason: Option<&str>,
        summaries: &[SummaryRow],
        ingested: Option<&Ingested>,
    ) -> Result<(), StoreError> {
        let transaction = self.db.transaction()?;
        for (role, node, summary) in summaries {
            let environment = text(&summary.environment);
            transaction.execute(
                "INSERT INTO environments (environment) VALUES (?1) ON CONFLICT DO NOTHING",
                [&environment],
            )?;
            transaction.execute(
                "INSERT INTO summaries (trial_id, role, node, environment_id, summary)
                 VALUES (?1, ?2, ?3, (SELECT id FROM environments WHERE environment = ?4), ?5)",
                params![trial.id, role.name(), node, environment, text(summary)],
            )?;
        }
        for (metric, series) in ingested.iter().flat_map(|ingested| &ingested.series) {
            transaction.execute(
                "INSERT INTO series (trial_id, metric, histogram, below, points, hampel)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    trial.id,
                    metric,
                    series.histogram,
                    series.below,
                    text(&series.points),
                    series.hampel.as_ref().map(text),
                ],
            )?;
            let series_id = transaction.last_insert_rowid();
            let mut insert = transaction.prepare_cached(
                "INSERT INTO bins (series_id, bin, from_ns, to_ns, lost, min_ns, max_ns, histogram)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?;
            for (number, bin) in (0_i64..).zip(&series.bins) {
                insert.execute(params![
                    series_id,
                    number,
                    bin.from,
                    bin.to,
                    bin.lost as i64,
                    bin.min,
                    bin.max,
                    bin.histogram,
                ])?;
            }
        }
        transaction.execute(
            "UPDATE trials SET state = CASE ?2 WHEN 'not-run' THEN 'failed' ELSE ?2 END,
             not_run = (?2 = 'not-run'), reason = ?3, finished = ?4, first_ns = ?5, samples = ?6,
             samples_crc32 = ?7 WHERE id = ?1",
            params![
                trial.id,
                state.name(),
                reason,
                time_text(jiff::Timestamp::now()),
                ingested.and_then(|ingested| ingested.first_ns),
                ingested.map(|ingested| ingested.samples as i64),
                ingested.and_then(|ingested| ingested.crc32),
            ],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Adds a summary to an ended trial. Replaces earlier summaries with the same role and `node`
    /// for which `is_old` returns true.
    pub fn add_summary(
        &mut self,
        trial: &TrialRow,
        role: Role,
        node: &str,
        summary: &Summary,
        is_old: impl Fn(&Summary) -> bool,
    ) -> Result<(), StoreError> {
        let transaction = self.db.transaction()?;
        let old: Vec<(i64, String)> = transaction
            .prepare(
                "SELECT id, summary FROM summaries
                 WHERE trial_id = ?1 AND role = ?2 AND node = ?3",
            )?
            .query_map(params![trial.id, role.name(), node], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (id, stored) in old {
            // Unreadable summaries are kept: they may be anything.
            if Summary::from_json(stored.as_bytes()).is_ok_and(|earlier| is_old(&earlier)) {
                transaction.execute("DELETE FROM summaries WHERE id = ?1", [id])?;
            }
        }
        transaction.execute(
            "INSERT INTO summaries (trial_id, role, node, summary) VALUES (?1, ?2, ?3, ?4)",
            params![trial.id, role.name(), node, text(summary)],
        )?;
        transaction.commit()?;
        Ok(())
    }
}
