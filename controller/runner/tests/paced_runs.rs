//! Whole runs of paced packets, with fake nodes and a real store.

mod fakes;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dwell_fleet::{Fleet, FleetError, FromNode};
use dwell_plan::Topology;
use dwell_protocol::{Event, Job, JobId, PaceEngine, Request};
use dwell_record::segment::{Header, SegmentWriter};
use dwell_record::{Column, Kind, Scalar, Stamps};
use dwell_runner::{RunEnd, TrialEnd};
use dwell_sample::{Sample, State, TimestampSource, TxStamps};
use dwell_store::{Role, RunRow, Store, TrialState};
use dwell_units::{Instant, Nanos, Pairing};
use fakes::{StartedRun, begin, push_segment, summary};

/// Stops at the first failure.
const PLAN: &str = "version = 1\nname = \"paces\"\ntopology = { lab = \"line:2\" }\n\
    [pace]\nfrom = \"n1\"\nto = \"n2\"\nsize = \"200B\"\nrate = \"16Mbit/s\"\ncount = 21\n\
    repeat = 20\nsink = false\n\
    [matrix]\nflows = [0, 5]\nengine = [\"xsk\", \"txtime\", \"spin\"]\n\
    [trials]\norder = \"as-written\"\n[stop]\nfailures = 1\n";

/// Packet interval for 200 B at 16 Mbit/s.
const PACKET_INTERVAL_NS: i64 = 100_000;

/// A node that supports only the spin engine. Every second packet is sent 3 us late.
#[derive(Default)]
struct FakeFleet {
    messages: VecDeque<(String, FromNode)>,
    requests: Vec<String>,
    /// The sender sends nothing.
    sends_nothing: bool,
    /// Traffic is not supported.
    no_traffic: bool,
    /// The sender requested timestamps from a sink.
    sink_asked: bool,
    /// Packets that reached the sink unread.
    unread: u64,
    sinks: Vec<JobId>,
}

impl FakeFleet {
    fn push_event(&mut self, node: &str, event: Event) {
        self.messages.push_back((node.to_owned(), FromNode::Event(event)));
    }

    fn finished(&mut self, node: &str, job: JobId, paced: bool) {
        let mut summary = Box::new(summary(0));
        if paced {
            let sent = if self.sends_nothing { 0 } else { 420 };
            summary.kind = Kind::Pace;
            // The numbers of received and lost packets are unknown.
            summary.packets = None;
            summary.values = [("packets".to_owned(), Some(Scalar::Count(sent)))].into();
            summary.parameters = [("sink".to_owned(), self.sink_asked.into())].into();
            summary.stamps = Stamps { tx: Some(TimestampSource::KernelSw), rx: None, near: None };
        }
        if self.sinks.contains(&job) {
            summary.kind = Kind::Pace;
            summary.parameters = [("role".to_owned(), "sink".into())].into();
            let counts = ["packets", "lead_packets", "overflowed_packets"].map(|name| (name, 0));
            let counts = counts.into_iter().chain([("unread_packets", self.unread)]);
            let counts = counts.map(|(name, n)| (name.to_owned(), Some(Scalar::Count(n))));
            summary.values = counts.collect();
        }
        self.push_event(node, Event::Finished { job, summary, segment_bytes: None });
    }
}

impl Fleet for FakeFleet {
    fn prepare(&mut self, _: &Topology) -> Result<(), FleetError> {
        Ok(())
    }

    fn request(&mut self, node: &str, request: &Request) -> Result<(), FleetError> {
        match request {
            Request::Start { job, what, .. } => {
                self.requests.push(format!("{node} {}", what.name()));
                match what {
                    Job::Pace(pace) if pace.parameters.engine != PaceEngine::Spin => {
                        let reason = format!("{} needs root", pace.parameters.engine.name());
                        let event = Event::Failed { job: *job, reason, unsupported: true };
                        self.push_event(node, event);
                    }
                    Job::Traffic(_) if self.no_traffic => {
                        let reason = "no program".to_owned();
                        let event = Event::Failed { job: *job, reason, unsupported: true };
                        self.push_event(node, event);
                    }
                    Job::Pace(_) => {
                        self.push_event(node, Event::Ready { job: *job });
                        self.finished(node, *job, true);
                    }
                    _ => {
                        self.sinks.extend(matches!(what, Job::PaceSink(_)).then_some(*job));
                        self.push_event(node, Event::Ready { job: *job });
                    }
                }
            }
            Request::Stop { job } => self.finished(node, *job, false),
            Request::Hail { job } => self.push_event(node, Event::Alive { job: *job }),
            Request::Clock { .. } | Request::ClockState { .. } | Request::Spool { .. } => {}
            Request::Pull { job, .. } => {
                let bytes = segment(if self.sends_nothing { 0 } else { 20 });
                push_segment(&mut self.messages, node, *job, bytes);
            }
        }
        Ok(())
    }

    fn next(&mut self, _: Duration) -> Option<(String, FromNode)> {
        self.messages.pop_front()
    }

    fn release(&mut self, _: &str) {}

    fn dissolve(&mut self) -> Result<(), FleetError> {
        Ok(())
    }
}

