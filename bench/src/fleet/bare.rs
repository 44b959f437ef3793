//! The bare consumer: pulls the messages of the stream in batches, stores their records with multi-row
//! inserts on one plain connection, and acknowledges them. It verifies, dates and sums nothing.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_nats::Client;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, AckKind, Message};
use dwell_rollup::{CONSUMER, Identity, Piece, STREAM, pieces};
use futures_util::StreamExt as _;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

/// Messages of a batch, and the time that it waits for them: those of a hub.
const BATCH: usize = 500;
const BATCH_TIME: Duration = Duration::from_millis(100);

/// Time without any message after which the consumer gives up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

const TABLE: &str = "CREATE SCHEMA IF NOT EXISTS bare; DROP TABLE IF EXISTS bare.records; \
    CREATE TABLE bare.records (node text, incarnation bigint, sequence bigint, record bytea)";

const INSERT: &str = "INSERT INTO bare.records \
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[])";

/// A consumer that is ready to receive.
pub(super) struct Bare {
    client: Client,
    consumer: PullConsumer,
    /// To the thread that stores: the client of PostgreSQL blocks, and must not end in a task.
    to_store: mpsc::Sender<Stored>,
}

/// A batch, and where it goes when it is stored.
type Stored = (Vec<Message>, oneshot::Sender<Result<Vec<Message>>>);

impl Bare {
    /// Prepares table and statement.
    pub(super) fn prepare(
        runtime: &tokio::runtime::Runtime,
        client: Client,
        mut database: postgres::Client,
    ) -> Result<Self> {
        database.batch_execute(TABLE)?;
        let insert = database.prepare(INSERT)?;
        let (to_store, batches) = mpsc::channel::<Stored>();
        thread::spawn(move || {
            for (batch, stored) in batches {
                let outcome = store(&mut database, &insert, &batch);
                let _ = stored.send(outcome.map(|()| batch));
            }
        });
        let consumer = runtime.block_on(async {
            let stream = jetstream::new(client.clone()).get_stream(STREAM).await?;
            stream.get_consumer(CONSUMER).await.map_err(|error| anyhow::anyhow!("{error}"))
        });
        let consumer = consumer.context("cannot use the consumer of the hub")?;
        Ok(Self { client, consumer, to_store })
    }

    /// Receives this number of messages.
    pub(super) async fn drain(self, wanted: u64) -> Result<()> {
        let stream = self.consumer.stream().max_messages_per_batch(BATCH).messages();
        let mut messages = stream.await.context("cannot receive")?;
        let mut received = 0;
        while received < wanted {
            let next = timeout(IDLE_TIMEOUT, messages.next()).await.context("no message came")?;
            let mut batch = vec![next.context("the stream ended")??];
            let deadline = Instant::now() + BATCH_TIME;
            while batch.len() < BATCH && received + (batch.len() as u64) < wanted {
                match timeout_at(deadline, messages.next()).await {
                    Ok(next) => batch.push(next.context("the stream ended")??),
                    Err(_) => break,
                }
            }
            received += batch.len() as u64;
            let (sender, stored) = oneshot::channel();
            self.to_store.send((batch, sender)).ok().context("the thread that stores ended")?;
            let batch = stored.await.context("the thread that stores ended")??;
            for message in batch {
                let acknowledged = message.ack_with(AckKind::Ack).await;
                ensure!(acknowledged.is_ok(), "cannot acknowledge a message");
            }
        }
        // A client that ends may have acknowledgements that it has not sent.
        self.client.flush().await.context("cannot send acknowledgements")
    }
}

/// Stores all records of a batch with one statement.
fn store(
    database: &mut postgres::Client,
    insert: &postgres::Statement,
    batch: &[Message],
) -> Result<()> {
    let (mut nodes, mut incarnations, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
    let mut records: Vec<&[u8]> = Vec::new();
    for message in batch {
        for piece in pieces(&message.payload) {
            let Piece::Record(record) = piece else { anyhow::bail!("a damaged record") };
            let identity = Identity::of(record)?;
            nodes.push(identity.node.to_string());
            incarnations.push(identity.incarnation.0.cast_signed());
            sequences.push(identity.sequence.cast_signed());
            records.push(record);
        }
    }
    database.execute(insert, &[&nodes, &incarnations, &sequences, &records])?;
    Ok(())
}
