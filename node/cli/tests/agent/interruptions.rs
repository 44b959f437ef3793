//! Agents that end without a chance to write anything, or that share a spool.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell_rollup::{Incarnation, RangeSet};

use crate::fixture::{TestNode, kill};
use crate::support::free_port;

#[test]
fn killed_agents_lose_no_complete_record_and_double_none() {
    let url = format!("stamp://127.0.0.1:{}", free_port("127.0.0.1"));
    // Every half second a block of samples: two streams of 1,000 probes per second.
    let entry = |name: &str| {
        format!(
            "[[entries]]\nname = \"{name}\"\nreflector = \"n1\"\ntarget = \"{url}\"\ninterval = \"1ms\"\n"
        )
    };
    let reflect = format!("[reflect]\nurls = [\"{url}\"]\nlimit = \"off\"\n");
    let node = TestNode::new(&[reflect, entry("a"), entry("b")].concat());
    let mut before: BTreeMap<(Incarnation, u64), Vec<u8>> = BTreeMap::new();
    for round in 0..10 {
        let mut agent = node.start();
        let mut carrier = node.carrier();
        std::thread::sleep(Duration::from_millis(700 + 173 * (round % 5)));
        let mut seen = BTreeMap::new();
        for level in ["samples", "10s", "5m"] {
            for record in carrier.records(level) {
                let identity = record.identity.clone();
                let mut bytes = Vec::new();
                record.encode(&mut bytes).unwrap();
                let is_new =
                    seen.insert((identity.incarnation, identity.sequence), bytes).is_none();
                assert!(is_new, "{identity} is there twice");
            }
        }
        kill(&mut agent);
        for (identity, bytes) in &before {
            assert_eq!(seen.get(identity), Some(bytes), "{identity:?} of an earlier start");
        }
        before = seen;
    }
    let mut sequences: BTreeMap<Incarnation, RangeSet> = BTreeMap::new();
    for (incarnation, sequence) in before.keys() {
        sequences.entry(*incarnation).or_default().insert(*sequence);
    }
    assert!(sequences.values().all(|set| set.gaps().count() == 0), "{sequences:?}");
    assert!(sequences.len() > 10, "two incarnations per start: {}", sequences.len());
}

#[test]
fn spool_in_use_is_refused() {
    let node = TestNode::new("");
    let _agent = node.start();
    let output = node.output();
    assert_eq!(output.status.code(), Some(1));
    let said = crate::support::said(&output);
    assert!(said.contains("another agent uses spool"), "{said}");
}

#[test]
fn invalid_configuration_is_a_usage_error() {
    let node = TestNode::new("spool_sise = \"1GiB\"\n");
    let output = node.output();
    assert_eq!(output.status.code(), Some(2));
    let said = crate::support::said(&output);
    assert!(said.contains("agent.toml") && said.contains("spool_sise"), "{said}");
    std::fs::remove_file(node.config()).unwrap();
    assert_eq!(node.output().status.code(), Some(2));
}
