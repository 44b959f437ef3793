//! Whole runs on nodes whose clocks differ, with fake nodes and a real store.

mod fakes;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dwell_fleet::{ClockDomain, ClockReadings, Fleet, FleetError, FromNode, Nodes, TrialEdge};
use dwell_host::{ChronyTracking, ClockState, KernelClock};
use dwell_plan::Topology;
use dwell_protocol::{Event, Job, JobId, Request};
use dwell_record::segment::{FlowEntry, Header, SegmentWriter};
use dwell_record::{Column, Scalar, Summary};
use dwell_runner::TrialEnd;
use dwell_sample::{
    PacketObservation, PacketOutcome, Point, PointStamps, Remote, RxStamps, Sample, State,
    TimestampSource, TxStamps,
};
use dwell_stats::{ClockExchange, ClockReading};
use dwell_units::{Instant, Nanos, Pairing};
use fakes::{StartedRun, begin, push_segment, summary};

const FLOW: &str = "version = 1\nname = \"flows\"\ntopology = { roles = [\"a\", \"b\"] }\n\
    [flow]\nfrom = \"a\"\nto = \"b\"\nsize = \"500B\"\nrate = \"1kpps\"\ncount = 100\n";

const PING: &str = "version = 1\nname = \"pings\"\ntopology = { roles = [\"a\", \"b\"] }\n\
    [ping]\nfrom = \"a\"\nto = \"b\"\ncount = 100\n";

const HOUR: i64 = 3_600_000_000_000;

/// Delay of every packet from a to b, and of every reply.
const FORWARD: i64 = 30_000;
const BACKWARD: i64 = 70_000;

/// Delays of the exchanges.
const THERE: i64 = 20_000;
const BACK: i64 = 180_000;

/// The controller's clock at the start of the trial.
const START: i64 = 10_000_000_000;

/// Clocks of the two nodes.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    /// Leads over the controller's clock.
    leads: [i64; 2],
    /// Step of the second clock before the last exchanges.
    step: i64,
    /// Error of the reported second clock.
    lie: i64,
    /// Whether the second node answers at the end of the trial.
    answers: bool,
    /// Kernel that both nodes claim.
    claimed: Option<&'static str>,
    /// Time that the second node has run longer than the controller.
    uptime: i64,
}

const HONEST: Clocks =
    Clocks { leads: [-7_000_000, HOUR], step: 0, lie: 0, answers: true, claimed: None, uptime: 0 };

/// Nodes that execute requests at once.
struct FakeFleet {
    messages: VecDeque<(String, FromNode)>,
    jobs: BTreeMap<JobId, Job>,
    clocks: Clocks,
}

impl FakeFleet {
    fn push_event(&mut self, node: &str, event: Event) {
        self.messages.push_back((node.to_owned(), FromNode::Event(event)));
    }

    fn finished(&mut self, node: &str, job: JobId) {
        let summary = Box::new(summary(10));
        self.push_event(node, Event::Finished { job, summary, segment_bytes: None });
    }

    fn lead(&self, node: &str) -> i64 {
        self.clocks.leads[usize::from(node == "b")]
    }
}

impl Fleet for FakeFleet {
    fn prepare(&mut self, _: &Topology) -> Result<(), FleetError> {
        Ok(())
    }

    fn nodes(&self) -> Nodes {
        let domain = |node: &str| match self.clocks.claimed {
            Some(ClockDomain::CONTROLLER) => ClockDomain::controller(),
            claimed => ClockDomain::of_kernel(claimed.unwrap_or(node)),
        };
        Nodes::default().with_clock("a", domain("a")).with_clock("b", domain("b"))
    }

