//! Whole runs with a fake fleet, a fake clock and a real store.

#[expect(dead_code, reason = "shared with the tests of other runs")]
mod fakes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_fleet::{Fleet, FleetError, FromNode, Routes};
use dwell_plan::{Expansion, Topology};
use dwell_protocol::{Event, Job, JobId, Lease, Request};
use dwell_record::segment::{Header, SegmentWriter};
use dwell_runner::{Clock, RunEnd, Runner, RunnerError, TrialEnd};
use dwell_sample::{RxStamps, Sample, State, TimestampSource, TxStamps};
use dwell_store::{RunRow, RunState, Store, TrialState};
use dwell_units::{BitRate, Instant, Nanos, Pairing};
use fakes::{Listener, StartedRun, TickingClock, begin, summary};

const PLAN: &str = "version = 1\nname = \"made-up\"\ntopology = { lab = \"line:2\" }\n\
    [ping]\nfrom = \"n1\"\nto = \"n2\"\ncount = 10\n[matrix]\nsize = [\"64B\", \"128B\", \"256B\"]\n\
    [trials]\norder = \"as-written\"\nrepetitions = 2\n[stop]\nfailures = 3\n";

/// Fault injected into a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// The measuring node disappears during the measurement.
    Vanishes,
    /// Its samples are damaged in transfer, this many times.
    Flips(u32),
    /// There are no replies.
    Silence,
    /// It sends samples without end when they are requested.
    Endless,
    /// It sends samples without end instead of the result of the measurement.
    Unrequested,
    /// An interrupt ends the node before the runner notices the interrupt.
    Interrupted,
}

/// Nodes that execute requests at once.
struct FakeFleet {
    messages: VecDeque<(String, FromNode)>,
    /// One per measurement, in order.
    faults: VecDeque<Fault>,
    /// Segments, and how often each is damaged in transfer.
    segments: BTreeMap<JobId, (Vec<u8>, u32)>,
    measured: u32,
    /// Number of reflectors started.
    servers: u32,
    dissolved: bool,
    /// Whether the next event arrives together with an interrupt.
    interrupt: bool,
    /// Link rates with which labs cannot be created.
    impossible: Vec<BitRate>,
    /// The reflector's node disappears after this measurement.
    dies_after: Option<u32>,
    /// Results of successive reads of the routes; empty without routing daemons.
    routes: VecDeque<Result<&'static str, &'static str>>,
    /// Attempts to use the nodes until another run leaves them.
    leased: u32,
    /// The node and job that send samples without end.
    endless: Option<(String, JobId, Fault)>,
    /// Number of frames of such samples so far.
    endless_frames: u32,
    /// Number of events that the reflector's node sends between and during trials.
    chatter: u32,
    /// Number of labs removed.
    rebuilt: u32,
    stop: Arc<AtomicBool>,
}

impl FakeFleet {
    fn new(faults: &[Fault]) -> Self {
        Self {
            messages: VecDeque::new(),
            faults: faults.iter().copied().collect(),
            segments: BTreeMap::new(),
            measured: 0,
            servers: 0,
            dissolved: false,
            interrupt: false,
            impossible: Vec::new(),
            dies_after: None,
            routes: VecDeque::new(),
            leased: 0,
            endless: None,
            endless_frames: 0,
            chatter: 0,
            rebuilt: 0,
            stop: Arc::default(),
        }
    }

    fn push_event(&mut self, node: &str, event: Event) {
        self.messages.push_back((node.to_owned(), FromNode::Event(event)));
    }
}

impl Fleet for FakeFleet {
    fn prepare(&mut self, topology: &Topology) -> Result<(), FleetError> {
        if topology
            .link()
            .and_then(|link| link.rate)
            .is_some_and(|rate| self.impossible.contains(&rate))
        {
            let message = "cannot create the lab: no such link".to_owned();
            return Err(FleetError::Nodes { message, unsupported: true });
        }
        if self.leased > 0 {
            self.leased -= 1;
            let lease = Lease { owner: "eve@lab".into(), run: "7".into(), since: "noon".into() };
            return Err(FleetError::Leased { device: "pi4".into(), lease });
        }
        Ok(())
    }

