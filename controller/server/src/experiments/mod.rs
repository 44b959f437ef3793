//! Experiments: plans that were given to the server, and the runs that they created.
//!
//! An experiment is kept in files and worked on by a process of its own, `dwell run`. Its state is
//! read from both, so nothing is lost when the server ends, and several servers may serve one data
//! directory. Experiments wait for each other as runs do: in the order of their processes, for the runner's
//! lock.

mod events;
mod follow;
pub(crate) mod plan;
mod process;
mod store;
pub(crate) mod topology;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dwell_store::Store;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::Semaphore;

use self::events::Tail;
pub(crate) use self::events::{OffsetEvent, Summary};
pub(crate) use self::follow::{Change, Watch};
use self::plan::{MAX_PLAN_LEN, PlanCheck, check_plan};
pub(crate) use self::store::{
    ExperimentId, UNDO_TIMEOUT, is_purged, now, remove_old, unreadable, write_file,
};
use self::store::{FileStamp, Files, Folder, Launch, Record, events_argument, read_json, stamp};
use crate::Config;
use crate::deleted_devices::DeletedDevices;
use crate::deleted_runs::is_deleted;
use crate::error::Error;

/// Number of experiments whose files are remembered.
const MAX_CACHED: usize = 512;

/// Number of plans that are checked at the same time; the others wait.
const MAX_CHECKS: usize = 2;

/// Maximum number of experiments that run or wait.
const MAX_ACTIVE: usize = 32;

/// Number of the newest experiments that are searched for active ones.
const ACTIVE_SEARCH_LEN: usize = 500;

/// Maximum number of settings of an experiment, and of roles.
const MAX_SETTINGS: usize = 100;

/// Maximum length of a setting, and of the name of a role or device, in bytes.
const MAX_SETTING_LEN: usize = 4_096;

/// An experiment to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewExperiment {
    /// Text of the plan.
    pub(crate) plan: String,
    /// Device by role.
    pub(crate) on: BTreeMap<String, String>,
    /// Fields to set, as `PATH=VALUE`.
    pub(crate) settings: Vec<String>,
    /// Seed of the order of trials, unless the plan has one; random if absent.
    pub(crate) seed: Option<u64>,
    /// Whether a plan that needs confirmation is started.
    pub(crate) confirmed: bool,
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct Experiment {
    /// Its name: `YYYYMMDD-HHMMSS-xxxx`.
    pub(crate) id: String,
    /// Name of the plan.
    pub(crate) name: String,
    /// Title of the plan.
    pub(crate) title: Option<String>,
    /// When it was created, RFC 3339.
    pub(crate) created: String,
    /// Who started the server that created it, as `USER@HOST`.
    pub(crate) owner: String,
    /// Text of the plan. Empty in lists.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) plan: String,
    /// Device by role.
    pub(crate) on: BTreeMap<String, String>,
    /// Fields that were set, as `PATH=VALUE`.
    pub(crate) settings: Vec<String>,
    /// Seed of the order of trials; null if it is not known yet.
    pub(crate) seed: Option<u64>,
    /// State.
    pub(crate) state: ExperimentState,
    /// Name of the run; null if it has none yet.
    pub(crate) run: Option<String>,
    /// Number of trials that have ended.
    pub(crate) done: u32,
    /// Number of trials; 0 if it is not known yet.
    pub(crate) all: u32,
    /// Why it waits, stopped or failed.
    pub(crate) reason: Option<String>,
    /// Whether it was deleted. It can be restored for ten minutes.
    pub(crate) deleted: bool,
}

dwell_units::named! {
    /// State of an experiment.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum ExperimentState {
        /// It waits, for example for another run.
        Queued = "queued",
        /// It is measured.
        Running = "running",
        /// It ended early, by the user or a rule of the plan; it can be resumed.
        Stopped = "stopped",
        /// Its process died; it can be resumed.
        Interrupted = "interrupted",
        /// It failed; it can be resumed.
        Failed = "failed",
        /// Every trial was tried.
        Finished = "finished",
    }
}

