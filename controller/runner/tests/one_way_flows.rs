//! Whole runs of one-joined flows, with fake nodes and a real store.

mod fakes;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use dwell_fleet::{ClockDomain, CreatedLink, Fleet, FleetError, FromNode, Nodes};
use dwell_host::HostSample;
use dwell_plan::Topology;
use dwell_protocol::{Event, Job, JobId, Request};
use dwell_record::segment::{FlowEntry, Header, SegmentWriter};
use dwell_record::{Batch, Column, Kind, Scalar, TrustWarning};
use dwell_runner::TrialEnd;
use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_store::{HostRow, Role, RunRow, Store};
use dwell_units::Instant;
use fakes::{StartedRun, begin, push_segment, summary};

const PLAN: &str = "version = 1\nname = \"flows\"\ntopology = { lab = \"line:3\" }\n\
    [flow]\nfrom = \"n1\"\nto = \"n3\"\nsize = \"500B\"\nrate = \"1kpps\"\ncount = 200\n\
    [relay]\non = \"n2\"\nmode = \"route\"\n[matrix]\nrelay = [\"route\", \"encrypt\"]\n\
    [trials]\norder = \"as-written\"\n";

/// Every hundredth packet is lost after the relay.
const LOSS_PERIOD: u64 = 100;

/// Injected fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    TracesAreRefused,
    /// The receiver's clock is stepped forward by 0.5 ms.
    ClockSteps,
}

/// Nodes that execute requests at once and record packets like a relayed flow.
struct FakeFleet {
    messages: VecDeque<(String, FromNode)>,
    jobs: BTreeMap<JobId, Job>,
    /// Whether a program relays in this trial.
    relays: bool,
    fault: Fault,
    nodes: Nodes,
    requests: Vec<String>,
}

impl FakeFleet {
    fn push_event(&mut self, node: &str, event: Event) {
        self.messages.push_back((node.to_owned(), FromNode::Event(event)));
    }

    fn finished(&mut self, node: &str, job: JobId) {
        let mut summary = Box::new(summary(0));
        if self.fault == Fault::ClockSteps && matches!(self.jobs[&job], Job::Sink(_)) {
            summary.trust.clock_step_ns = Some(500_000);
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
            Request::Start { job, what, samples } => {
                self.requests.push(format!("{node} {}", what.name()));
                let (version, jobs) = (dwell_protocol::VERSION, Vec::new());
                let (dwell, name) = ("0".to_owned(), node.to_owned());
                self.push_event(
                    node,
                    Event::Hello { version, dwell, node: name, jobs, boot_id: None },
                );
                self.relays |= matches!(what, Job::Relay(_));
                if matches!(what, Job::Trace(_)) && self.fault == Fault::TracesAreRefused {
                    let reason = "eBPF needs root".to_owned();
                    self.push_event(node, Event::Failed { job: *job, reason, unsupported: true });
                    return Ok(());
                }
                assert!(samples);
                self.jobs.insert(*job, what.clone());
                self.push_event(node, Event::Ready { job: *job });
                if matches!(what, Job::Traffic(_)) {
                    self.finished(node, *job);
                }
            }
            Request::Stop { job } => self.finished(node, *job),
            Request::Hail { job } => self.push_event(node, Event::Alive { job: *job }),
            Request::Clock { .. } | Request::ClockState { .. } | Request::Spool { .. } => {}
            Request::Pull { job, .. } => {
                let what = self.jobs.remove(job).unwrap();
                self.requests.push(format!("{node} pull {}", what.name()));
                let bytes = segment(&what, self.relays);
                push_segment(&mut self.messages, node, *job, bytes);
            }
        }
        Ok(())
    }

    fn next(&mut self, _: Duration) -> Option<(String, FromNode)> {
        self.messages.pop_front()
    }

    fn nodes(&self) -> Nodes {
        self.nodes.clone()
    }

    fn links(&self) -> Vec<CreatedLink> {
        let link = |a: &str, b: &str, rate_bps| CreatedLink {
            nodes: [a, b].map(str::to_owned).into(),
            rate_bps,
            mechanism: "tap".to_owned(),
        };
        let rate = Some(65_000_000);
        vec![link("n1", "n2", rate), link("n2", "n3", rate), link("n3", "n4", Some(1))]
    }

    fn release(&mut self, _: &str) {}

