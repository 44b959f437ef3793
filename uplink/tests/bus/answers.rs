//! Schedules, and answers that are not what a hub sends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_nats::Client;
use dwell_rollup::{Answer, Incarnation, Level, Name, Question, Subject};
use tokio_stream::StreamExt as _;

use crate::hub::{Hub, create_stream};
use crate::server::server_or_skip;
use crate::spool::TestSpool;
use crate::uplink::{Uplink, wait_for};

/// Maximum time until a node has a new schedule.
const SCHEDULE_TIMEOUT: Duration = Duration::from_secs(5);

fn schedule(version: u64, node: &str) -> String {
    format!(
        "{{\"version\":{version},\"node\":\"{node}\",\"entries\":[{{\"name\":\"a\",\
         \"reflector\":\"n2\",\"target\":\"stamp://192.0.2.1\",\"interval\":\"1s\"}}]}}"
    )
}

async fn publish(client: &Client, subject: &str, payload: impl Into<Vec<u8>>) {
    client.publish(subject.to_owned(), payload.into().into()).await.unwrap();
    client.flush().await.unwrap();
}

#[tokio::test]
async fn schedule_arrives_by_answer_and_by_message() {
    let server = server_or_skip!();
    let client = server.hub().await;
    create_stream(&client, 64).await;
    let hub = Hub::start(&client).await;
    hub.committed.lock().unwrap().schedule = Some(schedule(1, "n1"));
    let spool = TestSpool::new();
    let uplink = Uplink::start(&server, spool.path());
    wait_for(|| spool.schedule() == Some(schedule(1, "n1")), || uplink.log()).await;

    let start = Instant::now();
    let node: Name = "n1".parse().unwrap();
    publish(&client, &Subject::Schedule.of(&node), schedule(2, "n1")).await;
    wait_for(|| spool.schedule() == Some(schedule(2, "n1")), || uplink.log()).await;
    assert!(start.elapsed() < SCHEDULE_TIMEOUT, "{:?}", start.elapsed());
}

#[tokio::test]
async fn hostile_answers_change_nothing() {
    let server = server_or_skip!();
    let client = server.hub().await;
    let mut questions = client.subscribe(Subject::Ask.of_all()).await.unwrap();
    client.flush().await.unwrap();
    let mut spool = TestSpool::new();
    spool.append(Level::TenSeconds, 1, 10, 400);
    let uplink = Uplink::start(&server, spool.path());

    // The first question gets an answer about another node, in a message for this one.
    let question = questions.next().await.unwrap();
    let receipts: BTreeMap<_, _> = [(Incarnation(1), "1-10".parse().unwrap())].into();
    let about = "n2".parse().unwrap();
    let answer = Answer { node: about, receipts: receipts.clone(), schedule: None };
    publish(&client, &question.reply.unwrap(), answer.to_json().unwrap()).await;
    uplink.await_log(&["no hub states its receipts", "about node n2"]).await;

    let node: Name = "n1".parse().unwrap();
    let (to_receipts, to_schedule) = (Subject::Receipts.of(&node), Subject::Schedule.of(&node));
    let unknown: BTreeMap<_, _> =
        (2..100).map(|n| (Incarnation(n), "1-5".parse().unwrap())).collect();
    let unknown = Answer { node: node.clone(), receipts: unknown, schedule: None };
    let nested = format!("{{\"node\":\"n1\",\"receipts\":{}", "{\"a\":".repeat(100_000));
    let many = "1,3,5,7,9,".repeat(100_000);
    let many = format!("{{\"node\":\"n1\",\"receipts\":{{\"0000000000000001\":\"{many}\"}}}}");
    for (subject, payload) in [
        (&to_receipts, answer.to_json().unwrap()),
        (&to_receipts, unknown.to_json().unwrap()),
        (&to_receipts, nested),
        (&to_receipts, many),
        (&to_receipts, r#"{"node":"n1","receipts":{"../../passwd":"1"}}"#.into()),
        (&to_receipts, r#"{"node":"n1","receipts":{"0000000000000001":"10-1"}}"#.into()),
        (&to_receipts, "\u{0}".repeat(1_000_000)),
        (&to_receipts, String::new()),
        (&to_schedule, schedule(1, "n2")),
        (&to_schedule, schedule(1, "n1").replace("1s", "1ns")),
        (&to_schedule, schedule(1, "n1").replace("version", "versions")),
        (&to_schedule, "[".repeat(1_000_000)),
        (&to_schedule, "x".repeat(1_000_000)),
        (&"dwell.down.n1.other".to_owned(), "x".into()),
    ] {
        publish(&client, subject, payload).await;
    }
    // The uplink works on: a right answer to its next question is obeyed.
    create_stream(&client, 64).await;
    let message = questions.next().await.unwrap();
    let question = Question::from_json(&message.payload, &node).unwrap();
    assert_eq!(question.incarnations, [Incarnation(1)]);
    let receipts: BTreeMap<_, _> = [(Incarnation(1), "1-4".parse().unwrap())].into();
    let answer = Answer { node, receipts: receipts.clone(), schedule: None };
    publish(&client, &message.reply.unwrap(), answer.to_json().unwrap()).await;
    wait_for(|| spool.receipts() == receipts, || uplink.log()).await;
    // It arrives after all the others.
    publish(&client, &to_schedule, schedule(7, "n1")).await;
    wait_for(|| spool.schedule() == Some(schedule(7, "n1")), || uplink.log()).await;
    assert_eq!(spool.receipts(), receipts);
    let schedules = uplink.log().matches("schedule version").count();
    assert_eq!(schedules, 1, "{}", uplink.log());
    assert_eq!(uplink.terminate().await, Some(0));
}
