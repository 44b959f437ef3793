//! Several hubs share one stream.

use std::time::{Duration, Instant};

use dwell_rollup::Level;

use crate::agent::message;
use crate::bus::Bus;
use crate::network::{agent_of, wait_until};

#[test]
fn two_hubs_store_each_message_once() {
    const MESSAGES: u64 = 600;
    let Some(bus) = Bus::new() else { return };
    let (first, second) = (bus.start_hub(), bus.start_hub());
    let node = bus.node("site-7.gw");
    let mut agent = agent_of("site-7.gw");
    let mut send = |count: u64| {
        for _ in 0..count {
            let message = message(&[agent.rollup(Level::TenSeconds, &[1])]);
            // While its messages wait for a hub, a node is refused.
            wait_until("space for a message", || {
                node.publish(&bus, message.clone())["error"].is_null()
            });
        }
    };
    send(MESSAGES / 2);
    first.stop();
    send(MESSAGES / 2);
    bus.wait_for_counts("site-7.gw", [MESSAGES, 0, 0]);
    assert_eq!(node.receipts(&bus), format!("1-{MESSAGES}"));
    second.stop();
    assert_eq!(bus.waiting(), 0, "every message is acknowledged");
}

#[test]
fn waiting_messages_beyond_one_request_arrive_at_once() {
    let Some(bus) = Bus::new() else { return };
    bus.start_hub().stop();
    let node = bus.node("a");
    // Noise of 15 MB: a request is for 8 MiB.
    for _ in 0..30 {
        assert!(node.publish(&bus, vec![b'x'; 500_000])["error"].is_null());
    }
    let (hub, started) = (bus.start_hub(), Instant::now());
    wait_until("an empty stream", || bus.waiting() == 0);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    bus.wait_for_counts("a", [0, 0, 30]);
    hub.stop();
}
