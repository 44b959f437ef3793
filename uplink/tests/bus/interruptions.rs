//! Processes that are killed and streams that are lost.

use std::sync::Arc;
use std::time::Duration;

use dwell_rollup::{Level, STREAM};

use crate::hub::{Hub, create_stream};
use crate::server::server_or_skip;
use crate::spool::TestSpool;
use crate::uplink::{Uplink, wait_for};

#[tokio::test]
async fn deleted_stream_loses_no_record() {
    let server = server_or_skip!();
    let client = server.hub().await;
    let context = create_stream(&client, 64).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 1_000, 400);
    let uplink = Uplink::start(&server, spool.path());
    // 460 KB are four messages. All are acknowledged, and no hub has them.
    loop {
        let info = context.get_stream(STREAM).await.unwrap().info().await.unwrap().clone();
        if info.state.messages == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(spool.receipts().is_empty());
    context.delete_stream(STREAM).await.unwrap();
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    hub.await_all(&spool, &uplink).await;
}

#[tokio::test]
async fn killed_uplink_loses_and_frees_nothing() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let mut spool = TestSpool::new();
    for at in 1..=8_u64 {
        spool.append(Level::TenSeconds, at, 1_000, 400);
        spool.append(Level::FiveMinutes, 100 + at, 20, 4_000);
        let mut uplink = Uplink::start(&server, spool.path());
        tokio::time::sleep(Duration::from_millis(at * at * 7)).await;
        uplink.kill();
        let (receipts, committed) = (spool.receipts(), hub.records());
        for (incarnation, receipted) in receipts {
            let known = &committed[&incarnation];
            assert!(receipted.ranges().all(|range| known.contains_range(range)), "{incarnation}");
        }
    }
    let uplink = Uplink::start(&server, spool.path());
    hub.await_all(&spool, &uplink).await;
}

#[tokio::test]
async fn killed_server_and_hub_lose_no_record() {
    let mut server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 2_000, 400);
    let uplink = Uplink::start(&server, spool.path());
    wait_for(|| !hub.records().is_empty(), || uplink.log()).await;
    server.kill();
    let committed = Arc::clone(&hub.committed);
    drop(hub);
    spool.append(Level::TenSeconds, 1, 1_000, 400);
    server.run();
    let client = server.hub().await;
    let hub = Hub::start_with(&client, committed).await;
    hub.await_all(&spool, &uplink).await;
}
