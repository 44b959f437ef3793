//! Other processes and this one as a process: an identity that no later process shares, a handle
//! that signals only whom it was opened for, signals taken when it suits, leaving the terminal.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_units::Nanos;

/// Whether the other end of standard input is closed: the last writer of a pipe is gone, or the
/// terminal hung up. Bytes that are still in a pipe do not count as an open end.
pub fn is_stdin_hung_up() -> bool {
    let mut stdin = libc::pollfd { fd: libc::STDIN_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid entry that outlives the call; a time-out of 0 does not wait.
    let ready = unsafe { libc::poll(&mut stdin, 1, 0) };
    ready == 1 && stdin.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// A process, for good: numbers of processes are used again, but not with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The number.
    pub pid: u32,
    /// When it was started, in clock ticks since boot (proc(5), `stat`, field 22).
    pub start: u64,
}

impl Identity {
    /// The process that has the number `pid` now.
    ///
    /// # Errors
    /// There is none.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start = start_time(&stat)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "odd /proc/PID/stat"))?;
        Ok(Self { pid, start })
    }

    /// This process.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// A handle to this very process, or `None` if it has ended.
    pub fn open(self) -> Option<Handle> {
        let handle = Handle::open(self.pid).ok()?;
        // Looked up after opening: if the number still belongs to it now, it did when opening.
        (Self::of(self.pid).ok()? == self && handle.is_running()).then_some(handle)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.start)
    }
}

impl FromStr for Identity {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pid, start) = text.trim().split_once(' ').ok_or(())?;
        Ok(Self { pid: pid.parse().map_err(drop)?, start: start.parse().map_err(drop)? })
    }
}

/// Field 22 of a `stat` line. The name in field 2 may hold anything, parentheses included.
fn start_time(stat: &str) -> Option<u64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// A handle to one process; never to another that got its number later (pidfd_open(2)).
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// Opens the process that has the number `pid` now.
    ///
    /// # Errors
    /// There is none.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two integers and returns a descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor (close-on-exec) for us alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Sends a signal; one that has ended already is fine.
    ///
    /// # Errors
    /// Not allowed.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open; a null siginfo asks for what kill(2) would send.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal as libc::c_int,
                no_info,
                0,
            )
        };
        match rc {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                gone if gone.raw_os_error() == Some(libc::ESRCH) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Waits until the process has ended, at most for `limit`; says whether it has.
    pub fn wait(&self, limit: Nanos) -> bool {
        let mut one = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = i32::try_from(limit.0 / 1_000_000).unwrap_or(i32::MAX);
        // SAFETY: one pollfd, exclusively borrowed for the call.
        (unsafe { libc::poll(&mut one, 1, ms) }) == 1
    }

    fn is_running(&self) -> bool {
        !self.wait(Nanos::ZERO)
    }
}

/// The signals that dwell's own background processes understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Signal {
    /// The terminal is gone.
    Hangup = libc::SIGHUP,
    /// ^C.
    Interrupt = libc::SIGINT,
    /// End, please.
    Terminate = libc::SIGTERM,
    /// End, now.
    Kill = libc::SIGKILL,
    /// Write down what you have.
    Report = libc::SIGUSR1,
    /// Stop running, as ^Z does; cannot be held back.
    Stop = libc::SIGSTOP,
    /// Run again.
    Continue = libc::SIGCONT,
}

impl Signal {
    const ALL: [Self; 7] = [
        Self::Hangup,
        Self::Interrupt,
        Self::Terminate,
        Self::Kill,
        Self::Report,
        Self::Stop,
        Self::Continue,
    ];
}

/// Signals that no longer interrupt but wait to be asked for. They stay so until the process ends;
/// threads started later and nothing else inherit it (std clears it for child processes).
#[derive(Debug)]
pub struct Held(libc::sigset_t);

