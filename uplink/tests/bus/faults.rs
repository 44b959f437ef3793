//! Faults that a person has to correct, and servers that take no more.

use std::fs;
use std::process::Command;
use std::time::Duration;

use dwell_rollup::Level;

use crate::hub::{Hub, create_stream};
use crate::server::server_or_skip;
use crate::spool::TestSpool;
use crate::uplink::{UPLINK, Uplink, configure};

#[tokio::test]
async fn full_stream_delays_records_only() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 2).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 2_000, 400);
    let uplink = Uplink::start(&server, spool.path());
    uplink.await_log(&["stores no more records", "maximum messages per subject exceeded"]).await;
    let hub = Hub::start(&client).await;
    hub.await_all(&spool, &uplink).await;
    let log = uplink.log();
    assert_eq!(log.matches("stores no more records").count(), 1, "{log}");
}

#[tokio::test]
async fn missing_stream_and_hub_are_reported() {
    let server = server_or_skip!();
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 10, 400);
    let uplink = Uplink::start(&server, spool.path());
    uplink.await_log(&["no hub states its receipts"]).await;
    uplink.await_log(&["the server has no stream for records"]).await;
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    hub.await_all(&spool, &uplink).await;
}

#[tokio::test]
async fn key_of_another_node_is_reported() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 10, 400);
    spool.write_status("n2");
    configure(&server, spool.path(), "n2", "");
    let uplink = Uplink::run(spool.path());
    let up = "\"dwell.up.n2\"";
    uplink.await_log(&["Permissions Violation for Publish to", up, "enroll it"]).await;
    uplink.await_log(&["Permissions Violation for Subscription to"]).await;
    assert!(hub.records().is_empty(), "{:?}", hub.records());
}

#[tokio::test]
async fn unknown_key_is_reported_with_the_remedy() {
    let server = server_or_skip!();
    let spool = TestSpool::new();
    configure(&server, spool.path(), "n1", "");
    let key = spool.path().join("other.nk");
    let output = Command::new(UPLINK).args(["key", "--out"]).arg(&key).output().unwrap();
    let public = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let config = spool.path().join("uplink.toml");
    let text = fs::read_to_string(&config).unwrap();
    let own = server.node_key().display().to_string();
    fs::write(&config, text.replace(&own, &key.display().to_string())).unwrap();
    let uplink = Uplink::run(spool.path());
    uplink.await_log(&["authorization violation", &format!("dwell hub enroll n1 {public}")]).await;
}

#[tokio::test]
async fn wrong_certificates_are_reported_with_the_remedy() {
    let mut server = server_or_skip!();
    let spool = TestSpool::new();
    server.expire_certificate();
    let uplink = Uplink::start(&server, spool.path());
    uplink.await_log(&["invalid peer certificate: Expired", "renew the certificate"]).await;
    server.change_authority();
    uplink.await_log(&["certificate", "UnknownIssuer", "ca.pem lacks the authority"]).await;
}

#[tokio::test]
async fn unreachable_server_is_reported_once_and_tried_again() {
    let mut server = server_or_skip!();
    server.kill();
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 10, 400);
    let uplink = Uplink::start(&server, spool.path());
    uplink.await_log(&["cannot connect to tls://127.0.0.1", "refused"]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.run();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    hub.await_all(&spool, &uplink).await;
    let log = uplink.log();
    assert_eq!(log.matches("cannot connect").count(), 1, "{log}");
}

#[tokio::test]
async fn spool_of_another_node_is_not_sent() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 10, 400);
    spool.write_status("n9");
    let uplink = Uplink::start(&server, spool.path());
    uplink.await_log(&["the agent of this spool is node n9"]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let committed = hub.committed.lock().unwrap();
    assert!(committed.records.is_empty() && committed.questions.is_empty(), "{committed:?}");
}

#[tokio::test]
async fn second_uplink_of_a_spool_waits() {
    let server = server_or_skip!();
    let spool = TestSpool::new();
    let mut first = Uplink::start(&server, spool.path());
    first.await_log(&["connected to"]).await;
    let second = Uplink::run(spool.path());
    second.await_log(&["in use by another uplink"]).await;
    first.kill();
    second.await_log(&["connected to"]).await;
}

#[tokio::test]
async fn missing_spool_is_reported() {
    let server = server_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    configure(&server, dir.path(), "n1", "");
    let config = dir.path().join("uplink.toml");
    let text = fs::read_to_string(&config).unwrap();
    let spool = format!("spool = \"{}", dir.path().display());
    fs::write(&config, text.replace(&spool, &format!("{spool}/missing"))).unwrap();
    let uplink = Uplink::run(dir.path());
    uplink.await_log(&["cannot use spool", "missing", "No such file"]).await;
    assert_eq!(uplink.terminate().await, Some(0));
}

#[test]
fn wrong_configuration_has_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("uplink.toml");
    for (text, reason) in [
        ("node = \"n1\"\nservers = [\"nats://h\"]\nca_file = \"c\"\nkey_file = \"k\"", "TLS"),
        ("node = \"n1\"\nservers = [\"tls://h\"]\nca_file = \"c\"\nkey_file = \"/missing\"", "key"),
        ("node = \"../n\"", "name"),
    ] {
        fs::write(&config, text).unwrap();
        let output = Command::new(UPLINK).args(["run", "--config"]).arg(&config).output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && talk.contains(reason), "{reason}: {talk}");
    }
}
