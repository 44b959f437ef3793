//! Watching experiments: one task per watched experiment reads its files, however many watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::{self, Receiver, Sender};

use super::events::{Event, EventKind, Tail};
use super::{Experiment, ExperimentId, Experiments, Snapshot, lock, parse};
use crate::error::Error;

/// Interval of reading the events of an active experiment.
const ACTIVE_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of reading those of others, which may be resumed.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Number of changes that a watcher may be behind. One that is further behind is disconnected.
const MAX_BEHIND: usize = 256;

/// Maximum number of changes that are sent at once, and the pause after them.
const BURST: usize = MAX_BEHIND / 4;
const BURST_INTERVAL: Duration = Duration::from_millis(5);

/// Senders of the watched experiments.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<HashMap<ExperimentId, Sender<Change>>>);

/// A change of an experiment, as it is sent to browsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Offset in the events file up to which this is.
    pub(crate) offset: u64,
    /// `state`, `trial`, `progress` or `log`; `gone` if the experiment no longer exists.
    pub(crate) name: &'static str,
    /// A JSON object.
    pub(crate) data: Arc<str>,
}

impl Change {
    /// The change that an event is; `None` for kinds of a newer dwell.
    fn of_event(offset: u64, event: &Event) -> Option<Self> {
        let name = match &event.kind {
            EventKind::Trial { .. } | EventKind::TrialEnd(_) => "trial",
            EventKind::Progress(_) => "progress",
            EventKind::Message { .. } => "log",
            // A state follows.
            EventKind::Waiting { .. } | EventKind::Run { .. } | EventKind::End { .. } => {
                return None;
            }
            EventKind::Unknown => return None,
        };
        let data = serde_json::to_string(event).ok()?;
        Some(Self { offset, name, data: data.into() })
    }

    /// Whether a watcher whose state is up to this offset has this change already. States do not
    /// follow from events alone, so they are sent again.
    pub(crate) fn is_known_at(&self, offset: u64) -> bool {
        self.offset <= offset && matches!(self.name, "trial" | "progress" | "log")
    }

    /// Everything about an experiment.
    fn everything(snapshot: &Snapshot) -> Self {
        let summary = &snapshot.summary;
        let mut data = state(&snapshot.experiment, summary.waiting.as_deref());
        data["current"] = json!(summary.current);
        data["ended"] = json!(summary.ended);
        data["messages"] = json!(summary.messages);
        Self { offset: snapshot.offset, name: "state", data: data.to_string().into() }
    }
}

fn state(experiment: &Experiment, waiting: Option<&str>) -> Value {
    json!({ "experiment": experiment, "waiting": waiting })
}

/// A watched experiment.
#[derive(Debug)]
pub(crate) struct Watch {
    /// What to send first.
    pub(crate) first: Vec<Change>,
    /// Offset up to which `first` is; earlier changes are skipped.
    pub(crate) offset: u64,
    /// The changes after it.
    pub(crate) changes: Receiver<Change>,
}

impl Experiments {
    /// Watches an experiment. With `after`, the changes after this offset come first, then the state.
    ///
    /// # Errors
    /// No experiment has this name.
    pub(crate) async fn watch(&self, id: &str, after: Option<u64>) -> Result<Watch, Error> {
        let name = parse(id)?;
        // Subscribed before the state is read, so no change is missed.
        let begin = self.snapshot(id).await?;
        let changes = self.subscribe(&name, begin);
        let missed = match after {
            Some(after) => self.events(id, after).await?,
            None => Vec::new(),
        };
        let mut first: Vec<Change> =
            missed.iter().filter_map(|(offset, event)| Change::of_event(*offset, event)).collect();
        let mut snapshot = self.snapshot(id).await?;
        snapshot.experiment.plan.clear();
        first.retain(|change| change.offset <= snapshot.offset);
        first.push(Change::everything(&snapshot));
        Ok(Watch { first, offset: snapshot.offset, changes })
    }

    fn subscribe(&self, id: &ExperimentId, begin: Snapshot) -> Receiver<Change> {
        let mut watches = lock(&self.0.watches.0);
        if let Some(sender) = watches.get(id) {
            return sender.subscribe();
        }
        let (sender, receiver) = broadcast::channel(MAX_BEHIND);
        watches.insert(id.clone(), sender.clone());
        tokio::spawn(self.clone().follow(id.clone(), sender, begin));
        receiver
    }

    /// Sends the changes of an experiment until the last receiver is gone.
    async fn follow(self, id: ExperimentId, sender: Sender<Change>, begin: Snapshot) {
        let Some(files) = self.0.folder.files(&id) else { return self.unwatch(&id) };
        let mut tail = Tail::new(&files.events(), begin.offset);
        let mut last = begin;
        loop {
            let interval =
                if last.experiment.state.is_active() { ACTIVE_INTERVAL } else { IDLE_INTERVAL };
            tokio::time::sleep(interval).await;
            {
                let mut watches = lock(&self.0.watches.0);
                if sender.receiver_count() == 0 {
                    watches.remove(&id);
                    return;
                }
            }
            let name = id.clone();
            let read = self.blocking(move |shared| {
                let events = tail.read().map(|new| new.events).unwrap_or_default();
                let snapshot = shared.snapshot(&name);
                Ok((tail, events, snapshot))
            });
            // The server is ending.
            let Ok((read_tail, events, snapshot)) = read.await else { return self.unwatch(&id) };
            tail = read_tail;
            for (number, (offset, event)) in events.iter().enumerate() {
                // Leaves time to forward them.
                if number % BURST == BURST - 1 {
                    tokio::time::sleep(BURST_INTERVAL).await;
                }
                if let Some(change) = Change::of_event(*offset, event) {
                    // An error means that the last receiver is gone; the next turn ends.
                    let _ = sender.send(change);
                }
            }
            match snapshot {
                Ok(now) => {
                    if differs(&last, &now) {
                        let data = state(&now.experiment, now.summary.waiting.as_deref());
                        let data: Arc<str> = data.to_string().into();
                        let _ = sender.send(Change { offset: now.offset, name: "state", data });
                    }
                    last = now;
                }
                // It was purged, or the data directory was deleted.
                Err(error) => {
                    let data: Arc<str> =
                        json!({ "error": { "code": error.code(), "message": error.to_string() } })
                            .to_string()
                            .into();
                    let _ = sender.send(Change { offset: last.offset, name: "gone", data });
                    return self.unwatch(&id);
                }
            }
        }
    }

    fn unwatch(&self, id: &ExperimentId) {
        lock(&self.0.watches.0).remove(id);
    }
}

/// Whether anything but the progress of trials has changed.
fn differs(a: &Snapshot, b: &Snapshot) -> bool {
    let without_trials =
        |it: &Snapshot| Experiment { done: 0, plan: String::new(), ..it.experiment.clone() };
    without_trials(a) != without_trials(b) || a.summary.waiting != b.summary.waiting
}
