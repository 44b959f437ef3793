//! Executes a run: trial after trial, each completely stored before the next starts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_fleet::{Fleet, FleetError, FromNode, NodeDevice, Routes};
use dwell_plan::{Expansion, PlanError, Topology};
use dwell_protocol::{Event, JobId, Progress, Request};
use dwell_record::Summary;
use dwell_store::{
    BoundDevice, NewTrial, RunNode, RunRow, RunState, Store, StoreError, TrialRow, TrialState,
};
use dwell_units::{Instant, Monotonic, Nanos};
use thiserror::Error;

use crate::incoming::{Incoming, Part};
use crate::jobs::{PlannedJob, jobs, time_limit};
use crate::quotas::Quotas;
use crate::trial::{Action, TrialMachine};
use crate::trial_clocks::{StartedClocks, TrialClocks};

/// Maximum time until a stop request takes effect.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Default number of consecutive failures that ends a run.
const DEFAULT_MAX_FAILURES: u32 = 5;

/// Interval of checks for free space on a full disk.
const SPACE_CHECK_INTERVAL: Nanos = Nanos::from_secs(1);

/// Time before the second attempt to use nodes that another run uses. It doubles with each attempt.
const LEASE_RETRY_INTERVAL: Nanos = Nanos::from_secs(1);

/// Maximum time between such attempts.
const MAX_LEASE_RETRY_INTERVAL: Nanos = Nanos::from_secs(15);

/// Maximum time between attempts to measure a trial that did not fit on the disk.
const MAX_RETRY_INTERVAL: Nanos = Nanos::from_secs(60);

/// Maximum time to handle messages between two trials. A node that sends messages without end must not
/// prevent the next trial, which has its own time limit.
const DRAIN_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Source of time.
pub trait Clock {
    /// Returns the current time.
    fn now(&self) -> Instant<Monotonic>;
    /// Sleeps for `time`.
    fn sleep(&self, time: Duration);
}

/// Receives progress reports of a run.
pub trait ProgressReporter {
    /// A trial starts: number of completed trials, number of all trials, trial number and cell.
    fn trial_started(&mut self, done: u32, all: u32, trial: u32, cell: &BTreeMap<String, String>);
    /// Progress of the current measurement.
    fn progress(&mut self, progress: &Progress);
    /// The summary of a finished trial, before [`Self::ended`].
    fn measured(&mut self, trial: u32, summary: &Summary);
    /// A trial ended.
    fn ended(&mut self, trial: u32, end: &TrialEnd);
    /// A message to show at once.
    fn say(&mut self, text: &str);
}

/// Returns the trials of a new run of a plan, in schedule order.
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
    /// It was measured.
    Finished,
    /// It failed, for this reason.
    Failed(String),
    /// It was not run because its node does not support it, for this reason.
    NotRun(String),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every trial has been tried.
    Complete,
    /// The user stopped it.
    Interrupted,
    /// A rule of the plan stopped it, with the reason.
    Stopped(String),
}

