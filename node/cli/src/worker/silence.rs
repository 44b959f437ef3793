//! Ends a worker whose controller neither sends requests nor takes samples. A lost connection does not
//! always end standard input: if a network cable is pulled, sshd may wait for hours.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::jobs::RunningJobs;

/// Time of the last request, or at which samples were last taken. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct LastRequest(Arc<Mutex<Instant>>);

impl LastRequest {
    pub(super) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Notes a request, or that the controller has taken samples.
    pub(super) fn renew(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn elapsed(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// Starts a thread that ends all jobs and this process after `timeout` in which the controller
/// neither sent a request nor took samples. The main thread may be blocked in a write by then.
pub(super) fn watch(last: LastRequest, timeout: Duration, running: RunningJobs) {
    thread::spawn(move || {
        loop {
            let left = timeout.saturating_sub(last.elapsed());
            if left.is_zero() {
                break;
            }
            thread::sleep(left);
        }
        running.end();
        crate::say(&format!("dwell: no request for {} s: the node ends", timeout.as_secs_f64()));
        std::process::exit(crate::Exit::Failed as i32);
    });
}
