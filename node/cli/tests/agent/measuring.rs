//! What an agent writes about probes.

use std::time::Duration;

use dwell_record::segment;
use dwell_rollup::{Body, Level, RangeSet, RollupMetric};

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

#[test]
fn silent_target_is_counted_as_lost() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = silent.local_addr().unwrap();
    let node = TestNode::new(&format!(
        "[[entries]]\nname = \"silent\"\nreflector = \"n2\"\ntarget = \"stamp://{target}\"\n\
         interval = \"10ms\"\ntimeout = \"50ms\"\nsamples = false\n"
    ));
    let agent = node.start();
    let mut probe = [0; 2_048];
    for _ in 0..60 {
        silent.recv(&mut probe).unwrap();
    }
    agent.stop();
    let mut carrier = node.carrier();
    let short = carrier.records("10s");
    let lost = short.iter().map(|record| match &record.body {
        Body::Rollup(rollup) => rollup.counts.lost,
        _ => 0,
    });
    assert!(sent(&short) > 30 && lost.sum::<u64>() == sent(&short), "{short:?}");
    assert!(carrier.records("samples").is_empty());
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
