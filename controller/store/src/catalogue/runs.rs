//! Runs and imports: their start, their state and their notes.

use std::fs;

use rusqlite::{Row, TransactionBehavior, params};
use serde_json::json as json_value;

use super::{Store, json, text, time_text};
use crate::error::StoreError;
use crate::lock::{ImportLock, has_importer, has_runner};
use crate::run::{BoundDevice, Counts, NewRun, RunFilter, RunKind, RunNode, RunRow, RunState};
use crate::run_names;

impl Store {
    /// Creates a run with all trials planned. Returns its name.
    pub fn begin_run(&mut self, new: &NewRun) -> Result<String, StoreError> {
        let now = jiff::Timestamp::now();
        let day = now.strftime("%Y%m%d").to_string();
        // Take the write lock first: two runs created at the same time would choose the same name.
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let plan_id: Option<i64> = match &new.plan {
            None => None,
            Some(text) => {
                transaction.execute(
                    "INSERT INTO plans (name, title, text) VALUES (?1, ?2, ?3)
                     ON CONFLICT (name, text) DO NOTHING",
                    params![new.name, new.title, text],
                )?;
                Some(transaction.query_row(
                    "SELECT id FROM plans WHERE name = ?1 AND text = ?2",
                    params![new.name, text],
                    |row| row.get(0),
                )?)
            }
        };
        let run = run_names::assign(&transaction, &day, &self.dir.join("samples"))?;
        transaction.execute(
            "INSERT INTO runs
             (run, kind, plan_id, name, title, state, started, settings, seed, axes, dwell, lab_files,
              fleet, owner)
             VALUES (?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                run,
                new.kind.name(),
                plan_id,
                new.name,
                new.title,
                time_text(now),
                text(&new.settings),
                new.seed as i64,
                new.axes.to_string(),
                new.dwell,
                new.lab_files.as_ref().map(text),
                new.fleet,
                new.owner,
            ],
        )?;
        let run_id = transaction.last_insert_rowid();
        {
            let mut insert = transaction.prepare(
                "INSERT INTO trials (run_id, number, cell, repetition, position, state, parameters)
                 VALUES (?1, ?2, ?3, ?4, ?5, 'planned', ?6)",
            )?;
            for (position, trial) in (1..).zip(&new.trials) {
                insert.execute(params![
                    run_id,
                    trial.number,
                    trial.cell,
                    trial.repetition,
                    position,
                    text(&trial.parameters),
                ])?;
            }
        }
        transaction.commit()?;
        Ok(run)
    }

    /// Creates an import, which is running while the lock is held. Deletes the incomplete imports
    /// of importers that died.
    pub fn begin_import(&mut self, new: &NewRun) -> Result<(RunRow, ImportLock), StoreError> {
        // No other process may look for dead importers between the naming of a run and its lock. No
        // child process is started while this lock is held, so none can inherit it (flock(2)).
        let dir_lock = fs::File::open(&self.dir).map_err(StoreError::file("open", &self.dir))?;
        dir_lock.lock().map_err(StoreError::file("lock", &self.dir))?;
        let left = |run: &RunRow| run.kind == RunKind::Import && run.state == RunState::Interrupted;
        for dead in self.runs()?.iter().filter(|run| left(run)) {
            self.delete(dead)?;
        }
        let name = self.begin_run(new)?;
        let lock = ImportLock::take(&self.samples_of(&name))?;
        Ok((self.run(&name)?, lock))
    }

    /// Replaces the axes of a run.
    pub fn set_axes(&mut self, run: &RunRow, axes: &serde_json::Value) -> Result<(), StoreError> {
        self.db.execute(
            "UPDATE runs SET axes = ?2 WHERE id = ?1",
            params![run.id, axes.to_string()],
        )?;
        Ok(())
    }

