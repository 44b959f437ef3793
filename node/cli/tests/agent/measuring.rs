//! What an agent writes about probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dwell_protocol::SpoolRequest;
use dwell_record::segment;
use dwell_rollup::{Body, Level, RangeSet, RollupMetric};

use crate::carrier::Carrier;
use crate::fixture::{TestNode, record_files, sent, wait_for};
use crate::support::{Server, free_port};

/// An agent that answers its own probes, one every 10 ms.
fn loop_back() -> TestNode {
    let url = format!("stamp://127.0.0.1:{}", free_port("127.0.0.1"));
    TestNode::new(&format!(
        "[reflect]\nurls = [\"{url}\"]\n\
         [[entries]]\nname = \"self\"\nreflector = \"n1\"\ntarget = \"{url}\"\ninterval = \"10ms\"\n"
    ))
}

#[test]
fn probes_are_in_rollups_of_both_levels_and_in_samples() {
    let node = loop_back();
    let agent = node.start();
    let begun = std::time::Instant::now();
    node.await_status(|status| status.streams == 1);
    std::thread::sleep(Duration::from_millis(1_500));
    let output = agent.stop();
    let ran = begun.elapsed();
    assert!(output.status.success(), "{output:?}");
    let mut carrier = node.carrier();
    let short = carrier.records("10s");
    let long: Vec<_> = carrier
        .records("5m")
        .into_iter()
        .filter(|record| matches!(record.body, Body::Rollup(_)))
        .collect();
    let count = sent(&short);
    assert!(count >= 100 && count <= ran.as_millis() as u64 / 10, "{count} in {ran:?}");
    assert_eq!(sent(&long), count);
    let mut samples = 0;
    for record in carrier.records("samples") {
        let Body::Samples(block) = record.body else { panic!("{record:?}") };
        let mut in_block = 0;
        segment::read(&mut &block.segment[..], &mut |record| {
            in_block += u64::from(matches!(record, segment::Record::Sample(..)));
        })
        .unwrap();
        assert_eq!(in_block, block.samples);
        samples += in_block;
    }
    assert_eq!(samples, count);
    let written = carrier.records("samples")[0].wall_ns;
    let in_span =
        |carrier: &mut Carrier, span| carrier.records_written("samples", Some(span)).len();
    assert_eq!(in_span(&mut carrier, (written + 60_000_000_000, i64::MAX)), 0);
    assert!(in_span(&mut carrier, (written, written)) > 0);
    let Body::Rollup(rollup) = &short[0].body else { panic!() };
    assert_eq!((rollup.level, rollup.schedule_version), (Level::TenSeconds, 0));
    let stream = &rollup.stream;
    let names = [&stream.reflector, &stream.protocol, &stream.entry].map(|name| name.as_str());
    assert_eq!(names, ["n1", "stamp", "self"]);
    assert_eq!(rollup.counts.received, rollup.counts.sent, "{:?}", rollup.counts);
    let rtt = rollup.delays(RollupMetric::Rtt).expect("a round trip");
    assert!(rtt.count() == rollup.counts.received && rtt.min() > Some(dwell_units::Nanos::ZERO));
    assert!(rollup.clock.is_one_clock, "both ends are on this machine");
    assert!(rollup.delays(RollupMetric::OneWayForward).is_some());
}

#[test]
fn records_with_receipts_leave_the_spool() {
    let node = loop_back();
    let agent = node.start();
    node.await_status(|status| status.streams == 1);
    agent.stop();
    let mut carrier = node.carrier();
    let records = carrier.records("5m");
    assert!(records.len() >= 2, "a status at the start and one at the end: {records:?}");
    let identity = &records[0].identity;
    let all: RangeSet = [carrier.records("10s"), records.clone()]
        .iter()
        .flatten()
        .map(|record| record.identity.sequence)
        .collect();
    assert_eq!(all.gaps().count(), 0, "{all}");
    carrier.receipt(identity.incarnation, all);
    assert!(carrier.records("5m").is_empty() && carrier.records("10s").is_empty());
    assert_eq!(record_files(&node.spool(), "5m"), 1);
    let agent = node.start();
    let is_new = |name: &str| {
        let mut entries = std::fs::read_dir(node.spool().join("records").join(name)).unwrap();
        let of_start = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().to_string_lossy().starts_with("0000000002-")
        };
        entries.all(of_start)
    };
    assert!(wait_for(|| (is_new("5m") && is_new("10s")).then_some(())).is_some());
    agent.stop();
}