impl ExperimentState {
    /// Whether a process works on it.
    pub(crate) const fn is_active(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// Whether it can be resumed.
    pub(crate) const fn can_resume(self) -> bool {
        matches!(self, Self::Stopped | Self::Interrupted | Self::Failed)
    }
}

/// An experiment with what happened in it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The experiment.
    pub(crate) experiment: Experiment,
    /// What its events say.
    pub(crate) summary: Summary,
    /// Offset in the events file up to which this is.
    pub(crate) offset: u64,
}

/// Some experiments of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExperimentPage {
    /// The experiments, the newest first, without their plans.
    pub(crate) experiments: Vec<Experiment>,
    /// Number of all experiments.
    pub(crate) total: usize,
}

/// The experiments of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct Experiments(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    data: PathBuf,
    program: PathBuf,
    owner: String,
    folder: Folder,
    cache: Mutex<HashMap<ExperimentId, Arc<Mutex<Cached>>>>,
    watches: follow::Watches,
    checks: Arc<Semaphore>,
}

/// What was read of an experiment.
#[derive(Debug)]
struct Cached {
    record: Option<(FileStamp, Record)>,
    launch: Option<(FileStamp, Launch)>,
    tail: Tail,
    summary: Summary,
}

impl Experiments {
    /// Returns the experiments of the data directory.
    pub(crate) fn new(config: &Config) -> Self {
        // Processes of experiments keep the paths when they have other working directories.
        let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
        Self(Arc::new(Shared {
            folder: Folder::new(&data),
            data,
            program: config.program.clone(),
            owner: dwell_results::owner(),
            cache: Mutex::default(),
            watches: follow::Watches::default(),
            checks: Arc::new(Semaphore::new(MAX_CHECKS)),
        }))
    }

