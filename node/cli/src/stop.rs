//! Stopping on SIGINT and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Sets `stop` on SIGINT or SIGTERM. A second SIGINT ends the process at once.
pub fn on_signal(stop: &Arc<AtomicBool>) -> io::Result<()> {
    // The order matters: at the first signal the flag is still clear when this one looks.
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(stop))?;
    flag::register(SIGINT, Arc::clone(stop))?;
    flag::register(SIGTERM, Arc::clone(stop))?;
    Ok(())
}

/// From now on SIGINT does nothing.
pub(crate) fn ignore_interrupts() -> io::Result<()> {
    flag::register(SIGINT, Arc::default()).map(drop)
}
