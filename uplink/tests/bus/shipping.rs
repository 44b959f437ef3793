//! What is sent, in which order, and what happens with the receipts.

use dwell_rollup::{Incarnation, Level};

use crate::hub::{Hub, create_stream};
use crate::server::server_or_skip;
use crate::spool::TestSpool;
use crate::uplink::{Uplink, configure, wait_for};

/// 15 MB of records.
const DRAINED_RECORDS: u64 = 32_000;

/// Budget of an uplink in kB, without the pages of its program.
const MAX_ANONYMOUS: u64 = 4_000;

#[tokio::test]
async fn all_records_arrive_and_get_receipts() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 2_000, 400);
    spool.append(Level::FiveMinutes, 2, 10, 200_000);
    configure(&server, spool.path(), "n1", "");
    let uplink = Uplink::run(spool.path());
    hub.await_all(&spool, &uplink).await;
    {
        let committed = hub.committed.lock().unwrap();
        let first: Vec<_> = committed.arrivals[..10].iter().map(|(of, _)| of.0).collect();
        assert_eq!(first, [2; 10], "5 min records go first");
        assert_eq!(committed.arrivals.len(), 2_010, "each record is sent once");
        assert!(committed.longest < 256 << 10, "{}", committed.longest);
        assert_eq!(committed.questions[0].incarnations, [Incarnation(1), Incarnation(2)]);
        assert_eq!(committed.questions[0].schedule_version, None);
    }
    // Records that the agent writes later.
    spool.append(Level::TenSeconds, 3, 3, 400);
    hub.await_all(&spool, &uplink).await;
    assert_eq!(uplink.terminate().await, Some(0));
}

#[tokio::test]
async fn draining_needs_little_memory() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, DRAINED_RECORDS, 400);
    let uplink = Uplink::start(&server, spool.path());
    let mut peak = (0, 0);
    let is_done = || {
        let (anonymous, all) = uplink.memory();
        peak = (peak.0.max(anonymous), peak.1.max(all));
        hub.records() == spool.records()
    };
    wait_for(is_done, || uplink.log()).await;
    hub.await_all(&spool, &uplink).await;
    println!("anonymous and resident memory in kB: peak {peak:?}, now {:?}", uplink.memory());
    assert!(peak.0 < MAX_ANONYMOUS, "{peak:?}");
}

#[tokio::test]
async fn records_with_receipts_of_the_hub_are_not_sent() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 100, 400);
    hub.committed.lock().unwrap().records.insert(Incarnation(1), "1-40,60".parse().unwrap());
    let uplink = Uplink::start(&server, spool.path());
    hub.await_all(&spool, &uplink).await;
    let sent: Vec<_> = hub.committed.lock().unwrap().arrivals.iter().map(|(_, n)| *n).collect();
    assert_eq!(sent, (41..=100).filter(|n| *n != 60).collect::<Vec<_>>());
}

#[tokio::test]
async fn records_of_a_real_agent_arrive() {
    let server = server_or_skip!();
    let Some(agent) = agent() else { return };
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let config = dir.path().join("agent.toml");
    std::fs::write(&config, format!("node = \"n1\"\nspool = \"{}\"\n", spool.display())).unwrap();
    let mut agent = std::process::Command::new(agent);
    let mut agent = agent.args(["agent", "--config"]).arg(&config).spawn().unwrap();
    let status = spool.join("status.json");
    wait_for(|| status.exists(), || "the agent writes no status".into()).await;
    let uplink = Uplink::start(&server, &spool);
    // The status of the start of the agent is a record of 5 min.
    let is_committed = || !hub.records().is_empty();
    wait_for(is_committed, || uplink.log()).await;
    // Its file is still open, so the agent keeps it; the receipt is there.
    let (incarnation, sequences) = hub.records().pop_first().unwrap();
    let receipts = spool.join("receipts").join(incarnation.to_string());
    let is_receipted = || {
        let text = std::fs::read_to_string(&receipts).unwrap_or_default();
        text.trim_end().parse() == Ok(sequences.clone())
    };
    wait_for(is_receipted, || uplink.log()).await;
    let _ = agent.kill();
    let _ = agent.wait();
}

/// The program of the agent, built beside this one.
fn agent() -> Option<std::path::PathBuf> {
    let agent = std::path::Path::new(crate::uplink::UPLINK).with_file_name("dwell-node");
    if !agent.exists() {
        println!(
            "SKIP shipping::records_of_a_real_agent_arrive: needs dwell-node beside dwell-uplink"
        );
        return None;
    }
    Some(agent)
}