    fn dissolve(&mut self) -> Result<(), FleetError> {
        Ok(())
    }
}

/// Returns the segment of a job with 205 packets, five of them warm-up.
fn segment(job: &Job, relays: bool) -> Vec<u8> {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let (sender, receiver) = (address("10.0.0.1:40000"), address("10.0.1.2:5001"));
    let relay = (address("10.0.0.2:5001"), address("10.0.1.1:50000"));
    let entry = |flow, from, to| FlowEntry {
        flow,
        protocol: "udp".into(),
        from,
        to,
        from_out: None,
        to_out: None,
    };
    let first = if relays { relay.0 } else { receiver };
    let last = if relays { relay.1 } else { sender };
    let flows = match job {
        Job::Relay(_) => vec![FlowEntry {
            from_out: Some(relay.1),
            to_out: Some(receiver),
            ..entry(0, sender, relay.0)
        }],
        Job::Trace(_) if relays => vec![entry(0, sender, first), entry(1, last, receiver)],
        Job::Sink(_) => vec![entry(0, last, receiver)],
        _ => vec![entry(0, sender, first)],
    };
    let header = Header::of_observations(job.name(), String::new());
    let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
    flows.iter().for_each(|flow| writer.push_flow(flow).unwrap());
    let mut host = HostSample { at_ns: 1_000_000_000, ..HostSample::default() };
    host.values.insert("interrupts_per_s".to_owned(), 900.0);
    writer.push_host(&host).unwrap();
    for id in 0..205 {
        let start = 1_000_000_000 + id as i64 * 1_000_000;
        let mut push = |flow, stamps: &[(Point, i64)]| {
            let mut all = PointStamps::default();
            stamps.iter().for_each(|(p, at)| all.set(*p, Instant::from_nanos(start + at)));
            writer.push_observation(&PacketObservation {
                flow,
                id,
                size: 500,
                outcome: PacketOutcome::Observed,
                stamps: all,
            });
        };
        match job {
            Job::Traffic(_) => push(0, &[(Point::TxApp, 0), (Point::TxKernel, 10)]),
            Job::Relay(_) => push(
                0,
                &[
                    (Point::RxKernel, 100),
                    (Point::RxApp, 150),
                    (Point::TxApp, 250 + id as i64),
                    (Point::TxSched, 400),
                    (Point::TxKernel, 420),
                    (Point::TxAppDone, 430),
                ],
            ),
            Job::Trace(_) => {
                push(0, &[(Point::PreRouting, 110)]);
                push(
                    flows.len() as u32 - 1,
                    &[(Point::PostRouting, if relays { 390 } else { 130 })],
                );
            }
            _ if id % LOSS_PERIOD == LOSS_PERIOD - 1 => {}
            _ => push(0, &[(Point::RxKernel, 500), (Point::RxApp, 560)]),
        }
    }
    writer.finish(0).unwrap()
}

/// Returns the nodes of a lab.
fn on_one_clock() -> Nodes {
    Nodes::default().with_common_clock(ClockDomain::controller())
}

fn run(fault: Fault) -> (tempfile::TempDir, Store, RunRow, FakeFleet, Vec<TrialEnd>) {
    run_on(on_one_clock(), fault)
}

fn run_on(
    nodes: Nodes,
    fault: Fault,
) -> (tempfile::TempDir, Store, RunRow, FakeFleet, Vec<TrialEnd>) {
    let mut started = begin(PLAN);
    let mut fleet = FakeFleet {
        messages: VecDeque::new(),
        jobs: BTreeMap::new(),
        relays: false,
        fault,
        nodes,
        requests: Vec::new(),
    };
    let (_, ends) = started.execute(&mut fleet);
    let StartedRun { dir, store, run, .. } = started;
    (dir, store, run, fleet, ends)
}

