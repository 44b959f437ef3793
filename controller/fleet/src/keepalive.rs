//! Requests that keep idle nodes alive. A device whose network cable was pulled receives none, and so
//! ends its jobs.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use dwell_protocol::{JobId, Request};

use crate::connection::{NodeInput, send};

/// Interval of requests to each node.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// A job number that no job has.
const NO_JOB: JobId = JobId(u32::MAX);

/// The nodes that receive requests until this is dropped.
#[derive(Debug)]
pub(crate) struct Keepalive {
    inputs: Arc<Mutex<Vec<Weak<NodeInput>>>>,
    /// The thread ends when this is dropped.
    _running: Sender<()>,
}

impl Keepalive {
    pub(crate) fn start() -> Self {
        let inputs = Arc::new(Mutex::new(Vec::<Weak<NodeInput>>::new()));
        let (running, ended) = mpsc::channel();
        let kept = Arc::clone(&inputs);
        thread::spawn(move || {
            while ended.recv_timeout(KEEPALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A failed request shows as the end of the node's messages.
                kept.lock().unwrap_or_else(PoisonError::into_inner).retain(|input| {
                    let input = input.upgrade();
                    input.is_some_and(|input| send(&input, &Request::Hail { job: NO_JOB }).is_ok())
                });
            }
        });
        Self { inputs, _running: running }
    }

    /// Adds a node. It is removed when its input is closed.
    pub(crate) fn add(&self, input: &Arc<NodeInput>) {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(input));
    }
}
