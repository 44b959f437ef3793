//! Tests of what relays measure: a delay shows in the component that caused it.

use std::fs;
use std::time::Duration;

use dwell_record::segment::{self, Record};
use serde_json::Value;

use crate::fixture::{Relay, alone, beside_others, payload, receive, socket};
use crate::pause::{pause, resume};

/// Sends packets one by one; returns the relay's summary.
fn measured(more: &[&str], packets: u32) -> Value {
    let far = socket();
    let relay = Relay::to_socket(&far, more);
    let client = socket();
    for _ in 0..packets {
        client.send_to(&payload(0, 200), &relay.listen).unwrap();
        receive(&far);
    }
    relay.end()
}

#[test]
fn stopped_relay_shows_queueing_delay() {
    let _machine = alone();
    for engine in ["socket", "batch"] {
        for waiting in [&["--engine", engine][..], &["--engine", engine, "--busy-poll"]] {
            stopped(waiting);
        }
    }
}

fn stopped(engine: &[&str]) {
    const CLIENTS: usize = 6;
    let far = socket();
    let relay = Relay::to_socket(&far, engine);
    let clients: Vec<_> = (0..CLIENTS).map(|_| socket()).collect();
    for n in 0..20 {
        if n == 10 {
            pause(&relay.server.child);
        }
        for client in &clients {
            client.send_to(&payload(0, 200), &relay.listen).unwrap();
        }
        if n == 10 {
            std::thread::sleep(Duration::from_secs(2));
            resume(&relay.server.child);
        }
        for _ in &clients {
            receive(&far);
        }
    }
    let summary = relay.end();
    let metrics = &summary["metrics"];
    let max = |name: &str| metrics[name]["max"].as_i64().unwrap();
    assert!(max("queueing_in_ns") >= 1_900_000_000, "{engine:?} {metrics}");
    assert!(max("processing_ns") < 1_000_000_000, "{engine:?} {metrics}");
    assert!(max("queueing_out_ns") < 1_000_000_000, "{engine:?} {metrics}");
}

#[test]
fn hold_shows_in_its_delay_component() {
    let _machine = alone();
    const HOLD: i64 = 2_000_000;
    // The minimum: other load only adds delay.
    let least = |more: &[&str], component: &str| {
        let summary = measured(more, 40);
        summary["metrics"][component]["min"].as_i64().unwrap()
    };
    let near = |value: i64| (HOLD..HOLD + 1_000_000).contains(&value);
    for busy in [&["--busy-poll"][..], &[]] {
        let with = |hold: &'static str| [&["--hold", hold][..], busy].concat();
        assert!(near(least(&with("program:2ms"), "processing_ns")), "{busy:?}");
        assert!(near(least(&with("socket:2ms"), "queueing_in_ns")), "{busy:?}");
        assert!(least(&with("socket:2ms"), "processing_ns") < HOLD / 4, "{busy:?}");
        assert!(least(&with("program:2ms"), "queueing_in_ns") < HOLD / 4, "{busy:?}");
    }
}

#[test]
fn segment_has_flows_and_all_stamps() {
    let _machine = beside_others();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.dwell");
    let far = socket();
    let relay = Relay::to_socket(&far, &["--samples", file.to_str().unwrap()]);
    let client = socket();
    for n in 0..30_u8 {
        client.send_to(&payload(n, 300), &relay.listen).unwrap();
        let (message, from) = receive(&far);
        far.send_to(&message, from).unwrap();
        receive(&client);
    }
    relay.end();
    let (mut flows, mut ids) = (Vec::new(), [Vec::new(), Vec::new()]);
    let mut stamped = 0;
    let mut segment = fs::File::open(&file).unwrap();
    let end = segment::read(&mut segment, &mut |record| match record {
        Record::Flow(flow) => flows.push(flow.clone()),
        Record::PacketObservation(observation) => {
            ids[observation.flow as usize].push(observation.id);
            stamped += usize::from(observation.stamps.iter().count() == 6);
        }
        Record::Header(header) => assert_eq!(header.kind, "relay"),
        Record::Host(_) | Record::Spike(_) => {}
        Record::Sample(..) => panic!("a relay has no samples"),
    });
    assert!(end.unwrap().totals.is_some());
    assert_eq!(flows.len(), 2);
    assert_eq!((flows[0].from, flows[0].out().1), {
        (client.local_addr().unwrap(), far.local_addr().unwrap())
    });
    assert_eq!(ids, [(0..30).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>()]);
    // Timestamps are enabled with a delay, so the first packets may lack them.
    assert!(stamped >= 50, "{stamped} of 60 have all six stamps");
}