#[test]
fn flow_trial_stores_one_joined_row_per_packet() {
    let (_dir, store, run, fleet, ends) = run(Fault::None);
    assert_eq!(ends, [TrialEnd::Finished, TrialEnd::Finished]);
    let encrypt = "n3 load sink, n2 relay, n2 trace, n1 load traffic, n3 pull load sink, \
                   n2 pull relay, n2 pull trace, n1 pull load traffic";
    let mut requests: Vec<_> = fleet.requests[6..].to_vec();
    requests[4..].sort();
    let mut wanted: Vec<_> = encrypt.split(", ").map(str::to_owned).collect();
    wanted[4..].sort();
    assert_eq!(
        requests, wanted,
        "servers first, then the sender, and samples after all have ended"
    );
    let trials = store.trials(&run).unwrap();
    let mut rows = Batch::default();
    store
        .samples(&run, &trials[1], None, &mut |batch| {
            rows = batch.clone();
            Ok(())
        })
        .unwrap();
    assert_eq!(rows.len(), 200, "without the five warm-up packets");
    assert_eq!(rows.number(0, Column::EndToEnd), Some(560));
    assert_eq!(rows.number(0, Column::Processing), Some(105));
    assert_eq!(rows.number(0, Column::QueueingOut), Some(145));
    let summaries = store.summaries(&trials[1]).unwrap();
    let measured: Vec<_> =
        summaries.iter().filter(|(role, ..)| *role == Role::Measurement).collect();
    assert_eq!(measured.len(), 1, "the sender's own summary has the role of a machine");
    let joined = &measured[0].2;
    assert_eq!((joined.kind, joined.engine.as_str()), (Kind::Relay, "socket"));
    let packets = joined.packets.unwrap();
    assert_eq!((packets.sent, packets.received, packets.lost), (200, 198, 2));
    assert_eq!(joined.metrics["node_delay_ns"].p50, Some(320));
    assert_eq!(joined.metrics["node_delay_netfilter_ns"].p50, Some(280));
    assert_eq!(joined.metrics["link_delay_ns"].p50, Some(90 + 80));
    let Some(Scalar::Real(nlr)) = joined.values["nlr"] else { panic!("expected an NLR") };
    assert!((nlr - 320.0 / 170.0).abs() < 1e-9, "{nlr}");
    // Two links of 500 B each at the received rate, 198 of 200 packets at intervals of 1 ms.
    let Some(Scalar::Real(s0)) = joined.values["link_delay_s0_ns"] else {
        panic!("expected link_delay_s0_ns")
    };
    assert!((1.9e6..2.1e6).contains(&s0), "{s0}");
    assert_eq!(
        joined.parameters["link_rate_bps"], 65_000_000,
        "rate of the links that packets passed"
    );
    assert_eq!(joined.parameters["link_mechanism"], "tap");
    assert_eq!(joined.parameters["node_points"], serde_json::json!(["rx_kernel", "tx_kernel"]));
    assert_eq!(store.recompute(&run, &trials[1]).unwrap().figures().0, joined.metrics);
    assert!(store.series(&trials[1]).unwrap().contains_key("node_delay_netfilter_ns"));
    let route = &store.summaries(&trials[0]).unwrap()[0].2;
    assert_eq!(route.engine, "kernel");
    assert_eq!(route.metrics["node_delay_netfilter_ns"].p50, Some(20));
    assert!(!route.metrics.contains_key("processing_ns"), "absent, not 0");
}

#[test]
fn host_activity_is_stored_once_per_node() {
    let (_dir, store, run, ..) = run(Fault::None);
    let trials = store.trials(&run).unwrap();
    let mut nodes = Vec::new();
    let mut each = |row: &HostRow<'_>| {
        assert_eq!((row.name, row.at_ns, row.value), ("interrupts_per_s", 1_000_000_000, 900.0));
        nodes.push(row.node.to_owned());
    };
    store.host(&run, &trials[1], &mut each).unwrap();
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"], "n2 relays and traces");
    // A repeated trial starts without the data of the earlier attempt.
    let mut store = store;
    store.begin_trial(&trials[1]).unwrap();
    store.host(&run, &trials[1], &mut |row| panic!("{row:?}")).unwrap();
    assert!(store.host_path(&run.run, trials[0].number).exists(), "the other trial's file stays");
}