    fn measure_clocks(&mut self, edge: TrialEdge) -> BTreeMap<String, ClockReadings> {
        let Clocks { step, lie, answers, uptime, .. } = self.clocks;
        let mut all = BTreeMap::new();
        for node in ["a", "b"] {
            let (is_second, is_end) = (node == "b", edge == TrialEdge::End);
            let burst_start = if is_end { START + 1_000_000_000 } else { START };
            let lead = self.lead(node) + if is_second { lie } else { 0 };
            let step = if is_second && is_end { step } else { 0 };
            let uptime = if is_second { uptime } else { 0 };
            let exchange = |number: i64| {
                let sent = burst_start + number * 1_000_000;
                let read = |at: i64, lead: i64, uptime: i64| {
                    ClockReading::new(at + lead, at + uptime, at + uptime, 30).unwrap()
                };
                ClockExchange {
                    sent: Instant::from_nanos(sent),
                    remote: read(sent + THERE, lead + step, uptime),
                    received: read(sent + THERE + BACK, 0, 0),
                }
            };
            let burst = (0..16).map(exchange).collect();
            let kernel =
                KernelClock { synchronised: true, max_error_ns: 5_000, frequency_ppm: -1.5 };
            let chrony =
                ChronyTracking { source: "192.0.2.1".into(), stratum: 2, error_ns: 77_000 };
            let state = ClockState { kernel: Some(kernel), chrony: Some(chrony), ptp: None };
            let state = Some(state).filter(|_| !is_end);
            let readings = ClockReadings { between: Vec::new(), burst, state };
            if answers || !is_second || !is_end {
                all.insert(node.to_owned(), readings);
            }
        }
        all
    }