/// A socket that answers nothing and counts.
struct SilentTarget {
    target: std::net::SocketAddr,
    received: Arc<AtomicU64>,
}

impl SilentTarget {
    fn new() -> Self {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = socket.local_addr().unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        // Ends with the test program.
        std::thread::spawn(move || {
            let mut probe = [0; 2_048];
            while socket.recv(&mut probe).is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { target, received }
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn await_more(&self, more: u64) {
        let enough = self.received() + more;
        assert!(wait_for(|| (self.received() >= enough).then_some(())).is_some());
    }
}

#[test]
fn probes_in_flight_at_a_stop_are_counted() {
    let silent = SilentTarget::new();
    let node = TestNode::new(&format!(
        "[[entries]]\nname = \"silent\"\nreflector = \"n2\"\ntarget = \"stamp://{}\"\n\
         interval = \"10ms\"\ntimeout = \"300ms\"\nsamples = false\n",
        silent.target
    ));
    let agent = node.start();
    silent.await_more(60);
    // Stopped by a pause, and by a signal.
    let mut carrier = node.carrier();
    carrier.done(SpoolRequest::Pause { reason: Some("cabling".into()) });
    node.await_status(|status| status.pause.is_some());
    carrier.done(SpoolRequest::Pause { reason: None });
    silent.await_more(60);
    agent.stop();
    let short = carrier.records("10s");
    let lost = short.iter().map(|record| match &record.body {
        Body::Rollup(rollup) => rollup.counts.lost,
        _ => 0,
    });
    // Each of the two starts has eight warm-up probes.
    assert_eq!((sent(&short), lost.sum()), (silent.received() - 16, silent.received() - 16));
    assert!(carrier.records("samples").is_empty());
}

#[test]
fn restarted_streams_stay_within_local_limits() {
    let silent = SilentTarget::new();
    let node = TestNode::new("[limits]\npackets = \"20pps\"\n");
    let agent = node.start();
    node.await_status(|status| !status.dwell.is_empty());
    let mut carrier = node.carrier();
    let begun = std::time::Instant::now();
    // Without a common limit, each start of 20 streams would send 160 warm-up probes.
    for version in 1..=3 {
        let entries = (0..20).map(|number| {
            format!(
                r#"{{"name":"v{version}-{number}","reflector":"n2","target":"stamp://{}","interval":"1s"}}"#,
                silent.target
            )
        });
        let entries = entries.collect::<Vec<_>>().join(",");
        carrier.schedule(&format!(r#"{{"version":{version},"node":"n1","entries":[{entries}]}}"#));
        let status =
            node.await_status(|status| (status.schedule_version, status.streams) == (version, 20));
        assert_eq!(status.refused, []);
        silent.await_more(25);
    }
    agent.stop();
    let limit = 20.0 * begun.elapsed().as_secs_f64() + 20.0;
    assert!(silent.received() as f64 <= limit, "{} probes, at most {limit}", silent.received());
}

#[test]
fn reflector_of_an_agent_answers_others() {
    let url = format!("stamp://127.0.0.1:{}", free_port("127.0.0.1"));
    let node = TestNode::new(&format!("[reflect]\nurls = [\"{url}\"]\n"));
    let _agent: Server = node.start();
    node.await_status(|status| !status.dwell.is_empty());
    let answered = wait_for(|| {
        let output = crate::support::dwell(&["ping", &url, "-c", "3", "-i", "0.01", "--json"]);
        output.status.success().then_some(output)
    });
    let summary = crate::support::json(&answered.expect("the reflector answers"));
    assert_eq!(summary["packets"]["received"], 3);
}
