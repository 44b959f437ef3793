//! Flags set by signals: SIGINT and SIGTERM stop, and optionally SIGHUP; SIGCONT continues.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Sets `stop` on SIGINT or SIGTERM. A second SIGINT ends the process immediately.
pub fn on_signal(stop: &Arc<AtomicBool>) -> io::Result<()> {
    // Registered first: at the first signal this handler must still find the flag clear.
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(stop))?;
    on_signal_only(stop)
}

/// Like [`on_signal`], but a second SIGTERM also ends the process immediately: for a program whose threads
/// may wait for a server that does not answer.
pub fn on_signal_or_end(stop: &Arc<AtomicBool>) -> io::Result<()> {
    flag::register_conditional_shutdown(SIGTERM, 143, Arc::clone(stop))?;
    on_signal(stop)
}

/// Like [`on_signal`], but a second SIGINT does not end the process, so that clean-up completes.
pub(crate) fn on_signal_only(stop: &Arc<AtomicBool>) -> io::Result<()> {
    flag::register(SIGINT, Arc::clone(stop))?;
    flag::register(SIGTERM, Arc::clone(stop))?;
    Ok(())
}

/// Sets `stop` on SIGHUP as well, unless SIGHUP is ignored, as under nohup.
pub fn on_hangup(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    if !ignores(&status, SIGHUP) {
        flag::register(SIGHUP, Arc::clone(stop))?;
    }
    Ok(())
}

/// Sets `continued` whenever a stopped process continues (SIGCONT).
pub fn on_continue(continued: &Arc<AtomicBool>) -> io::Result<()> {
    flag::register(SIGCONT, Arc::clone(continued)).map(drop)
}

/// Whether a process with this status (proc_pid_status(5)) ignores `signal`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Makes SIGINT have no effect.
pub(crate) fn ignore_interrupts() -> io::Result<()> {
    flag::register(SIGINT, Arc::default()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signal_is_read_from_the_mask() {
        assert!(ignores("Name:\tdwell\nSigIgn:\t0000000000001001\n", SIGHUP));
        assert!(!ignores("SigIgn:\t0000000000001000\n", SIGHUP));
        assert!(!ignores("", SIGHUP));
    }
}
