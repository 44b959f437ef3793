//! One connection: asks for receipts, publishes records, and stores what hubs send.

use std::io;
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, Event, RequestErrorKind, ServerError, StatusCode, Subscriber};
use dwell_rollup::{
    Answer, Incarnation, MAX_ASKED_INCARNATIONS, NodeSchedule, Question, RangeSet, Subject,
};
use rand::RngExt as _;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};
use tokio_stream::StreamExt as _;

use crate::backoff::Backoff;
use crate::config::Config;
use crate::connection::Connection;
use crate::notices::Notices;
use crate::outbox::{Message, MessageId, Outbox};
use crate::spool::Spool;
use crate::stop::Stop;

/// Interval between looks at the spool.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between comparisons of the node with the agent's.
const NODE_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum time for the acknowledgement of a message.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for an answer of a hub.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Mean interval between questions without a reason. A schedule that was sent while a leaf server had no
/// connection to the hub's arrives by the answer.
const REGULAR_ASK_INTERVAL: Duration = Duration::from_secs(300);

/// Minimum interval between questions.
const MIN_ASK_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum time for acknowledgements at the end of the program.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum `max_payload` of a server.
const MIN_MAX_PAYLOAD: usize = dwell_rollup::MAX_MESSAGE_LEN;

/// What lasts longer than a connection.
#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) config: Config,
    pub(crate) spool: Spool,
    pub(crate) outbox: Outbox,
    pub(crate) notices: Notices,
    /// Number of messages that servers have stored.
    pub(crate) messages: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// Why a connection was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It ended.
    Lost,
    /// The program has to stop.
    Stopped,
}

/// A request that has ended.
#[derive(Debug)]
enum Done {
    Published(MessageId, usize, Result<(), Refusal>),
    Asked(Result<Vec<u8>, String>),
}

/// Why a message is not stored.
#[derive(Debug)]
enum Refusal {
    NoStream,
    NoAcknowledgement,
    Server(String),
    Client(String),
}

/// Acknowledgement of JetStream.
#[derive(Deserialize)]
struct Acknowledgement {
    stream: Option<String>,
    error: Option<AcknowledgementError>,
}

#[derive(Deserialize)]
struct AcknowledgementError {
    #[serde(default)]
    description: String,
}

struct Session<'a> {
    uplink: &'a mut Uplink,
    client: Client,
    requests: JoinSet<Done>,
    is_connected: bool,
    /// Whether a question is under way.
    is_asking: bool,
    /// Whether a question was answered.
    was_answered: bool,
    /// Whether the first question has ended: then receipts are known as far as possible.
    may_publish: bool,
    next_ask: Instant,
    /// When a question is due without a reason.
    regular_ask: Instant,
    ask_backoff: Backoff,
    /// Time before which nothing is published.
    pause_until: Option<Instant>,
    publish_backoff: Backoff,
    /// Whether the last message was refused. Then what hubs sent may be lost, too.
    was_refused: bool,
    /// Whether the server refuses messages of this node; a refused message has no acknowledgement.
    is_forbidden: bool,
    /// Whether the agent belongs to another node.
    is_other_node: bool,
    next_node_check: Instant,
    /// Whether all records were published at the last look.
    is_drained: bool,
}

/// Uses a connection until it ends.
pub(crate) async fn run(uplink: &mut Uplink, connection: Connection, stop: &mut Stop) -> End {
    let Connection { client, mut down, mut events } = connection;
    let now = Instant::now();
    let mut session = Session {
        uplink,
        client,
        requests: JoinSet::new(),
        is_connected: true,
        is_asking: false,
        was_answered: false,
        may_publish: false,
        next_ask: now,
        regular_ask: now,
        ask_backoff: Backoff::default(),
        pause_until: None,
        publish_backoff: Backoff::default(),
        was_refused: false,
        is_forbidden: false,
        is_other_node: false,
        next_node_check: now,
        is_drained: false,
    };
    session.check_payload();
    let end = session.serve(&mut down, &mut events, stop).await;
    if end == End::Stopped {
        let _ = timeout(STOP_TIMEOUT, session.finish()).await;
    }
    session.uplink.outbox.disconnect();
    end
}

