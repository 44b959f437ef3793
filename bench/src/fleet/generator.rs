//! A generator: a process with some of the agents, each with its own key and connection.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use async_nats::{Client, ConnectOptions, Subscriber};
use dwell_node_cli::{Exit, Failure};
use dwell_rollup::{Answer, Incarnation, Question, Subject, inbox_prefix, permitted_subjects};
use futures_util::StreamExt as _;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::expected::ExpectedRow;
use super::records::{INTERVAL_NS, Message, RecordForm, SimulatedAgent, agent_name};
use crate::process::raise_descriptors;

/// Connections that a generator opens at the same time.
const MAX_CONNECTING: usize = 40;

/// Attempts to connect, and the time between them.
const MAX_ATTEMPTS: u32 = 20;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time for a TLS handshake while all agents connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for the last receipts.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for the acknowledgement of the server, and for an answer of a hub.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between looks for the start file.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Capacity of the client's queues, as of an uplink.
const CLIENT_CAPACITY: usize = 64;

/// Descriptors besides those of connections.
const OTHER_DESCRIPTORS: u64 = 100;

/// The line that a generator prints when its agents are connected.
pub(super) const CONNECTED: &str = "all agents are connected";

/// Measure with simulated agents that publish records; started by the bench `fleet`
#[derive(Debug, clap::Parser)]
#[command(name = "fleet-agents", version)]
pub struct Args {
    /// File with the task, as JSON
    #[arg(value_name = "FILE")]
    task: PathBuf,
}

/// What a generator has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// URL of the server.
    pub(super) url: String,
    /// Certificates that verify it.
    pub(super) ca: PathBuf,
    /// Number of the first agent.
    pub(super) first: u64,
    /// Seeds of the keys of the agents.
    pub(super) keys: Vec<String>,
    /// Form of the records.
    pub(super) form: RecordForm,
    /// Length of the run in seconds.
    pub(super) seconds: u64,
    /// File that appears at the start, with CLOCK_REALTIME of the start in nanoseconds.
    pub(super) start: PathBuf,
    /// Where the report is written, as JSON.
    pub(super) report: PathBuf,
}

/// What the agents of a generator did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Published messages, their records and their bytes.
    pub(super) messages: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Messages that the server refused or did not acknowledge.
    pub(super) refused: u64,
    /// Messages whose records have no receipt at the end.
    pub(super) without_receipt: u64,
    /// Questions at the start that no hub answered.
    pub(super) unanswered: u64,
    /// Times from publishing to the receipt in us, of messages with 10 s records only.
    pub(super) short_us: Vec<u32>,
    /// The same, of messages that also have records of 5 min.
    pub(super) long_us: Vec<u32>,
    /// Rows that the hub must have.
    pub(super) expected: Vec<ExpectedRow>,
}

impl Report {
    /// Adds another report.
    pub(super) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.records += other.records;
        self.bytes += other.bytes;
        self.refused += other.refused;
        self.without_receipt += other.without_receipt;
        self.unanswered += other.unanswered;
        self.short_us.extend(other.short_us);
        self.long_us.extend(other.long_us);
        self.expected.extend(other.expected);
    }
}

/// Runs the task.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let text = fs::read_to_string(&args.task).context("cannot read the task")?;
    let task: Task = serde_json::from_str(&text).context("the task is not valid")?;
    raise_descriptors(task.keys.len() as u64 + OTHER_DESCRIPTORS)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start tokio")?;
    let report = runtime.block_on(generate(Arc::new(task.clone())))?;
    let json = serde_json::to_string(&report).context("a report")?;
    fs::write(&task.report, json).context("cannot write the report")?;
    Ok(Exit::Measured)
}

/// The start on both clocks.
#[derive(Clone, Copy, Debug)]
struct Start {
    wall_ns: i64,
    at: Instant,
}

