//! Enrolment, rotation and revocation of keys.

use std::sync::atomic::Ordering;

use dwell_rollup::Level;

use crate::bus::Bus;
use crate::fixture::{Sandbox, stderr, stdout};
use crate::network::{Node, agent_of, new_key, wait_until};

#[test]
fn revoked_key_is_cut_off() {
    let Some(bus) = Bus::new() else { return };
    let (seed, public) = new_key();
    assert!(Node::connect(&bus, "a", &seed, &bus.url()).is_err(), "not enrolled");
    bus.dwell(&["hub", "enroll", "a", &public]);
    bus.wait_until_accepted(&seed);
    let mut node = Node::connect(&bus, "a", &seed, &bus.url()).unwrap();
    let mut other = bus.connect("b", &bus.enroll("b"));
    let said = bus.dwell(&["hub", "revoke", "a"]);
    assert!(said.contains("revoked 1 keys of node a"), "{said}");
    node.wait_for_event(&bus, "disconnected");
    assert!(Node::connect(&bus, "a", &seed, &bus.url()).is_err());
    // The other connection is the same as before.
    other.wait_for_event(&bus, "connected");
    bus.runtime.block_on(other.client.flush()).unwrap();
    let statistics = other.client.statistics();
    assert_eq!(statistics.connects.load(Ordering::Relaxed), 1);
}

#[test]
fn revocation_fails_if_no_server_reads_the_keys() {
    let sandbox = Sandbox::new();
    let (_, public) = new_key();
    let enrolled = sandbox.dwell(&["hub", "enroll", "a", &public]);
    assert!(enrolled.status.success(), "{enrolled:?}");
    let revoked = sandbox.dwell(&["hub", "revoke", "a"]);
    assert_eq!(revoked.status.code(), Some(1), "{revoked:?}");
    let said = stderr(&revoked);
    assert!(said.contains("revoked 1 keys of node a"), "{said}");
    assert!(said.contains("accepts the revoked key until it reads the file"), "{said}");
    assert!(said.contains("names no running nats-server"), "{said}");
    assert!(!stdout(&sandbox.dwell(&["hub", "keys"])).contains(&public), "the key is removed");
}

#[test]
fn keys_overlap_during_a_rotation() {
    let Some(mut bus) = Bus::new() else { return };
    bus.start_hub();
    let ((old, old_public), (new, new_public)) = (new_key(), new_key());
    bus.dwell(&["hub", "enroll", "a", &old_public]);
    bus.wait_until_accepted(&old);
    bus.dwell(&["hub", "rotate", "a", &new_public]);
    bus.wait_until_accepted(&new);
    let listed = stdout(&bus.sandbox.dwell(&["hub", "keys"]));
    let is_old = |line: &str| line.contains(&old_public) && line.contains("until --finish");
    assert!(listed.lines().any(is_old) && listed.contains(&new_public), "{listed}");
    let mut agent = agent_of("a");
    let mut nodes = [&old, &new].map(|seed| Node::connect(&bus, "a", seed, &bus.url()).unwrap());
    for node in &nodes {
        node.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    }
    bus.wait_for_counts("a", &[("stored", 2)]);
    bus.dwell(&["hub", "rotate", "a", "--finish"]);
    nodes[0].wait_for_event(&bus, "disconnected");
    nodes[1].send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    bus.wait_for_counts("a", &[("stored", 3)]);
    wait_until("the old key to be refused", || Node::connect(&bus, "a", &old, &bus.url()).is_err());
}

#[test]
fn wrong_keys_and_changes_are_usage_errors() {
    let Some(bus) = Bus::new() else { return };
    let refused = |arguments: &[&str], text: &str| {
        let output = bus.sandbox.dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(text), "{arguments:?}: {}", stderr(&output));
    };
    let ((seed, public), (_, other)) = (new_key(), new_key());
    refused(&["hub", "enroll", "a", &seed], "this is a seed, which is secret");
    refused(&["hub", "enroll", "a", "UABC"], "not a public user key");
    refused(&["hub", "rotate", "a", &public], "not enrolled");
    bus.dwell(&["hub", "enroll", "a", &public]);
    refused(&["hub", "enroll", "a", &other], "replace its key with `dwell hub rotate`");
    refused(&["hub", "enroll", "b", &public], "belongs to node a");
    refused(&["hub", "revoke", "a", &other], "does not have key");
    let keys = bus.file("keys.conf");
    let edited = std::fs::read_to_string(&keys).unwrap().replace("dwell.up.a", "dwell.up.>");
    std::fs::write(&keys, &edited).unwrap();
    let output = bus.sandbox.dwell(&["hub", "enroll", "b", &other]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("is not as `dwell hub enroll` writes it"), "{output:?}");
    assert_eq!(std::fs::read_to_string(&keys).unwrap(), edited, "nothing is changed");
}
