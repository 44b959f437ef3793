//! One trial as a state machine: takes events and the time, returns requests to nodes.

use std::collections::{BTreeMap, BTreeSet};

use dwell_protocol::{Event, JobId, Request};
use dwell_record::{Scalar, Summary, Warning};
use dwell_store::Role;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::jobs::{PlannedJob, TrialJobs};

/// Time for a node to start or stop a job before the trial fails.
const NODE_TIMEOUT: Nanos = Nanos::from_secs(10);

/// A decision of the state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a request to a node.
    Ask(String, Request),
    /// Disconnect a node that does not respond.
    Release(String),
}

/// How a trial ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Why the trial failed; `None` if it was measured.
    pub failure: Option<String>,
    /// Whether it failed because the measuring node does not support the requested job.
    pub unsupported: bool,
    /// Summaries with their role and node.
    pub summaries: Vec<(Role, String, Summary)>,
    /// Reflectors that continue, with their jobs.
    pub standing: Vec<(JobId, PlannedJob)>,
    /// Jobs whose samples were pulled.
    pub pulled: Vec<(JobId, PlannedJob)>,
    /// Jobs that the trial continued without.
    pub refused: Vec<Warning>,
    /// Values that the runner itself recorded, by name.
    pub runner_values: BTreeMap<String, Option<Scalar>>,
}

/// Progress of a trial. A step ends when all jobs it waits for have responded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Stopping reflectors of earlier trials.
    Clearing,
    /// Starting reflectors, sinks, relays and traces.
    Serving,
    /// Starting loads.
    Loading,
    /// Running the measurement.
    Measuring,
    /// Waiting for packets in flight.
    Settling,
    /// Stopping the loads.
    Unloading,
    /// Stopping the sinks, after the packets of the loads have arrived.
    Ending,
    /// Pulling samples.
    Pulling,
    /// Stopping all jobs after a failure.
    GivingUp,
    /// The trial is over.
    Over,
}

/// State machine of one trial.
#[derive(Debug)]
pub struct TrialMachine {
    step: Step,
    /// The step fails if it is not done by this time.
    deadline: Instant<Monotonic>,
    /// Maximum duration of the measurement.
    limit: Nanos,
    /// Jobs that the step waits for.
    waiting: BTreeSet<JobId>,
    needed: TrialJobs,
    /// Jobs that were started and have not ended, including reflectors.
    running: BTreeMap<JobId, PlannedJob>,
    next: u32,
    measurement: Option<JobId>,
    /// Ended jobs with samples.
    kept: Vec<(JobId, PlannedJob)>,
    outcome: Outcome,
}

impl TrialMachine {
    /// Starts a trial with these jobs. `standing` are reflectors that continue from earlier trials,
    /// `next` is an unused job number, and `limit` is the maximum duration of the measurement.
    pub fn new(
        needed: TrialJobs,
        standing: Vec<(JobId, PlannedJob)>,
        next: u32,
        limit: Nanos,
        now: Instant<Monotonic>,
    ) -> (Self, Vec<Action>) {
        let mut machine = Self {
            step: Step::Clearing,
            deadline: now.saturating_add(NODE_TIMEOUT),
            limit,
            waiting: BTreeSet::new(),
            needed,
            running: standing.into_iter().collect(),
            next,
            measurement: None,
            kept: Vec::new(),
            outcome: Outcome::default(),
        };
        let unneeded: Vec<_> = machine
            .running
            .iter()
            .filter(|(_, planned)| !machine.needed.standing.contains(planned))
            .map(|(job, _)| *job)
            .collect();
        let mut actions = machine.stop(unneeded);
        actions.extend(machine.advance(now));
        (machine, actions)
    }

    /// Returns an unused job number.
    pub fn next_job(&self) -> u32 {
        self.next
    }

    /// Returns the time at which [`Self::tick`] must be called.
    pub fn deadline(&self) -> Instant<Monotonic> {
        self.deadline
    }

