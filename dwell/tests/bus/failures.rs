//! Kills, and a bus that cannot be used.

use dwell_io::process::Signal;
use dwell_rollup::{Level, Record};
use rusqlite::Connection;
use serde_json::json;

use crate::bus::{Bus, signal};
use crate::fixture::stderr;
use crate::network::{agent_of, new_key, wait_until};

fn records(count: i64) -> Vec<Record> {
    let mut agent = agent_of("a");
    (0..count).map(|n| agent.rollup(Level::FiveMinutes, &[n + 1])).collect()
}

#[test]
fn hub_killed_before_it_acknowledges_doubles_nothing() {
    let Some(mut bus) = Bus::new() else { return };
    bus.start_hub();
    bus.shorten_ack_wait();
    let seed = bus.enroll("a");
    let node = bus.connect("a", &seed);
    node.send(&bus, &records(3)[..1]);
    bus.wait_for_counts("a", &[("stored", 1)]);
    // The hub has the message, but cannot commit it yet.
    let db = Connection::open(bus.sandbox.data().join("hub.sqlite")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    node.send(&bus, &records(3)[1..]);
    wait_until("the hub to hold the message", || {
        bus.jetstream("CONSUMER.INFO.DWELL.hub", &json!({}))["num_ack_pending"] == 1
    });
    // The server cannot read the acknowledgement.
    signal(bus.server(), Signal::Stop);
    db.execute_batch("COMMIT").unwrap();
    bus.wait_for_counts("a", &[("stored", 3), ("duplicates", 0)]);
    bus.kill_hub();
    bus.kill_server();
    bus.start_server();
    assert_eq!(bus.waiting(), 1, "the stream still has the message");
    bus.start_hub();
    bus.wait_for_counts("a", &[("stored", 3), ("duplicates", 2), ("missing", 0)]);
    wait_until("its acknowledgement", || bus.waiting() == 0);
    assert_eq!(bus.connect("a", &seed).receipts(&bus), "1-3");
}

#[test]
fn unusable_bus_is_an_error_with_a_remedy() {
    let Some(bus) = Bus::new() else { return };
    let url = bus.url();
    let refused = |arguments: &[&str], text: &str| {
        let output = bus.sandbox.dwell(&[&["hub", "--nats"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains(text), "{text}: {}", stderr(&output));
    };
    let (ca, missing) = (bus.path("ca.pem"), bus.path("missing"));
    refused(&[&url], "no TLS with nats-server at");
    refused(&[&url, "--nats-ca", &missing], "cannot read");
    refused(&[&url, "--nats-ca", &ca, "--nats-key", &ca], "no seed of a user key");
    refused(&["http://localhost", "--nats-ca", &ca], "is no address of nats-server");
    let (seed, public) = new_key();
    let key = bus.sandbox.write("other.nk", &seed);
    refused(&[&url, "--nats-ca", &ca, "--nats-key", &key], &format!("refuses key {public}"));
    // The key of a node may not read the stream.
    bus.dwell(&["hub", "enroll", "a", &public]);
    bus.wait_until_accepted(&seed);
    let mut hub = bus.hub_command(&["--nats-key", &key]);
    let mut hub = bus.sandbox.start(&mut hub);
    bus.wait_for_hub("Permissions Violation for Publish to \"$JS.API.STREAM.INFO.DWELL\"");
    bus.wait_for_hub("give the hub's account JetStream and all permissions");
    signal(hub.id(), Signal::Interrupt);
    assert!(hub.wait().unwrap().success());
}

#[test]
fn hub_waits_for_a_server_that_is_not_there() {
    let Some(mut bus) = Bus::new() else { return };
    bus.kill_server();
    let mut command = bus.hub_command(&[]);
    let mut hub = bus.sandbox.start(&mut command);
    bus.wait_for_hub("is unreachable: ");
    bus.start_server();
    bus.wait_for_hub("receiving from tls://localhost");
    signal(hub.id(), Signal::Interrupt);
    assert!(hub.wait().unwrap().success());
}