async fn generate(task: Arc<Task>) -> Result<Report> {
    let (sender, start) = watch::channel(None);
    let connecting = Arc::new(Semaphore::new(MAX_CONNECTING));
    let connected = Arc::new(AtomicU64::new(0));
    let mut agents = JoinSet::new();
    for at in 0..task.keys.len() {
        let (task, connecting) = (Arc::clone(&task), Arc::clone(&connecting));
        let (connected, start) = (Arc::clone(&connected), start.clone());
        agents.spawn(async move {
            let agent = Agent::connect(&task, at, &connecting).await?;
            connected.fetch_add(1, Ordering::Relaxed);
            agent.run(&task, start).await
        });
    }
    let mut report = Report::default();
    let begin = async {
        while connected.load(Ordering::Relaxed) < task.keys.len() as u64 {
            sleep(POLL_INTERVAL).await;
        }
        eprintln!("{CONNECTED}");
        let start = loop {
            if let Some(start) = read_start(&task.start) {
                break start;
            }
            sleep(POLL_INTERVAL).await;
        };
        let _ = sender.send(Some(start));
        std::future::pending::<()>().await;
    };
    let finish = async {
        while let Some(ended) = agents.join_next().await {
            report.add(ended.context("an agent panicked")??);
        }
        Ok::<(), anyhow::Error>(())
    };
    tokio::select! {
        () = begin => {}
        finished = finish => finished?,
    }
    Ok(report)
}

/// Reads the file of the start, if it is there. It is renamed into its place, so it is whole.
fn read_start(path: &Path) -> Option<Start> {
    let wall_ns: i64 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let left = wall_ns - now_ns();
    let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
    Some(Start { wall_ns, at: Instant::now() + left })
}

/// CLOCK_REALTIME in nanoseconds.
pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A message without a receipt.
#[derive(Debug)]
struct Pending {
    last: u64,
    published: Instant,
    has_long: bool,
}

/// A connected agent.
struct Agent {
    simulated: SimulatedAgent,
    client: Client,
    down: Subscriber,
    pending: VecDeque<Pending>,
    requests: JoinSet<bool>,
    report: Report,
}

impl Agent {
    async fn connect(task: &Task, at: usize, connecting: &Semaphore) -> Result<Self> {
        let number = task.first + at as u64;
        let _permit = connecting.acquire().await?;
        let client = connect(&task.url, &task.ca, number, &task.keys[at]).await?;
        let simulated = SimulatedAgent::new(number, 1, task.form)?;
        let (_, subscribe) = permitted_subjects(simulated.node());
        let down = subscribe.into_iter().next().context("a node subscribes to a subject")?;
        let down = client.subscribe(down).await.context("cannot subscribe")?;
        let mut report = Report::default();
        let is_answered = ask(&client, simulated.node(), simulated.incarnation()).await;
        report.unanswered += u64::from(!is_answered);
        let pending = VecDeque::new();
        Ok(Self { simulated, client, down, pending, requests: JoinSet::new(), report })
    }

    /// Publishes a message every 10 s from a random phase, and then waits for the last receipts.
    async fn run(
        mut self,
        task: &Task,
        mut start: watch::Receiver<Option<Start>>,
    ) -> Result<Report> {
        let start = *start.wait_for(Option::is_some).await?;
        let start = start.context("no start")?;
        let seed = task.form.seed ^ self.simulated.incarnation().0;
        let phase_ns = Xoshiro256PlusPlus::seed_from_u64(seed).random_range(0..INTERVAL_NS);
        let messages = (task.seconds as i64 * 1_000_000_000 / INTERVAL_NS).max(1);
        let end = start.at + Duration::from_nanos((phase_ns + messages * INTERVAL_NS) as u64);
        let mut sent = 0;
        let deadline = end + RECEIPT_TIMEOUT;
        while sent <= messages || !self.pending.is_empty() || !self.requests.is_empty() {
            let offset_ns = phase_ns + sent * INTERVAL_NS;
            let next = start.at + Duration::from_nanos(offset_ns as u64);
            tokio::select! {
                () = sleep_until(next), if sent <= messages => {
                    let wall_ns = start.wall_ns + offset_ns;
                    let end_ns = wall_ns.div_euclid(INTERVAL_NS) * INTERVAL_NS;
                    if sent < messages {
                        let message = self.simulated.message(end_ns, wall_ns)?;
                        self.publish(message);
                    } else if let Some(message) = self.simulated.finish(wall_ns)? {
                        self.publish(message);
                    }
                    sent += 1;
                }
                message = self.down.next() => {
                    let message = message.with_context(|| {
                        format!("the connection of {} ended", self.simulated.node())
                    })?;
                    self.receive(&message);
                }
                Some(stored) = self.requests.join_next() => {
                    self.report.refused += u64::from(!stored.unwrap_or(false));
                }
                () = sleep_until(deadline) => break,
            }
        }
        self.report.without_receipt = self.pending.len() as u64;
        self.report.expected = self.simulated.expected().collect();
        Ok(self.report)
    }