/// Why a run cannot continue. Earlier trials are stored, and the run can be resumed.
#[derive(Debug, Error)]
pub enum RunnerError {
    /// The store failed.
    #[error("cannot store the measurement")]
    Store(#[from] StoreError),
    /// The nodes are unavailable.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// A cell of the plan is invalid.
    #[error("{0}")]
    Plan(PlanError),
    /// A file of received samples cannot be written.
    #[error("cannot write {}", path.display())]
    Incoming {
        /// The file.
        path: PathBuf,
        /// The cause.
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
    /// The results.
    pub store: &'a mut Store,
    /// The plan.
    pub expansion: &'a Expansion,
    /// The run in the store.
    pub run: RunRow,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Receives progress reports.
    pub reporter: &'a mut dyn ProgressReporter,
    /// Set to request the run to stop.
    pub stop: &'a AtomicBool,
}

/// State that is kept from trial to trial.
#[derive(Default)]
struct Carryover {
    reflectors: Vec<(JobId, PlannedJob)>,
    next_job: u32,
    /// Whether the nodes of any topology were available. If so, the topology is at fault if those of
    /// another are not.
    nodes_available: bool,
    /// Sample bytes received for the current trial.
    received_bytes: u64,
}

/// A trial whose nodes were unavailable, while those of no other topology have been available yet.
struct BlockedTrial<'a> {
    trial: &'a TrialRow,
    error: FleetError,
}

impl Runner<'_> {
    /// Runs all trials that are not finished, in plan order.
    ///
    /// # Errors
    /// The run cannot continue.
    pub fn run(mut self) -> Result<RunEnd, RunnerError> {
        self.store.set_run_state(&self.run, RunState::Running)?;
        let outcome = self.trials();
        // Nodes are removed on success and failure.
        let dissolved = self.fleet.dissolve();
        let state = match outcome {
            Ok(RunEnd::Complete) => RunState::Finished,
            Ok(RunEnd::Interrupted | RunEnd::Stopped(_)) | Err(_) => RunState::Stopped,
        };
        let stored = self.store.set_run_state(&self.run, state);
        let end = outcome?;
        match stored {
            // The user may interrupt the wait for free space; the run can be resumed in its stored
            // state.
            Err(error) if error.is_full_disk() && end == RunEnd::Interrupted => {}
            stored => stored?,
        }
        dissolved?;
        Ok(end)
    }

