//! A leaf server at a site.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use async_nats::ConnectOptions;

use dwell_rollup::{Level, Subject};
use serde_json::json;

use crate::agent::message;
use crate::bus::Bus;
use crate::network::{Node, agent_of, free_port, new_key, start_server, wait_until};

/// A leaf server, killed at the end.
struct Leaf(Child);

impl Drop for Leaf {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As after the replacement of the hub's key.
#[test]
fn configuration_written_again_keeps_its_settings() {
    let listen_leaf = format!("127.0.0.1:{}", free_port());
    let options = ["--listen-leaf", &listen_leaf, "--nats-size", "64MiB"];
    let Some(bus) = Bus::with(&options) else { return };
    let config = bus.file("nats-server.conf");
    let before = std::fs::read_to_string(&config).unwrap();
    let (cert, key) = (bus.path("cert.pem"), bus.path("key.pem"));
    let again = ["hub", "nats-config", "--tls-cert", &cert, "--tls-key", &key];
    bus.dwell(&again);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before);
    bus.dwell(&[&again[..], &["--listen-leaf", "none"]].concat());
    let without = std::fs::read_to_string(&config).unwrap();
    assert!(!without.contains(&listen_leaf), "{without}");
    assert!(without.contains("max_file_store: 67108864"), "{without}");
}

#[test]
fn leaf_server_passes_on_only_nodes_of_its_site() {
    let (hub_leaf, site_port) = (free_port(), free_port());
    let listen_leaf = format!("127.0.0.1:{hub_leaf}");
    let Some(mut bus) = Bus::with(&["--listen-leaf", &listen_leaf]) else { return };
    bus.start_hub();
    let keys = ["a", "b", "c"].map(|name| {
        let (seed, public) = new_key();
        bus.dwell(&["hub", "enroll", name, &public]);
        seed
    });
    let (cert, key, ca) = (bus.path("cert.pem"), bus.path("key.pem"), bus.path("ca.pem"));
    let (listen, remote) =
        (format!("127.0.0.1:{site_port}"), format!("tls://localhost:{hub_leaf}"));
    let config = |nodes: &[&str]| {
        let fixed = ["hub", "nats-config", "--leaf", "roof", "--listen", &listen];
        let tls = ["--tls-cert", &cert, "--tls-key", &key, "--tls-ca", &ca, "--remote", &remote];
        bus.dwell(&[&fixed[..], &tls, nodes].concat());
    };
    config(&["--nodes", "a,b"]);
    // Without --nodes, they are the same.
    config(&[]);
    let _leaf = Leaf(start_server(&bus.file("leaf-roof/nats-server.conf"), site_port));
    let site = format!("tls://localhost:{site_port}");
    let node = Node::connect(&bus, "a", &keys[0], &site).unwrap();
    assert!(Node::connect(&bus, "c", &keys[2], &site).is_err(), "a node of another site");
    let mut agent = agent_of("a");
    let record = agent.rollup(Level::FiveMinutes, &[1]);
    // The leaf server connects to the hub's server within moments.
    wait_until("the way to the stream", || {
        let request = node.client.request(Subject::Up.of(&node.name), message([&record]).into());
        let reply = bus
            .runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(1), request).await });
        reply.is_ok_and(|reply| reply.is_ok())
    });
    let mut pushed = node.subscribe(&bus, &Subject::Receipts.of(&node.name));
    node.send(&bus, &[agent.rollup(Level::FiveMinutes, &[1])]);
    pushed.wait_for_receipts(&bus, &node, "1-2");
    assert_eq!(node.receipts(&bus), "1-2");
    bus.wait_for_counts("a", &[("stored", 2)]);
    // A thief of the leaf server's password has no other subjects, and no rights on the stream.
    let password = std::fs::read_to_string(bus.file("leaf-roof/leaf.password")).unwrap();
    let identity =
        ConnectOptions::with_user_and_password("leaf-roof".into(), password.trim().to_owned());
    let mut thief = Node::connect_with(&bus, "c", identity, &bus.url()).unwrap();
    for subject in ["dwell.up.c", "$JS.API.STREAM.DELETE.DWELL"] {
        let client = thief.client.clone();
        bus.runtime.block_on(client.publish(subject, "".into())).unwrap();
        let violation =
            format!("permissions violation for publish to \"{}", subject.to_lowercase());
        thief.wait_for_event(&bus, &violation);
    }
    assert_eq!(bus.jetstream("STREAM.INFO.DWELL", &json!({}))["config"]["name"], "DWELL");
    // A revoked node is removed from its site, whose configuration is written again as it was.
    let said = bus.dwell(&["hub", "revoke", "b"]);
    assert!(said.contains("the leaf server of roof accepts revoked keys of b until"), "{said}");
    let (leaf_config, keys) = (bus.file("leaf-roof/nats-server.conf"), bus.file("keys.conf"));
    let has_b = |path: &Path| std::fs::read_to_string(path).unwrap().contains("dwell.up.b");
    assert!(has_b(&leaf_config) && !has_b(&keys));
    config(&[]);
    assert!(!has_b(&leaf_config) && !has_b(&keys));
    // A revoked leaf server is cut off when the hub's server starts again.
    bus.dwell(&["hub", "revoke", "leaf:roof"]);
    bus.kill_server();
    bus.start_server();
    bus.wait_for_hub("connected to nats-server again");
    let request = node.client.request(Subject::Up.of(&node.name), message([&record]).into());
    let reply =
        bus.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(2), request).await });
    assert!(!reply.is_ok_and(|reply| reply.is_ok()), "the site is cut off");
}
