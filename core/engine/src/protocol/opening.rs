//! Opening of a session before the first probe: the open request is repeated until a reply arrives.

use dwell_units::{Instant, Monotonic, Nanos};

use super::Handshake;

/// When to send open requests. The caller reads replies with
/// [`Protocol::read_open`](super::Protocol::read_open) and stops polling once the session is open.
#[derive(Debug)]
pub struct Opening {
    /// Time-outs of the requests not yet sent.
    timeouts: std::slice::Iter<'static, Nanos>,
    /// Time-out of the last request.
    due: Instant<Monotonic>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenStep {
    /// Send an open request now.
    Send,
    /// Wait for a reply, at most until this time.
    WaitUntil(Instant<Monotonic>),
    /// No request was answered.
    TimedOut,
}

impl Opening {
    /// Sends the first request at `now`.
    pub fn new(handshake: &'static Handshake, now: Instant<Monotonic>) -> Self {
        Self { timeouts: handshake.timeouts.iter(), due: now }
    }

    /// Returns the next step. After [`OpenStep::Send`], poll again.
    pub fn poll(&mut self, now: Instant<Monotonic>) -> OpenStep {
        if now < self.due {
            return OpenStep::WaitUntil(self.due);
        }
        match self.timeouts.next() {
            Some(timeout) => {
                self.due = now + *timeout;
                OpenStep::Send
            }
            None => OpenStep::TimedOut,
        }
    }
}