    /// Runs `work` on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&shared)).await.map_err(|_| Error::Ending)?
    }

    /// Checks a plan with its settings.
    ///
    /// # Errors
    /// It is too long to be checked.
    pub(crate) async fn check(
        &self,
        plan: String,
        settings: Vec<String>,
    ) -> Result<PlanCheck, Error> {
        check_lengths(&plan, &settings)?;
        let checks = Arc::clone(&self.0.checks);
        let permit = checks.acquire_owned().await.map_err(|_| Error::Ending)?;
        self.blocking(move |_| {
            // The editor cancels checks of former texts; they count until their threads end.
            let _permit = permit;
            Ok(check_plan(&plan, &settings))
        })
        .await
    }

    /// Lists experiments, the newest first: `limit` of them after the first `offset`.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub(crate) async fn list(
        &self,
        offset: usize,
        limit: usize,
        deleted: bool,
    ) -> Result<ExperimentPage, Error> {
        self.blocking(move |shared| {
            let folder = &shared.folder;
            let ids = if deleted { folder.deleted_ids()? } else { folder.ids()? };
            let page = ids.iter().enumerate().skip(offset).take(limit);
            // Later ones would drive the newest out of the cache.
            let read = |(place, id)| match place < MAX_CACHED {
                true => Ok(shared.snapshot(id)?.experiment),
                false => shared.glance(id),
            };
            let experiments = page.filter_map(|it| read(it).ok()).collect();
            Ok(ExperimentPage { experiments, total: ids.len() })
        })
        .await
    }

    /// Returns an experiment with its plan, also a deleted one.
    ///
    /// # Errors
    /// No experiment has this name.
    pub(crate) async fn get(&self, id: &str) -> Result<Experiment, Error> {
        Ok(self.snapshot(id).await?.experiment)
    }

    /// Returns an experiment with its plan and what happened in it.
    ///
    /// # Errors
    /// No experiment has this name.
    pub(crate) async fn snapshot(&self, id: &str) -> Result<Snapshot, Error> {
        let id = parse(id)?;
        self.blocking(move |shared| {
            let mut snapshot = shared.snapshot(&id)?;
            let files = shared.files(&id)?;
            snapshot.experiment.plan = files.plan_text()?;
            Ok(snapshot)
        })
        .await
    }

    /// Creates an experiment and starts it.
    ///
    /// # Errors
    /// The plan has a mistake, names files of the controller or is not confirmed; a role has no
    /// device; too many experiments wait.
    pub(crate) async fn create(&self, new: NewExperiment) -> Result<Experiment, Error> {
        let check = self.check(new.plan.clone(), new.settings.clone()).await?;
        if let Some(mistake) = check.errors.first() {
            let place = match (mistake.line, mistake.column) {
                (Some(line), Some(column)) => format!("line {line}, column {column}: "),
                _ => String::new(),
            };
            let field = match mistake.field.as_str() {
                "" => String::new(),
                field => format!("{field}: "),
            };
            return Err(Error::Plan(format!("{place}{field}{}", mistake.message)));
        }
        if let Some(why) = check.forbidden {
            return Err(Error::Plan(why));
        }
        check_roles(&check.roles, &new.on)?;
        if let Some(why) = check.needs_confirmation.filter(|_| !new.confirmed) {
            return Err(Error::Unconfirmed(format!("{why}; confirm that it shall be started")));
        }
        let (name, title) = (check.name, check.title);
        self.blocking(move |shared| shared.create(name, title, new)).await
    }

    /// Stops an experiment: its process discards the current trial and ends.
    ///
    /// # Errors
    /// No experiment has this name, or it is not active.
    pub(crate) async fn stop(&self, id: &str) -> Result<Experiment, Error> {
        let id = parse(id)?;
        self.blocking(move |shared| shared.stop(&id)).await
    }

    /// Resumes an experiment that ended early.
    ///
    /// # Errors
    /// No experiment has this name; it is active or finished; it or its run is deleted; or too many
    /// wait.
    pub(crate) async fn resume(&self, id: &str) -> Result<Experiment, Error> {
        let id = parse(id)?;
        self.blocking(move |shared| shared.resume(&id)).await
    }

    /// Deletes an experiment. Its run is kept. It can be restored for ten minutes.
    ///
    /// # Errors
    /// No experiment has this name, or it is active.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Error> {
        let id = parse(id)?;
        self.blocking(move |shared| {
            let files = shared.files(&id)?;
            let _lock = files.lock()?;
            let state = shared.snapshot(&id)?.experiment.state;
            if state.is_active() {
                let state = state.name();
                return Err(Error::Conflict(format!(
                    "experiment {} is {state}; stop it first",
                    id.as_str()
                )));
            }
            if files.deleted.is_some() { Ok(()) } else { shared.folder.delete(&id) }
        })
        .await
    }

    /// Restores a deleted experiment.
    ///
    /// # Errors
    /// No experiment has this name, or it was deleted too long ago.
    pub(crate) async fn undo(&self, id: &str) -> Result<Experiment, Error> {
        let id = parse(id)?;
        self.blocking(move |shared| {
            if shared.files(&id)?.deleted.is_some() {
                shared.folder.undo(&id)?;
            }
            Ok(shared.snapshot(&id)?.experiment)
        })
        .await
    }

    /// Returns the events after this offset, at most about 1 MiB of them, each with the offset after
    /// it.
    ///
    /// # Errors
    /// There is no such experiment, or its file cannot be read.
    pub(crate) async fn events(&self, id: &str, offset: u64) -> Result<Vec<OffsetEvent>, Error> {
        let id = parse(id)?;
        self.blocking(move |shared| {
            let path = shared.files(&id)?.events();
            let read = Tail::new(&path, offset).read();
            Ok(read.map_err(|error| unreadable("read", &path, &error))?.events)
        })
        .await
    }

    /// Returns the experiment that a run belongs to, of the newest ones.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub(crate) async fn of_run(&self, run: &str) -> Result<Option<Experiment>, Error> {
        let run = run.to_owned();
        self.blocking(move |shared| {
            let ids = shared.folder.ids()?;
            let mut newest =
                ids.iter().take(ACTIVE_SEARCH_LEN).filter_map(|id| shared.snapshot(id).ok());
            let found = newest.find(|it| it.experiment.run.as_deref() == Some(run.as_str()));
            Ok(found.map(|snapshot| snapshot.experiment))
        })
        .await
    }

    /// Removes experiments for ever that were deleted more than ten minutes ago.
    pub(crate) async fn purge(&self) {
        // An error is reported by the next request that needs the directory.
        let _ = self
            .blocking(|shared| {
                shared.folder.purge(Timestamp::now());
                Ok(())
            })
            .await;
    }
}