impl Session<'_> {
    async fn serve(
        &mut self,
        down: &mut Subscriber,
        events: &mut mpsc::Receiver<Event>,
        stop: &mut Stop,
    ) -> End {
        let mut tick = interval(POLL_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.publish();
            let pause = self.pause_until;
            tokio::select! {
                () = stop.requested() => return End::Stopped,
                event = events.recv() => {
                    if self.handle_event(event).is_some() {
                        return End::Lost;
                    }
                }
                message = down.next() => match message {
                    Some(message) => self.handle_down(&message.subject, &message.payload),
                    None => return End::Lost,
                },
                Some(done) = self.requests.join_next() => {
                    if let Ok(done) = done {
                        self.handle_done(done);
                    }
                }
                () = sleep_until(pause.unwrap_or_else(Instant::now).into()), if pause.is_some() => {
                    self.pause_until = None;
                }
                _ = tick.tick() => self.turn(),
            }
        }
    }

    /// Awaits what is under way.
    async fn finish(&mut self) {
        while self.uplink.outbox.in_flight() > 0 {
            match self.requests.join_next().await {
                Some(Ok(done)) => self.handle_done(done),
                Some(Err(_)) => {}
                None => return,
            }
        }
    }

    /// Does what is due.
    fn turn(&mut self) {
        let now = Instant::now();
        self.is_drained = false;
        // Events are lost if too many come at a time.
        if !self.is_connected && self.client.connection_state() == State::Connected {
            self.reconnect();
        }
        if now >= self.next_node_check {
            self.next_node_check = now + NODE_INTERVAL;
            self.check_node();
        }
        let is_due =
            !self.was_answered || now >= self.regular_ask || self.uplink.outbox.has_overdue(now);
        let may_ask = self.is_connected && !self.is_other_node && !self.is_asking;
        if is_due && may_ask && now >= self.next_ask {
            self.ask();
        }
    }

    fn check_payload(&mut self) {
        let max_payload = self.client.server_info().max_payload;
        if max_payload < MIN_MAX_PAYLOAD {
            self.uplink.notices.print(format!(
                "the server takes messages of at most {max_payload} bytes, so long records cannot be \
                 sent; set max_payload to {MIN_MAX_PAYLOAD} or more"
            ));
        }
    }

    fn check_node(&mut self) {
        let node = &self.uplink.config.node;
        match self.uplink.spool.node() {
            Ok(agent) => {
                let other = agent.filter(|agent| agent != node);
                self.is_other_node = other.is_some();
                if let Some(agent) = other {
                    self.uplink.notices.print(format!(
                        "the agent of this spool is node {agent}, but this uplink is node {node}; \
                         nothing is sent until both configurations name one node"
                    ));
                }
            }
            Err(error) => self.report_spool("read the status of the agent", &error),
        }
    }

    fn report_spool(&mut self, action: &str, error: &io::Error) {
        let dir = self.uplink.config.spool.display();
        self.uplink.notices.print(format!("cannot {action} in spool {dir}: {error}"));
    }

    /// Asks a hub for receipts and the schedule.
    fn ask(&mut self) {
        let now = Instant::now();
        let incarnations = match self.uplink.spool.incarnations() {
            Ok(known) => known.into_iter().take(MAX_ASKED_INCARNATIONS).collect(),
            Err(error) => {
                self.next_ask = now + self.ask_backoff.delay();
                return self.report_spool("list records", &error);
            }
        };
        // The first answer of a connection always has the schedule.
        let schedule_version = match self.was_answered {
            true => Some(self.uplink.spool.schedule_version().ok().flatten().unwrap_or(0)),
            false => None,
        };
        let node = self.uplink.config.node.clone();
        let subject = Subject::Ask.of(&node);
        let Ok(question) = (Question { node, incarnations, schedule_version }).to_json() else {
            return;
        };
        self.is_asking = true;
        let client = self.client.clone();
        self.requests.spawn(async move {
            let request = client.request(subject, question.into());
            let answer = match timeout(ASK_TIMEOUT, request).await {
                Ok(Ok(answer)) => Ok(answer.payload.into()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("no answer".to_owned()),
            };
            Done::Asked(answer)
        });
    }

    /// Publishes as much as possible now.
    fn publish(&mut self) {
        while self.may_publish
            && self.is_connected
            && !self.is_drained
            && !self.is_other_node
            && self.pause_until.is_none()
            && self.uplink.outbox.can_publish()
        {
            let Uplink { spool, outbox, .. } = &mut *self.uplink;
            let next =
                outbox.next_message(|level, from, until, out| spool.read(level, from, until, out));
            match next {
                Ok(Some(message)) => self.send(message),
                Ok(None) => self.is_drained = true,
                Err(error) => {
                    self.report_spool("read records", &error);
                    self.is_drained = true;
                }
            }
        }
    }

    fn send(&mut self, message: Message) {
        let Message { id, payload } = message;
        let len = payload.len();
        let subject = Subject::Up.of(&self.uplink.config.node);
        let client = self.client.clone();
        self.requests.spawn(async move {
            let request = client.request(subject, payload.into());
            let stored = match timeout(PUBLISH_TIMEOUT, request).await {
                Ok(Ok(reply)) => acknowledged(reply.status, &reply.payload),
                Ok(Err(error)) => Err(match error.kind() {
                    RequestErrorKind::NoResponders => Refusal::NoStream,
                    RequestErrorKind::TimedOut => Refusal::NoAcknowledgement,
                    _ => Refusal::Client(error.to_string()),
                }),
                Err(_) => Err(Refusal::NoAcknowledgement),
            };
            Done::Published(id, len, stored)
        });
    }

    fn handle_done(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Published(id, len, Ok(())) => {
                self.uplink.outbox.acknowledge(id, now);
                self.uplink.messages += 1;
                self.uplink.bytes += len as u64;
                self.publish_backoff.reset();
                self.is_forbidden = false;
                if std::mem::take(&mut self.was_refused) {
                    self.regular_ask = now;
                }
            }
            Done::Published(id, _, Err(refusal)) => {
                self.uplink.outbox.refuse(id);
                self.was_refused = true;
                self.pause(now);
                self.report_refusal(&refusal);
            }
            Done::Asked(answer) => {
                self.is_asking = false;
                self.may_publish = true;
                let accepted = answer.and_then(|answer| self.receive_answer(&answer));
                match accepted {
                    Ok(()) => {
                        self.was_answered = true;
                        self.ask_backoff.reset();
                        let jitter = rand::rng().random_range(1.0..2.0);
                        self.next_ask = now + MIN_ASK_INTERVAL.mul_f64(jitter);
                        self.regular_ask = now + REGULAR_ASK_INTERVAL.mul_f64(jitter / 1.5);
                        self.uplink.outbox.repeat_overdue(now);
                        self.is_drained = false;
                    }
                    Err(reason) => {
                        self.next_ask = now + self.ask_backoff.delay();
                        if !self.is_forbidden {
                            self.uplink.notices.print(format!(
                                "no hub states its receipts ({reason}); records are kept, and sent as \
                                 far as the server stores them"
                            ));
                        }
                    }
                }
            }
        }
    }

    /// Publishes nothing for a while, once for all messages that are refused together.
    fn pause(&mut self, now: Instant) {
        if self.pause_until.is_none() {
            self.pause_until = Some(now + self.publish_backoff.delay());
        }
    }

    fn report_refusal(&mut self, refusal: &Refusal) {
        let message = match refusal {
            // The permission is reported.
            Refusal::NoAcknowledgement if self.is_forbidden => return,
            Refusal::NoStream => {
                "the server has no stream for records; start a hub that uses it".to_owned()
            }
            Refusal::NoAcknowledgement => format!(
                "the server acknowledged no records within {} s; they are sent again",
                PUBLISH_TIMEOUT.as_secs()
            ),
            Refusal::Server(reason) => {
                format!("the server stores no more records: {reason}; they wait in the spool")
            }
            Refusal::Client(reason) => format!("cannot send records: {reason}"),
        };
        self.uplink.notices.print(message);
    }

    /// Handles an event. Returns an end of the connection.
    fn handle_event(&mut self, event: Option<Event>) -> Option<End> {
        match event {
            // The client connects again by itself, once. Replies of the connection before are lost.
            Some(Event::Disconnected) => {
                self.is_connected = false;
                self.uplink.notices.print("the connection ended");
                None
            }
            Some(Event::Connected) => {
                if !self.is_connected {
                    self.reconnect();
                }
                None
            }
            Some(Event::ServerError(error)) => {
                self.report_server(&error);
                None
            }
            Some(Event::ClientError(async_nats::ClientError::MaxReconnects) | Event::Closed)
            | None => Some(End::Lost),
            Some(_) => None,
        }
    }

    /// Starts anew on a connection that the client has replaced.
    fn reconnect(&mut self) {
        self.requests = JoinSet::new();
        self.uplink.outbox.disconnect();
        self.is_connected = true;
        self.is_asking = false;
        self.was_answered = false;
        self.may_publish = false;
        self.next_ask = Instant::now();
        self.is_forbidden = false;
        self.check_payload();
    }

    fn report_server(&mut self, error: &ServerError) {
        let reason = error.to_string();
        let reason = reason.trim_start_matches("nats: ");
        if !reason.to_lowercase().contains("permissions violation") {
            return self.uplink.notices.print(format!("the server reports: {reason}"));
        }
        self.is_forbidden = true;
        self.pause(Instant::now());
        let node = &self.uplink.config.node;
        self.uplink.notices.print(format!(
            "the server reports: {reason}; the key of this node does not belong to the name {node}: \
             enroll it, or correct `node` in the configuration"
        ));
    }

    fn handle_down(&mut self, subject: &str, payload: &[u8]) {
        if self.is_other_node {
            return;
        }
        let node = &self.uplink.config.node;
        let stored = match Subject::parse(subject) {
            Some((Subject::Receipts, about)) if about == *node => self.receive_answer(payload),
            Some((Subject::Schedule, about)) if about == *node => self.receive_schedule(payload),
            // A newer hub may use more subjects.
            _ => return,
        };
        if let Err(reason) = stored {
            self.uplink.notices.print(format!("ignored a message on {subject}: {reason}"));
        }
    }

    /// Stores the receipts and the schedule of an answer.
    fn receive_answer(&mut self, json: &[u8]) -> Result<(), String> {
        let answer =
            Answer::from_json(json, &self.uplink.config.node).map_err(|error| error.to_string())?;
        let known = self.uplink.spool.incarnations().map_err(|error| error.to_string())?;
        for (incarnation, receipts) in &answer.receipts {
            // No other incarnation gets a file.
            if known.contains(incarnation) {
                self.receive_receipts(*incarnation, receipts)?;
            }
        }
        match answer.schedule {
            Some(schedule) => self.receive_schedule(schedule.as_bytes()),
            None => Ok(()),
        }
    }

    fn receive_receipts(
        &mut self,
        incarnation: Incarnation,
        receipts: &RangeSet,
    ) -> Result<(), String> {
        let all = self
            .uplink
            .spool
            .add_receipts(incarnation, receipts)
            .map_err(|error| format!("cannot write receipts: {error}"))?;
        self.uplink.outbox.receive_receipts(incarnation, &all);
        Ok(())
    }

    fn receive_schedule(&mut self, json: &[u8]) -> Result<(), String> {
        let schedule = NodeSchedule::from_json(json).map_err(|error| error.to_string())?;
        let node = &self.uplink.config.node;
        if schedule.node != *node {
            return Err(format!("the schedule is for node {}, this is {node}", schedule.node));
        }
        let version = schedule.version;
        let is_new = self
            .uplink
            .spool
            .store_schedule(json)
            .map_err(|error| format!("cannot write the schedule: {error}"))?;
        if is_new {
            self.uplink.notices.print(format!("schedule version {version} arrived"));
        }
        Ok(())
    }
}

fn acknowledged(status: Option<StatusCode>, payload: &[u8]) -> Result<(), Refusal> {
    if status == Some(StatusCode::NO_RESPONDERS) {
        return Err(Refusal::NoStream);
    }
    match serde_json::from_slice::<Acknowledgement>(payload) {
        Ok(Acknowledgement { error: Some(error), .. }) => Err(Refusal::Server(error.description)),
        Ok(Acknowledgement { stream: Some(_), .. }) => Ok(()),
        _ => Err(Refusal::Server("it sent no acknowledgement".into())),
    }
}