    fn routes(&mut self) -> Result<Option<Routes>, FleetError> {
        let result = self.routes.pop_front().transpose();
        let interface = result.map_err(|reason| FleetError::Routes(reason.to_owned()))?;
        Ok(interface.and_then(|interface| {
            let table = format!(
                "{{\"routes\": [{{\"from\": \"n1\", \"to\": \"n2\", \"address\": \"10.0.0.2\",\
                 \"gateway\": null, \"interface\": \"{interface}\"}}]}}"
            );
            Routes::read(table.as_bytes())
        }))
    }

    fn request(&mut self, node: &str, request: &Request) -> Result<(), FleetError> {
        match request {
            Request::Start { job, what: Job::Ping(_), .. } => {
                self.measured += 1;
                self.push_event(node, Event::Ready { job: *job });
                let fault = self.faults.pop_front().unwrap_or(Fault::Nothing);
                if fault == Fault::Interrupted {
                    self.interrupt = true;
                }
                if matches!(fault, Fault::Endless | Fault::Unrequested) {
                    self.endless = Some((node.to_owned(), *job, fault));
                }
                if fault == Fault::Unrequested {
                    return Ok(());
                }
                if matches!(fault, Fault::Vanishes | Fault::Interrupted) {
                    self.messages
                        .push_back((node.to_owned(), FromNode::Gone("it lost power".into())));
                    return Ok(());
                }
                let received = if fault == Fault::Silence { 0 } else { 10 };
                let summary = Box::new(summary(received));
                self.push_event(node, Event::Finished { job: *job, summary, segment_bytes: None });
                let damaged = if let Fault::Flips(times) = fault { times } else { 0 };
                self.segments.insert(*job, (segment(received), damaged));
            }
            Request::Start { job, .. } => {
                self.servers += 1;
                self.push_event(node, Event::Ready { job: *job });
            }
            Request::Stop { job } => {
                self.endless = None;
                let summary = Box::new(summary(0));
                self.push_event(node, Event::Finished { job: *job, summary, segment_bytes: None });
            }
            Request::Hail { job } => self.push_event(node, Event::Alive { job: *job }),
            Request::Clock { .. } | Request::ClockState { .. } | Request::Spool { .. } => {}
            Request::Pull { .. } if matches!(self.endless, Some((_, _, Fault::Endless))) => {}
            Request::Pull { job, .. } => {
                let (segment, damaged) = self.segments.get_mut(job).unwrap();
                let (len, crc32) = (segment.len() as u64, crc32fast::hash(segment));
                let mut bytes = segment.clone();
                // Changed after the checksum was computed.
                bytes[0] ^= u8::from(*damaged > 0);
                *damaged = damaged.saturating_sub(1);
                self.messages.push_back((node.to_owned(), FromNode::Data(*job, bytes)));
                let pulled = Event::Pulled { job: *job, from: 0, bytes: len, crc32, left: 0 };
                self.push_event(node, pulled);
                if self.dies_after == Some(self.measured) {
                    self.messages.push_back(("n2".into(), FromNode::Gone("it rebooted".into())));
                }
            }
        }
        Ok(())
    }

    fn next(&mut self, _: Duration) -> Option<(String, FromNode)> {
        let message = self.messages.pop_front().or_else(|| {
            let (node, job, fault) = self.endless.clone()?;
            let (len, max_frames) =
                if fault == Fault::Endless { (1 << 20, 16) } else { (100, 100_000) };
            self.endless_frames += 1;
            assert!(self.endless_frames <= max_frames, "the trial does not end");
            Some((node, FromNode::Data(job, vec![0; len])))
        });
        let message = message.or_else(|| {
            self.chatter = self.chatter.checked_sub(1)?;
            Some(("n2".to_owned(), FromNode::Event(Event::Alive { job: JobId(u32::MAX) })))
        });
        if self.interrupt && matches!(message, Some((_, FromNode::Gone(_)))) {
            self.stop.store(true, Ordering::Relaxed);
        }
        message
    }

