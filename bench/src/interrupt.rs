//! Handles ^C: sets a flag instead of ending the process, so that the lab is removed and results are
//! kept.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether SIGINT or SIGTERM was received.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT and SIGTERM. A second ^C ends the process at once.
    pub fn catch() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        // Order matters: at the first signal the flag must still be clear for the conditional
        // shutdown.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&flag))?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Returns an interrupt that never occurs.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Whether a signal was received.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