impl Shared {
    fn files(&self, id: &ExperimentId) -> Result<Files, Error> {
        self.folder.files(id).ok_or_else(|| not_found(id.as_str()))
    }

    fn cached(&self, id: &ExperimentId, files: &Files) -> Arc<Mutex<Cached>> {
        let mut cache = lock(&self.cache);
        if cache.len() >= MAX_CACHED && !cache.contains_key(id) {
            // The oldest one is not looked at again soon.
            if let Some(oldest) = cache.keys().min().cloned() {
                cache.remove(&oldest);
            }
        }
        let new = || Cached {
            record: None,
            launch: None,
            tail: Tail::new(&files.events(), 0),
            summary: Summary::default(),
        };
        Arc::clone(cache.entry(id.clone()).or_insert_with(|| Arc::new(Mutex::new(new()))))
    }

    /// Reads an experiment, without its plan.
    fn snapshot(&self, id: &ExperimentId) -> Result<Snapshot, Error> {
        let files = self.files(id)?;
        let cached = self.cached(id, &files);
        let mut cached = lock(&cached);
        let cached = &mut *cached;
        refresh(&mut cached.record, &files.record());
        refresh(&mut cached.launch, &files.launch());
        let launch = cached.launch.as_ref().map(|(_, launch)| launch);
        // Before the events are read: all events of a process that has ended are in the file.
        let is_alive = launch
            .and_then(|launch| files.process(launch))
            .is_some_and(|process| process.is_alive());
        cached.tail.set_path(&files.events());
        let (tail, summary) = (&mut cached.tail, &mut cached.summary);
        read_events(tail, summary).map_err(|error| unreadable("read", &files.events(), &error))?;
        let Some((_, record)) = &cached.record else {
            let path = files.record();
            return Err(Error::File(format!("{} is missing or damaged", path.display())));
        };
        let events_from = launch.map_or(0, |launch| launch.events_from);
        let (state, reason) = state(summary, events_from, is_alive, &files);
        let experiment = experiment(id, record.clone(), summary, (state, reason), &files);
        let offset = tail.offset();
        Ok(Snapshot { experiment, summary: summary.clone(), offset })
    }

    /// Reads an experiment for a list. Of one that has finished, it reads the ends of its events only.
    fn glance(&self, id: &ExperimentId) -> Result<Experiment, Error> {
        let files = self.files(id)?;
        let path = files.events();
        let summary = Summary::of_ends(&path);
        let mut summary = summary.map_err(|error| unreadable("read", &path, &error))?;
        let launch: Option<Launch> = read_json(&files.launch());
        let events_from = launch.map_or(0, |launch| launch.events_from);
        let is_finished = summary
            .end
            .as_ref()
            .is_some_and(|end| end.offset > events_from && end.state == "finished");
        let record: Option<Record> = read_json(&files.record());
        let Some(record) = record.filter(|_| is_finished) else {
            return Ok(self.snapshot(id)?.experiment);
        };
        summary.done = summary.all;
        Ok(experiment(id, record, &summary, (ExperimentState::Finished, None), &files))
    }

    fn create(
        &self,
        name: String,
        title: Option<String>,
        new: NewExperiment,
    ) -> Result<Experiment, Error> {
        self.check_devices(&new.on)?;
        self.check_active()?;
        let record = Record {
            schema: "dwell.experiment/1".to_owned(),
            name,
            title,
            created: now(),
            owner: self.owner.clone(),
            on: new.on,
            settings: new.settings,
            seed: new.seed,
        };
        let (id, files) = self.folder.create(&record, &new.plan)?;
        {
            let _lock = files.lock()?;
            files.start(&self.program, self.arguments(&files, &record, None))?;
        }
        let mut experiment = self.snapshot(&id)?.experiment;
        experiment.plan = new.plan;
        Ok(experiment)
    }

