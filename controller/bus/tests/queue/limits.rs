//! Permissions and limits: a node reaches its own subjects only, and a flood or a full stream blocks no
//! other node.

use std::time::{Duration, Instant};

use dwell_rollup::{Level, Subject, inbox_prefix};

use crate::agent::message;
use crate::bus::Bus;
use crate::network::{agent_of, wait_until};

#[test]
fn forged_node_name_is_refused_by_permissions() {
    let Some(bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let (mut thief, victim) = (bus.node("thief"), bus.node("victim"));
    let mut agent = agent_of("victim");
    for subject in ["dwell.up.victim", "$JS.API.STREAM.DELETE.DWELL", "$JS.API.STREAM.INFO.DWELL"] {
        thief.post(&bus, subject, None, "");
        let violation = format!("permissions violation for publish to \"{subject}\"");
        thief.wait_for_event(&bus, &violation);
    }
    for subject in ["dwell.down.victim.>", "_INBOX.victim.>", "_INBOX_HUB.>", "dwell.up.*"] {
        let _refused = thief.subscribe(&bus, subject);
        let violation = format!("permissions violation for subscription to \"{subject}\"");
        thief.wait_for_event(&bus, &violation);
    }
    // Its own message with a record of another node is bad.
    let forged = message(&[agent.rollup(Level::FiveMinutes, &[1])]);
    assert_eq!(thief.publish(&bus, forged)["stream"], "DWELL");
    bus.wait_for_counts("thief", [0, 0, 1]);
    assert_eq!(victim.receipts(&bus), "");
    hub.stop();
}

#[test]
fn acknowledgements_cannot_be_sent_to_other_subjects() {
    let Some(bus) = Bus::new() else { return };
    bus.start_hub().stop();
    let (thief, victim) = (bus.node("thief"), bus.node("victim"));
    let mut agent = agent_of("victim");
    victim.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    // The server sends its acknowledgement to any subject: it must remove nothing.
    let up = Subject::Up.of(&thief.name);
    for api in ["STREAM.PURGE.DWELL", "STREAM.DELETE.DWELL", "STREAM.MSG.DELETE.DWELL"] {
        thief.post(&bus, &up, Some(&format!("$JS.API.{api}")), "x");
    }
    wait_until("all messages in the stream", || bus.waiting() == 4);
    let mut down = victim.subscribe(&bus, "dwell.down.victim.>");
    let hub = bus.start_hub();
    bus.wait_for_counts("victim", [1, 0, 0]);
    down.wait_for_receipts(&bus, &victim, "1");
    // The hub answers to the node that asks, and to no other subject.
    let mut inbox = victim.subscribe(&bus, &format!("{}.>", inbox_prefix(&victim.name)));
    let question = r#"{"node":"thief","incarnations":[],"schedule_version":null}"#;
    for reply in ["dwell.down.victim.receipts", "_INBOX.victim.x", "_INBOX.thiefx"] {
        thief.post(&bus, &Subject::Ask.of(&thief.name), Some(reply), question);
    }
    assert_eq!(thief.ask(&bus, &[], None).schedule, None, "its own question is answered");
    assert!(down.is_silent(&bus) && inbox.is_silent(&bus));
    hub.stop();
}

#[test]
fn acknowledgements_on_the_subject_of_another_node_are_removed() {
    let Some(bus) = Bus::new() else { return };
    bus.start_hub().stop();
    let (thief, victim) = (bus.node("thief"), bus.node("victim"));
    let (from, to) = (Subject::Up.of(&thief.name), Subject::Up.of(&victim.name));
    // Beyond 64 messages, the server answers that it refuses.
    for _ in 0..70 {
        thief.post(&bus, &from, Some(&to), "");
    }
    wait_until("all places of the victim", || bus.waiting() == 128);
    let hub = bus.start_hub();
    wait_until("an empty stream", || bus.waiting() == 0);
    let mut agent = agent_of("victim");
    victim.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    bus.wait_for_counts("victim", [1, 0, 0]);
    hub.wait_for("victim: 1 acknowledgements of nats-server for messages of another node");
    hub.stop();
}

#[test]
fn flood_blocks_only_its_sender() {
    let Some(bus) = Bus::new() else { return };
    bus.start_hub().stop();
    let (flooding, other) = (bus.node("flooding"), bus.node("other"));
    let mut agent = agent_of("flooding");
    let mut refused = 0;
    for _ in 0..80 {
        let reply = flooding.publish(&bus, message(&[agent.rollup(Level::TenSeconds, &[1])]));
        if let Some(error) = reply["error"]["description"].as_str() {
            assert!(error.contains("per subject"), "{reply}");
            refused += 1;
        }
    }
    assert_eq!(refused, 80 - 64);
    let mut agent = agent_of("other");
    other.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    let hub = bus.start_hub();
    bus.wait_for_counts("flooding", [64, 0, 0]);
    bus.wait_for_counts("other", [1, 0, 0]);
    hub.stop();
}

#[test]
fn full_stream_refuses_and_keeps_what_it_has() {
    let Some(bus) = Bus::new() else { return };
    // An existing stream gets the new size.
    bus.start_hub().stop();
    bus.start_hub_with(Some(1 << 20)).stop();
    let node = bus.node("a");
    let mut agent = agent_of("a");
    node.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    // Noise of 400 KB, of which two messages fit.
    let replies: Vec<_> = (0..3).map(|n| node.publish(&bus, vec![b'x' + n; 400_000])).collect();
    let refused = replies[2]["error"]["description"].as_str().unwrap_or_default();
    assert!(refused.contains("maximum bytes exceeded"), "{replies:?}");
    assert_eq!(bus.waiting(), 3);
    let hub = bus.start_hub_with(Some(1 << 20));
    bus.wait_for_counts("a", [1, 0, 2]);
    wait_until("space in the stream", || bus.waiting() == 0);
    node.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    bus.wait_for_counts("a", [2, 0, 2]);
    hub.stop();
}

#[test]
fn questions_of_a_flood_do_not_delay_other_nodes() {
    let Some(bus) = Bus::new() else { return };
    let hub = bus.start_hub();
    let (flooding, other) = (bus.node("flooding"), bus.node("other"));
    bus.runtime.block_on(async {
        let question = r#"{"node":"flooding","incarnations":[],"schedule_version":null}"#;
        let subject = Subject::Ask.of(&flooding.name);
        let reply = format!("{}.x", inbox_prefix(&flooding.name));
        for _ in 0..20_000 {
            let (subject, reply) = (subject.clone(), reply.clone());
            flooding.client.publish_with_reply(subject, reply, question.into()).await.unwrap();
        }
        flooding.client.flush().await.unwrap();
    });
    let asked = Instant::now();
    assert_eq!(other.receipts(&bus), "");
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    hub.stop();
}
