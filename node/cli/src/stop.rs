//! Stopping on SIGINT and SIGTERM, and on SIGHUP where that is wanted.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Sets `stop` on SIGINT or SIGTERM. A second SIGINT ends the process at once.
pub fn on_signal(stop: &Arc<AtomicBool>) -> io::Result<()> {
    // The order matters: at the first signal the flag is still clear when this one looks.
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(stop))?;
    on_signal_only(stop)
}

/// The same for whoever has to put something back first: no further SIGINT ends the process.
pub(crate) fn on_signal_only(stop: &Arc<AtomicBool>) -> io::Result<()> {
    flag::register(SIGINT, Arc::clone(stop))?;
    flag::register(SIGTERM, Arc::clone(stop))?;
    Ok(())
}

/// Sets `stop` on SIGHUP, the end of the terminal, too. Under nohup it stays ignored.
pub fn on_hangup(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    if !ignores(&status, SIGHUP) {
        flag::register(SIGHUP, Arc::clone(stop))?;
    }
    Ok(())
}

/// Whether a process with this status (proc_pid_status(5)) ignores a signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// From now on SIGINT does nothing.
pub(crate) fn ignore_interrupts() -> io::Result<()> {
    flag::register(SIGINT, Arc::default()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_told_by_its_bit() {
        assert!(ignores("Name:\tdwell\nSigIgn:\t0000000000001001\n", SIGHUP));
        assert!(!ignores("SigIgn:\t0000000000001000\n", SIGHUP));
        assert!(!ignores("", SIGHUP));
    }
}