    /// Refuses unknown devices, before anything is created.
    fn check_devices(&self, on: &BTreeMap<String, String>) -> Result<(), Error> {
        if on.is_empty() {
            return Ok(());
        }
        let none = || Error::Invalid("there are no devices; add them first".to_owned());
        let store = if Store::is_at(&self.data) {
            Store::open_to_read(&self.data)?
        } else {
            return Err(none());
        };
        let deleted = DeletedDevices::read(&self.data);
        for (role, name) in on {
            let reason = match store.device(name)? {
                None => format!("there is no device '{name}'"),
                Some(device) if deleted.hides(&device) => {
                    format!("device {name} is deleted; restore it first")
                }
                Some(_) => continue,
            };
            return Err(Error::Invalid(format!("role {role}: {reason}")));
        }
        Ok(())
    }

    fn check_active(&self) -> Result<(), Error> {
        let ids = self.folder.ids()?;
        let newest = ids.iter().take(ACTIVE_SEARCH_LEN).filter_map(|id| self.snapshot(id).ok());
        let active = newest.filter(|it| it.experiment.state.is_active()).count();
        if active < MAX_ACTIVE {
            return Ok(());
        }
        Err(Error::Conflict(format!(
            "{active} experiments run or wait; stop one, or wait until one ends"
        )))
    }

    fn stop(&self, id: &ExperimentId) -> Result<Experiment, Error> {
        let files = self.files(id)?;
        let _lock = files.lock()?;
        let launch: Option<Launch> = read_json(&files.launch());
        let process = launch.and_then(|launch| files.process(&launch));
        let interrupted = process.map_or(Ok(false), |process| process.interrupt());
        let is_interrupted = interrupted
            .map_err(|error| Error::Conflict(format!("cannot stop {}: {error}", id.as_str())))?;
        let experiment = self.snapshot(id)?.experiment;
        if is_interrupted {
            return Ok(experiment);
        }
        let state = experiment.state.name();
        Err(Error::Conflict(format!(
            "experiment {} is {state}, so there is nothing to stop",
            id.as_str()
        )))
    }

    fn resume(&self, id: &ExperimentId) -> Result<Experiment, Error> {
        let files = self.files(id)?;
        if files.deleted.is_some() {
            return Err(Error::Conflict(format!(
                "experiment {} is deleted; restore it first",
                id.as_str()
            )));
        }
        self.check_active()?;
        let _lock = files.lock()?;
        let now = self.snapshot(id)?;
        if !now.experiment.state.can_resume() {
            let state = now.experiment.state.name();
            return Err(Error::Conflict(format!(
                "experiment {} is {state}, so it cannot be resumed",
                id.as_str()
            )));
        }
        let record: Record = read_json(&files.record()).ok_or_else(|| not_found(id.as_str()))?;
        let run = now.experiment.run.as_deref();
        if let Some(run) = run.filter(|run| is_deleted(&self.data, run)) {
            return Err(Error::Conflict(format!(
                "run {run} of experiment {} is deleted; restore it first",
                id.as_str()
            )));
        }
        files.start(&self.program, self.arguments(&files, &record, run))?;
        Ok(self.snapshot(id)?.experiment)
    }

    /// The arguments of the process. Values follow `=`, so none can be taken for an option.
    fn arguments(&self, files: &Files, record: &Record, resume: Option<&str>) -> Vec<OsString> {
        let path_option = |name: &str, path: &Path| {
            let mut option = OsString::from(name);
            option.push(path);
            option
        };
        let mut arguments: Vec<OsString> = vec!["run".into(), files.plan().into()];
        arguments.push(path_option("--data=", &self.data));
        arguments.push(events_argument(&files.events()));
        arguments.extend(["--wait", "--yes", "--quiet"].map(OsString::from));
        match resume {
            Some(run) => arguments.push(format!("--resume={run}").into()),
            None => {
                let on = record.on.iter().map(|(role, device)| format!("--on={role}={device}"));
                let settings = record.settings.iter().map(|setting| format!("--set={setting}"));
                let seed = record.seed.map(|seed| format!("--seed={seed}"));
                arguments.extend(on.chain(settings).chain(seed).map(OsString::from));
            }
        }
        arguments
    }
}

