//! The process of an experiment. It is not a part of the server: it goes on when the server ends,
//! and a later server finds it again by its number and start time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process that can be recognised later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Its number.
    pub(super) pid: i32,
    /// Start time in clock ticks since boot, from `/proc/PID/stat`.
    pub(super) start: u64,
    /// Boot of the kernel, from `/proc/sys/kernel/random/boot_id`.
    pub(super) boot: String,
}

impl Process {
    /// Returns the process that has this number now.
    fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start: start_time(pid)?, boot: boot_id() })
    }

    /// Whether it has not ended.
    pub(super) fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.start) && boot_id() == self.boot
    }

    /// Sends SIGINT, which makes `dwell run` discard the current trial and end. Returns whether the
    /// process was alive.
    ///
    /// # Errors
    /// The process belongs to another user.
    pub(super) fn interrupt(&self) -> io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(false) };
        // The descriptor refers to one process for ever, so the check after it is of that one.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(false) };
        if !self.is_alive() {
            return Ok(false);
        }
        match pidfd_send_signal(&process, Signal::INT) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds the process that was started with this argument.
    pub(super) fn with_argument(argument: &OsString) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt as _;
        let processes = fs::read_dir("/proc").ok()?;
        let mut numbers =
            processes.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        let is_it = |pid: &i32| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.split(|byte| *byte == 0).any(|one| one == argument.as_bytes())
        };
        numbers.find(is_it).and_then(Self::of)
    }
}

/// Start time of a process in clock ticks since boot; `None` if no process has it, or it has ended and
/// is only waited for.
fn start_time(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Field 22 of proc_pid_stat(5); the state is field 3.
    fields.nth(18)?.parse().ok()
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Starts a program in a process group of its own, so that ^C on the terminal of the server does not
/// reach it. Its output is appended to `log`.
///
/// # Errors
/// It cannot be started.
pub(super) fn start(program: &Path, arguments: &[OsString], log: &Path) -> io::Result<Process> {
    let log = File::options().append(true).create(true).open(log)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    // Not waited for yet, so its number is not in use by another process.
    let process = Process::of(pid);
    // Waits for the process, so that the kernel forgets it when it has ended.
    let waiting = std::thread::Builder::new().name("experiment".into()).stack_size(64 << 10);
    waiting.spawn(move || child.wait())?;
    // It may have ended already.
    Ok(process.unwrap_or(Process { pid, start: 0, boot: boot_id() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_recognised_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let marker = OsString::from(format!("60.0{}", std::process::id()));
        let log = dir.path().join("log");
        let process = start(Path::new("sleep"), std::slice::from_ref(&marker), &log).unwrap();
        assert!(process.is_alive());
        // Between fork and exec it still has the arguments of this program.
        let found =
            std::iter::repeat_with(|| Process::with_argument(&marker)).find(Option::is_some);
        assert_eq!(found.flatten(), Some(process.clone()));
        let other = Process { start: process.start + 1, ..process.clone() };
        assert!(!other.is_alive() && !other.interrupt().unwrap(), "another process of this number");
        let earlier = Process { boot: "earlier".into(), ..process.clone() };
        assert!(!earlier.is_alive(), "a process before the last boot");
        assert!(process.interrupt().unwrap());
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(!process.interrupt().unwrap());
    }
}