/// Holds `signals` back from this thread and from threads it starts.
///
/// # Errors
/// Not on Linux as we know it.
pub fn hold(signals: &[Signal]) -> io::Result<Held> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given; sigaddset and pthread_sigmask get that
    // initialised set and signal numbers that exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for signal in signals {
            libc::sigaddset(&mut set, *signal as libc::c_int);
        }
        match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
            0 => Ok(Held(set)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Held {
    /// Takes one of the held signals, waiting for it at most `limit`.
    pub fn take(&self, limit: Nanos) -> Option<Signal> {
        let limit = limit.0.max(0);
        let timeout = libc::timespec {
            tv_sec: (limit / 1_000_000_000) as libc::time_t,
            tv_nsec: (limit % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the set is initialised, the siginfo pointer may be null, the timeout is valid.
        let number = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &timeout) };
        Signal::ALL.into_iter().find(|signal| *signal as libc::c_int == number)
    }
}

/// Lets the process that `command` starts get `signal` when its parent ends, however that comes about
/// (PR_SET_PDEATHSIG). It stays so when the process becomes another program, unless that has
/// privileges of its own (set-user-id).
///
/// The kernel takes the *thread* that starts it for the parent, so this is for a thread that lives as
/// long as the process, such as the main one.
pub fn end_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    let parent = std::process::id() as libc::pid_t;
    let ask = move || {
        // SAFETY: both calls only concern the calling process and touch no memory.
        let (set, now) = unsafe {
            (libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong), libc::getppid())
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        // A parent that ended before we asked sends no signal any more.
        if now == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: `ask` runs in the child between fork and exec: it makes two system calls and builds
    // errors from numbers, without allocating or locking.
    unsafe { command.pre_exec(ask) }
}

/// Whether all threads keep to one table of descriptors.
static SHARED: AtomicBool = AtomicBool::new(false);

/// From now on all threads of this process keep to one table of descriptors: for a process that goes
/// on after its measurements, whose sockets are to be closed, and their ports free, when they end.
pub fn share_descriptors() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Gives the calling thread a table of file descriptors of its own. Threads that share one pay for
/// a lock in every system call on a descriptor: some 50 ns of a round trip.
///
/// What was open before stays open in the other table too, until that ends; so this is for threads
/// whose sockets live as long as the process, and does nothing after [`share_descriptors`]. Returns
/// whether the thread has one.
pub fn own_descriptors() -> bool {
    if SHARED.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: copies this thread's descriptor table; every descriptor keeps its number.
    unsafe { libc::unshare(libc::CLONE_FILES) == 0 }
}

/// Lets this process have `wanted` descriptors at a time, as far as its hard limit goes; returns how
/// many it may have now.
pub fn allow_descriptors(wanted: u64) -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit64.
    if unsafe { libc::getrlimit64(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return 0;
    }
    let before = limit.rlim_cur;
    if before >= wanted {
        return before;
    }
    limit.rlim_cur = limit.rlim_max.min(wanted);
    // SAFETY: the kernel reads one rlimit64.
    let raised = unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, &limit) } == 0;
    if raised { limit.rlim_cur } else { before }
}

/// Leaves the caller's terminal and standard files behind: a session of its own, input and output
/// nowhere, errors appended to `log`. What the caller passed as standard output is let go of.
///
/// # Errors
/// The log cannot be opened.
pub fn detach(log: &Path) -> io::Result<()> {
    let nowhere = File::open("/dev/null")?;
    let sink = OpenOptions::new().write(true).open("/dev/null")?;
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    // SAFETY: setsid touches no memory; it fails harmlessly where we lead a session already.
    unsafe { libc::setsid() };
    for (file, number) in [(&nowhere, 0), (&sink, 1), (&log, 2)] {
        // SAFETY: both are descriptors of this process, and std never closes 0, 1 and 2.
        if unsafe { libc::dup2(file.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn an_identity_outlives_its_process_and_fits_no_other() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert_eq!(identity.to_string().parse(), Ok(identity));
        assert!(Identity { start: identity.start + 1, ..identity }.open().is_none());
        let handle = identity.open().expect("it runs");
        handle.signal(Signal::Kill).unwrap();
        assert!(handle.wait(Nanos::from_secs(10)));
        child.wait().unwrap();
        assert!(identity.open().is_none());
        assert!(handle.signal(Signal::Terminate).is_ok(), "signalling the dead does no harm");
    }

    #[test]
    fn a_child_ends_with_the_parent_that_asked_for_it() {
        // The test runner's threads come and go; the thread that starts the child is the parent.
        let (child, handle) = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            let child = end_with_parent(command.arg("60"), Signal::Terminate).spawn().unwrap();
            let handle = Handle::open(child.id()).unwrap();
            assert!(!handle.wait(Nanos::from_millis(50)), "it lives while its parent does");
            (child, handle)
        })
        .join()
        .unwrap();
        let mut child = child;
        let ended = handle.wait(Nanos::from_secs(10));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ended, "it ends with its parent");
    }

    #[test]
    fn a_name_full_of_parentheses_does_not_shift_the_fields() {
        let fields: Vec<String> = (3..30).map(|n| n.to_string()).collect();
        assert_eq!(start_time(&format!("7 (a) b) ( 4 5) {}", fields.join(" "))), Some(22));
        assert_eq!(start_time("7 (a"), None);
        assert_eq!(start_time("7 (a) S 1"), None);
    }

    #[test]
    fn a_held_signal_waits_until_it_is_taken() {
        let held = hold(&[Signal::Report]).unwrap();
        assert_eq!(held.take(Nanos::ZERO), None);
        let pid = std::process::id() as libc::pid_t;
        // SAFETY: the calling thread exists, and it holds this signal back. The signal is meant
        // for this thread alone, for others of the test process do not hold it.
        let rc = unsafe { libc::syscall(libc::SYS_tgkill, pid, libc::gettid(), libc::SIGUSR1) };
        assert_eq!(rc, 0);
        assert_eq!(held.take(Nanos::from_secs(1)), Some(Signal::Report));
    }
}
