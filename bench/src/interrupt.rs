//! ^C: noticed, not obeyed at once, so that the lab is removed and what was measured is kept.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether somebody asked this experiment to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT and SIGTERM from now on. A second ^C ends the process at once.
    pub fn catch() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        // The order matters: at the first signal the flag is still clear when this one looks.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&flag))?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// One that does not come.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Whether one came.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