    fn request(&mut self, node: &str, request: &Request) -> Result<(), FleetError> {
        match request {
            Request::Start { job, what, .. } => {
                self.jobs.insert(*job, what.clone());
                self.push_event(node, Event::Ready { job: *job });
                if matches!(what, Job::Traffic(_) | Job::Ping(_)) {
                    self.finished(node, *job);
                }
            }
            Request::Stop { job } => self.finished(node, *job),
            Request::Hail { job } => self.push_event(node, Event::Alive { job: *job }),
            Request::Clock { .. } | Request::ClockState { .. } | Request::Spool { .. } => {}
            Request::Pull { job, .. } => {
                let bytes = match &self.jobs[job] {
                    Job::Ping(_) => ping_segment(self.lead("a"), self.lead("b")),
                    what => flow_segment(what, self.lead(node)),
                };
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

/// Returns the time at which packet `id` is sent, by the controller's clock.
fn sent(id: u64) -> i64 {
    START + 100_000_000 + id as i64 * 1_000_000
}

fn flow_segment(job: &Job, lead: i64) -> Vec<u8> {
    let [from, to] = ["192.0.2.1:40000", "192.0.2.2:5001"].map(|text| text.parse().unwrap());
    let header = Header::of_observations(job.name(), String::new());
    let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
    let protocol = "udp".to_owned();
    writer
        .push_flow(&FlowEntry { flow: 0, protocol, from, to, from_out: None, to_out: None })
        .unwrap();
    for id in 0..105 {
        let (points, at) = match job {
            Job::Traffic(_) => ([Point::TxApp, Point::TxKernel], sent(id)),
            _ => ([Point::RxKernel, Point::RxApp], sent(id) + FORWARD),
        };
        let mut stamps = PointStamps::default();
        points.into_iter().for_each(|point| stamps.set(point, Instant::from_nanos(at + lead)));
        writer.push_observation(&PacketObservation {
            flow: 0,
            id,
            size: 500,
            outcome: PacketOutcome::Observed,
            stamps,
        });
    }
    writer.finish(0).unwrap()
}

fn ping_segment(near: i64, far: i64) -> Vec<u8> {
    let mut writer = SegmentWriter::new(Vec::new(), &Header::of_ping("stamp://b".into())).unwrap();
    let real = |nanos| Instant::from_nanos(nanos);
    let bridge =
        Pairing { real: real(START + near), mono: Instant::from_nanos(0), width: Nanos(30) };
    for id in 0..100 {
        let at = sent(id);
        let turned = at + FORWARD;
        let rx =
            RxStamps { hw: None, driver: None, kernel: None, app: real(turned + BACKWARD + near) };
        let remote = Remote {
            rx: real(turned + far),
            tx: real(turned + far),
            seq: id as u32,
            ttl: None,
            same_clock: false,
        };
        let sample = Sample {
            id,
            state: State::Received,
            reordered: false,
            intended: Instant::from_nanos(at - START),
            tx: TxStamps { app: real(at + near), sched: None, tcx: None, kernel: None, hw: None },
            rx: Some(rx),
            remote: Some(remote),
        };
        writer.push(&sample, Some(&bridge), TimestampSource::User);
    }
    writer.finish(0).unwrap()
}

/// Runs the plan and returns the summary of its measurement, and the forward delays of the rows.
fn run(plan: &str, clocks: Clocks) -> (Summary, Vec<i64>) {
    let mut started = begin(plan);
    let mut fleet = FakeFleet { messages: VecDeque::new(), jobs: BTreeMap::new(), clocks };
    assert_eq!(started.execute(&mut fleet).1, [TrialEnd::Finished]);
    let StartedRun { dir: _dir, store, run, .. } = started;
    let trials = store.trials(&run).unwrap();
    let summary = store.summaries(&trials[0]).unwrap().swap_remove(0).2;
    let mut rows = Vec::new();
    store
        .samples(&run, &trials[0], None, &mut |batch| {
            for row in 0..batch.len() {
                let [flow, ping] = [Column::EndToEnd, Column::OneWayForward]
                    .map(|column| batch.number(row, column));
                rows.extend(flow.or(ping));
            }
            Ok(())
        })
        .unwrap();
    // The catalogue and the sample file agree.
    let computed = store.recompute(&run, &trials[0]).unwrap().figures().0;
    for name in ["end_to_end_ns", "one_way_forward_ns", "one_way_backward_ns"] {
        assert_eq!(computed.get(name), summary.metrics.get(name), "{name}");
    }
    (summary, rows)
}

fn count(summary: &Summary, name: &str) -> i64 {
    match summary.values.get(name) {
        Some(Some(Scalar::Count(count))) => *count as i64,
        other => panic!("{name}: {other:?}"),
    }
}

fn codes(summary: &Summary) -> Vec<&str> {
    summary.trust.warnings.iter().map(|warning| &*warning.code).collect()
}

#[test]
fn flow_between_two_clocks_has_delays_with_their_bound() {
    let (summary, rows) = run(FLOW, HONEST);
    let error = count(&summary, "end_to_end_error_ns");
    // Half of the round trip of either exchange, and what the readings cannot exclude.
    assert!((THERE + BACK..THERE + BACK + 40_000).contains(&error), "{error}");
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|delay| (delay - FORWARD).abs() <= error), "{rows:?}");
    let p50 = summary.metrics["end_to_end_ns"].p50.unwrap();
    assert!((p50 - FORWARD).abs() <= error, "{p50}");
    assert_eq!(count(&summary, "link_delay_error_ns"), error);
    assert!(!summary.values.contains_key("sender_out_error_ns"), "it is within one machine");
    assert_eq!(codes(&summary), ["bounded-clocks"]);
    let text = &summary.trust.warnings[0].text;
    assert!(text.starts_with("one-way delays between a and b are known within ± "), "{text}");
    let own = count(&summary, "clock_b_error_ns");
    let Some(Scalar::Real(offset)) = summary.values["clock_b_offset_ns"] else { panic!() };
    assert!((offset as i64 - HOUR).abs() <= own, "{offset} {own}");
    assert_eq!(count(&summary, "clock_b_exchanges"), 32);
    assert_eq!(count(&summary, "clock_b_steady"), 1);
    assert_eq!(count(&summary, "clock_b_min_round_trip_ns"), THERE + BACK);
    let value = |name: &str| summary.values[name];
    assert_eq!(value("clock_a_kernel_error_ns"), Some(Scalar::Real(5_000.0)));
    assert_eq!(value("clock_a_chrony_error_ns"), Some(Scalar::Real(77_000.0)));
    assert!(!summary.values.contains_key("clock_a_ptp_offset_ns"));
}

#[test]
fn ping_between_two_clocks_has_one_way_delays_with_their_bound() {
    let (summary, rows) = run(PING, HONEST);
    for (name, delay) in [("forward", FORWARD), ("backward", BACKWARD)] {
        let error = count(&summary, &format!("one_way_{name}_error_ns"));
        let p50 = summary.metrics[&format!("one_way_{name}_ns")].p50.unwrap();
        assert!((p50 - delay).abs() <= error, "{name} {p50} {error}");
    }
    assert_eq!(rows.len(), 100);
    assert_eq!(codes(&summary), ["bounded-clocks"]);
}

#[test]
fn clock_stepped_by_an_hour_leaves_no_one_way_figure() {
    for step in [HOUR, -HOUR, 2_000, -2_000] {
        for plan in [FLOW, PING] {
            let (summary, rows) = run(plan, Clocks { step, ..HONEST });
            assert!(rows.is_empty(), "{step}");
            for name in ["end_to_end", "link_delay", "one_way_forward", "one_way_backward"] {
                assert!(!summary.metrics.contains_key(&format!("{name}_ns")), "{step} {name}");
                assert!(!summary.values.contains_key(&format!("{name}_error_ns")), "{name}");
            }
            assert_eq!(summary.values["clock_b_error_ns"], None);
            let warning = summary.trust.warnings.iter().find(|it| it.code == "clock-unbounded");
            let warning = warning.unwrap_or_else(|| panic!("{:?}", summary.trust.warnings));
            assert_eq!(warning.on.as_deref(), Some("b"));
            assert!(warning.text.contains("it was stepped by"), "{}", warning.text);
            assert!(!codes(&summary).contains(&"bounded-clocks"));
        }
    }
}

#[test]
fn node_without_exchanges_at_the_end_has_no_bound() {
    let (summary, rows) = run(FLOW, Clocks { answers: false, ..HONEST });
    assert!(rows.is_empty(), "{rows:?}");
    assert_eq!(codes(&summary), ["clock-unbounded", "unrelated-clocks"]);
    let warning = &summary.trust.warnings[0];
    assert_eq!(warning.on.as_deref(), Some("b"));
    assert!(warning.text.contains("no exchange with it succeeded"), "{}", warning.text);
    assert_eq!(summary.values["clock_b_error_ns"], None);
    assert!(summary.values["clock_a_error_ns"].is_some());
}

#[test]
fn packets_that_contradict_the_clocks_leave_no_one_way_figure() {
    for lie in [5_000_000, -5_000_000] {
        let (summary, rows) = run(PING, Clocks { lie, ..HONEST });
        assert!(rows.is_empty(), "{lie}");
        assert!(!summary.metrics.contains_key("one_way_forward_ns"), "{lie}");
        assert_eq!(codes(&summary), ["impossible-delays"], "{lie}");
    }
    // Packets in one direction contradict a clock that leads too far only.
    let (summary, rows) = run(FLOW, Clocks { lie: 5_000_000, ..HONEST });
    assert_eq!((rows.len(), codes(&summary)), (0, vec!["impossible-delays"]));
}

#[test]
fn copied_machine_does_not_pass_for_the_controller() {
    let claimed = Some(ClockDomain::CONTROLLER);
    let one = Clocks { leads: [0, 0], claimed, ..HONEST };
    // The clock of a copy may even be equal, but it has not run as long.
    for copy in [Clocks { claimed, ..HONEST }, Clocks { uptime: 1_000_000, ..one }] {
        let (summary, rows) = run(FLOW, copy);
        let error = count(&summary, "end_to_end_error_ns");
        assert_eq!(rows.len(), 100);
        assert!(rows.iter().all(|delay| (delay - FORWARD).abs() <= error), "{rows:?}");
    }
    let (summary, _) = run(FLOW, Clocks { answers: false, ..one });
    assert!(codes(&summary).contains(&"clock-unbounded"), "a boot id alone proves nothing");
    let (summary, rows) = run(FLOW, one);
    assert!(rows.iter().all(|delay| *delay == FORWARD), "one clock is exact: {rows:?}");
    assert!(codes(&summary).is_empty());
    assert!(!summary.values.contains_key("end_to_end_error_ns"));
    assert_eq!(count(&summary, "clock_b_error_ns"), 0);
}

#[test]
fn copies_of_one_machine_have_clocks_of_their_own() {
    let claimed = Some("boot-id");
    let (summary, rows) = run(FLOW, Clocks { claimed, ..HONEST });
    let error = count(&summary, "end_to_end_error_ns");
    assert!(error >= THERE + BACK, "{error}");
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|delay| (delay - FORWARD).abs() <= error), "{rows:?}");
    let (summary, rows) = run(FLOW, Clocks { claimed, leads: [HOUR, HOUR], ..HONEST });
    assert!(rows.iter().all(|delay| *delay == FORWARD), "one clock is exact: {rows:?}");
    assert!(!summary.values.contains_key("end_to_end_error_ns"));
}
