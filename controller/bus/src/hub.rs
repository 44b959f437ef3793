//! A hub on a bus: its loops, and how they end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{ClientError, Event, ServerError};
use dwell_hub::Rules;
use dwell_hub::store::HubStore;
use dwell_rollup::Name;
use tokio::sync::{mpsc, watch};

use crate::announce::announce;
use crate::ask::answer_questions;
use crate::connect::{BusAddress, Connection, connect};
use crate::error::BusError;
use crate::event::BusEvent;
use crate::log_limit::LogLimit;
use crate::receive::receive;
use crate::stream::Queue;

/// Time between looks at the stop request of the caller.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time before a failed attempt is repeated.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Time for the last messages of a hub that stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A database that the loops share with the caller.
pub type SharedStore = Arc<Mutex<dyn HubStore + Send>>;

/// A hub that receives records by a bus.
pub struct BusHub {
    /// The server, and the hub's key.
    pub address: BusAddress,
    /// Size of the stream in bytes, for a new stream and an existing one; `None` creates
    /// [`DEFAULT_STREAM_BYTES`](crate::DEFAULT_STREAM_BYTES), and leaves an existing stream as it is.
    pub max_bytes: Option<u64>,
    /// How records are stored.
    pub rules: Rules,
    /// Where.
    pub store: SharedStore,
}

/// What all loops share.
pub(crate) struct Context<'a> {
    pub(crate) hub: &'a BusHub,
    /// Publishes, and uses the JetStream API. What nodes publish arrives by connections of its receivers.
    pub(crate) client: async_nats::Client,
    /// Scheme, host and port of the server, for messages.
    pub(crate) server: String,
    pub(crate) queue: Queue,
    pub(crate) report: &'a dyn Fn(BusEvent),
    /// Nodes that asked since the start.
    pub(crate) asked: RefCell<BTreeSet<Name>>,
    /// Reported faults of nodes.
    pub(crate) log_limit: RefCell<LogLimit>,
}

/// Whether the hub is to stop; every loop has a copy.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until the hub is to stop.
    pub(crate) async fn requested(&mut self) {
        // Without a sender, the hub has stopped.
        let _ = self.0.wait_for(|is_requested| *is_requested).await;
    }

    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits. Returns whether the hub is to stop.
    pub(crate) async fn sleep(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.requested()).await.is_ok()
    }
}

/// Receives records, answers nodes and sends schedules until `stop` is set; the current batch is stored
/// first. Blocks.
///
/// # Errors
/// The bus cannot be used as it is configured. A server that is unreachable is tried again, and so is a
/// stream that was usable before.
pub fn run(hub: &BusHub, stop: &AtomicBool, report: &dyn Fn(BusEvent)) -> Result<(), BusError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BusError::Runtime)?;
    runtime.block_on(async {
        let (sender, receiver) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let until_stop = async {
            while !stop.load(Ordering::Relaxed) && !*ended.borrow() {
                tokio::time::sleep(STOP_POLL_INTERVAL).await;
            }
            let _ = sender.send(true);
        };
        let work = async {
            let outcome = run_loops(hub, Stop(receiver), report).await;
            let _ = end.send(true);
            outcome
        };
        tokio::join!(until_stop, work).1
    })
}

async fn run_loops(
    hub: &BusHub,
    mut stop: Stop,
    report: &dyn Fn(BusEvent),
) -> Result<(), BusError> {
    let Some(connection) = connect_until(hub, &mut stop, report).await? else { return Ok(()) };
    let Connection { client, events, server } = connection;
    let context = Context {
        hub,
        queue: Queue::new(&client, hub.max_bytes),
        client: client.clone(),
        server,
        report,
        asked: RefCell::new(BTreeSet::new()),
        log_limit: RefCell::default(),
    };
    let beside = async {
        tokio::join!(
            answer_questions(&context, stop.clone()),
            announce(&context, stop.clone()),
            follow_events(&context, events),
        );
        // Only what receives ends the hub: its last batch is stored first.
        std::future::pending().await
    };
    let outcome = tokio::select! {
        outcome = receive(&context, stop.clone()) => outcome,
        () = beside => Ok(()),
    };
    // Acknowledgements and receipts leave before the connection ends.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, client.flush()).await;
    outcome
}

/// Connects, and repeats while the server is unreachable. `None` if the hub is to stop. A refused key is tried
/// a second time: a server that was just signalled may not have read the keys yet.
async fn connect_until(
    hub: &BusHub,
    stop: &mut Stop,
    report: &dyn Fn(BusEvent),
) -> Result<Option<Connection>, BusError> {
    let mut reported = String::new();
    let mut was_refused = false;
    loop {
        let attempt = tokio::select! {
            attempt = connect(&hub.address) => attempt,
            () = stop.requested() => return Ok(None),
        };
        match attempt {
            Ok(connection) => return Ok(Some(connection)),
            Err(error) if error.is_transient() => {
                let text = error.to_string();
                if text != reported {
                    report(BusEvent::Waiting(text.clone()));
                    reported = text;
                }
            }
            Err(BusError::Refused { .. }) if !was_refused => was_refused = true,
            Err(error) => return Err(error),
        }
        if stop.sleep(RETRY_INTERVAL).await {
            return Ok(None);
        }
    }
}

/// Reports what happens to the connection, each refusal once per connection.
async fn follow_events(context: &Context<'_>, mut events: mpsc::UnboundedReceiver<Event>) {
    let (mut is_lost, mut refused) = (false, BTreeSet::new());
    while let Some(event) = events.recv().await {
        match event {
            Event::Disconnected if !is_lost => {
                is_lost = true;
                (context.report)(BusEvent::Disconnected);
            }
            Event::Connected => {
                refused.clear();
                if std::mem::take(&mut is_lost) {
                    (context.report)(BusEvent::Reconnected);
                }
            }
            Event::ServerError(ServerError::Other(text))
            | Event::ClientError(ClientError::Other(text)) => {
                let is_refusal = ["permission", "authorization", "authentication"]
                    .iter()
                    .any(|word| text.to_lowercase().contains(word));
                if is_refusal && refused.insert(text.clone()) {
                    (context.report)(BusEvent::Refused(text));
                }
            }
            Event::ServerError(ServerError::AuthorizationViolation) => {
                let text = "authorization violation".to_owned();
                if refused.insert(text.clone()) {
                    (context.report)(BusEvent::Refused(text));
                }
            }
            _ => {}
        }
    }
}

/// CLOCK_REALTIME in nanoseconds.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
