//! Requests that keep idle nodes alive. A device whose network cable was pulled receives none, and so
//! ends its jobs.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::connection::{NodeInput, send};
use crate::node_clock::NodeClock;

/// Interval of requests to each node.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The input of a node, and its clock, which makes the requests.
type KeptNode = (Weak<NodeInput>, Arc<NodeClock>);

/// The nodes that receive requests until this is dropped.
#[derive(Debug)]
pub(crate) struct Keepalive {
    nodes: Arc<Mutex<Vec<KeptNode>>>,
    /// The thread ends when this is dropped.
    _running: Sender<()>,
}

impl Keepalive {
    pub(crate) fn start() -> Self {
        let nodes = Arc::new(Mutex::new(Vec::<KeptNode>::new()));
        let (running, ended) = mpsc::channel();
        let kept = Arc::clone(&nodes);
        thread::spawn(move || {
            while ended.recv_timeout(KEEPALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A failed request shows as the end of the node's messages.
                kept.lock().unwrap_or_else(PoisonError::into_inner).retain(|(input, clock)| {
                    let Some(input) = input.upgrade() else { return false };
                    clock.keepalive().is_none_or(|request| send(&input, &request).is_ok())
                });
            }
        });
        Self { nodes, _running: running }
    }

    /// Adds a node. It is removed when its input is closed.
    pub(crate) fn add(&self, input: &Arc<NodeInput>, clock: &Arc<NodeClock>) {
        let node = (Arc::downgrade(input), Arc::clone(clock));
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(node);
    }
}