    fn release(&mut self, _: &str) {}

    fn dissolve(&mut self) -> Result<(), FleetError> {
        self.dissolved = true;
        self.rebuilt += 1;
        // Messages of released connections are dropped.
        self.messages.clear();
        Ok(())
    }
}

fn segment(received: u64) -> Vec<u8> {
    let mut writer = SegmentWriter::new(Vec::new(), &Header::of_ping("stamp://n2".into())).unwrap();
    let bridge = Pairing {
        real: Instant::from_nanos(1_000_000),
        mono: Instant::from_nanos(0),
        width: Nanos(30),
    };
    for id in 0..10 {
        let at = 2_000_000 + id as i64 * 1_000;
        let rx =
            RxStamps { hw: None, driver: None, kernel: None, app: Instant::from_nanos(at + 500) };
        let came = id < received;
        let sample = Sample {
            id,
            state: if came { State::Received } else { State::Lost },
            reordered: false,
            intended: Instant::from_nanos(at - 1_000_000),
            tx: TxStamps {
                app: Instant::from_nanos(at),
                sched: None,
                tcx: None,
                kernel: None,
                hw: None,
            },
            rx: came.then_some(rx),
            remote: None,
        };
        writer.push(&sample, Some(&bridge), TimestampSource::User);
    }
    writer.finish(0).unwrap()
}

struct TestRun {
    _dir: tempfile::TempDir,
    store: Store,
    expansion: Expansion,
    run: RunRow,
    clock: TickingClock,
}

impl TestRun {
    fn new() -> Self {
        Self::of(PLAN)
    }

    fn of(plan: &str) -> Self {
        let StartedRun { dir, store, expansion, run } = begin(plan);
        Self { _dir: dir, store, expansion, run, clock: TickingClock::default() }
    }

    /// Runs the remaining trials until the run or `stop_after` trials have ended.
    fn run(&mut self, fleet: &mut FakeFleet, stop_after: usize) -> (RunEnd, Vec<TrialEnd>) {
        let (end, ends) = self.try_to_run(fleet, stop_after);
        (end.unwrap(), ends)
    }

    fn try_to_run(
        &mut self,
        fleet: &mut FakeFleet,
        stop_after: usize,
    ) -> (Result<RunEnd, RunnerError>, Vec<TrialEnd>) {
        let stop = Arc::clone(&fleet.stop);
        stop.store(false, Ordering::Relaxed);
        let mut listener = Listener { ends: Vec::new(), stop_after, stop: &stop };
        let runner = Runner {
            fleet,
            store: &mut self.store,
            expansion: &self.expansion,
            run: self.run.clone(),
            clock: &self.clock,
            reporter: &mut listener,
            stop: &stop,
        };
        (runner.run(), listener.ends)
    }

    fn states(&self) -> Vec<TrialState> {
        self.store.trials(&self.run).unwrap().into_iter().map(|trial| trial.state).collect()
    }
}

#[test]
fn run_continues_after_failed_trials_with_reasons() {
    let mut test_run = TestRun::new();
    let faults =
        [Fault::Nothing, Fault::Vanishes, Fault::Flips(2), Fault::Flips(1), Fault::Silence];
    let mut fleet = FakeFleet::new(&faults);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!(end, RunEnd::Complete);
    assert!(fleet.dissolved);
    let failed = |reason: &str| TrialEnd::Failed(reason.to_owned());
    assert_eq!(
        ends,
        [
            TrialEnd::Finished,
            failed("node n1 is gone: it lost power"),
            failed("its samples were damaged in transfer"),
            TrialEnd::Finished,
            failed("no reply arrived"),
            TrialEnd::Finished,
        ]
    );
    assert_eq!(test_run.store.run(&test_run.run.run).unwrap().state, RunState::Finished);
    let trials = test_run.store.trials(&test_run.run).unwrap();
    assert_eq!(trials[0].samples, Some(10));
    assert_eq!(trials[4].samples, Some(10), "lost probes are stored too");
    assert_eq!(test_run.store.series(&trials[0]).unwrap()["rtt_ns"].steps[0].count, 10);
}

