//! The catalogue: what there is, and how far it is.

mod host;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dwell_record::series::Series;
use dwell_record::{Batch, Column, Columns, Summary};
use rusqlite::{Connection, OpenFlags, Row, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::ingest::{Ingest, Ingested};
use crate::lock::{ImportLock, RunnerLock, has_importer, has_runner};
use crate::migrations::{migrate, refuse_newer, refuse_older};
use crate::names;
use crate::parquet::{SampleReader, verify};
use crate::run::{NewRun, NewTrial, Role, RunKind, RunRow, RunState, TrialRow, TrialState};
use crate::scan::scan;
use crate::views::{StoredBin, StoredSeries};

/// A data directory.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    dir: PathBuf,
}

/// A row of summaries.
type Told = (Role, String, Summary);

impl Store {
    /// Opens the data directory `dir`, and makes it if it is not there. A catalogue of an older
    /// dwell is brought up to date, and kept as it was beside it.
    ///
    /// # Errors
    /// It belongs to a newer dwell, is damaged, or cannot be used.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("catalogue.sqlite");
        refuse_newer(&path)?;
        for dir in [dir.to_owned(), dir.join("samples"), dir.join("incoming")] {
            fs::create_dir_all(&dir).map_err(StoreError::file("make", &dir))?;
        }
        // Of two that come to a new or an old catalogue, one waits for the other to have it ready.
        let alone = fs::File::open(dir).map_err(StoreError::file("open", dir))?;
        alone.lock().map_err(StoreError::file("lock", dir))?;
        refuse_lost(&path, &dir.join("samples"))?;
        let mut db = Connection::open(&path).map_err(StoreError::unusable(&path))?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        migrate(&mut db, &path)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A trial that is said to be finished survives a power cut.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        Ok(Self { db, dir: dir.to_owned() })
    }

    /// Opens the data directory `dir` to read it. Where one may not write, nothing is.
    ///
    /// # Errors
    /// Those of [`Self::open`]; or it belongs to an older dwell, and one may not write there.
    pub fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        match Self::open(dir) {
            Err(error) if error.is_forbidden() => Self::open_read_only(dir),
            opened => opened,
        }
    }

    pub(crate) fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("catalogue.sqlite");
        refuse_lost(&path, &dir.join("samples"))?;
        // https://sqlite.org/wal.html#read_only_databases: without the files of its writers beside
        // it, a database in WAL mode can be read by who may not make them only if nobody writes.
        let log = fs::metadata(dir.join("catalogue.sqlite-wal"));
        let at_rest = log.is_err();
        let uri = uri(&path, if at_rest { "immutable=1" } else { "mode=ro" });
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let unusable = StoreError::unusable(&path);
        let db = Connection::open_with_flags(uri, flags).map_err(&unusable)?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        refuse_older(&db, &path)?;
        Ok(Self { db, dir: dir.to_owned() })
    }

    /// Whether a data directory is at `dir`: a catalogue, or samples that have lost theirs.
    pub fn is_at(dir: &Path) -> bool {
        dir.join("catalogue.sqlite").exists()
            || names::with_samples(&dir.join("samples")).next().is_some()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where segments are kept on their way from nodes.
    pub fn incoming(&self) -> PathBuf {
        self.dir.join("incoming")
    }

    /// Makes this process the one that runs plans here. What was on its way to a runner that died
    /// is removed.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when there is another.
    pub fn lock(&self) -> Result<RunnerLock, StoreError> {
        let lock = RunnerLock::take(&self.dir)?;
        for left in fs::read_dir(self.incoming()).into_iter().flatten().flatten() {
            let _ = fs::remove_file(left.path());
        }
        Ok(lock)
    }

    /// Begins a run, all its trials planned; returns its name.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn begin_run(&mut self, new: &NewRun) -> Result<String, StoreError> {
        let now = jiff::Timestamp::now();
        let day = now.strftime("%Y%m%d").to_string();
        // At once the only writer, or two that begin together would choose the same name.
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
        let run = names::give(&transaction, &day, &self.dir.join("samples"))?;
        transaction.execute(
            "INSERT INTO runs
             (run, kind, plan_id, name, title, state, started, settings, seed, axes, dwell, lab_files)
             VALUES (?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                run,
                new.kind.text(),
                plan_id,
                new.name,
                new.title,
                time_text(now),
                text(&new.settings),
                new.seed as i64,
                new.axes.to_string(),
                new.dwell,
                new.lab_files.as_ref().map(text),
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

    /// Begins an import; it is under way as long as the lock is held. What importers that died left
    /// half done is deleted, for half an import is none.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn begin_import(&mut self, new: &NewRun) -> Result<(RunRow, ImportLock), StoreError> {
        // Between the name of a run and its lock nobody else may look for dead importers.
        let alone = fs::File::open(&self.dir).map_err(StoreError::file("open", &self.dir))?;
        alone.lock().map_err(StoreError::file("lock", &self.dir))?;
        let left = |run: &RunRow| run.kind == RunKind::Import && run.state == RunState::Interrupted;
        for dead in self.runs()?.iter().filter(|run| left(run)) {
            self.delete(dead)?;
        }
        let name = self.begin_run(new)?;
        let lock = ImportLock::take(&self.samples_of(&name))?;
        Ok((self.run(&name)?, lock))
    }

    /// Adds a trial to a run: imports learn only while reading how many there are.
    ///
    /// # Errors
    /// The catalogue cannot be written.
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

    /// Replaces the axes of a run.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn set_axes(&mut self, run: &RunRow, axes: &serde_json::Value) -> Result<(), StoreError> {
        self.db.execute(
            "UPDATE runs SET axes = ?2 WHERE id = ?1",
            params![run.id, axes.to_string()],
        )?;
        Ok(())
    }

    /// Notes the lab that was made for a run.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn set_lab(&mut self, run: &RunRow, lab: &str) -> Result<(), StoreError> {
        self.db.execute("UPDATE runs SET lab = ?2 WHERE id = ?1", params![run.id, lab])?;
        Ok(())
    }

    /// Notes a node that took part.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn set_node(&mut self, run: &RunRow, node: &str, dwell: &str) -> Result<(), StoreError> {
        self.db.execute(
            "INSERT INTO nodes (run_id, node, dwell) VALUES (?1, ?2, ?3)
             ON CONFLICT (run_id, node) DO UPDATE SET dwell = excluded.dwell",
            params![run.id, node, dwell],
        )?;
        Ok(())
    }

    /// Notes how far a run is. In one that is not under way no trial is: what was begun of one is
    /// as if it had not been.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn set_run_state(&mut self, run: &RunRow, state: RunState) -> Result<(), StoreError> {
        let finished = (state != RunState::Running).then(|| time_text(jiff::Timestamp::now()));
        let transaction = self.db.transaction()?;
        transaction.execute(
            "UPDATE runs SET state = ?2, finished = ?3 WHERE id = ?1",
            params![run.id, state.text(), finished],
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

    /// Notes that a trial begins. What an earlier attempt left of it is gone afterwards.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn begin_trial(&mut self, trial: &TrialRow) -> Result<(), StoreError> {
        self.forget_host(trial)?;
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

    /// Begins to take samples of a trial in.
    ///
    /// # Errors
    /// Their directory cannot be made.
    pub fn ingest(&self, run: &RunRow, trial: &TrialRow) -> Result<Ingest, StoreError> {
        let wanted = match run.kind {
            RunKind::Run => &Column::ALL[..Column::MEASURED],
            RunKind::Import => &[],
        };
        self.ingest_columns(run, trial, wanted)
    }

    /// The same, for samples that have other columns than those of a pinger.
    ///
    /// # Errors
    /// Their directory cannot be made.
    pub fn ingest_columns(
        &self,
        run: &RunRow,
        trial: &TrialRow,
        wanted: &[Column],
    ) -> Result<Ingest, StoreError> {
        let path = self.samples_path(&run.run, trial.number);
        let dir = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(dir).map_err(StoreError::file("make", dir))?;
        Ok(Ingest::new(&path, wanted))
    }

    /// Notes how a trial ended, with everything that was told about it, all at once.
    ///
    /// # Errors
    /// The catalogue cannot be written; the trial is then not finished.
    pub fn end_trial(
        &mut self,
        trial: &TrialRow,
        outcome: Result<(), &str>,
        told: &[Told],
        ingested: Option<&Ingested>,
    ) -> Result<(), StoreError> {
        let state = if outcome.is_ok() { TrialState::Finished } else { TrialState::Failed };
        self.end_trial_as(trial, state, outcome.err(), told, ingested)
    }

    /// Notes that a trial was not run, because what it asks for is not to be had on its node.
    ///
    /// # Errors
    /// The catalogue cannot be written; the trial is then not ended.
    pub fn end_trial_not_run(
        &mut self,
        trial: &TrialRow,
        reason: &str,
        told: &[Told],
    ) -> Result<(), StoreError> {
        self.end_trial_as(trial, TrialState::NotRun, Some(reason), told, None)
    }

    fn end_trial_as(
        &mut self,
        trial: &TrialRow,
        state: TrialState,
        reason: Option<&str>,
        told: &[Told],
        ingested: Option<&Ingested>,
    ) -> Result<(), StoreError> {
        let transaction = self.db.transaction()?;
        for (role, node, summary) in told {
            let environment = text(&summary.environment);
            transaction.execute(
                "INSERT INTO environments (environment) VALUES (?1) ON CONFLICT DO NOTHING",
                [&environment],
            )?;
            transaction.execute(
                "INSERT INTO summaries (trial_id, role, node, environment_id, summary)
                 VALUES (?1, ?2, ?3, (SELECT id FROM environments WHERE environment = ?4), ?5)",
                params![trial.id, role.text(), node, environment, text(summary)],
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
                state.text(),
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

    /// Notes what somebody tells of a trial after its end, in place of that which the same one told
    /// before and `is_old` says is superseded.
    ///
    /// # Errors
    /// The catalogue cannot be read or written.
    pub fn tell(
        &mut self,
        trial: &TrialRow,
        role: Role,
        who: &str,
        summary: &Summary,
        is_old: impl Fn(&Summary) -> bool,
    ) -> Result<(), StoreError> {
        let transaction = self.db.transaction()?;
        let old: Vec<(i64, String)> = transaction
            .prepare(
                "SELECT id, summary FROM summaries
                 WHERE trial_id = ?1 AND role = ?2 AND node = ?3",
            )?
            .query_map(params![trial.id, role.text(), who], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (row, told) in old {
            // What cannot be read may be anything, and stays.
            if Summary::from_json(told.as_bytes()).is_ok_and(|told| is_old(&told)) {
                transaction.execute("DELETE FROM summaries WHERE id = ?1", [row])?;
            }
        }
        transaction.execute(
            "INSERT INTO summaries (trial_id, role, node, summary) VALUES (?1, ?2, ?3, ?4)",
            params![trial.id, role.text(), who, text(summary)],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// All runs, the newest first.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn runs(&self) -> Result<Vec<RunRow>, StoreError> {
        self.select_runs("ORDER BY runs.id DESC", [])
    }

    /// The run of this name, or the newest for `last`.
    ///
    /// # Errors
    /// There is none, or the catalogue cannot be read.
    pub fn run(&self, name: &str) -> Result<RunRow, StoreError> {
        let found = match name {
            "last" => self.select_runs("ORDER BY runs.id DESC LIMIT 1", [])?,
            _ => self.select_runs("WHERE runs.run = ?1", [name])?,
        };
        found.into_iter().next().ok_or_else(|| StoreError::NoRun(name.to_owned()))
    }

    /// The runs of the plan with this text, the newest first.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn runs_of_plan(&self, plan: &str) -> Result<Vec<RunRow>, StoreError> {
        self.select_runs("WHERE plans.text = ?1 ORDER BY runs.id DESC", [plan])
    }

    fn select_runs(
        &self,
        which: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<RunRow>, StoreError> {
        let mut select = self.db.prepare(&format!(
            "SELECT runs.id, run, kind, runs.name, runs.title, plans.text, settings, seed, axes,
                    state, started, finished, lab, dwell,
                    (SELECT count(*) FROM trials WHERE run_id = runs.id),
                    (SELECT count(*) FROM trials WHERE run_id = runs.id AND state = 'finished'),
                    (SELECT count(*) FROM trials
                     WHERE run_id = runs.id AND state = 'failed' AND NOT not_run),
                    lab_files,
                    (SELECT count(*) FROM trials WHERE run_id = runs.id AND not_run)
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

    /// The trials of a run, by number.
    ///
    /// # Errors
    /// The catalogue cannot be read.
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
                // It ended with its runner, and will be measured as if it had not begun.
                trial.state = TrialState::Planned;
            }
            trials.push(trial);
        }
        Ok(trials)
    }

    /// What was told about a trial: whose, by which node, and the summary.
    ///
    /// # Errors
    /// The catalogue cannot be read, or the trial's parameters in it are damaged.
    pub fn told(&self, trial: &TrialRow) -> Result<Vec<Told>, StoreError> {
        trial.whole()?;
        let mut select = self.db.prepare_cached(
            "SELECT role, node, summary FROM summaries WHERE trial_id = ?1 ORDER BY id",
        )?;
        let mut rows = select.query([trial.id])?;
        let mut told = Vec::new();
        while let Some(row) = rows.next()? {
            let role: String = row.get(0)?;
            let role = Role::read(&role).unwrap_or(Role::Measurement);
            let of = || format!("trial {}", trial.number);
            told.push((role, row.get(1)?, json(&row.get::<_, String>(2)?, "summary", of)?));
        }
        Ok(told)
    }

    /// What figures draw of a trial, by metric. A series whose bytes are damaged is left out.
    ///
    /// # Errors
    /// The catalogue cannot be read, or the trial's parameters in it are damaged.
    pub fn series(&self, trial: &TrialRow) -> Result<BTreeMap<String, Series>, StoreError> {
        trial.whole()?;
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
                    .query_map([row.get::<_, i64>(0)?], |row| {
                        Ok(StoredBin {
                            from: row.get(0)?,
                            to: row.get(1)?,
                            lost: row.get::<_, i64>(2)?.max(0) as u64,
                            min: row.get(3)?,
                            max: row.get(4)?,
                            histogram: row.get(5)?,
                        })
                    })?
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

    /// Reads the samples of a trial: hands over rows with these columns (all that it has, for
    /// none), some at a time. A trial without samples has none.
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
        let reader = SampleReader::open(&self.verified(run, trial)?)?;
        let all = reader.columns();
        reader.read(columns.unwrap_or(&all), each)
    }

    /// The figures of a trial as its samples give them, whatever was stored of them. Uses all
    /// cores. A trial without samples has none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn recompute(&self, run: &RunRow, trial: &TrialRow) -> Result<Columns, StoreError> {
        if trial.samples.is_none_or(|samples| samples == 0) {
            return Ok(Columns::default());
        }
        scan(&self.verified(run, trial)?)
    }

    /// The file of samples of a trial, if it is the one that was written.
    ///
    /// # Errors
    /// It is damaged or gone, or the trial's parameters are damaged.
    pub fn verified(&self, run: &RunRow, trial: &TrialRow) -> Result<PathBuf, StoreError> {
        trial.whole()?;
        let path = self.samples_path(&run.run, trial.number);
        if let Some(crc32) = trial.samples_crc32 {
            verify(&path, crc32)?;
        }
        Ok(path)
    }

    /// Where the samples of a trial are.
    pub fn samples_path(&self, run: &str, trial: u32) -> PathBuf {
        self.samples_of(run).join(format!("{trial}.parquet"))
    }

    fn samples_of(&self, run: &str) -> PathBuf {
        self.dir.join("samples").join(run)
    }

    /// Bytes of all samples of a run.
    pub fn samples_bytes(&self, run: &RunRow) -> u64 {
        let dir = self.dir.join("samples").join(&run.run);
        let files = [dir.join("host"), dir].into_iter().flat_map(fs::read_dir).flatten();
        let files = files.filter_map(|file| file.ok()?.metadata().ok()).filter(|it| it.is_file());
        files.map(|metadata| metadata.len()).sum()
    }

    /// Notes something that a person says of a run.
    ///
    /// # Errors
    /// The catalogue cannot be written.
    pub fn note(&mut self, run: &RunRow, note: &str) -> Result<(), StoreError> {
        self.db.execute(
            "INSERT INTO notes (run_id, at, note) VALUES (?1, ?2, ?3)",
            params![run.id, time_text(jiff::Timestamp::now()), note],
        )?;
        Ok(())
    }

    /// What people said of a run, in order.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn notes(&self, run: &RunRow) -> Result<Vec<String>, StoreError> {
        let mut select = self.db.prepare("SELECT note FROM notes WHERE run_id = ?1 ORDER BY id")?;
        let notes = select.query_map([run.id], |row| row.get(0))?;
        Ok(notes.collect::<Result<_, _>>()?)
    }

    /// Deletes a run and its samples.
    ///
    /// # Errors
    /// Something of it cannot be deleted; it is then still there, perhaps without samples.
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

/// Refuses to begin a catalogue where one must have been: its samples would be taken for nobody's.
fn refuse_lost(path: &Path, samples: &Path) -> Result<(), StoreError> {
    if fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        return Ok(());
    }
    let mut runs: Vec<String> = names::with_samples(samples).collect();
    runs.sort();
    match runs.first() {
        None => Ok(()),
        Some(first) => Err(StoreError::Lost {
            path: path.to_owned(),
            samples: runs.len(),
            first: first.clone(),
        }),
    }
}

/// A file's address with an option for SQLite (https://sqlite.org/uri.html).
fn uri(path: &Path, option: &str) -> String {
    let path = path.to_string_lossy();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?{option}")
}

fn time_text(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("string keys and plain values serialise")
}

fn json<T: DeserializeOwned>(
    text: &str,
    what: &'static str,
    of: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Json { what, of: of(), source })
}

fn run_row(row: &Row<'_>) -> Result<RunRow, StoreError> {
    let run: String = row.get(1)?;
    let (kind, state): (String, String) = (row.get(2)?, row.get(9)?);
    let count = |place: usize| row.get::<_, i64>(place).map(|n| n.max(0) as u32);
    Ok(RunRow {
        id: row.get(0)?,
        kind: RunKind::read(&kind).unwrap_or(RunKind::Run),
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
        state: RunState::read(&state).unwrap_or(RunState::Stopped),
        started: row.get(10)?,
        finished: row.get(11)?,
        lab: row.get(12)?,
        dwell: row.get(13)?,
        trials: count(14)?,
        trials_finished: count(15)?,
        trials_failed: count(16)?,
        trials_not_run: count(18)?,
        run,
    })
}

impl TrialRow {
    /// Of a trial of which nobody knows what was varied, nothing measured means anything.
    pub(crate) fn whole(&self) -> Result<(), StoreError> {
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
    // Damage costs its own trial only: whoever asks for what was measured in it is told.
    let parameters = parameters(number, &text).ok();
    Ok(TrialRow {
        id: row.get(0)?,
        number,
        cell: row.get(2)?,
        repetition: row.get(3)?,
        position: row.get(4)?,
        state: TrialState::read(&state).unwrap_or(TrialState::Failed),
        reason: row.get(6)?,
        damaged: parameters.is_none().then_some(text),
        parameters: parameters.unwrap_or_default(),
        first_ns: row.get(8)?,
        samples: samples.map(|samples| samples.max(0) as u64),
        samples_crc32: row.get(10)?,
    })
}
