//! Headers, which nodes choose, have no effect on hubs.

use std::time::{Duration, Instant};

use dwell_rollup::{Level, Subject, inbox_prefix};

use crate::agent::message;
use crate::bus::Bus;
use crate::network::{Node, agent_of, wait_until};
use crate::raw_client::RawClient;

/// Headers for which async-nats drops its connection.
const MALFORMED: [&[u8]; 5] = [
    b"NATS/1.0\r\nname: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0 status\r\n\r\n",
    b"NATS/1.0\r\n: no name\r\n\r\n",
    b"other\r\n\r\n",
];

/// Status lines that JetStream sends to a client.
const STATUS: [&[u8]; 5] = [
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 409 Consumer Deleted\r\n\r\n",
    b"NATS/1.0 408 Request Timeout\r\n\r\n",
    b"NATS/1.0 404 No Messages\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
];

#[test]
fn malformed_headers_break_no_connection() {
    let Some(bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let (seed, node) = (bus.enroll("hostile"), bus.node("a"));
    let mut hostile = RawClient::connect(&bus, &seed);
    let name = "hostile".parse().unwrap();
    let (up, ask) = (Subject::Up.of(&name), Subject::Ask.of(&name));
    let mut agent = agent_of("hostile");
    for headers in MALFORMED {
        let record = message(&[agent.rollup(Level::FiveMinutes, &[1])]);
        hostile.publish(&up, b"_INBOX.hostile.1", headers, &record);
        let question = br#"{"node":"hostile","incarnations":[],"schedule_version":null}"#;
        hostile.publish(&ask, b"_INBOX.hostile.1", headers, question);
        // A subject that is not UTF-8.
        hostile.publish(&ask, b"_INBOX.hostile.\xff", headers, question);
    }
    bus.wait_for_counts("hostile", [MALFORMED.len() as u64, 0, 0]);
    wait_until("an empty stream", || bus.waiting() == 0);
    let mut agent = agent_of("a");
    node.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    bus.wait_for_counts("a", [1, 0, 0]);
    assert_eq!(node.receipts(&bus), "1");
    assert!(!hub.has_reported("lost"));
    hub.stop();
}

#[test]
fn question_with_malformed_headers_is_answered() {
    let Some(bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let seed = bus.enroll("a");
    let node = Node::connect(&bus, "a", &seed, &bus.url()).unwrap();
    let prefix = inbox_prefix(&node.name);
    let mut inbox = node.subscribe(&bus, &format!("{prefix}.>"));
    let question = br#"{"node":"a","incarnations":[],"schedule_version":null}"#;
    let mut raw = RawClient::connect(&bus, &seed);
    for (number, headers) in MALFORMED.into_iter().enumerate() {
        let reply = format!("{prefix}.{number}");
        raw.publish(&Subject::Ask.of(&node.name), reply.as_bytes(), headers, question);
        assert_eq!(inbox.next(&bus).subject.as_str(), reply);
    }
    hub.stop();
}

#[test]
fn status_line_of_a_node_is_no_status_of_the_server() {
    let Some(bus) = Bus::new() else { return };
    bus.start_hub().stop();
    let (seed, node) = (bus.enroll("hostile"), bus.node("a"));
    let mut hostile = RawClient::connect(&bus, &seed);
    let name = "hostile".parse().unwrap();
    for headers in STATUS {
        // JetStream's own have no payload.
        hostile.publish(&Subject::Up.of(&name), b"_INBOX.hostile.1", headers, b"");
    }
    let mut agent = agent_of("hostile");
    for headers in STATUS {
        let record = message(&[agent.rollup(Level::FiveMinutes, &[1])]);
        hostile.publish(&Subject::Up.of(&name), b"_INBOX.hostile.1", headers, &record);
    }
    let mut agent = agent_of("a");
    node.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    let hub = bus.start_hub();
    let started = Instant::now();
    bus.wait_for_counts("a", [1, 0, 0]);
    bus.wait_for_counts("hostile", [STATUS.len() as u64, 0, 0]);
    wait_until("an empty stream", || bus.waiting() == 0);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    hub.stop();
}
