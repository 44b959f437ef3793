//! A step of work on batches: small ones are worked on where they come from, large ones by a thread
//! of the step's own, so that reading, writing and summarising go on side by side.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use dwell_record::Batch;

use crate::error::StoreError;

/// What takes batches in.
pub(crate) trait Take: Send + 'static {
    /// Takes rows in.
    fn take(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError>;
}

/// Batches from this size on are worth a thread.
const LARGE: usize = 1 << 15;

/// Batches that may wait for the thread: what bounds the memory.
const WAITING: usize = 4;

/// A step, and where it is done.
#[derive(Debug)]
pub(crate) struct Stage<T> {
    /// `None` while a thread has it.
    here: Option<T>,
    thread: Option<Thread<T>>,
}

#[derive(Debug)]
struct Thread<T> {
    batches: SyncSender<Arc<Batch>>,
    handle: JoinHandle<Result<T, StoreError>>,
}

impl<T: Take> Stage<T> {
    pub(crate) fn new(step: T) -> Self {
        Self { here: Some(step), thread: None }
    }

    /// Has rows taken in. An error may be that of an earlier batch.
    pub(crate) fn push(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError> {
        if batch.len() >= LARGE
            && let Some(step) = self.here.take()
        {
            self.thread = Some(Thread::start(step));
        }
        if let Some(step) = &mut self.here {
            return step.take(batch);
        }
        let Some(thread) = &self.thread else { return Ok(()) };
        if thread.batches.send(Arc::clone(batch)).is_ok() {
            return Ok(());
        }
        // It ended at an error, which is told once.
        self.thread.take().map_or(Ok(()), |thread| thread.join().map(|_| ()))
    }

    /// The step, when all batches are taken in. `None` when it has failed before.
    pub(crate) fn finish(mut self) -> Result<Option<T>, StoreError> {
        match self.thread.take() {
            Some(thread) => thread.join().map(Some),
            None => Ok(self.here.take()),
        }
    }
}

impl<T: Take> Thread<T> {
    fn start(mut step: T) -> Self {
        let (batches, coming) = sync_channel::<Arc<Batch>>(WAITING);
        let handle = thread::spawn(move || {
            for batch in coming {
                step.take(&batch)?;
            }
            Ok(step)
        });
        Self { batches, handle }
    }
}

impl<T> Thread<T> {
    fn join(self) -> Result<T, StoreError> {
        drop(self.batches);
        match self.handle.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<T> Drop for Stage<T> {
    /// What is given up is over when this returns.
    fn drop(&mut self) {
        if let Some(Thread { batches, handle }) = self.thread.take() {
            drop(batches);
            let _ = handle.join();
        }
    }
}
