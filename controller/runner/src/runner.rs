//! Carries out a run: trial after trial, with everything on disk before the next begins.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_fleet::{Fleet, FleetError, FromNode, Routes};
use dwell_plan::{Expansion, PlanError, Topology};
use dwell_protocol::{Event, JobId, Progress};
use dwell_store::{NewTrial, RunRow, RunState, Store, StoreError, TrialRow, TrialState};
use dwell_units::{Instant, Monotonic, Nanos};
use thiserror::Error;

use crate::incoming::Incoming;
use crate::jobs::{Planned, jobs, time_limit};
use crate::machine::{Action, Machine};
use crate::quotas::Quotas;

/// A stop is obeyed within this time.
const TURN: Duration = Duration::from_millis(100);

/// So many trials failed in a row are no accident.
const FAILURES: u32 = 5;

/// With a full disk, room is looked for this often.
const FULL_DISK: Nanos = Nanos::from_secs(1);

/// A trial that did not fit the disk is tried again after ever longer times, up to this.
const LONGEST_WAIT: Nanos = Nanos::from_secs(60);

/// Where the time comes from.
pub trait Clock {
    /// Now.
    fn now(&self) -> Instant<Monotonic>;
    /// Lets so much time pass.
    fn sleep(&self, time: Duration);
}

/// Who is told how far the run is.
pub trait Talk {
    /// A trial begins: its place in the run from 0, how many there are, its number and cell.
    fn begins(&mut self, done: u32, all: u32, trial: u32, cell: &BTreeMap<String, String>);
    /// Its measurement is so far.
    fn progress(&mut self, progress: &Progress);
    /// It ended.
    fn ended(&mut self, trial: u32, end: &TrialEnd);
    /// Something to hear of at once.
    fn say(&mut self, text: &str);
}