#[test]
fn endless_samples_fail_their_trial() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[Fault::Endless, Fault::Unrequested]);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!(end, RunEnd::Complete);
    let failed = |reason: &str| TrialEnd::Failed(reason.to_owned());
    assert_eq!(ends[0], failed("n1 sent more samples than were requested"));
    assert_eq!(ends[1], failed("ping on n1 took longer than 61.45s"));
    assert_eq!(ends[2..], [const { TrialEnd::Finished }; 4]);
}

#[test]
fn endless_events_do_not_prevent_the_next_trial() {
    const EVENTS: u32 = 1_000_000;
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet { chatter: EVENTS, ..FakeFleet::new(&[]) };
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!(end, RunEnd::Complete);
    assert_eq!(ends, [const { TrialEnd::Finished }; 6]);
    assert!(fleet.chatter > EVENTS / 2, "{} events are left", fleet.chatter);
}

#[test]
fn run_waits_until_another_run_leaves_its_nodes() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[]);
    fleet.leased = 7;
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!((end, ends.len()), (RunEnd::Complete, 6));
    assert_eq!(fleet.leased, 0);
    // Nothing is held during the wait.
    assert_eq!(fleet.rebuilt, 7 + 1);
    // Each attempt connects to all nodes, so they become rarer, but not without limit.
    let most = Nanos::from_secs(1 + 2 + 4 + 8 + 3 * 15);
    let waited = test_run.clock.now() - Instant::from_nanos(0);
    assert!((Nanos(most.0 / 2)..most + Nanos::from_secs(10)).contains(&waited), "{waited}");
}

#[test]
fn node_that_joined_between_trials_is_stored() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[]);
    let hello = Event::Hello {
        version: dwell_protocol::VERSION,
        dwell: "0.2.0+build".into(),
        node: "host".into(),
        jobs: Vec::new(),
        boot_id: None,
    };
    fleet.push_event("n1", hello);
    test_run.run(&mut fleet, usize::MAX);
    let nodes = test_run.store.nodes(&test_run.run).unwrap();
    let nodes: Vec<_> = nodes.iter().map(|node| (&*node.node, &*node.dwell)).collect();
    assert_eq!(nodes, [("n1", "0.2.0+build")]);
}

#[test]
fn stopped_run_resumes_without_repeating_trials() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[]);
    let (end, ends) = test_run.run(&mut fleet, 2);
    assert_eq!((end, ends.len()), (RunEnd::Interrupted, 2));
    assert_eq!(test_run.store.run(&test_run.run.run).unwrap().state, RunState::Stopped);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!((end, ends.len()), (RunEnd::Complete, 4));
    assert_eq!(fleet.measured, 6);
    assert!(test_run.states().iter().all(|state| *state == TrialState::Finished));
}

#[test]
fn interrupted_trial_is_repeated_on_resume() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[Fault::Nothing, Fault::Interrupted]);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!((end, ends.as_slice()), (RunEnd::Interrupted, &[TrialEnd::Finished][..]));
    assert!(!test_run.states().contains(&TrialState::Failed));
    fleet.interrupt = false;
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!((end, ends.len()), (RunEnd::Complete, 5));
    assert!(test_run.states().iter().all(|state| *state == TrialState::Finished));
}

#[test]
fn consecutive_failures_stop_a_resumable_run() {
    let mut test_run = TestRun::new();
    let mut fleet =
        FakeFleet::new(&[Fault::Nothing, Fault::Silence, Fault::Silence, Fault::Silence]);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    let RunEnd::Stopped(why) = end else { panic!("{end:?}") };
    assert!(why.contains("3 trials in a row failed") && why.contains("no reply arrived"), "{why}");
    assert_eq!(ends.len(), 4);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!((end, ends.len()), (RunEnd::Complete, 2));
}

