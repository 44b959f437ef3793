//! `dwell ping --path` along a line with two relays: the delay of every relay in each direction,
//! without a common clock.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dwell_record::segment::{Record, read};
use dwell_sample::{PacketObservation, Point};
use serde_json::Value;

use crate::fixture::{DWELL, Running, TestLab, as_root, said};

/// The observations of one direction by id. With one client, flow 0 is forward and flow 1 backward.
fn observations(samples: &Path, flow: u32) -> BTreeMap<u64, PacketObservation> {
    let mut found = BTreeMap::new();
    read(&mut fs::File::open(samples).unwrap(), &mut |record| match record {
        Record::PacketObservation(observation) if observation.flow == flow => {
            found.insert(observation.id, *observation);
        }
        _ => {}
    })
    .unwrap();
    found
}

#[test]
fn ping_path_delays_match_the_relays_own() {
    const COUNT: u64 = 300;
    if !as_root() {
        return;
    }
    let lab = TestLab::up("path", &["line:4"]);
    let directory = tempfile::tempdir().unwrap();
    let reflector =
        Running::start(&lab, "n4", "listening on", &["reflect", "stamp://198.19.0.4:862"]);
    let relay = |node: &str, number: &str, hold: &str, to: &str| {
        let samples = directory.path().join(node);
        let listen = format!("udp://198.19.0.{number}:862");
        let options = ["relay", "--json", "--telemetry", "--node-id", number, "--hold", hold];
        let ends = ["--listen", &listen, "--to", to, "--id", "stamp", "--samples"];
        let arguments = [&options[..], &ends, &[samples.to_str().unwrap()]].concat();
        (Running::start(&lab, node, "relaying", &arguments), samples)
    };
    let (far, far_samples) = relay("n3", "3", "program:300us", "udp://198.19.0.4:862");
    let (near, near_samples) = relay("n2", "2", "program:100us", "udp://198.19.0.3:862");
    let count = COUNT.to_string();
    let ping = lab.exec(
        "n1",
        &[
            DWELL,
            "ping",
            "stamp://198.19.0.2:862",
            "--path",
            "4",
            "-c",
            &count,
            "-i",
            "5ms",
            "--json",
        ],
    );
    assert!(ping.status.success(), "{}", said(&ping));
    let ping: Value = serde_json::from_slice(&ping.stdout).unwrap();
    let (near, far) = (near.end(), far.end());
    reflector.end();
    for relay in [&near, &far] {
        let filled = relay["values"]["telemetry_filled"].as_u64().unwrap();
        let relayed =
            |direction: &str| relay["values"][format!("relayed_{direction}")].as_u64().unwrap();
        assert_eq!(filled, relayed("forward") + relayed("backward"), "{relay}");
    }
    assert_eq!(ping["values"]["path_empty"], 0);
    let replies = ping["values"]["path_replies"].as_u64().unwrap() as usize;
    assert!(replies >= 290, "{ping}");
    for (place, samples, flow, hold) in [
        ("forward_1_node_2", &near_samples, 0, 100_000),
        ("forward_2_node_3", &far_samples, 0, 300_000),
        ("backward_1_node_3", &far_samples, 1, 300_000),
        ("backward_2_node_2", &near_samples, 1, 100_000),
    ] {
        let figures = &ping["metrics"][format!("path_{place}_node_delay_ns")];
        assert_eq!(figures["count"].as_u64().unwrap() as usize, replies, "{place}");
        let reported = figures["p50"].as_i64().unwrap();
        let observed: Vec<_> = observations(samples, flow).into_values().collect();
        let mut delays: Vec<_> = observed
            .iter()
            .map(|p| {
                let first = if p.stamps.get(Point::RxKernel).is_some() {
                    Point::RxKernel
                } else {
                    Point::RxApp
                };
                p.stamps.between(first, Point::TxApp).unwrap().0
            })
            .collect();
        delays.sort_unstable();
        // The relay also saw warm-up probes and probes with late replies, so the median of the
        // others is between these two.
        let rank = replies.div_ceil(2) - 1;
        let (low, high) = (delays[rank], delays[rank + delays.len() - replies]);
        println!("{place}: {reported} ns by ping, {low} to {high} ns by the relay itself");
        // A slot is filled shortly before the relay's own timestamp, up to 20 us on a busy machine;
        // if filled before the hold it would be 100 us off.
        let near = 40_000 + low / 100;
        assert!(
            reported >= hold && reported + near > low && reported < high + near,
            "{place}: {reported} {low}"
        );
    }
}
