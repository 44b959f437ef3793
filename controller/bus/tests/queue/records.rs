//! The way of records and receipts.

use dwell_rollup::{Level, Record, Subject};

use crate::agent::message;
use crate::bus::Bus;
use crate::network::agent_of;

#[test]
fn records_are_stored_and_receipted() {
    let Some(bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    // The name has two tokens of a subject.
    let node = bus.node("site-7.gw");
    let mut pushed = node.subscribe(&bus, &Subject::Receipts.of(&node.name));
    let mut agent = agent_of("site-7.gw");
    let records: Vec<Record> = (0..6).map(|n| agent.rollup(Level::FiveMinutes, &[n + 1])).collect();
    assert_eq!(node.receipts(&bus), "");
    node.send(&bus, &records[..2]);
    pushed.wait_for_receipts(&bus, &node, "1-2");
    // Only the range of the new records is sent.
    node.send(&bus, &records[3..]);
    pushed.wait_for_receipts(&bus, &node, "4-6");
    // A message that comes again changes nothing.
    node.send(&bus, &records[..1]);
    pushed.wait_for_receipts(&bus, &node, "1-2");
    bus.wait_for_counts("site-7.gw", [5, 1, 0]);
    assert_eq!(node.receipts(&bus), "1-2,4-6");
    assert_eq!(node.ask(&bus, &[9], None).receipts.len(), 0);
    hub.stop();
}

#[test]
fn corrupt_record_among_a_thousand_is_kept_raw() {
    let Some(bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let node = bus.node("a");
    let mut pushed = node.subscribe(&bus, &Subject::Receipts.of(&node.name));
    let mut agent = agent_of("a");
    let records: Vec<Record> =
        (0..1_000).map(|n| agent.rollup(Level::TenSeconds, &[n % 90 + 1])).collect();
    let (start, len) = (message(&records[..500]).len(), message(&records[500..501]).len());
    let mut bytes = message(&records);
    bytes[start + len - 3] ^= 0x40;
    assert_eq!(node.publish(&bus, bytes)["stream"], "DWELL");
    pushed.wait_for_receipts(&bus, &node, "1-500,502-1000");
    bus.wait_for_counts("a", [999, 0, 1]);
    hub.wait_for("a: 1 bad records: not a whole record");
    // The node sends the intact one.
    node.send(&bus, &records[500..501]);
    pushed.wait_for_receipts(&bus, &node, "1-1000");
    hub.stop();
}