/// [`PLAN`] over two links, the first of which is slow.
fn links() -> String {
    PLAN.replace(
        "size = [\"64B\", \"128B\", \"256B\"]",
        "\"topology.link.rate\" = [\"1kbit/s\", \"1Mbit/s\"]",
    )
}

#[test]
fn impossible_lab_fails_only_its_cell() {
    let mut test_run = TestRun::of(&links());
    let mut fleet = FakeFleet::new(&[]);
    fleet.impossible = vec![BitRate(1_000)];
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!(end, RunEnd::Complete);
    let failed = TrialEnd::Failed("cannot create the lab: no such link".into());
    assert_eq!(ends, [failed.clone(), failed, TrialEnd::Finished, TrialEnd::Finished]);
    assert_eq!(test_run.store.run(&test_run.run.run).unwrap().state, RunState::Finished);
}

#[test]
fn run_without_any_possible_lab_stays_resumable() {
    for (plan, impossible) in [
        (links(), vec![BitRate(1_000), BitRate(1_000_000)]),
        (
            PLAN.replace("\"line:2\"", "\"line:2\", link = { rate = \"1kbit/s\" }"),
            vec![BitRate(1_000)],
        ),
    ] {
        let mut test_run = TestRun::of(&plan);
        let mut fleet = FakeFleet::new(&[]);
        fleet.impossible = impossible;
        let (end, ends) = test_run.try_to_run(&mut fleet, usize::MAX);
        assert!(matches!(end, Err(RunnerError::Fleet(error)) if error.is_unsupported()));
        assert_eq!(ends, []);
        assert!(test_run.states().iter().all(|state| *state == TrialState::Planned));
        assert_eq!(test_run.store.run(&test_run.run.run).unwrap().state, RunState::Stopped);
        fleet.impossible.clear();
        let (end, _) = test_run.run(&mut fleet, usize::MAX);
        assert_eq!(end, RunEnd::Complete);
        assert!(test_run.states().iter().all(|state| *state == TrialState::Finished));
    }
}

#[test]
fn discarded_trial_becomes_planned_again() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[Fault::Nothing, Fault::Interrupted]);
    test_run.run(&mut fleet, usize::MAX);
    let mut expected = vec![TrialState::Planned; 6];
    expected[0] = TrialState::Finished;
    assert_eq!(test_run.states(), expected);
}

#[test]
fn node_lost_between_trials_is_restarted() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[]);
    fleet.dies_after = Some(2);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert_eq!((end, ends), (RunEnd::Complete, vec![TrialEnd::Finished; 6]));
    assert_eq!(fleet.servers, 2);
}

#[test]
fn changed_routes_fail_the_trial_and_recreate_the_lab() {
    let mut test_run = TestRun::new();
    let mut fleet = FakeFleet::new(&[Fault::Nothing, Fault::Nothing, Fault::Vanishes]);
    let ended = Err("babeld in n2 has ended");
    fleet.routes = VecDeque::from([
        // Read before and after each trial, and again after the lab was recreated before one.
        Ok("a"),
        Ok("a"),
        Ok("a"),
        ended,
        Ok("a"),
        ended,
        ended,
        Ok("a"),
        Ok("a"),
        Ok("a"),
        Ok("b"),
        ended,
        ended,
    ]);
    let (end, ends) = test_run.run(&mut fleet, usize::MAX);
    assert!(matches!(end, RunEnd::Complete), "{end:?}");
    let failed = |reason: &str| TrialEnd::Failed(reason.to_owned());
    assert_eq!(
        ends,
        [
            TrialEnd::Finished,
            failed("babeld in n2 has ended"),
            failed("babeld in n2 has ended; node n1 is gone: it lost power"),
            TrialEnd::Finished,
            failed("the route from n1 to n2 (10.0.0.2) changed"),
            failed("babeld in n2 has ended"),
        ]
    );
    assert_eq!(fleet.measured, 5, "no measurement without valid routes");
    assert_eq!(fleet.rebuilt, 3 + 2 + 1, "after a fault, before a trial, and at the end");
}
