//! The reflector of an agent, on threads of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_protocol::ReflectJob;

/// Wait after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Answers probes while it should. A failure, such as a port in use, is reported and retried.
pub(super) struct AgentReflector {
    job: ReflectJob,
    running: Option<Running>,
    fault: Option<String>,
    retry_at: Instant,
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl AgentReflector {
    pub(super) fn new(job: ReflectJob) -> Self {
        Self { job, running: None, fault: None, retry_at: Instant::now() }
    }

    /// Starts or stops it. Does not wait for the end.
    pub(super) fn tend(&mut self, should_run: bool) {
        if self.running.as_ref().is_some_and(|running| running.thread.is_finished())
            && let Some(Running { thread, .. }) = self.running.take()
        {
            let ended = thread.join().unwrap_or_else(|_| Err("it panicked".to_owned()));
            self.fault = ended.err().map(|reason| format!("reflector: {reason}"));
            self.retry_at = Instant::now() + RETRY_DELAY;
        }
        match &self.running {
            Some(running) if !should_run => running.stop.store(true, Ordering::Relaxed),
            None if should_run && (self.fault.is_none() || self.retry_at <= Instant::now()) => {
                self.start();
            }
            _ => {}
        }
    }

    fn start(&mut self) {
        let stop = Arc::new(AtomicBool::new(false));
        let (job, flag) = (self.job.clone(), Arc::clone(&stop));
        let reflect = move || {
            let mut ready = |_: Option<&str>, lines: &[String]| {
                lines.iter().for_each(|line| crate::say(&format!("listening on {line}")));
            };
            let ended = crate::reflect::perform(&job, &flag, &mut ready);
            let failure = ended.map_or_else(Some, |outcome| outcome.failure);
            failure.map_or(Ok(()), |failure| Err(format!("{:#}", failure.error)))
        };
        match thread::Builder::new().name("reflector".into()).spawn(reflect) {
            Ok(thread) => self.running = Some(Running { stop, thread }),
            Err(error) => {
                self.fault = Some(format!("reflector: {error}"));
                self.retry_at = Instant::now() + RETRY_DELAY;
            }
        }
    }

    /// Whether it answers, or is about to end.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Why it does not answer.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}