/// The trials with which a run of a plan begins, in the order of its schedule.
pub fn new_trials(expansion: &Expansion) -> Vec<NewTrial> {
    let new = expansion.trials().iter().map(|trial| NewTrial {
        number: trial.number,
        cell: trial.cell,
        repetition: trial.repetition,
        parameters: expansion.parameters(trial.cell),
    });
    new.collect()
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialEnd {
    /// Measured.
    Finished,
    /// Failed, for this reason.
    Failed(String),
    /// What it asks for is not to be had on its node, for this reason.
    NotRun(String),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every trial has been tried.
    Complete,
    /// A person stopped it.
    Interrupted,
    /// A rule of the plan stopped it, in words.
    Stopped(String),
}

/// Why a run cannot go on. What was measured is on disk, and the run can be resumed.
#[derive(Debug, Error)]
pub enum RunnerError {
    /// The store failed.
    #[error("cannot keep what was measured")]
    Store(#[from] StoreError),
    /// The nodes cannot be made.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// A cell of the plan makes no sense.
    #[error("{0}")]
    Plan(PlanError),
    /// What comes from nodes cannot be kept meanwhile.
    #[error("cannot write {}", path.display())]
    Incoming {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl RunnerError {
    fn is_full_disk(&self) -> bool {
        match self {
            Self::Store(error) => error.is_full_disk(),
            Self::Incoming { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            Self::Fleet(_) | Self::Plan(_) => false,
        }
    }
}

/// A run under way.
pub struct Runner<'a> {
    /// The nodes.
    pub fleet: &'a mut dyn Fleet,
    /// What was measured.
    pub store: &'a mut Store,
    /// What to measure.
    pub expansion: &'a Expansion,
    /// The run in the store.
    pub run: RunRow,
    /// The time.
    pub clock: &'a dyn Clock,
    /// Who is told.
    pub talk: &'a mut dyn Talk,
    /// Set by whoever wants it to end.
    pub stop: &'a AtomicBool,
}

/// What goes on from trial to trial.
#[derive(Default)]
struct Standing {
    reflectors: Vec<(JobId, Planned)>,
    next_job: u32,
    /// Some lab could be made: a topology that cannot be is at fault itself.
    lab_made: bool,
    /// Bytes that came of the samples of the trial under way.
    came: u64,
}

/// A trial whose lab could not be made while none could.
struct Held<'a> {
    trial: &'a TrialRow,
    error: FleetError,
}

impl Runner<'_> {
    /// Runs every trial that is not finished yet, in the order of the plan.
    ///
    /// # Errors
    /// It cannot go on.
    pub fn run(mut self) -> Result<End, RunnerError> {
        self.store.set_run_state(&self.run, RunState::Running)?;
        let outcome = self.trials();
        // Whatever happened, nothing stays behind.
        let dissolved = self.fleet.dissolve();
        let state = match outcome {
            Ok(End::Complete) => RunState::Finished,
            Ok(End::Interrupted | End::Stopped(_)) | Err(_) => RunState::Stopped,
        };
        let noted = self.store.set_run_state(&self.run, state);
        let end = outcome?;
        match noted {
            // Whoever is tired of waiting for room may go; the run can be resumed as it is.
            Err(error) if error.is_full_disk() && end == End::Interrupted => {}
            noted => noted?,
        }
        dissolved?;
        Ok(end)
    }

    fn trials(&mut self) -> Result<End, RunnerError> {
        let stop_rules = self.expansion.plan().stop;
        let mut trials = self.store.trials(&self.run)?;
        trials.sort_unstable_by_key(|trial| trial.position);
        let all = trials.len() as u32;
        let over = |trial: &TrialRow| {
            matches!(trial.state, TrialState::Finished | TrialState::Failed | TrialState::NotRun)
        };
        let mut done = trials.iter().filter(|trial| over(trial)).count() as u32;
        let started = self.clock.now();
        let mut failures = 0;
        let most = stop_rules.failures.unwrap_or(FAILURES);
        let mut standing = Standing::default();
        let mut held: Vec<Held<'_>> = Vec::new();
        for trial in trials.iter().filter(|trial| !over(trial)) {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(End::Interrupted);
            }
            if stop_rules.time.is_some_and(|time| self.clock.now() - started >= time) {
                let left = all - done;
                return Ok(End::Stopped(format!("its time is over; trials left: {left}")));
            }
            self.talk.begins(done, all, trial.number, &trial.parameters);
            let ended = match self.trial(trial, &mut standing) {
                // Perhaps no lab can be made here at all, and then no trial is to blame.
                Err(RunnerError::Fleet(error)) if error.is_of_topology() => {
                    held.push(Held { trial, error });
                    if held.len() < most as usize && self.has_other_labs() {
                        continue;
                    }
                    return Err(held.swap_remove(0).error.into());
                }
                ended => ended?,
            };
            let to_blame = if standing.lab_made { std::mem::take(&mut held) } else { Vec::new() };
            for Held { trial, error } in to_blame {
                self.talk.begins(done, all, trial.number, &trial.parameters);
                let end = self.fail(trial, &error.to_string())?;
                self.talk.ended(trial.number, &end);
                done += 1;
            }
            let Some(end) = ended else { return Ok(End::Interrupted) };
            self.talk.ended(trial.number, &end);
            done += 1;
            failures = match end {
                TrialEnd::Finished => 0,
                TrialEnd::Failed(_) => failures + 1,
                TrialEnd::NotRun(_) => failures,
            };
            if failures >= most && done < all {
                let TrialEnd::Failed(reason) = end else { continue };
                return Ok(End::Stopped(format!(
                    "{failures} trials in a row failed, the last because {reason}"
                )));
            }
            let pause = self.expansion.plan().trials.pause;
            if pause > Nanos::ZERO && done < all {
                self.rest(pause);
            }
        }
        match held.into_iter().next() {
            Some(Held { error, .. }) => Err(error.into()),
            None => Ok(End::Complete),
        }
    }

    /// Whether the plan has more than one topology.
    fn has_other_labs(&self) -> bool {
        self.expansion.axes().iter().any(|axis| axis.is_of("topology"))
    }

    /// Lets time pass, unless somebody wants the run to end.
    fn rest(&self, pause: Nanos) {
        let end = self.clock.now().saturating_add(pause);
        while !self.stop.load(Ordering::Relaxed) {
            let left = (end - self.clock.now()).max(Nanos::ZERO).to_std();
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left.min(TURN));
        }
    }

    /// Measures one trial, and keeps what came of it. With a full disk it waits for room and
    /// measures it again. `None` when it was interrupted, and is to be measured again another time.
    fn trial(
        &mut self,
        trial: &TrialRow,
        standing: &mut Standing,
    ) -> Result<Option<TrialEnd>, RunnerError> {
        let mut wait = FULL_DISK;
        loop {
            standing.came = 0;
            let failure = match self.try_trial(trial, standing) {
                Ok(end) => return Ok(end),
                Err(failure) if failure.is_full_disk() => failure,
                Err(failure) => return Err(failure),
            };
            // Nobody burns or sends meanwhile, and whatever was half asked for is forgotten.
            self.forget(standing)?;
            let needed = needed_room(standing.came);
            self.talk.say(&format!(
                "{failure}: the disk is full; waiting for room ({} MB) in {}",
                needed.div_ceil(1_000_000),
                self.store.dir().display()
            ));
            // What was needed is a guess: whoever guessed too low does not try all the time.
            self.rest(wait);
            wait = Nanos(wait.0.saturating_mul(2)).min(LONGEST_WAIT);
            while !has_room(&self.store.incoming(), needed) {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                self.rest(FULL_DISK);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            self.talk.say(&format!("there is room again; measuring trial {} anew", trial.number));
        }
    }

    fn try_trial(
        &mut self,
        trial: &TrialRow,
        standing: &mut Standing,
    ) -> Result<Option<TrialEnd>, RunnerError> {
        let plan = match self.expansion.plan_of(trial.cell) {
            Ok(plan) => plan,
            Err(error) => return self.fail(trial, &error.to_string()).map(Some),
        };
        let routes = match self.ready(&plan.topology, standing) {
            Ok(routes) => routes,
            // Its own topology is at fault, for another could be made.
            Err(error) if standing.lab_made && error.is_of_topology() => {
                return self.fail(trial, &error.to_string()).map(Some);
            }
            // Without nodes there is nothing to go on with.
            Err(error) => return Err(error.into()),
        };
        self.store.begin_trial(trial)?;
        self.notice_the_gone(standing);
        let quotas = Quotas::now(self.fleet, self.clock);
        let mut incoming = BTreeMap::new();
        let limit = time_limit(&plan);
        let needed = jobs(&plan, &self.fleet.hosts());
        let reflectors = std::mem::take(&mut standing.reflectors);
        let (mut machine, actions) =
            Machine::new(needed, reflectors, standing.next_job, limit, self.clock.now());
        self.carry_out(&mut machine, actions);
        let mut interrupted = false;
        while !machine.is_over() {
            if !interrupted && self.stop.load(Ordering::Relaxed) {
                interrupted = true;
                self.talk.say("interrupted; the trial under way is given up");
                let actions = machine.give_up("interrupted".into(), self.clock.now());
                self.carry_out(&mut machine, actions);
            }
            let left = (machine.deadline() - self.clock.now()).max(Nanos::ZERO).to_std();
            let heard = self.fleet.next(left.min(TURN));
            let now = self.clock.now();
            let actions = match heard {
                None => machine.tick(now),
                Some((node, FromNode::Gone(why))) => machine.gone(&node, &why, now),
                Some((_, FromNode::Data(job, bytes))) => {
                    self.incoming(trial, job, &mut incoming)?.take(&bytes);
                    Vec::new()
                }
                Some((node, FromNode::Event(event))) => {
                    match &event {
                        Event::Hello { dwell, .. } => {
                            self.store.set_node(&self.run, &node, dwell)?;
                        }
                        Event::Progress { progress, .. } => self.talk.progress(progress),
                        Event::Pulled { job, bytes, crc32 } => {
                            self.incoming(trial, *job, &mut incoming)?.check(*bytes, *crc32);
                        }
                        _ => {}
                    }
                    machine.hear(&node, event, now)
                }
            };
            self.carry_out(&mut machine, actions);
        }
        standing.next_job = machine.next_job();
        standing.came = incoming.values().map(Incoming::bytes).sum();
        let mut outcome = machine.outcome().unwrap_or_default();
        standing.reflectors.clone_from(&outcome.standing);
        // ^C on a terminal reaches nodes that are just being started, too: a trial that failed while
        // it was interrupted did not fail by itself, and is measured another time.
        if interrupted || outcome.failure.is_some() && self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        outcome.seen = quotas.until(&Quotas::now(self.fleet, self.clock));
        let fault = self.fault_since(routes.as_ref());
        if let Some(fault) = &fault {
            // Whatever else went wrong came of it.
            let rest = outcome.failure.take().map(|why| format!("; {why}")).unwrap_or_default();
            outcome.failure = Some(format!("{fault}{rest}"));
        }
        let kept = self.keep(trial, &plan, outcome, incoming)?;
        if fault.is_some() {
            self.forget(standing)?;
        }
        Ok(kept)
    }

    /// Makes the nodes reachable, and says which routes they have. Where those are not what they
    /// should be, because a daemon ended since the trial before, the nodes are made anew.
    fn ready(
        &mut self,
        topology: &Topology,
        standing: &mut Standing,
    ) -> Result<Option<Routes>, FleetError> {
        self.fleet.prepare(topology)?;
        standing.lab_made = true;
        match self.fleet.routes() {
            Err(FleetError::Routes(fault)) => {
                self.talk.say(&format!("{fault}; the lab is made anew"));
                self.forget(standing)?;
                self.fleet.prepare(topology)?;
                self.fleet.routes()
            }
            routes => routes,
        }
    }

    /// What happened to the routes since they were these; `None` when nothing did.
    fn fault_since(&mut self, before: Option<&Routes>) -> Option<String> {
        let before = before?;
        match self.fleet.routes() {
            Ok(now) => before.change(&now?),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Lets go of all nodes, with all that was asked of them.
    fn forget(&mut self, standing: &mut Standing) -> Result<(), FleetError> {
        *standing =
            Standing { lab_made: standing.lab_made, came: standing.came, ..Standing::default() };
        self.fleet.dissolve()
    }

    /// The segment of a job, on its way.
    fn incoming<'i>(
        &self,
        trial: &TrialRow,
        job: JobId,
        all: &'i mut BTreeMap<JobId, Incoming>,
    ) -> Result<&'i mut Incoming, RunnerError> {
        Ok(match all.entry(job) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let name = format!("{}-{}-{}.segment", self.run.run, trial.number, job.0);
                new.insert(Incoming::create(self.store.incoming().join(name))?)
            }
        })
    }

    /// What a node did for a trial before is gone with it, and is begun anew for the next.
    fn notice_the_gone(&mut self, standing: &mut Standing) {
        while let Some((node, what)) = self.fleet.next(Duration::ZERO) {
            let FromNode::Gone(why) = what else { continue };
            self.talk.say(&format!("node {node} is gone between trials, and is begun anew: {why}"));
            standing.reflectors.retain(|(_, planned)| planned.node != node);
        }
    }

    /// Does what the machine decides, and tells it what cannot be done.
    fn carry_out(&mut self, machine: &mut Machine, actions: Vec<Action>) {
        let mut todo = std::collections::VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            match action {
                Action::Release(node) => self.fleet.release(&node),
                Action::Ask(node, request) => {
                    if let Err(error) = self.fleet.request(&node, &request) {
                        self.fleet.release(&node);
                        let why = error.to_string();
                        todo.extend(machine.gone(&node, &why, self.clock.now()));
                    }
                }
            }
        }
    }

    /// Notes a trial that could not even begin.
    fn fail(&mut self, trial: &TrialRow, reason: &str) -> Result<TrialEnd, RunnerError> {
        self.store.begin_trial(trial)?;
        self.store.end_trial(trial, Err(reason), &[], None)?;
        Ok(TrialEnd::Failed(reason.to_owned()))
    }
}

/// Room for a trial whose samples had so many bytes on their way: as much again for the file that is
/// made of them, and something for the catalogue.
fn needed_room(came: u64) -> u64 {
    came.saturating_mul(2).saturating_add(1 << 20)
}

/// Whether so many bytes are free in `dir`, and a megabyte can be written there indeed.
fn has_room(dir: &Path, bytes: u64) -> bool {
    let free = rustix::fs::statvfs(dir).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free.is_ok_and(|free| free < bytes) {
        return false;
    }
    let path = dir.join("room");
    let written = fs::write(&path, vec![0; 1 << 20]);
    let _ = fs::remove_file(&path);
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_the_attempt_before_would_have_needed() {
        assert_eq!(needed_room(500_000_000), 1_000_000_000 + (1 << 20));
        let dir = tempfile::tempdir().unwrap();
        assert!(has_room(dir.path(), needed_room(0)));
        assert!(!has_room(dir.path(), needed_room(u64::MAX)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