#[test]
fn refused_trace_costs_figures_but_not_the_trial() {
    let (_dir, store, run, _, ends) = run(Fault::TracesAreRefused);
    assert_eq!(ends, [TrialEnd::Finished, TrialEnd::Finished]);
    let trials = store.trials(&run).unwrap();
    let joined = &store.summaries(&trials[1]).unwrap()[0].2;
    assert_eq!(joined.metrics["node_delay_ns"].p50, Some(320));
    assert!(!joined.metrics.contains_key("node_delay_netfilter_ns"));
    let warning = |lacks: &str| {
        let text = "continued without trace on n2: eBPF needs root; therefore unknown: ";
        format!("{text}{lacks}")
    };
    let warned = |warnings: &[TrustWarning], lacks: &str| {
        assert!(warnings.iter().any(|it| it.text.starts_with(&warning(lacks))), "{warnings:?}");
    };
    warned(
        &joined.trust.warnings,
        "the delay between the kernel's hooks (pre_routing to post_routing",
    );
    let route = &store.summaries(&trials[0]).unwrap()[0].2;
    assert_eq!(route.metrics["end_to_end_ns"].p50, Some(560));
    assert!(!route.metrics.contains_key("link_in_ns"));
    assert!(!route.metrics.contains_key("link_delay_ns"), "it would include the node");
    warned(&route.trust.warnings, "the delays of the node and of its links");
    let warns =
        |it: &TrustWarning| it.code == "node-delay-unknown" && it.on.as_deref() == Some("n2");
    assert!(route.trust.warnings.iter().any(warns), "{:?}", route.trust.warnings);
}

#[test]
fn clock_step_on_any_machine_voids_the_delays() {
    let (_dir, store, run, _, ends) = run(Fault::ClockSteps);
    assert_eq!(ends, [TrialEnd::Finished, TrialEnd::Finished]);
    for trial in store.trials(&run).unwrap() {
        let joined = &store.summaries(&trial).unwrap()[0].2;
        assert_eq!((joined.trust.clock_step_ns, joined.trust.void), (Some(500_000), 200));
        assert_eq!(joined.packets.unwrap().received, 198, "counts do not depend on a clock");
        assert!(joined.metrics.is_empty(), "{:?}", joined.metrics);
        assert_eq!(joined.values["link_delay_s0_ns"], None);
        let mut void = 0;
        store
            .samples(&run, &trial, None, &mut |batch| {
                void += batch.void.iter().filter(|void| **void).count();
                Ok(())
            })
            .unwrap();
        assert_eq!(void, 200);
    }
}

#[test]
fn delay_between_unrelated_clocks_is_absent_with_one_warning() {
    let nodes = on_one_clock().with_clock("n3", ClockDomain::of_node("n3"));
    let (_dir, store, run, _, ends) = run_on(nodes, Fault::None);
    assert_eq!(ends, [TrialEnd::Finished, TrialEnd::Finished]);
    let joined = &store.summaries(&store.trials(&run).unwrap()[1]).unwrap()[0].2;
    assert_eq!(joined.packets.unwrap().received, 198);
    assert_eq!(joined.metrics["node_delay_ns"].p50, Some(320));
    assert_eq!(joined.metrics["link_in_ns"].p50, Some(90));
    assert_eq!(joined.metrics["receiver_in_ns"].p50, Some(60));
    for name in ["end_to_end_ns", "link_out_ns", "link_delay_ns"] {
        assert!(!joined.metrics.contains_key(name), "{name}");
    }
    let warnings =
        joined.trust.warnings.iter().map(|it| &it.text).filter(|it| it.contains("clocks of"));
    let warnings: Vec<_> = warnings.collect();
    assert_eq!(warnings, ["clocks of n1 and n3 are unrelated: no delays between them"]);
    let clocks = store.nodes(&run).unwrap().into_iter().map(|node| (node.node, node.clock));
    let clock = |node: &str, clock: &str| (node.to_owned(), Some(clock.to_owned()));
    let expected = [clock("n1", "controller"), clock("n2", "controller"), clock("n3", "node n3")];
    assert_eq!(clocks.collect::<Vec<_>>(), expected);
}

#[test]
fn clock_of_the_node_cancels_out_of_the_link_delay() {
    let nodes = on_one_clock().with_clock("n2", ClockDomain::of_node("n2"));
    let (_dir, store, run, ..) = run_on(nodes, Fault::None);
    let joined = &store.summaries(&store.trials(&run).unwrap()[1]).unwrap()[0].2;
    assert_eq!(joined.metrics["link_delay_ns"].p50, Some(90 + 80));
    assert_eq!(joined.metrics["end_to_end_ns"].p50, Some(560));
    for name in ["link_in_ns", "link_out_ns"] {
        assert!(!joined.metrics.contains_key(name), "{name}");
    }
    assert_eq!(
        store.recompute(&run, &store.trials(&run).unwrap()[1]).unwrap().figures().0,
        joined.metrics
    );
}