    /// Returns the outcome; `None` while the trial is not over.
    pub fn outcome(self) -> Option<Outcome> {
        let standing = self.running.into_iter().collect();
        (self.step == Step::Over).then_some(Outcome { standing, ..self.outcome })
    }

    /// Whether the trial is over.
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// Handles an event of a node.
    pub fn handle_event(
        &mut self,
        node: &str,
        event: Event,
        now: Instant<Monotonic>,
    ) -> Vec<Action> {
        match event {
            Event::Hello { .. }
            | Event::Leased { .. }
            | Event::Progress { .. }
            | Event::Clock { .. }
            | Event::ClockState { .. }
            | Event::Spool { .. }
            | Event::SpoolFailed { .. } => return Vec::new(),
            Event::Ready { job } => {
                // A measurement is waited for until it finishes.
                if matches!(self.step, Step::Serving | Step::Loading) {
                    self.waiting.remove(&job);
                }
            }
            Event::Finished { job, mut summary, .. } => {
                let ended_early = matches!(self.step, Step::Serving | Step::Loading)
                    || self.step == Step::Measuring && Some(job) != self.measurement;
                let Some(planned) = self.running.remove(&job) else { return Vec::new() };
                self.waiting.remove(&job);
                let clearing = self.step == Step::Clearing;
                let name = planned.job.name();
                let without = planned.without;
                if let Some(peer) = &planned.peer {
                    peer.name_target(&mut summary);
                }
                if !clearing {
                    self.outcome.summaries.push((planned.role, node.to_owned(), *summary));
                    self.kept.extend(planned.samples.then_some((job, planned)));
                }
                match (ended_early, without) {
                    (true, None) => {
                        return self.give_up(format!("{name} on {node} ended unexpectedly"), now);
                    }
                    // Its samples up to then are kept.
                    (true, Some(_)) => {
                        let reason = "it ended unexpectedly".to_owned();
                        let warning = Warning::JobRefused(name, node.to_owned(), reason);
                        self.outcome.refused.push(warning);
                    }
                    (false, _) => {}
                }
            }
            Event::Failed { job, reason, unsupported } => {
                self.waiting.remove(&job);
                let kept = self.kept.iter().position(|(kept, _)| *kept == job);
                let (what, planned) = match (self.running.remove(&job), kept) {
                    (Some(planned), _) => (planned.job.name(), Some(planned)),
                    (None, Some(at)) => ("transferring samples", Some(self.kept.remove(at).1)),
                    (None, None) => ("", None),
                };
                if let Some(planned) = planned
                    && !matches!(self.step, Step::GivingUp | Step::Clearing)
                {
                    let Some(without) = planned.without else {
                        self.outcome.unsupported |= unsupported
                            && self.outcome.failure.is_none()
                            && Some(job) == self.measurement;
                        return self.give_up(format!("{what} on {node}: {reason}"), now);
                    };
                    let reason = format!("{reason}; {without}");
                    let warning = Warning::JobRefused(what, node.to_owned(), reason);
                    self.outcome.refused.push(warning);
                }
            }
            Event::Pulled { job, .. } | Event::Alive { job, .. } => {
                self.waiting.remove(&job);
                if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == job) {
                    self.outcome.pulled.push(self.kept.remove(at));
                }
            }
        }
        self.advance(now)
    }

    /// Handles the loss of a node and all its jobs.
    pub fn gone(&mut self, node: &str, why: &str, now: Instant<Monotonic>) -> Vec<Action> {
        let lost: Vec<_> = self
            .running
            .iter()
            .filter(|(_, planned)| planned.node == node)
            .map(|(job, _)| *job)
            .collect();
        for job in &lost {
            self.running.remove(job);
            self.waiting.remove(job);
        }
        // Samples not pulled yet are lost with the node.
        let before = self.kept.len();
        let (gone, kept) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, planned)| planned.node == node);
        self.kept = kept;
        self.waiting.retain(|job| gone.iter().all(|(gone, _)| gone != job));
        let pulling = self.kept.len() < before;
        if matches!(self.step, Step::Over | Step::GivingUp) || (lost.is_empty() && !pulling) {
            return self.advance(now);
        }
        self.give_up(format!("node {node} is gone: {why}"), now)
    }

    /// Fails the trial early for a reason outside it.
    pub fn give_up(&mut self, why: String, now: Instant<Monotonic>) -> Vec<Action> {
        self.outcome.failure.get_or_insert(why);
        self.step = Step::GivingUp;
        self.deadline = now.saturating_add(NODE_TIMEOUT);
        self.waiting.clear();
        let all: Vec<_> = self.running.keys().copied().collect();
        let mut actions = self.stop(all);
        actions.extend(self.advance(now));
        actions
    }

    /// Whether the samples of this job are being transferred from this node.
    pub fn is_pulling(&self, node: &str, job: JobId) -> bool {
        self.step == Step::Pulling
            && self.waiting.contains(&job)
            && self.kept.iter().any(|(kept, planned)| *kept == job && planned.node == node)
    }

    /// Extends the time for transferring samples, because some have arrived.
    pub fn extend_transfer(&mut self, now: Instant<Monotonic>) {
        self.deadline = now.saturating_add(NODE_TIMEOUT);
    }

    /// Handles the passing of time.
    pub fn tick(&mut self, now: Instant<Monotonic>) -> Vec<Action> {
        if now < self.deadline || self.step == Step::Over {
            return Vec::new();
        }
        if self.step == Step::Settling {
            return self.advance(now);
        }
        let late: Vec<(String, &str)> = self
            .waiting
            .iter()
            .filter_map(|job| self.running.get(job))
            .map(|planned| (planned.node.clone(), planned.job.name()))
            .collect();
        let (what, limit) = match self.step {
            Step::Measuring => ("took longer than", self.limit),
            Step::Serving | Step::Loading => ("did not start within", NODE_TIMEOUT),
            _ => ("did not stop within", NODE_TIMEOUT),
        };
        let why = match late.first() {
            Some((node, job)) if self.step == Step::Unloading && *job == "reflect" => format!(
                "{node} did not answer within {limit} after the measurement: the node itself may have \
                 lost packets"
            ),
            Some((node, job)) => format!("{job} on {node} {what} {limit}"),
            None => format!("no samples were transferred for {limit}"),
        };
        if self.step != Step::GivingUp {
            return self.give_up(why, now);
        }
        // Nodes that do not stop their jobs are disconnected.
        let nodes: BTreeSet<String> = late.into_iter().map(|(node, _)| node).collect();
        self.running.retain(|_, planned| !nodes.contains(&planned.node));
        self.waiting.clear();
        let mut actions: Vec<_> = nodes.into_iter().map(Action::Release).collect();
        actions.extend(self.advance(now));
        actions
    }

    /// Advances through all steps that have nothing to wait for.
    fn advance(&mut self, now: Instant<Monotonic>) -> Vec<Action> {
        let mut actions = Vec::new();
        while self.waiting.is_empty() && self.step != Step::Over {
            if self.step == Step::Settling && now < self.deadline {
                break;
            }
            self.deadline = now.saturating_add(NODE_TIMEOUT);
            match self.step {
                Step::Clearing => {
                    self.step = Step::Serving;
                    let stands =
                        |planned: &PlannedJob| self.running.values().any(|it| it == planned);
                    let wanted = self.needed.standing.iter().filter(|planned| !stands(planned));
                    let wanted: Vec<_> = wanted.chain(&self.needed.sinks).cloned().collect();
                    actions.extend(self.start(wanted));
                }
                Step::Serving => {
                    self.step = Step::Loading;
                    let loads = self.needed.loads.clone();
                    actions.extend(self.start(loads));
                }
                Step::Loading => {
                    self.step = Step::Measuring;
                    self.deadline = now.saturating_add(self.limit);
                    self.measurement = Some(JobId(self.next));
                    let measurement = self.needed.measurement.clone();
                    actions.extend(self.start(vec![measurement]));
                }
                Step::Measuring => {
                    self.step = Step::Settling;
                    self.deadline = now.saturating_add(self.needed.settle);
                }
                Step::Settling => {
                    self.step = Step::Unloading;
                    let loads = self.jobs_of(Role::Load);
                    actions.extend(self.stop(loads));
                    actions.extend(self.query_reflectors());
                }
                Step::Unloading => {
                    self.step = Step::Ending;
                    let standing = &self.needed.standing;
                    let sinks = self
                        .running
                        .iter()
                        .filter(|(_, planned)| !standing.contains(planned))
                        .map(|(job, _)| *job)
                        .collect();
                    actions.extend(self.stop(sinks));
                }
                Step::Ending => {
                    self.step = Step::Pulling;
                    for (job, planned) in &self.kept {
                        self.waiting.insert(*job);
                        let pull = Request::Pull { job: *job, from: 0 };
                        actions.push(Action::Ask(planned.node.clone(), pull));
                    }
                }
                Step::Pulling | Step::GivingUp => self.step = Step::Over,
                Step::Over => {}
            }
        }
        actions
    }

    /// Asks the nodes of reflectors whether they respond: a hanging reflector loses probes, which
    /// is not packet loss of the network.
    fn query_reflectors(&mut self) -> Vec<Action> {
        let standing = &self.needed.standing;
        let standing = self.running.iter().filter(|(_, planned)| standing.contains(planned));
        let asked: Vec<_> = standing.map(|(job, planned)| (*job, planned.node.clone())).collect();
        self.waiting.extend(asked.iter().map(|(job, _)| *job));
        asked.into_iter().map(|(job, node)| Action::Ask(node, Request::Hail { job })).collect()
    }

    fn jobs_of(&self, role: Role) -> Vec<JobId> {
        let of_role = self.running.iter().filter(|(_, planned)| planned.role == role);
        of_role.map(|(job, _)| *job).collect()
    }

    fn start(&mut self, wanted: Vec<PlannedJob>) -> Vec<Action> {
        let mut actions = Vec::new();
        for planned in wanted {
            let job = JobId(self.next);
            self.next += 1;
            let what = planned.job.clone();
            let request = Request::Start { job, what, samples: planned.samples };
            actions.push(Action::Ask(planned.node.clone(), request));
            self.waiting.insert(job);
            self.running.insert(job, planned);
        }
        actions
    }

    fn stop(&mut self, jobs: Vec<JobId>) -> Vec<Action> {
        let mut actions = Vec::new();
        for job in jobs {
            let Some(planned) = self.running.get(&job) else { continue };
            actions.push(Action::Ask(planned.node.clone(), Request::Stop { job }));
            self.waiting.insert(job);
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use dwell_fleet::Nodes;
    use dwell_plan::{Plan, Source};
    use dwell_record::{Environment, Kind, Stamps, Trust};

    use super::*;
    use crate::jobs::jobs;

    const PLAN: &str = "version = 1\nname = \"x\"\nload = \"both\"\n\
        topology = { lab = \"line:2\" }\n[ping]\nfrom = \"n1\"\nto = \"n2\"\ncount = 10\n\
        [loads.both]\ncpu = [{ on = \"n1\", level = \"50%\" }]\n\
        traffic = [{ from = \"n1\", to = \"n2\", rate = \"1Mbit/s\" }]\n";

    fn needed() -> TrialJobs {
        jobs(&Plan::read(&Source::parse(PLAN).unwrap()).unwrap(), &Nodes::default())
    }

    fn at(seconds: i64) -> Instant<Monotonic> {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn summary() -> Box<Summary> {
        Box::new(Summary {
            kind: Kind::Ping,
            target: "stamp://n2".into(),
            parameters: Default::default(),
            packets: None,
            metrics: Default::default(),
            values: Default::default(),
            stamps: Stamps::default(),
            engine: String::new(),
            trains: Vec::new(),
            spikes: None,
            driver: None,
            trust: Trust::default(),
            environment: Environment::default(),
        })
    }

    fn pulled(job: JobId) -> Event {
        Event::Pulled { job, from: 0, bytes: 0, crc32: 0, left: 0 }
    }

    fn finished(job: JobId) -> Event {
        Event::Finished { job, summary: summary(), segment_bytes: None }
    }

    /// Executes requests at once and in order, like a node without failures.
    fn execute(machine: &mut TrialMachine, actions: Vec<Action>, log: &mut Vec<String>) {
        let mut todo = std::collections::VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            let Action::Ask(node, request) = action else { continue };
            let events = match request {
                Request::Start { job, what, .. } => {
                    log.push(format!("{node} {}", what.name()));
                    let mut events = vec![Event::Ready { job }];
                    events.extend(what.is_finite().then(|| finished(job)));
                    events
                }
                Request::Stop { job } => {
                    log.push(format!("{node} stop {}", machine.running[&job].job.name()));
                    vec![finished(job)]
                }
                Request::Pull { job, .. } => {
                    log.push(format!("{node} pull"));
                    vec![pulled(job)]
                }
                Request::Hail { job } => vec![Event::Alive { job }],
                Request::Clock { .. } | Request::ClockState { .. } | Request::Spool { .. } => {
                    vec![]
                }
            };
            for event in events {
                todo.extend(machine.handle_event(&node, event, at(1)));
            }
        }
    }

    #[test]
    fn jobs_start_and_stop_in_order() {
        let (mut machine, actions) =
            TrialMachine::new(needed(), vec![], 1, Nanos::from_secs(5), at(0));
        let mut log = Vec::new();
        execute(&mut machine, actions, &mut log);
        assert_eq!(
            log,
            [
                "n2 reflect",
                "n2 load sink",
                "n1 load cpu",
                "n1 load traffic",
                "n1 ping",
                "n1 stop load cpu",
                "n1 stop load traffic",
                "n2 stop load sink",
                "n1 pull"
            ]
        );
        let outcome = machine.outcome().unwrap();
        assert_eq!((outcome.failure, outcome.summaries.len()), (None, 4));
        assert_eq!(outcome.standing.len(), 1, "the reflector continues");
    }

    #[test]
    fn running_reflector_is_reused_or_stopped() {
        let (mut machine, actions) =
            TrialMachine::new(needed(), vec![], 1, Nanos::from_secs(5), at(0));
        execute(&mut machine, actions, &mut Vec::new());
        let next = machine.next_job();
        let standing = machine.outcome().unwrap().standing;
        let (mut machine, actions) =
            TrialMachine::new(needed(), standing.clone(), next, Nanos::from_secs(5), at(0));
        let mut log = Vec::new();
        execute(&mut machine, actions, &mut log);
        assert_eq!(log[0], "n2 load sink");
        let mut other = needed();
        other.standing.clear();
        let (mut machine, actions) =
            TrialMachine::new(other, standing, machine.next_job(), Nanos::from_secs(5), at(0));
        let mut log = Vec::new();
        execute(&mut machine, actions, &mut log);
        assert_eq!(log[0], "n2 stop reflect");
        assert!(machine.outcome().unwrap().standing.is_empty());
    }

    #[test]
    fn lost_node_fails_the_trial_and_stops_the_others() {
        let (mut machine, mut actions) =
            TrialMachine::new(needed(), vec![], 1, Nanos::from_secs(5), at(0));
        // Start everything until the measurement runs.
        while machine.step != Step::Measuring {
            let asked = std::mem::take(&mut actions);
            for action in asked {
                let Action::Ask(node, Request::Start { job, .. }) = action else { panic!() };
                actions.extend(machine.handle_event(&node, Event::Ready { job }, at(1)));
            }
        }
        let actions = machine.gone("n1", "its process ended", at(2));
        let stopped: Vec<_> = actions
            .iter()
            .map(|action| match action {
                Action::Ask(node, Request::Stop { .. }) => node.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(stopped, ["n2", "n2"], "reflector and sink");
        execute(&mut machine, actions, &mut Vec::new());
        let outcome = machine.outcome().unwrap();
        assert_eq!(outcome.failure.unwrap(), "node n1 is gone: its process ended");
        assert!(outcome.standing.is_empty());
    }

    #[test]
    fn measurement_timeout_releases_an_unresponsive_node() {
        let (mut machine, mut actions) =
            TrialMachine::new(needed(), vec![], 1, Nanos::from_secs(5), at(0));
        while machine.step != Step::Measuring {
            let asked = std::mem::take(&mut actions);
            for action in asked {
                let Action::Ask(node, Request::Start { job, .. }) = action else { panic!() };
                actions.extend(machine.handle_event(&node, Event::Ready { job }, at(1)));
            }
        }
        assert!(machine.tick(at(5)).is_empty(), "not yet");
        let actions = machine.tick(at(7));
        assert!(!actions.is_empty());
        let actions = machine.tick(at(60));
        assert!(actions.contains(&Action::Release("n1".into())), "{actions:?}");
        let outcome = machine.outcome().unwrap();
        assert_eq!(outcome.failure.unwrap(), "ping on n1 took longer than 5s");
    }

    #[test]
    fn hanging_reflector_fails_the_trial_and_is_released() {
        let (mut machine, actions) =
            TrialMachine::new(needed(), vec![], 1, Nanos::from_secs(5), at(0));
        // n2 starts everything and ignores all later requests.
        let mut todo = std::collections::VecDeque::from(actions);
        while let Some(Action::Ask(node, request)) = todo.pop_front() {
            let events = match request {
                Request::Start { job, what, .. } => {
                    let mut events = vec![Event::Ready { job }];
                    events.extend(what.is_finite().then(|| finished(job)));
                    events
                }
                _ if node == "n2" => vec![],
                Request::Stop { job } => vec![finished(job)],
                Request::Pull { job, .. } => vec![pulled(job)],
                Request::Hail { job } => vec![Event::Alive { job }],
                Request::Clock { .. } | Request::ClockState { .. } | Request::Spool { .. } => {
                    vec![]
                }
            };
            for event in events {
                todo.extend(machine.handle_event(&node, event, at(1)));
            }
        }
        assert!(!machine.is_over());
        machine.tick(at(12));
        assert!(machine.tick(at(23)).contains(&Action::Release("n2".into())));
        let outcome = machine.outcome().unwrap();
        let why = outcome.failure.unwrap();
        assert!(why.starts_with("n2 did not answer within 10s after the measurement"), "{why}");
        assert!(outcome.standing.is_empty());
    }

    #[test]
    fn failed_job_fails_the_trial_with_its_reason() {
        let (mut machine, actions) =
            TrialMachine::new(needed(), vec![], 1, Nanos::from_secs(5), at(0));
        let Action::Ask(node, Request::Start { job, .. }) = &actions[0] else { panic!() };
        let reason = "port 862 is in use".to_owned();
        let rest = machine.handle_event(
            node,
            Event::Failed { job: *job, reason, unsupported: false },
            at(1),
        );
        execute(&mut machine, rest, &mut Vec::new());
        let outcome = machine.outcome().unwrap();
        assert_eq!(outcome.failure.unwrap(), "reflect on n2: port 862 is in use");
    }
}
