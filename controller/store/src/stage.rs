//! A processing step for batches. Small batches are processed by the caller, large ones by a thread
//! of the step, so that reading, writing and summarising run in parallel.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use dwell_record::Batch;

use crate::error::StoreError;

/// A consumer of batches.
pub(crate) trait BatchConsumer: Send + 'static {
    /// Processes rows.
    fn take(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError>;
}

/// Minimum size of batches for which a thread is started.
const MIN_THREADED_ROWS: usize = 1 << 15;

/// Maximum number of batches waiting for the thread; bounds the memory.
const MAX_WAITING_BATCHES: usize = 4;

/// A step and its thread.
#[derive(Debug)]
pub(crate) struct Stage<T> {
    /// `None` while the thread owns the step.
    here: Option<T>,
    thread: Option<Thread<T>>,
}

#[derive(Debug)]
struct Thread<T> {
    batches: SyncSender<Arc<Batch>>,
    handle: JoinHandle<Result<T, StoreError>>,
}

impl<T: BatchConsumer> Stage<T> {
    pub(crate) fn new(step: T) -> Self {
        Self { here: Some(step), thread: None }
    }

    /// Processes rows. An error may belong to an earlier batch.
    pub(crate) fn push(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError> {
        if batch.len() >= MIN_THREADED_ROWS
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
        // The thread ended with an error, which is returned once.
        self.thread.take().map_or(Ok(()), |thread| thread.join().map(|_| ()))
    }

    /// Returns the step after all batches are processed; `None` if it has already failed.
    pub(crate) fn finish(mut self) -> Result<Option<T>, StoreError> {
        match self.thread.take() {
            Some(thread) => thread.join().map(Some),
            None => Ok(self.here.take()),
        }
    }
}

impl<T: BatchConsumer> Thread<T> {
    fn start(mut step: T) -> Self {
        let (batches, receiver) = sync_channel::<Arc<Batch>>(MAX_WAITING_BATCHES);
        let handle = thread::spawn(move || {
            for batch in receiver {
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
    /// Waits for the thread to end.
    fn drop(&mut self) {
        if let Some(Thread { batches, handle }) = self.thread.take() {
            drop(batches);
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use dwell_sample::State;

    use super::*;

    /// Records the first id of every batch. Fails at a given id.
    #[derive(Debug, Default)]
    struct Notes {
        firsts: Vec<u64>,
        fails_at: Option<u64>,
        takes: Duration,
        _over: DropFlag,
    }

    /// Sets its flag when dropped.
    #[derive(Debug, Default)]
    struct DropFlag(Arc<AtomicBool>);

    impl BatchConsumer for Notes {
        fn take(&mut self, batch: &Arc<Batch>) -> Result<(), StoreError> {
            thread::sleep(self.takes);
            if self.fails_at == Some(batch.id[0]) {
                let full = std::io::Error::other("the disk is full");
                return Err(StoreError::file("write", std::path::Path::new("1.parquet"))(full));
            }
            self.firsts.push(batch.id[0]);
            Ok(())
        }
    }

    impl Drop for DropFlag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn batch(first: u64, rows: usize) -> Arc<Batch> {
        let mut batch = Batch::default();
        (first..first + rows as u64).for_each(|id| batch.push(id, State::Received));
        Arc::new(batch)
    }

    #[test]
    fn batches_keep_their_order_across_threads() {
        let mut stage = Stage::new(Notes::default());
        let sizes = [
            1,
            7,
            MIN_THREADED_ROWS,
            3,
            1,
            MIN_THREADED_ROWS,
            MIN_THREADED_ROWS,
            2,
            1,
            1,
            1,
            MIN_THREADED_ROWS,
        ];
        for (number, rows) in (0..).zip(sizes) {
            stage.push(&batch(number, rows)).unwrap();
            assert_eq!(
                stage.thread.is_some(),
                number >= 2,
                "a thread from the first large batch on"
            );
        }
        let notes = stage.finish().unwrap().unwrap();
        assert_eq!(notes.firsts, (0..sizes.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn stage_error_is_returned_once_by_a_later_push() {
        let mut stage = Stage::new(Notes { fails_at: Some(2), ..Notes::default() });
        // After the waiting batches, a push finds that the thread has ended.
        let errors = (0..20).filter_map(|first| stage.push(&batch(first, MIN_THREADED_ROWS)).err());
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("1.parquet"), "{errors:?}");
        assert!(stage.finish().unwrap().is_none(), "a failed step has no result");
    }

    #[test]
    fn stage_error_is_returned_by_finish() {
        let mut stage = Stage::new(Notes { fails_at: Some(0), ..Notes::default() });
        stage.push(&batch(0, MIN_THREADED_ROWS)).unwrap();
        let error = stage.finish().unwrap_err();
        assert!(error.to_string().contains("1.parquet"), "{error}");
    }

    #[test]
    fn dropped_stage_has_ended_its_thread() {
        let over = Arc::new(AtomicBool::new(false));
        let takes = Duration::from_millis(20);
        let notes = Notes { takes, _over: DropFlag(Arc::clone(&over)), ..Notes::default() };
        let mut stage = Stage::new(notes);
        (0..3).for_each(|first| stage.push(&batch(first, MIN_THREADED_ROWS)).unwrap());
        assert!(!over.load(Ordering::SeqCst));
        drop(stage);
        assert!(over.load(Ordering::SeqCst));
    }
}