    fn trials(&mut self) -> Result<RunEnd, RunnerError> {
        let stop_rules = self.expansion.plan().stop;
        let mut trials = self.store.trials(&self.run)?;
        trials.sort_unstable_by_key(|trial| trial.position);
        let all = trials.len() as u32;
        let is_over = |trial: &TrialRow| {
            matches!(trial.state, TrialState::Finished | TrialState::Failed | TrialState::NotRun)
        };
        let mut done = trials.iter().filter(|trial| is_over(trial)).count() as u32;
        let started = self.clock.now();
        let mut failures = 0;
        let max_failures = stop_rules.failures.unwrap_or(DEFAULT_MAX_FAILURES);
        let mut carryover = Carryover::default();
        let mut blocked: Vec<BlockedTrial<'_>> = Vec::new();
        for trial in trials.iter().filter(|trial| !is_over(trial)) {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(RunEnd::Interrupted);
            }
            if stop_rules.time.is_some_and(|time| self.clock.now() - started >= time) {
                let left = all - done;
                return Ok(RunEnd::Stopped(format!(
                    "the time limit was reached; trials left: {left}"
                )));
            }
            self.reporter.trial_started(done, all, trial.number, &trial.parameters);
            let ended = match self.trial(trial, &mut carryover) {
                // If no nodes are available at all, no single trial is at fault.
                Err(RunnerError::Fleet(error)) if error.is_topology_failure() => {
                    blocked.push(BlockedTrial { trial, error });
                    if blocked.len() < max_failures as usize && self.has_other_topologies() {
                        continue;
                    }
                    return Err(blocked.swap_remove(0).error.into());
                }
                ended => ended?,
            };
            let failed =
                if carryover.nodes_available { std::mem::take(&mut blocked) } else { Vec::new() };
            for BlockedTrial { trial, error } in failed {
                self.reporter.trial_started(done, all, trial.number, &trial.parameters);
                let end = self.fail(trial, &error.to_string())?;
                self.reporter.ended(trial.number, &end);
                done += 1;
            }
            let Some(end) = ended else { return Ok(RunEnd::Interrupted) };
            self.reporter.ended(trial.number, &end);
            done += 1;
            failures = match end {
                TrialEnd::Finished => 0,
                TrialEnd::Failed(_) => failures + 1,
                TrialEnd::NotRun(_) => failures,
            };
            if failures >= max_failures && done < all {
                let TrialEnd::Failed(reason) = end else { continue };
                return Ok(RunEnd::Stopped(format!(
                    "{failures} trials in a row failed; the last error: {reason}"
                )));
            }
            let pause = self.expansion.plan().trials.pause;
            if pause > Nanos::ZERO && done < all {
                self.sleep_unless_stopped(pause);
            }
        }
        match blocked.into_iter().next() {
            Some(BlockedTrial { error, .. }) => Err(error.into()),
            None => Ok(RunEnd::Complete),
        }
    }

    /// Whether the plan has more than one topology.
    fn has_other_topologies(&self) -> bool {
        self.expansion.axes().iter().any(|axis| axis.sets_table("topology"))
    }

    /// Pauses, unless a stop is requested.
    fn sleep_unless_stopped(&self, pause: Nanos) {
        let end = self.clock.now().saturating_add(pause);
        while !self.stop.load(Ordering::Relaxed) {
            let left = (end - self.clock.now()).max(Nanos::ZERO).to_std();
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left.min(STOP_POLL_INTERVAL));
        }
    }

    /// Measures one trial and stores it. If the disk is full, waits for space and repeats the
    /// measurement. Returns `None` if interrupted; the trial is then measured when the run is
    /// resumed.
    fn trial(
        &mut self,
        trial: &TrialRow,
        carryover: &mut Carryover,
    ) -> Result<Option<TrialEnd>, RunnerError> {
        let mut wait = SPACE_CHECK_INTERVAL;
        loop {
            carryover.received_bytes = 0;
            let failure = match self.try_trial(trial, carryover) {
                Ok(end) => return Ok(end),
                Err(failure) if failure.is_full_disk() => failure,
                Err(failure) => return Err(failure),
            };
            // No load runs during the wait, and unfinished requests are dropped.
            self.release_nodes(carryover)?;
            let needed = needed_space(carryover.received_bytes);
            self.reporter.say(&format!(
                "{failure}: the disk is full; waiting for {} MB of free space in {}",
                needed.div_ceil(1_000_000),
                self.store.dir().display()
            ));
            // The needed space is an estimate: back off in case it is too low.
            self.sleep_unless_stopped(wait);
            wait = Nanos(wait.0.saturating_mul(2)).min(MAX_RETRY_INTERVAL);
            while !has_free_space(&self.store.incoming(), needed) {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                self.sleep_unless_stopped(SPACE_CHECK_INTERVAL);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            self.reporter
                .say(&format!("space is available again; repeating trial {}", trial.number));
        }
    }

    fn try_trial(
        &mut self,
        trial: &TrialRow,
        carryover: &mut Carryover,
    ) -> Result<Option<TrialEnd>, RunnerError> {
        let plan = match self.expansion.plan_of(trial.cell) {
            Ok(plan) => plan,
            Err(error) => return self.fail(trial, &error.to_string()).map(Some),
        };
        // Before the nodes are prepared, so that those that ended are connected again.
        self.drain_messages(carryover)?;
        let routes = match self.prepare(&plan.topology, carryover) {
            Ok(routes) => routes,
            // The wait for nodes was interrupted.
            Err(_) if self.stop.load(Ordering::Relaxed) => return Ok(None),
            // Other nodes were available, so this topology is at fault.
            Err(error) if carryover.nodes_available && error.is_topology_failure() => {
                return self.fail(trial, &error.to_string()).map(Some);
            }
            // The run cannot continue without nodes.
            Err(error) => return Err(error.into()),
        };
        self.store.begin_trial(trial)?;
        let clocks = StartedClocks::measure(self.fleet);
        let quotas = Quotas::now(self.fleet, self.clock);
        let mut incoming = BTreeMap::new();
        let limit = time_limit(&plan);
        let needed = jobs(&plan, &self.fleet.nodes());
        let reflectors = std::mem::take(&mut carryover.reflectors);
        let (mut machine, actions) =
            TrialMachine::new(needed, reflectors, carryover.next_job, limit, self.clock.now());
        self.execute(&mut machine, actions);
        let mut interrupted = false;
        while !machine.is_over() {
            if !interrupted && self.stop.load(Ordering::Relaxed) {
                interrupted = true;
                self.reporter.say("interrupted; the current trial is discarded");
                let actions = machine.give_up("interrupted".into(), self.clock.now());
                self.execute(&mut machine, actions);
            }
            let left = (machine.deadline() - self.clock.now()).max(Nanos::ZERO).to_std();
            let message = self.fleet.next(left.min(STOP_POLL_INTERVAL));
            let now = self.clock.now();
            let actions = match message {
                None => Vec::new(),
                Some((node, FromNode::Gone(why))) => machine.gone(&node, &why, now),
                // Samples still arrive after a failure has ended their transfer.
                Some((node, FromNode::Data(job, _))) if !machine.is_pulling(&node, job) => {
                    Vec::new()
                }
                Some((node, FromNode::Data(job, bytes))) => {
                    if self.incoming(trial, job, &mut incoming)?.take(&bytes) {
                        machine.extend_transfer(now);
                        Vec::new()
                    } else {
                        let why = format!("{node} sent more samples than were requested");
                        machine.give_up(why, now)
                    }
                }
                Some((node, FromNode::Event(event))) => {
                    let mut next_part = None;
                    match &event {
                        Event::Hello { dwell, .. } => self.store_node(&node, dwell)?,
                        Event::Progress { progress, .. } => self.reporter.progress(progress),
                        Event::Pulled { job, from, bytes, crc32, left }
                            if machine.is_pulling(&node, *job) =>
                        {
                            let (from, bytes, crc32, left) = (*from, *bytes, *crc32, *left);
                            let (job, part) = (*job, Part { from, bytes, crc32, left });
                            let incoming = self.incoming(trial, job, &mut incoming)?;
                            next_part = incoming.end_part(&part).map(|from| (job, from));
                        }
                        _ => {}
                    }
                    match next_part {
                        Some((job, from)) => vec![Action::Ask(node, Request::Pull { job, from })],
                        None => machine.handle_event(&node, event, now),
                    }
                }
            };
            self.execute(&mut machine, actions);
            // Messages without end must not prevent a time-out.
            let late = machine.tick(now);
            self.execute(&mut machine, late);
        }
        carryover.next_job = machine.next_job();
        carryover.received_bytes = incoming.values().map(Incoming::bytes).sum();
        let mut outcome = machine.outcome().unwrap_or_default();
        carryover.reflectors.clone_from(&outcome.standing);
        // ^C on a terminal also reaches nodes that are being started. A trial that failed during an
        // interrupt is repeated when the run is resumed.
        if interrupted || outcome.failure.is_some() && self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let clocks = match outcome.failure {
            None => clocks.end(self.fleet),
            Some(_) => TrialClocks::unknown(self.fleet.nodes()),
        };
        outcome.runner_values = quotas.until(&Quotas::now(self.fleet, self.clock));
        let fault = self.route_fault(routes.as_ref());
        if let Some(fault) = &fault {
            // Other failures are consequences of this one.
            let rest = outcome.failure.take().map(|why| format!("; {why}")).unwrap_or_default();
            outcome.failure = Some(format!("{fault}{rest}"));
        }
        let end = self.persist(trial, &plan, outcome, incoming, &clocks)?;
        if fault.is_some() {
            self.release_nodes(carryover)?;
        }
        Ok(end)
    }

    /// Makes the nodes reachable and returns their routes. If the routes are wrong because a daemon
    /// ended since the last trial, recreates the nodes.
    fn prepare(
        &mut self,
        topology: &Topology,
        carryover: &mut Carryover,
    ) -> Result<Option<Routes>, FleetError> {
        self.prepare_when_free(topology, carryover)?;
        carryover.nodes_available = true;
        match self.fleet.routes() {
            Err(FleetError::Routes(fault)) => {
                self.reporter.say(&format!("{fault}; recreating the lab"));
                self.release_nodes(carryover)?;
                self.fleet.prepare(topology)?;
                self.fleet.routes()
            }
            routes => routes,
        }
    }

    /// Makes the nodes reachable, after the runs that use them have ended.
    fn prepare_when_free(
        &mut self,
        topology: &Topology,
        carryover: &mut Carryover,
    ) -> Result<(), FleetError> {
        let mut announced = None;
        let mut wait = LEASE_RETRY_INTERVAL;
        loop {
            let error = match self.fleet.prepare(topology) {
                Err(error) if error.is_leased() => error,
                prepared => return prepared,
            };
            // Two runs that wait for each other must not hold other nodes.
            self.release_nodes(carryover)?;
            let text = format!("{error}; waiting until it is free");
            if announced.as_ref() != Some(&text) {
                self.reporter.say(&text);
                announced = Some(text);
            }
            self.sleep_unless_stopped(partly_random(wait));
            wait = Nanos(wait.0.saturating_mul(2)).min(MAX_LEASE_RETRY_INTERVAL);
            if self.stop.load(Ordering::Relaxed) {
                return Err(error);
            }
        }
    }

    /// Returns how the routes changed; `None` if they did not.
    fn route_fault(&mut self, before: Option<&Routes>) -> Option<String> {
        let before = before?;
        match self.fleet.routes() {
            Ok(now) => before.change(&now?),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Releases all nodes and forgets their jobs.
    fn release_nodes(&mut self, carryover: &mut Carryover) -> Result<(), FleetError> {
        *carryover = Carryover {
            nodes_available: carryover.nodes_available,
            received_bytes: carryover.received_bytes,
            ..Carryover::default()
        };
        self.fleet.dissolve()
    }

    /// Returns the segment of a job, creating it for its first bytes.
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

    /// Handles messages since the last trial, for at most [`DRAIN_TIMEOUT`]. The jobs of nodes that ended
    /// are started again for the next trial.
    fn drain_messages(&mut self, carryover: &mut Carryover) -> Result<(), RunnerError> {
        let deadline = self.clock.now().saturating_add(DRAIN_TIMEOUT);
        while self.clock.now() < deadline
            && let Some((node, message)) = self.fleet.next(Duration::ZERO)
        {
            match message {
                FromNode::Gone(why) => {
                    self.reporter
                        .say(&format!("node {node} ended between trials and is restarted: {why}"));
                    carryover.reflectors.retain(|(_, planned)| planned.node != node);
                }
                FromNode::Event(Event::Hello { dwell, .. }) => self.store_node(&node, &dwell)?,
                FromNode::Event(_) | FromNode::Data(..) => {}
            }
        }
        Ok(())
    }

    /// Stores a node that has joined the run, and its build of dwell.
    fn store_node(&mut self, node: &str, dwell: &str) -> Result<(), RunnerError> {
        let clock = self.fleet.nodes().clock_domain(node).to_string();
        let device = self.fleet.device(node).map(bound_device);
        let (node, dwell) = (node.to_owned(), dwell.to_owned());
        let joined = RunNode { node, dwell, clock: Some(clock), device };
        Ok(self.store.set_node(&self.run, &joined)?)
    }

    /// Executes actions and reports failed requests to the state machine.
    fn execute(&mut self, machine: &mut TrialMachine, actions: Vec<Action>) {
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

    /// Records a trial that could not be started.
    fn fail(&mut self, trial: &TrialRow, reason: &str) -> Result<TrialEnd, RunnerError> {
        self.store.begin_trial(trial)?;
        self.store.end_trial(trial, Err(reason), &[], None)?;
        Ok(TrialEnd::Failed(reason.to_owned()))
    }
}

/// Returns a node's device in the form that is stored.
fn bound_device(device: NodeDevice) -> BoundDevice {
    BoundDevice {
        name: device.name,
        destination: device.destination,
        program_sha256: device.program_sha256,
        arch: device.arch,
    }
}

/// Returns a time between half and all of `time`, so that runs that wait for each other's nodes do not
/// always retry at the same time.
fn partly_random(time: Nanos) -> Nanos {
    let random = RandomState::new().build_hasher().finish() as u32;
    let share = 0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX);
    Nanos((time.0 as f64 * share) as i64)
}

/// Returns the free space needed for a trial with this many received bytes: the same again for the
/// sample file, plus 1 MiB for the catalogue.
fn needed_space(received_bytes: u64) -> u64 {
    received_bytes.saturating_mul(2).saturating_add(1 << 20)
}

/// Whether `dir` has this many free bytes and 1 MiB can be written there.
fn has_free_space(dir: &Path, bytes: u64) -> bool {
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
    fn needed_space_follows_from_the_last_attempt() {
        assert_eq!(needed_space(500_000_000), 1_000_000_000 + (1 << 20));
        let dir = tempfile::tempdir().unwrap();
        assert!(has_free_space(dir.path(), needed_space(0)));
        assert!(!has_free_space(dir.path(), needed_space(u64::MAX)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
