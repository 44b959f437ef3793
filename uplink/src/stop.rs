//! The request to stop: SIGTERM or SIGINT.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that stop the program.
#[derive(Debug)]
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
    is_requested: bool,
}

impl Stop {
    /// Catches the signals from now on.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            is_requested: false,
        })
    }

    /// Waits for a signal. Returns at once after the first.
    pub(crate) async fn requested(&mut self) {
        if !self.is_requested {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            self.is_requested = true;
        }
    }
}
