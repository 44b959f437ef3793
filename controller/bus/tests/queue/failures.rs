//! A database that fails, and a stream that is deleted or has other settings.

use std::fs;
use std::path::{Path, PathBuf};

use dwell_rollup::{Level, Record, Subject};
use serde_json::json;

use crate::bus::Bus;
use crate::network::{Node, agent_of, wait_until};

fn records(count: i64) -> Vec<Record> {
    let mut agent = agent_of("a");
    (0..count).map(|n| agent.rollup(Level::FiveMinutes, &[n + 1])).collect()
}

#[test]
fn failed_database_makes_no_record_bad() {
    let Some(bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let node = bus.node("a");
    let mut pushed = node.subscribe(&bus, &Subject::Receipts.of(&node.name));
    let records = records(2);
    node.send(&bus, &records[..1]);
    pushed.wait_for_receipts(&bus, &node, "1");
    let db = rusqlite::Connection::open(bus.file("hub.sqlite")).unwrap();
    db.execute_batch("ALTER TABLE nodes RENAME TO hidden").unwrap();
    node.send(&bus, &records[1..]);
    hub.wait_for("nothing is stored, and nodes keep their records");
    db.execute_batch("ALTER TABLE hidden RENAME TO nodes").unwrap();
    pushed.wait_for_receipts(&bus, &node, "1-2");
    hub.wait_for("storing again");
    bus.wait_for_counts("a", [2, 0, 0]);
    hub.stop();
}

#[test]
fn deleted_stream_is_created_again_and_loses_no_receipt() {
    let Some(mut bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let seed = bus.enroll("a");
    let node = Node::connect(&bus, "a", &seed, &bus.url()).unwrap();
    node.send(&bus, &records(2)[..1]);
    bus.wait_for_counts("a", [1, 0, 0]);
    bus.kill_server();
    hub.wait_for("connection to nats-server lost");
    fs::remove_dir_all(bus.file("store")).unwrap();
    bus.start_server();
    hub.wait_for("connected to nats-server again");
    wait_until("a new stream", || {
        bus.jetstream("CONSUMER.INFO.DWELL.hub", &json!({}))["name"] == "hub"
    });
    let node = Node::connect(&bus, "a", &seed, &bus.url()).unwrap();
    assert_eq!(node.receipts(&bus), "1");
    node.send(&bus, &records(2));
    bus.wait_for_counts("a", [2, 1, 0]);
    hub.stop();
}

/// A server that was killed after it stored acknowledgements and before it removed their messages.
#[test]
fn acknowledged_messages_left_in_the_stream_are_removed() {
    let Some(mut bus) = Bus::new() else { return };
    bus.start_hub().stop();
    let seed = bus.enroll("a");
    let node = Node::connect(&bus, "a", &seed, &bus.url()).unwrap();
    node.send(&bus, &records(2));
    assert_eq!(bus.waiting(), 1);
    let messages = stream_directory(&bus.file("store")).join("msgs");
    bus.kill_server();
    let copied = bus.file("msgs");
    copy_files(&messages, &copied);
    bus.start_server();
    let hub = bus.start_hub();
    bus.wait_for_counts("a", [2, 0, 0]);
    wait_until("an empty stream", || bus.waiting() == 0);
    hub.stop();
    bus.kill_server();
    fs::remove_dir_all(&messages).unwrap();
    copy_files(&copied, &messages);
    bus.start_server();
    assert_eq!(bus.waiting(), 1, "the server has the message again");
    let hub = bus.start_hub();
    hub.wait_for("nats-server kept messages that were acknowledged");
    wait_until("an empty stream", || bus.waiting() == 0);
    bus.wait_for_counts("a", [2, 2, 0]);
    hub.stop();
}

/// Directory in which a server keeps the messages and the consumers of the stream.
fn stream_directory(store: &Path) -> PathBuf {
    let accounts = fs::read_dir(store.join("jetstream")).unwrap();
    let mut streams = accounts.map(|account| account.unwrap().path().join("streams/DWELL"));
    streams.find(|stream| stream.exists()).unwrap()
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn working_hub_waits_for_a_stream_that_becomes_unusable() {
    let Some(mut bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let seed = bus.enroll("a");
    let info = bus.jetstream("STREAM.INFO.DWELL", &json!({}));
    let mut config = info["config"].clone();
    config["max_age"] = json!(3_600_000_000_000_u64);
    let changed = bus.jetstream("STREAM.UPDATE.DWELL", &config);
    assert!(changed["error"].is_null(), "{changed}");
    bus.kill_server();
    bus.start_server();
    hub.wait_for("stream DWELL has other settings than a hub needs: maximum age 3600s");
    // The stream is lost, and its directory has no space for a new one.
    bus.kill_server();
    fs::remove_dir_all(bus.file("store")).unwrap();
    let config = fs::read_to_string(bus.file("nats.conf")).unwrap();
    let small = config.replace(&(64_u64 << 20).to_string(), &(1_u64 << 20).to_string());
    fs::write(bus.file("nats.conf"), small).unwrap();
    bus.start_server();
    hub.wait_for("cannot create stream DWELL of 33554432 bytes");
    bus.kill_server();
    fs::write(bus.file("nats.conf"), config).unwrap();
    bus.start_server();
    let node = Node::connect(&bus, "a", &seed, &bus.url()).unwrap();
    wait_until("a new stream", || {
        bus.jetstream("CONSUMER.INFO.DWELL.hub", &json!({}))["name"] == "hub"
    });
    node.send(&bus, &records(1));
    bus.wait_for_counts("a", [1, 0, 0]);
    hub.stop();
}

#[test]
fn stream_with_other_settings_is_refused() {
    let Some(bus) = Bus::new() else { return };
    let config = json!({
        "name": "DWELL", "subjects": ["dwell.up.*"], "retention": "limits", "storage": "file",
        "discard": "old", "num_replicas": 1,
    });
    let created = bus.jetstream("STREAM.CREATE.DWELL", &config);
    assert!(created["error"].is_null(), "{created}");
    let error = bus.start_hub().error();
    for part in [
        "retention Limits instead of WorkQueue",
        "discard Old instead of New",
        "nats stream rm DWELL",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