    /// Records a node that took part.
    pub fn set_node(&mut self, run: &RunRow, node: &RunNode) -> Result<(), StoreError> {
        let device = node.device.as_ref();
        self.db.execute(
            "INSERT INTO nodes
             (run_id, node, dwell, clock, device, device_id, destination, program_sha256, arch)
             VALUES (?1, ?2, ?3, ?4, ?5, (SELECT id FROM devices WHERE name = ?5), ?6, ?7, ?8)
             ON CONFLICT (run_id, node)
             DO UPDATE SET dwell = excluded.dwell, clock = excluded.clock,
                           device = excluded.device, device_id = excluded.device_id,
                           destination = excluded.destination,
                           program_sha256 = excluded.program_sha256,
                           arch = excluded.arch",
            params![
                run.id,
                node.node,
                node.dwell,
                node.clock,
                device.map(|device| &device.name),
                device.map(|device| &device.destination),
                device.map(|device| &device.program_sha256),
                device.map(|device| &device.arch),
            ],
        )?;
        Ok(())
    }

    /// Returns the nodes that took part, by name.
    pub fn nodes(&self, run: &RunRow) -> Result<Vec<RunNode>, StoreError> {
        let mut select = self.db.prepare(
            "SELECT node, dwell, clock, device, destination, program_sha256, arch
             FROM nodes WHERE run_id = ?1 ORDER BY node",
        )?;
        let nodes = select.query_map([run.id], |row| {
            let text =
                |place: usize| row.get::<_, Option<String>>(place).map(Option::unwrap_or_default);
            let device = match row.get(3)? {
                None => None,
                Some(name) => {
                    let (destination, program_sha256, arch) = (text(4)?, text(5)?, text(6)?);
                    Some(BoundDevice { name, destination, program_sha256, arch })
                }
            };
            Ok(RunNode { node: row.get(0)?, dwell: row.get(1)?, clock: row.get(2)?, device })
        })?;
        Ok(nodes.collect::<Result<_, _>>()?)
    }