/// Returns a segment of trains numbered as dwell's sender does: one number is skipped between
/// trains.
fn segment(trains: i64) -> Vec<u8> {
    let mut writer = SegmentWriter::new(Vec::new(), &Header::of_ping("udp://n2".into())).unwrap();
    let bridge = Pairing {
        real: Instant::from_nanos(1_000_000),
        mono: Instant::from_nanos(0),
        width: Nanos(30),
    };
    for train in 0..trains {
        for packet in 0..21 {
            let due = train * 50 * PACKET_INTERVAL_NS + packet * PACKET_INTERVAL_NS;
            let left = 1_000_000 + due + packet % 2 * 3_000;
            let sample = Sample {
                id: (train * 22 + packet) as u64,
                state: State::Sent,
                reordered: false,
                intended: Instant::from_nanos(due),
                tx: TxStamps {
                    tcx: None,
                    app: Instant::from_nanos(left - 2_000),
                    sched: None,
                    kernel: Some(Instant::from_nanos(left)),
                    hw: None,
                },
                rx: None,
                remote: None,
            };
            writer.push(&sample, Some(&bridge), TimestampSource::KernelSw);
        }
    }
    writer.finish(0).unwrap()
}

struct RunResult {
    _dir: tempfile::TempDir,
    store: Store,
    run: RunRow,
    requests: Vec<String>,
    end: RunEnd,
    ends: Vec<TrialEnd>,
}

fn run(sends_nothing: bool) -> RunResult {
    run_on(FakeFleet { sends_nothing, ..FakeFleet::default() }, PLAN)
}

fn run_on(mut fleet: FakeFleet, plan: &str) -> RunResult {
    let mut started = begin(plan);
    let (end, ends) = started.execute(&mut fleet);
    let StartedRun { dir, store, run, .. } = started;
    let run = store.run(&run.run).unwrap();
    RunResult { _dir: dir, store, run, requests: fleet.requests, end, ends }
}

#[test]
fn unsupported_engine_is_not_run_instead_of_failed() {
    let ran = run(false);
    assert_eq!(ran.end, RunEnd::Complete);
    let not_run = |engine| TrialEnd::NotRun(format!("pace on n1: {engine} needs root"));
    let each = [not_run("xsk"), not_run("txtime"), TrialEnd::Finished];
    assert_eq!(ran.ends, [each.clone(), each].concat());
    assert_eq!((ran.run.trials_finished, ran.run.trials_failed), (2, 0));
    assert_eq!((ran.run.trials, ran.run.trials_not_run), (6, 4));
    let trials = ran.store.trials(&ran.run).unwrap();
    assert_eq!(trials[0].state, TrialState::NotRun);
    assert_eq!(trials[0].reason.as_deref(), Some("pace on n1: xsk needs root"));
    // The traffic of a trial that is not run is stopped too.
    let summaries = ran.store.summaries(&trials[3]).unwrap();
    assert!(summaries.iter().all(|(role, ..)| *role != Role::Measurement), "{summaries:?}");
    assert_eq!(ran.requests[2..5], ["n1 pace", "n2 load sink", "n1 load traffic"]);
}

#[test]
fn unsupported_load_fails_the_trial() {
    let ran = run_on(FakeFleet { no_traffic: true, ..FakeFleet::default() }, PLAN);
    // Trials without traffic run as before; the first one with traffic ends the run.
    assert!(matches!(
        ran.ends[..3],
        [TrialEnd::NotRun(_), TrialEnd::NotRun(_), TrialEnd::Finished]
    ));
    let failed = TrialEnd::Failed("load traffic on n1: no program".into());
    assert_eq!(ran.ends[3..], [failed]);
    assert!(matches!(ran.end, RunEnd::Stopped(_)));
    let trial = &ran.store.trials(&ran.run).unwrap()[3];
    assert_eq!(trial.state, TrialState::Failed);
}

#[test]
fn paced_rows_have_gap_and_gap_error() {
    let ran = run(false);
    let trials = ran.store.trials(&ran.run).unwrap();
    let trial = &trials[2];
    let mut gaps = Vec::new();
    let mut errors = BTreeMap::new();
    ran.store
        .samples(&ran.run, trial, None, &mut |batch| {
            for row in 0..batch.len() {
                gaps.push(batch.number(row, Column::Gap));
                *errors.entry(batch.number(row, Column::GapError)).or_insert(0) += 1;
                let late = batch.number(row, Column::ScheduleError);
                assert_eq!(late, Some(batch.id[row] as i64 % 22 % 2 * 3_000), "the kernel's stamp");
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(gaps.len(), 420);
    assert_eq!(gaps[..4], [None, Some(103_000), Some(97_000), Some(103_000)]);
    assert_eq!(gaps[21], None, "no gap between trains");
    assert_eq!(errors, [(None, 20), (Some(3_000), 400)].into());
    let figures = ran.store.recompute(&ran.run, trial).unwrap().figures().0;
    assert_eq!((figures["gap_error_ns"].count, figures["gap_error_ns"].p95), (400, Some(3_000)));
    let series = ran.store.series(trial).unwrap();
    let drawn: u64 = series["gap_error_ns"].steps.iter().map(|step| step.count).sum();
    assert_eq!(drawn, 400, "unanswered packets are drawn too");
}

#[test]
fn trial_without_sent_packets_fails() {
    let ran = run(true);
    let failed = TrialEnd::Failed("no packet left".into());
    assert_eq!((ran.ends.len(), &ran.ends[2]), (3, &failed), "one failure ends the run");
    assert!(matches!(ran.end, RunEnd::Stopped(_)));
}

#[test]
fn trial_without_arrivals_at_the_sink_fails() {
    let plan = PLAN.replace("sink = false\n", "").replace("[0, 5]", "[0]");
    for (sink_asked, unread, expected) in [
        (false, 420, None),
        (false, 0, Some("no packet arrived at the sink")),
        (true, 0, Some("the sink did not report what arrived")),
    ] {
        let ran = run_on(FakeFleet { sink_asked, unread, ..FakeFleet::default() }, &plan);
        let expected =
            expected.map_or(TrialEnd::Finished, |reason| TrialEnd::Failed(reason.into()));
        assert_eq!(ran.ends[2], expected);
    }
}