    fn publish(&mut self, message: Message) {
        self.report.messages += 1;
        self.report.records += message.records;
        self.report.bytes += message.bytes.len() as u64;
        let Message { bytes, last, has_long, .. } = message;
        self.pending.push_back(Pending { last, published: Instant::now(), has_long });
        let (client, subject) = (self.client.clone(), Subject::Up.of(self.simulated.node()));
        self.requests.spawn(async move { publish(&client, subject, bytes).await.is_ok() });
    }

    /// Notes the time of each message that receipts confirm.
    fn receive(&mut self, message: &async_nats::Message) {
        let is_receipt = matches!(Subject::parse(&message.subject), Some((Subject::Receipts, _)));
        let answer = Answer::from_json(&message.payload, self.simulated.node());
        let Some(answer) = answer.ok().filter(|_| is_receipt) else { return };
        let Some(receipts) = answer.receipts.get(&self.simulated.incarnation()) else { return };
        let Report { short_us, long_us, .. } = &mut self.report;
        self.pending.retain(|pending| {
            if !receipts.contains(pending.last) {
                return true;
            }
            let took = pending.published.elapsed().as_micros();
            let times = if pending.has_long { &mut *long_us } else { &mut *short_us };
            times.push(u32::try_from(took).unwrap_or(u32::MAX));
            false
        });
    }
}

/// Connects an agent with its key.
pub(super) async fn connect(url: &str, ca: &Path, number: u64, key: &str) -> Result<Client> {
    let node = agent_name(number)?;
    for attempt in 1.. {
        let options = ConnectOptions::with_nkey(key.to_owned())
            .require_tls(true)
            .add_root_certificates(ca.to_owned())
            .custom_inbox_prefix(inbox_prefix(&node))
            .connection_timeout(CONNECT_TIMEOUT)
            .client_capacity(CLIENT_CAPACITY)
            .subscription_capacity(CLIENT_CAPACITY)
            .request_timeout(Some(REQUEST_TIMEOUT));
        match options.connect(url).await {
            Ok(client) => return Ok(client),
            Err(error) if attempt == MAX_ATTEMPTS => {
                return Err(anyhow!(error).context(format!("cannot connect {node} to {url}")));
            }
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
    unreachable!("the loop returns")
}

/// Asks for receipts, as an uplink does after it has connected. Returns whether a hub answers.
async fn ask(client: &Client, node: &dwell_rollup::Name, incarnation: Incarnation) -> bool {
    let incarnations = vec![incarnation];
    let question =
        Question { node: node.clone(), incarnations, schedule_version: Some(0) }.to_json();
    let Ok(question) = question else { return false };
    let request = client.request(Subject::Ask.of(node), question.into());
    matches!(timeout(REQUEST_TIMEOUT, request).await, Ok(Ok(_)))
}

/// Publishes a message to the stream.
///
/// # Errors
/// The stream does not store it.
pub(super) async fn publish(client: &Client, subject: String, bytes: Vec<u8>) -> Result<()> {
    let reply = client.request(subject, bytes.into()).await?;
    let reply: serde_json::Value = serde_json::from_slice(&reply.payload)?;
    ensure!(reply["error"].is_null() && reply["stream"].is_string(), "the stream: {reply}");
    Ok(())
}