    /// Records the state of a run. If the run is not running, its running trial becomes planned
    /// again.
    pub fn set_run_state(&mut self, run: &RunRow, state: RunState) -> Result<(), StoreError> {
        let finished = (state != RunState::Running).then(|| time_text(jiff::Timestamp::now()));
        let transaction = self.db.transaction()?;
        transaction.execute(
            "UPDATE runs SET state = ?2, finished = ?3 WHERE id = ?1",
            params![run.id, state.name(), finished],
        )?;
        if finished.is_some() {
            transaction.execute(
                "UPDATE trials SET state = 'planned', started = NULL
                 WHERE run_id = ?1 AND state = 'running'",
                [run.id],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Returns all runs, newest first.
    pub fn runs(&self) -> Result<Vec<RunRow>, StoreError> {
        self.select_runs("ORDER BY runs.id DESC", [])
    }

    /// Returns `limit` of the runs that match, newest first, after the first `offset`, and the number
    /// of all that match.
    pub fn run_page(
        &self,
        filter: &RunFilter,
        offset: u32,
        limit: u32,
    ) -> Result<(Vec<RunRow>, u64), StoreError> {
        const MATCHES: &str = "WHERE (?1 IS NULL OR runs.name = ?1) AND (?2 IS NULL OR kind = ?2)
             AND (?3 IS NULL OR state = ?3)
             AND runs.run NOT IN (SELECT value FROM json_each(?4))
             AND (?5 IS NULL OR runs.run IN (SELECT value FROM json_each(?5)))";
        let json_array = |names: &[String]| json_value!(names).to_string();
        let (hidden, only) = (json_array(&filter.hidden), filter.only.as_deref().map(json_array));
        let kind = filter.kind.map(RunKind::name);
        // The catalogue does not know that a runner died.
        let is_under_way = |state| matches!(state, RunState::Running | RunState::Interrupted);
        let stored = filter.state.map(|state| match state {
            state if is_under_way(state) => RunState::Running.name(),
            state => state.name(),
        });
        if let Some(state) = filter.state.filter(|state| is_under_way(*state)) {
            let which = format!("{MATCHES} ORDER BY runs.id DESC");
            let mut runs =
                self.select_runs(&which, params![filter.name, kind, stored, hidden, only])?;
            runs.retain(|run| run.state == state);
            let total = runs.len() as u64;
            return Ok((
                runs.into_iter().skip(offset as usize).take(limit as usize).collect(),
                total,
            ));
        }
        let which = format!("{MATCHES} ORDER BY runs.id DESC LIMIT ?6 OFFSET ?7");
        let runs = self
            .select_runs(&which, params![filter.name, kind, stored, hidden, only, limit, offset])?;
        let total: i64 = self.db.query_row(
            &format!("SELECT count(*) FROM runs {MATCHES}"),
            params![filter.name, kind, stored, hidden, only],
            |row| row.get(0),
        )?;
        Ok((runs, total.max(0) as u64))
    }

    /// Returns the number of runs and of trials in each state, and of devices.
    pub fn counts(&self) -> Result<Counts, StoreError> {
        let grouped = |query: &str| -> Result<Vec<(String, u64)>, StoreError> {
            let mut select = self.db.prepare(query)?;
            let rows = select
                .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.max(0) as u64)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        let devices: i64 =
            self.db.query_row("SELECT count(*) FROM devices", [], |row| row.get(0))?;
        Ok(Counts {
            runs: grouped("SELECT state, count(*) FROM runs GROUP BY state ORDER BY state")?,
            trials: grouped(
                "SELECT CASE WHEN not_run THEN 'not_run' ELSE state END AS of, count(*) FROM trials
                 GROUP BY of ORDER BY of",
            )?,
            devices: devices.max(0) as u64,
        })
    }

    /// Returns the last run of each plan that has a finished trial, newest first, at most `max`.
    pub fn last_run_of_each_plan(&self, max: u32) -> Result<Vec<RunRow>, StoreError> {
        self.select_runs(
            "WHERE runs.id IN (
                 SELECT max(runs.id) FROM runs
                 WHERE EXISTS (
                     SELECT 1 FROM trials WHERE run_id = runs.id AND state = 'finished' AND NOT not_run)
                 GROUP BY runs.name)
             ORDER BY runs.id DESC LIMIT ?1",
            [max],
        )
    }

    /// Returns the run with this name, or the newest run for `last`.
    ///
    /// # Errors
    /// There is no such run, or the catalogue cannot be read.
    pub fn run(&self, name: &str) -> Result<RunRow, StoreError> {
        let found = match name {
            "last" => self.select_runs("ORDER BY runs.id DESC LIMIT 1", [])?,
            _ => self.select_runs("WHERE runs.run = ?1", [name])?,
        };
        found.into_iter().next().ok_or_else(|| StoreError::NoRun(name.to_owned()))
    }

    /// Returns the runs of the plan with this text, newest first.
    pub fn runs_of_plan(&self, plan: &str) -> Result<Vec<RunRow>, StoreError> {
        self.select_runs("WHERE plans.text = ?1 ORDER BY runs.id DESC", [plan])
    }

    pub(super) fn select_runs(
        &self,
        which: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<RunRow>, StoreError> {
        let mut select = self.db.prepare(&format!(
            "SELECT runs.id, run, kind, runs.name, runs.title, plans.text, settings, seed, axes,
                    state, started, finished, fleet, dwell,
                    (SELECT count(*) FROM trials WHERE run_id = runs.id),
                    (SELECT count(*) FROM trials WHERE run_id = runs.id AND state = 'finished'),
                    (SELECT count(*) FROM trials
                     WHERE run_id = runs.id AND state = 'failed' AND NOT not_run),
                    lab_files,
                    (SELECT count(*) FROM trials WHERE run_id = runs.id AND not_run),
                    owner
             FROM runs LEFT JOIN plans ON plans.id = runs.plan_id {which}"
        ))?;
        let mut rows = select.query(params)?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            runs.push(run_row(row)?);
        }
        let is_under_way = |run: &&mut RunRow| run.state == RunState::Running;
        let mut runner = None;
        for run in runs.iter_mut().filter(is_under_way) {
            let is_alive = match run.kind {
                RunKind::Run => *runner.get_or_insert_with(|| has_runner(&self.dir)),
                RunKind::Import => has_importer(&self.samples_of(&run.run)),
            };
            if !is_alive {
                run.state = RunState::Interrupted;
            }
        }
        Ok(runs)
    }

    /// Adds a user's note to a run.
    pub fn note(&mut self, run: &RunRow, note: &str) -> Result<(), StoreError> {
        self.db.execute(
            "INSERT INTO notes (run_id, at, note) VALUES (?1, ?2, ?3)",
            params![run.id, time_text(jiff::Timestamp::now()), note],
        )?;
        Ok(())
    }

    /// Returns the notes of a run, in order.
    pub fn notes(&self, run: &RunRow) -> Result<Vec<String>, StoreError> {
        let mut select = self.db.prepare("SELECT note FROM notes WHERE run_id = ?1 ORDER BY id")?;
        let notes = select.query_map([run.id], |row| row.get(0))?;
        Ok(notes.collect::<Result<_, _>>()?)
    }

    /// Deletes a run and its samples.
    ///
    /// # Errors
    /// Part of the run cannot be deleted. The run then still exists, perhaps without samples.
    pub fn delete(&mut self, run: &RunRow) -> Result<(), StoreError> {
        let dir = self.dir.join("samples").join(&run.run);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::file("delete", dir)(error));
            }
            _ => {}
        }
        self.db.execute("DELETE FROM runs WHERE id = ?1", [run.id])?;
        Ok(())
    }
}

