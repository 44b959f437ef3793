//! Server-sent events: everything first, then changes only.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::error::{ApiError, CommonErrors};
use super::extract::Path;
use super::runs::progress_object;
use crate::access::{Admission, admission};
use crate::app::App;
use crate::experiments::{Change, Watch};

/// Number of events that wait for one reader.
const MAX_WAITING: usize = 16;

/// Time in which a reader with that number of events has to take one. A slower reader is
/// disconnected; the browser connects again, and continues at its last event.
const READER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of comments that show both ends that the connection is alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Interval of reading the state of a watched run.
const RUN_INTERVAL: Duration = Duration::from_secs(1);

type Events = Sse<axum::response::sse::KeepAliveStream<ReceiverStream<Result<Event, Infallible>>>>;

/// Follows an experiment: event `state` with everything, then `trial`, `progress`, `log` and `state`
/// for each change. `id` is an offset; after a reconnection, `Last-Event-ID` continues there
#[utoipa::path(get, path = "/experiments/{id}/events", tag = "experiments",
    params(("id" = String, Path, description = "Name of the experiment"),
        ("Last-Event-ID" = Option<String>, Header, description = "id of the last event that was received")),
    responses((status = 200, body = String, content_type = "text/event-stream"), CommonErrors))]
pub(super) async fn experiment(
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Events, ApiError> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let watch = app.experiments().watch(&id, last).await?;
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    tokio::spawn(forward(watch, sender, admission()));
    Ok(stream(receiver))
}

/// Forwards changes to one reader until it is gone, too slow or no longer admitted.
async fn forward(
    watch: Watch,
    reader: mpsc::Sender<Result<Event, Infallible>>,
    admission: Admission,
) {
    let Watch { first, offset, mut changes } = watch;
    let mut ended = pin!(admission.ended());
    for change in &first {
        if !has_sent(&reader, event(change)).await {
            return;
        }
    }
    loop {
        let change = tokio::select! {
            () = reader.closed() => return,
            () = &mut ended => return,
            change = changes.recv() => change,
        };
        match change {
            Ok(change) if change.is_known_at(offset) => {}
            Ok(change) => {
                if !has_sent(&reader, event(&change)).await {
                    return;
                }
            }
            Err(RecvError::Lagged(_) | RecvError::Closed) => return,
        }
    }
}

/// Sends an event to one reader; false if it is gone or too slow. Nothing else waits for it.
async fn has_sent(reader: &mpsc::Sender<Result<Event, Infallible>>, event: Event) -> bool {
    matches!(tokio::time::timeout(READER_TIMEOUT, reader.send(Ok(event))).await, Ok(Ok(())))
}

fn event(change: &Change) -> Event {
    Event::default().id(change.offset.to_string()).event(change.name).data(&change.data)
}

fn stream(receiver: mpsc::Receiver<Result<Event, Infallible>>) -> Events {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive)
}

/// The watched runs: one task per run reads its state, however many watch.
#[derive(Debug, Default)]
pub(crate) struct RunWatches(Mutex<HashMap<String, watch::Sender<String>>>);

/// Follows a run: event `state` with the number of trials in each state, now and after each change.
/// A run that an experiment started has more at the events of the experiment
#[utoipa::path(get, path = "/runs/{run}/events", tag = "runs",
    params(("run" = String, Path, description = "Name of the run")),
    responses((status = 200, body = String, content_type = "text/event-stream"), CommonErrors))]
pub(super) async fn run(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Events, ApiError> {
    let row = app.run_row(&run).await?;
    let mut states = subscribe(&app, &row.run, progress_object(&row).to_string());
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let admission = admission();
    tokio::spawn(async move {
        let mut ended = pin!(admission.ended());
        loop {
            let state = states.borrow_and_update().clone();
            if !has_sent(&sender, Event::default().event("state").data(state)).await {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                () = &mut ended => return,
                changed = states.changed() => if changed.is_err() { return },
            }
        }
    });
    Ok(stream(receiver))
}

fn subscribe(app: &App, run: &str, first: String) -> watch::Receiver<String> {
    let mut watches = app.run_watches().0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = watches.get(run) {
        return sender.subscribe();
    }
    let (sender, receiver) = watch::channel(first);
    watches.insert(run.to_owned(), sender.clone());
    tokio::spawn(follow_run(app.clone(), run.to_owned(), sender));
    receiver
}

/// Sends the state of a run whenever it changes, until nothing receives it or the run is gone.
async fn follow_run(app: App, run: String, sender: watch::Sender<String>) {
    loop {
        tokio::time::sleep(RUN_INTERVAL).await;
        {
            let mut watches = app.run_watches().0.lock().unwrap_or_else(PoisonError::into_inner);
            if sender.receiver_count() == 0 {
                watches.remove(&run);
                return;
            }
        }
        let Ok(row) = app.run_row(&run).await else { break };
        let state = progress_object(&row).to_string();
        sender.send_if_modified(|last| {
            let is_new = *last != state;
            if is_new {
                *last = state;
            }
            is_new
        });
    }
    app.run_watches().0.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
}
