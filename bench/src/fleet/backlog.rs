//! A backlog: messages that waited while no hub ran, drained by a hub and by a bare consumer in turns.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_nats::Client;
use dwell_rollup::Subject;
use serde::Serialize;
use tokio::task::JoinSet;

use super::bare::Bare;
use super::database::Database;
use super::generator::{connect, now_ns, publish};
use super::network::{Network, StreamView};
use super::records::{INTERVAL_NS, RecordForm, SimulatedAgent, agent_name};
use crate::Interrupt;

/// Messages of a node: fewer than the stream takes of one.
const MESSAGES_PER_NODE: u64 = 40;

/// Time for a backlog to be drained.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Backlog {
    /// Messages and records of a turn, and their bytes.
    pub(super) messages: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Bytes of a message in the stream.
    pub(super) stream_bytes_per_message: f64,
    /// Turns.
    pub(super) turns: Vec<Turn>,
}

/// Messages per second in one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Turn {
    pub(super) hub: f64,
    pub(super) bare: f64,
}

/// Size of the backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) messages: u64,
    pub(super) rounds: u64,
    pub(super) form: RecordForm,
}

/// A message of a node by number.
type Filled = (u64, Vec<u8>);

/// Drains backlogs in turns.
pub(super) fn measure(size: Size, interrupt: &Interrupt) -> Result<Backlog> {
    let nodes = size.messages.div_ceil(MESSAGES_PER_NODE).max(1);
    let folder = tempfile::tempdir()?;
    let network = Network::start(folder.path(), nodes)?;
    let database = Database::start()?;
    // Creates the stream and the tables.
    network.start_hub(&database.url())?.stop()?;
    let stream = StreamView::new(&network)?;
    let clients = connect_nodes(&network)?;
    let mut measured = Backlog::default();
    // The rows of all turns are of the same nodes, each at a time of its own: no turn has duplicates.
    let turn_ns = MESSAGES_PER_NODE as i64 * INTERVAL_NS;
    let first_ns = now_ns().div_euclid(INTERVAL_NS) * INTERVAL_NS - size.rounds as i64 * turn_ns;
    for round in 0..size.rounds {
        if interrupt.came() {
            break;
        }
        eprintln!("backlog: round {} of {}", round + 1, size.rounds);
        let start_ns = first_ns + round as i64 * turn_ns;
        let mut messages: Vec<Filled> = Vec::new();
        measured.records = 0;
        for number in 1..=nodes {
            let mut agent = SimulatedAgent::new(number, round + 1, size.form)?;
            for n in 1..=MESSAGES_PER_NODE as i64 {
                let end_ns = start_ns + n * INTERVAL_NS;
                let message = agent.message(end_ns, end_ns + INTERVAL_NS / 2)?;
                measured.records += message.records;
                messages.push((number, message.bytes));
            }
        }
        measured.messages = messages.len() as u64;
        measured.bytes = messages.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let mut turn = Turn::default();
        // The order alternates, so that a drift of the machine does not favour one.
        for at in 0..2 {
            fill(&network, &clients, &messages)?;
            let state = stream.state()?;
            ensure!(
                state.messages == measured.messages,
                "the stream has {} messages",
                state.messages
            );
            measured.stream_bytes_per_message = state.bytes as f64 / state.messages as f64;
            let count = state.messages as f64;
            if (at + round).is_multiple_of(2) {
                let hub = network.start_hub(&database.url())?;
                let start = Instant::now();
                stream.await_empty(DRAIN_TIMEOUT, interrupt)?;
                turn.hub = count / start.elapsed().as_secs_f64();
                hub.stop()?;
            } else {
                let (client, runtime) = (network.connect_hub()?, network.runtime());
                let bare = Bare::prepare(runtime, client, database.client()?)?;
                let start = Instant::now();
                let drained = runtime.spawn(bare.drain(state.messages));
                stream.await_empty(DRAIN_TIMEOUT, interrupt)?;
                turn.bare = count / start.elapsed().as_secs_f64();
                runtime.block_on(drained).context("the bare consumer panicked")??;
            }
        }
        let stored: i64 =
            database.client()?.query_one("SELECT count(*) FROM bare.records", &[])?.get(0);
        ensure!(stored as u64 == measured.records, "the bare consumer stored {stored} records");
        measured.turns.push(turn);
    }
    check(&mut database.client()?, measured.turns.len() as u64, measured.records)?;
    Ok(measured)
}

/// Whether the hub stored every record of every turn.
fn check(client: &mut postgres::Client, turns: u64, records: u64) -> Result<()> {
    let text = "SELECT sum(stored)::bigint, sum(duplicates)::bigint, sum(bad)::bigint \
                FROM dwell_hub.nodes";
    let row = client.query_one(text, &[])?;
    let [stored, duplicates, bad] = std::array::from_fn(|at| row.get::<_, Option<i64>>(at));
    let wanted = (turns * records) as i64;
    ensure!(
        stored == Some(wanted) && bad == Some(0),
        "the hub stored {stored:?} of {wanted} records, {duplicates:?} duplicates, {bad:?} bad"
    );
    Ok(())
}

/// Connects each node with its key.
fn connect_nodes(network: &Network) -> Result<Vec<Client>> {
    network.runtime().block_on(async {
        let mut clients = Vec::new();
        for (number, key) in (1..).zip(&network.keys) {
            clients.push(connect(&network.url(), &network.ca(), number, key).await?);
        }
        Ok(clients)
    })
}

/// Publishes messages, all nodes at the same time: those of one node are far apart in the stream, as those
/// of a fleet are.
fn fill(network: &Network, clients: &[Client], messages: &[Filled]) -> Result<()> {
    network.runtime().block_on(async {
        let mut filling = JoinSet::new();
        for of_node in messages.chunk_by(|a, b| a.0 == b.0) {
            let number = of_node[0].0;
            let client = clients[number as usize - 1].clone();
            let payloads: Vec<Vec<u8>> = of_node.iter().map(|(_, bytes)| bytes.clone()).collect();
            filling.spawn(async move {
                let subject = Subject::Up.of(&agent_name(number)?);
                for payload in payloads {
                    publish(&client, subject.clone(), payload).await?;
                }
                Ok::<(), anyhow::Error>(())
            });
        }
        while let Some(filled) = filling.join_next().await {
            filled.context("filling the stream panicked")??;
        }
        Ok(())
    })
}