fn run_row(row: &Row<'_>) -> Result<RunRow, StoreError> {
    let run: String = row.get(1)?;
    let (kind, state): (String, String) = (row.get(2)?, row.get(9)?);
    let count = |place: usize| row.get::<_, i64>(place).map(|n| n.max(0) as u32);
    Ok(RunRow {
        id: row.get(0)?,
        kind: RunKind::named(&kind).unwrap_or(RunKind::Run),
        name: row.get(3)?,
        title: row.get(4)?,
        plan: row.get(5)?,
        lab_files: row
            .get::<_, Option<String>>(17)?
            .map(|files| json(&files, "lab files", || run.clone()))
            .transpose()?,
        settings: json(&row.get::<_, String>(6)?, "settings", || run.clone())?,
        seed: row.get::<_, i64>(7)? as u64,
        axes: json(&row.get::<_, String>(8)?, "axes", || run.clone())?,
        state: RunState::named(&state).unwrap_or(RunState::Stopped),
        started: row.get(10)?,
        finished: row.get(11)?,
        fleet: row.get(12)?,
        dwell: row.get(13)?,
        trials: count(14)?,
        trials_finished: count(15)?,
        trials_failed: count(16)?,
        trials_not_run: count(18)?,
        owner: row.get(19)?,
        run,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewRun;

    #[test]
    fn page_of_runs_has_the_matching_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let mut names = Vec::new();
        for number in 0..7 {
            let name = if number % 2 == 0 { "even" } else { "odd" }.to_owned();
            let new = NewRun { name, ..NewRun::without_trials(RunKind::Run) };
            names.push(store.begin_run(&new).unwrap());
        }
        store.set_run_state(&store.run(&names[0]).unwrap(), RunState::Finished).unwrap();
        let page = |filter: &RunFilter, offset, limit| {
            let (runs, total) = store.run_page(filter, offset, limit).unwrap();
            (runs.into_iter().map(|run| run.run).collect::<Vec<_>>(), total)
        };
        let all = RunFilter::default();
        assert_eq!(page(&all, 5, 5), (vec![names[1].clone(), names[0].clone()], 7));
        let even = RunFilter { name: Some("even".into()), ..RunFilter::default() };
        assert_eq!(page(&even, 0, 1), (vec![names[6].clone()], 4));
        let hidden = RunFilter { hidden: names[1..].to_vec(), ..RunFilter::default() };
        assert_eq!(page(&hidden, 0, 9), (vec![names[0].clone()], 1));
        let only = RunFilter { only: Some(vec![names[3].clone()]), ..RunFilter::default() };
        assert_eq!(page(&only, 0, 9), (vec![names[3].clone()], 1));
        // No runner lives, so the others are interrupted, not running.
        for (state, count) in
            [(RunState::Finished, 1), (RunState::Interrupted, 6), (RunState::Running, 0)]
        {
            let filter = RunFilter { state: Some(state), ..RunFilter::default() };
            assert_eq!(page(&filter, 0, 2).1, count, "{state:?}");
        }
        assert_eq!(store.counts().unwrap().runs, [("finished".into(), 1), ("running".into(), 6)]);
    }
}
