//! A hub in the test's process: commits records in memory, sends receipts and answers questions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Subscriber};
use dwell_rollup::{
    Answer, CONSUMER, Identity, Incarnation, MAX_MESSAGE_LEN, Name, Piece, Question, RangeSet,
    STREAM, Subject, pieces,
};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;

use crate::spool::TestSpool;
use crate::uplink::{Uplink, wait_for};

/// What the hub has committed.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    pub(crate) records: BTreeMap<Incarnation, RangeSet>,
    /// Level and sequence numbers in the order of arrival.
    pub(crate) arrivals: Vec<(Incarnation, u64)>,
    /// Schedule of the answers.
    pub(crate) schedule: Option<String>,
    pub(crate) questions: Vec<Question>,
    /// Length of the longest message.
    pub(crate) longest: usize,
}

/// A hub, which ends with its test.
pub(crate) struct Hub {
    pub(crate) committed: Arc<Mutex<Committed>>,
    tasks: [JoinHandle<()>; 2],
}

/// Creates the stream. It holds at most a number of messages of a node.
pub(crate) async fn create_stream(client: &Client, max_messages: i64) -> Context {
    let context = jetstream::new(client.clone());
    let config = Config {
        name: STREAM.into(),
        subjects: vec![Subject::Up.of_all()],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: max_messages,
        ..Config::default()
    };
    context.create_stream(config).await.unwrap();
    context
}

impl Hub {
    /// Starts a hub that uses the stream, and answers questions.
    pub(crate) async fn start(client: &Client) -> Self {
        Self::start_with(client, Arc::default()).await
    }

    /// Starts a hub with what another one has committed.
    pub(crate) async fn start_with(client: &Client, committed: Arc<Mutex<Committed>>) -> Self {
        let questions = client.subscribe(Subject::Ask.of_all()).await.unwrap();
        client.flush().await.unwrap();
        let tasks = [
            tokio::spawn(commit(client.clone(), Arc::clone(&committed))),
            tokio::spawn(answer(client.clone(), questions, Arc::clone(&committed))),
        ];
        Self { committed, tasks }
    }

    pub(crate) fn records(&self) -> BTreeMap<Incarnation, RangeSet> {
        self.committed.lock().unwrap().records.clone()
    }

    /// Waits until all records of a spool are committed and have receipts.
    pub(crate) async fn await_all(&self, spool: &TestSpool, uplink: &Uplink) {
        let all = spool.records();
        let is_done = || self.records() == all && spool.receipts() == all;
        let state = || {
            let (records, receipts) = (self.records(), spool.receipts());
            format!("of {all:?}\ncommitted {records:?}\nreceipts {receipts:?}\n{}", uplink.log())
        };
        wait_for(is_done, state).await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The consumer, created again whenever the stream was.
async fn consumer(context: &Context) -> PullConsumer {
    loop {
        let config = pull::Config { durable_name: Some(CONSUMER.into()), ..Default::default() };
        if let Ok(stream) = context.get_stream(STREAM).await
            && let Ok(consumer) = stream.get_or_create_consumer(CONSUMER, config).await
        {
            return consumer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn commit(client: Client, committed: Arc<Mutex<Committed>>) {
    let context = jetstream::new(client.clone());
    loop {
        let consumer = consumer(&context).await;
        let batch = consumer.batch().max_messages(20).expires(Duration::from_millis(200));
        let Ok(mut messages) = batch.messages().await else { continue };
        while let Some(Ok(message)) = messages.next().await {
            let (kind, node) = Subject::parse(&message.subject).unwrap();
            assert_eq!(kind, Subject::Up);
            assert!(message.payload.len() <= MAX_MESSAGE_LEN);
            let receipts = store(&mut committed.lock().unwrap(), &node, &message.payload);
            let subject = Subject::Receipts.of(&node);
            let answer = Answer { node, receipts, schedule: None };
            client.publish(subject, answer.to_json().unwrap().into()).await.unwrap();
            let _ = message.ack().await;
        }
    }
}

/// Commits a message. Returns the receipts of its incarnations.
fn store(
    committed: &mut Committed,
    node: &Name,
    message: &[u8],
) -> BTreeMap<Incarnation, RangeSet> {
    let mut touched = BTreeMap::new();
    committed.longest = committed.longest.max(message.len());
    for piece in pieces(message) {
        let Piece::Record(record) = piece else { panic!("damaged bytes in a message") };
        let identity = Identity::of(record).unwrap();
        assert_eq!(identity.node, *node);
        committed.records.entry(identity.incarnation).or_default().insert(identity.sequence);
        committed.arrivals.push((identity.incarnation, identity.sequence));
        touched.insert(identity.incarnation, RangeSet::new());
    }
    for (incarnation, receipts) in &mut touched {
        receipts.clone_from(&committed.records[incarnation]);
    }
    touched
}

async fn answer(client: Client, mut questions: Subscriber, committed: Arc<Mutex<Committed>>) {
    while let Some(message) = questions.next().await {
        let (_, node) = Subject::parse(&message.subject).unwrap();
        let question = Question::from_json(&message.payload, &node).unwrap();
        let answer = {
            let mut committed = committed.lock().unwrap();
            let receipts = question.incarnations.iter().filter_map(|incarnation| {
                Some((*incarnation, committed.records.get(incarnation)?.clone()))
            });
            let receipts = receipts.collect();
            let schedule = committed.schedule.clone();
            committed.questions.push(question);
            Answer { node, receipts, schedule }
        };
        let reply = message.reply.unwrap();
        assert!(reply.starts_with("_INBOX.n1."), "{reply}");
        client.publish(reply, answer.to_json().unwrap().into()).await.unwrap();
    }
}
