//! This node's clock: readings for the controller, and the state that daemons report.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use dwell_host::{ChronyTracking, ClockState, PtpStatus};
use dwell_protocol::Event;

/// Maximum run time of a program that asks a daemon.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum length of its output in bytes.
const MAX_OUTPUT_LEN: u64 = 1 << 14;

const CHRONYC: [&str; 4] = ["chronyc", "-n", "-c", "tracking"];
const PMC: [&str; 5] = ["pmc", "-u", "-b", "0", "GET TIME_STATUS_NP"];

/// Returns the answer to a request for the clock.
pub(super) fn reading(id: u32) -> Event {
    let read = dwell_io::clock::read_all();
    Event::Clock {
        id,
        realtime_ns: read.real.as_nanos(),
        monotonic_ns: read.mono.as_nanos(),
        raw_ns: read.raw_ns,
        width_ns: read.width.0,
    }
}

/// The daemons of the clock, as they reported themselves at the first request. Their programs run once
/// per connection, because they take CPU time, or a second if a daemon hangs, before each trial. Clones
/// share the reports.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockDaemons(Arc<OnceLock<(Option<ChronyTracking>, Option<PtpStatus>)>>);

impl ClockDaemons {
    /// Reads the state of the clock. Takes up to [`PROGRAM_TIMEOUT`].
    pub(super) fn clock_state(&self) -> ClockState {
        let (chrony, ptp) = self.0.get_or_init(reports).clone();
        ClockState { kernel: dwell_io::clock::kernel_clock(), chrony, ptp }
    }
}

fn reports() -> (Option<ChronyTracking>, Option<PtpStatus>) {
    thread::scope(|scope| {
        let chrony = scope.spawn(|| ChronyTracking::parse(&output(&CHRONYC, PROGRAM_TIMEOUT)?));
        let ptp = PtpStatus::parse(&output(&PMC, PROGRAM_TIMEOUT).unwrap_or_default());
        (chrony.join().ok().flatten(), ptp)
    })
}

/// Returns the output of a program; `None` if it is not installed or does not end within `timeout`.
fn output(program: &[&str], timeout: Duration) -> Option<String> {
    let (name, arguments) = program.split_first()?;
    let mut command = Command::new(name);
    command.args(arguments).env("PATH", dwell_io::process::search_path()).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    // A descendant that keeps the pipe open delays this thread only.
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(MAX_OUTPUT_LEN).read_to_end(&mut bytes);
        let _ = sender.send(read.map(|_| bytes));
    });
    let bytes = receiver.recv_timeout(timeout).ok();
    let _ = child.kill();
    let _ = child.wait();
    Some(String::from_utf8_lossy(&bytes?.ok()?).into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn program_that_hangs_or_is_missing_has_no_output() {
        let start = Instant::now();
        // The shell's child keeps the pipe open.
        let hanging = ["sh", "-c", "echo x; sleep 30 & wait"];
        assert_eq!(output(&hanging, Duration::from_millis(100)), None);
        assert_eq!(output(&["dwell-no-such-program"], PROGRAM_TIMEOUT), None);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(output(&["echo", "x"], Duration::from_secs(20)).as_deref(), Some("x\n"));
        let endless = output(&["yes"], Duration::from_secs(20)).unwrap();
        assert_eq!(endless.len() as u64, MAX_OUTPUT_LEN);
    }
}