/// Joins what is known of an experiment, without its plan.
fn experiment(
    id: &ExperimentId,
    record: Record,
    summary: &Summary,
    (state, reason): (ExperimentState, Option<String>),
    files: &Files,
) -> Experiment {
    Experiment {
        id: id.as_str().to_owned(),
        name: record.name,
        title: record.title,
        created: record.created,
        owner: record.owner,
        plan: String::new(),
        on: record.on,
        settings: record.settings,
        seed: summary.seed.or(record.seed),
        state,
        run: summary.run.clone(),
        done: summary.done,
        all: summary.all,
        reason,
        deleted: files.deleted.is_some(),
    }
}

/// Reads a file again if it has changed. A damaged file keeps what was read before.
fn refresh<T: serde::de::DeserializeOwned>(cached: &mut Option<(FileStamp, T)>, path: &Path) {
    let Some(now) = stamp(path) else { return };
    if cached.as_ref().is_some_and(|(then, _)| *then == now) {
        return;
    }
    if let Some(content) = read_json(path) {
        *cached = Some((now, content));
    }
}

/// Adds all new events.
fn read_events(tail: &mut Tail, summary: &mut Summary) -> std::io::Result<()> {
    loop {
        let new = tail.read()?;
        if new.is_reset {
            *summary = Summary::default();
        }
        new.events.iter().for_each(|(offset, event)| summary.add(*offset, event));
        if !new.has_more {
            return Ok(());
        }
    }
}

/// The state of an experiment, and the reason. `events_from` is the length of the events file when
/// its process was started.
fn state(
    summary: &Summary,
    events_from: u64,
    is_alive: bool,
    files: &Files,
) -> (ExperimentState, Option<String>) {
    if let Some(end) = summary.end.as_ref().filter(|end| end.offset > events_from) {
        let state = match end.state.as_str() {
            "finished" => ExperimentState::Finished,
            "failed" => ExperimentState::Failed,
            _ => ExperimentState::Stopped,
        };
        return (state, end.reason.clone());
    }
    if is_alive {
        return match summary.began.filter(|began| *began > events_from) {
            Some(_) => (ExperimentState::Running, None),
            None => (ExperimentState::Queued, summary.waiting.clone()),
        };
    }
    let last =
        files.last_line().map_or(String::new(), |line| format!("; the last message: {line}"));
    (ExperimentState::Interrupted, Some(format!("its process ended unexpectedly{last}")))
}

/// Checks lengths that bound the work of a check.
fn check_lengths(plan: &str, settings: &[String]) -> Result<(), Error> {
    if plan.len() > MAX_PLAN_LEN {
        return Err(Error::Plan(format!("the plan is longer than {MAX_PLAN_LEN} bytes")));
    }
    if settings.len() > MAX_SETTINGS {
        return Err(Error::Plan(format!("there are more than {MAX_SETTINGS} settings")));
    }
    let is_valid = |text: &&String| text.len() <= MAX_SETTING_LEN && !text.contains('\0');
    match settings.iter().find(|setting| !is_valid(setting)) {
        Some(_) => Err(Error::Plan(format!(
            "a setting is longer than {MAX_SETTING_LEN} bytes or has a null character"
        ))),
        None => Ok(()),
    }
}

/// Checks that every role has a device, and no other name does.
fn check_roles(roles: &[String], on: &BTreeMap<String, String>) -> Result<(), Error> {
    if let Some(missing) = roles.iter().find(|role| !on.contains_key(*role)) {
        return Err(Error::Invalid(format!("role {missing} of the plan has no device")));
    }
    if let Some(role) = on.keys().find(|role| !roles.contains(role)) {
        let role: String = role.chars().take(64).collect();
        return Err(Error::Invalid(format!("the plan has no role '{role}'")));
    }
    let mut devices: Vec<&String> = on.values().collect();
    devices.sort_unstable();
    match devices.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::Invalid(format!("device {} has two roles", pair[0]))),
        None => Ok(()),
    }
}

fn parse(id: &str) -> Result<ExperimentId, Error> {
    ExperimentId::parse(id).ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> Error {
    let id: String = id.chars().take(64).collect();
    Error::NotFound(format!("there is no experiment '{id}'"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
