//! Processes: identities that no later process shares, handles that signal only the process they
//! were opened for, signals taken synchronously, detaching from the terminal.

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

use crate::sys::time::timespec;

/// Whether the other end of standard input is closed: the last writer of a pipe is gone, or the
/// terminal hung up. Unread bytes in a pipe do not count as an open end.
pub fn is_stdin_hung_up() -> bool {
    let mut stdin = libc::pollfd { fd: libc::STDIN_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid entry that outlives the call; a time-out of 0 does not wait.
    let ready = unsafe { libc::poll(&mut stdin, 1, 0) };
    ready == 1 && stdin.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// Returns the directories of programs, with those of system programs, which the PATH of an
/// ordinary user lacks on Debian.
pub fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Identity of a process: pids are reused, but not with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot (proc(5), `stat`, field 22).
    pub start: u64,
}

impl Identity {
    /// Returns the identity of the process that has this pid now.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start = start_time(&stat).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "cannot parse /proc/PID/stat")
        })?;
        Ok(Self { pid, start })
    }

    /// Returns the identity of this process.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Opens a handle to exactly this process; `None` if it has ended.
    pub fn open(self) -> Option<Handle> {
        let handle = Handle::open(self.pid).ok()?;
        // Checked after opening: if the pid still belongs to the process now, it did then.
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

/// Parses field 22 of a `stat` line. The name in field 2 may contain anything, including
/// parentheses.
fn start_time(stat: &str) -> Option<u64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// A handle to one process, never to a later one with the same pid (pidfd_open(2)).
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// Opens the process that has this pid now.
    ///
    /// # Errors
    /// There is no such process.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two integers and returns a descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor (close-on-exec) for us alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Sends a signal. A process that has already ended is not an error.
    ///
    /// # Errors
    /// Not permitted.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open; a null siginfo means that of kill(2).
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

    /// Waits at most `limit` until the process has ended; returns whether it has.
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

/// Signals that dwell's own background processes handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Signal {
    /// The terminal hung up.
    Hangup = libc::SIGHUP,
    /// ^C.
    Interrupt = libc::SIGINT,
    /// End in an orderly way.
    Terminate = libc::SIGTERM,
    /// End at once.
    Kill = libc::SIGKILL,
    /// Write the current results.
    Report = libc::SIGUSR1,
    /// Stop running, as ^Z does; cannot be blocked.
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

/// Blocked signals, which wait until they are taken. They stay blocked until the process ends. Only
/// threads started later inherit this (std unblocks them for child processes).
#[derive(Debug)]
pub struct BlockedSignals(libc::sigset_t);

/// Blocks `signals` for this thread and for threads that it starts.
///
/// # Errors
/// pthread_sigmask(3) failed.
pub fn block(signals: &[Signal]) -> io::Result<BlockedSignals> {
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
            0 => Ok(BlockedSignals(set)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl BlockedSignals {
    /// Takes one of the blocked signals, waiting at most `limit`.
    pub fn take(&self, limit: Nanos) -> Option<Signal> {
        let timeout = timespec(limit.max(Nanos::ZERO));
        // SAFETY: the set is initialised, the siginfo pointer may be null, the timeout is valid.
        let number = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &timeout) };
        Signal::ALL.into_iter().find(|signal| *signal as libc::c_int == number)
    }
}

/// Makes the kernel send `signal` to the child process of `command` when its parent ends, for
/// whatever reason (PR_SET_PDEATHSIG). This survives exec, except of a set-user-id program.
///
/// The kernel takes the *thread* that starts the child for its parent, so use a thread that lives
/// as long as the process, such as the main thread.
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
        // A parent that ended before the request sends no signal any more.
        if now == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: `ask` runs in the child between fork and exec: it makes two system calls and builds
    // errors from numbers, without allocating or locking.
    unsafe { command.pre_exec(ask) }
}

/// Whether all threads share one descriptor table.
static SHARED_DESCRIPTORS: AtomicBool = AtomicBool::new(false);

/// Makes all threads of this process share one descriptor table from now on. For a process that
/// continues after its measurements: their sockets must be closed, and the ports free, when they
/// end.
pub fn share_descriptors() {
    SHARED_DESCRIPTORS.store(true, Ordering::Relaxed);
}

/// Returns the id of the calling thread in the kernel.
pub fn thread_id() -> u32 {
    // SAFETY: the call has no preconditions, and ids are positive.
    unsafe { libc::gettid() as u32 }
}

/// Gives the calling thread a file descriptor table of its own. Threads that share one pay for a
/// lock in every system call on a descriptor: some 50 ns per round trip.
///
/// Descriptors opened before stay open in the other table until that ends, so this is for threads
/// whose sockets live as long as the process. Does nothing after [`share_descriptors`]. Returns
/// whether the thread has its own table.
pub fn own_descriptors() -> bool {
    if SHARED_DESCRIPTORS.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: copies this thread's descriptor table; every descriptor keeps its number.
    unsafe { libc::unshare(libc::CLONE_FILES) == 0 }
}

/// Releases the memory of the program's code that is resident, such as after a start that used parts
/// which a service does not need again. The kernel loads pages that are used again from the file, and
/// keeps them from then on, as after [`place_thread`](super::cpu::place_thread), if that is permitted.
///
/// # Errors
/// /proc is not mounted.
pub fn release_code() -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    for (start, end) in maps.lines().filter_map(code_range) {
        let (address, len) = (start as *mut libc::c_void, end - start);
        // SAFETY: the mapping is private, from a file, executable and not writable (proc_pid_maps(5)), so
        // its pages have the content of the file, which the kernel reads again when they are used.
        // Locked pages cannot be released.
        unsafe {
            libc::munlock(address, len);
            libc::madvise(address, len, libc::MADV_DONTNEED);
            libc::syscall(libc::SYS_mlock2, address, len, libc::MLOCK_ONFAULT);
        }
    }
    Ok(())
}

/// Addresses of a mapping of code from a file; `None` for any other line of proc_pid_maps(5).
fn code_range(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp";
    // Offset, device, inode, path: absolute for a file.
    let is_file = fields.nth(3)?.starts_with('/');
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    address(start).zip(address(end)).filter(|_| is_code && is_file)
}

/// Raises the limit of open descriptors to `wanted`, or to the hard limit if that is lower. Returns
/// the resulting limit.
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

/// Detaches from the caller's terminal and standard files: a new session, standard input and output
/// from and to /dev/null, standard error appended to `log`. The standard output that the caller
/// passed is closed.
///
/// # Errors
/// The log cannot be opened.
pub fn detach(log: &Path) -> io::Result<()> {
    let nowhere = File::open("/dev/null")?;
    let sink = OpenOptions::new().write(true).open("/dev/null")?;
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    // SAFETY: setsid touches no memory; it fails harmlessly in a session leader.
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
    fn released_code_is_loaded_again_when_used() {
        let line = "55d0c0000000-55d0c0010000 r-xp 00001000 fd:00 1234   /usr/bin/dwell-node";
        assert_eq!(code_range(line), Some((0x55d0_c000_0000, 0x55d0_c001_0000)));
        for other in [
            "55d0c0000000-55d0c0010000 r--p 00001000 fd:00 1234   /usr/bin/dwell-node",
            "7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0      [vdso]",
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code_range(other), None, "{other}");
        }
        let resident = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        // SAFETY: takes flags only. Where this is not permitted, nothing is locked.
        unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) };
        let before = resident();
        release_code().unwrap();
        let after = resident();
        // SAFETY: takes nothing.
        unsafe { libc::munlockall() };
        // Reading the size used some of it again.
        assert!(after < before, "{after} of {before} kB");
    }

    #[test]
    fn identity_matches_only_its_process() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert_eq!(identity.to_string().parse(), Ok(identity));
        assert!(Identity { start: identity.start + 1, ..identity }.open().is_none());
        let handle = identity.open().expect("it runs");
        handle.signal(Signal::Kill).unwrap();
        assert!(handle.wait(Nanos::from_secs(10)));
        child.wait().unwrap();
        assert!(identity.open().is_none());
        assert!(
            handle.signal(Signal::Terminate).is_ok(),
            "signalling an ended process is no error"
        );
    }

    #[test]
    fn child_ends_with_its_parent() {
        // Threads of the test runner come and go; the parent is the thread that starts the child.
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
    fn parentheses_in_process_name_do_not_shift_fields() {
        let fields: Vec<String> = (3..30).map(|n| n.to_string()).collect();
        assert_eq!(start_time(&format!("7 (a) b) ( 4 5) {}", fields.join(" "))), Some(22));
        assert_eq!(start_time("7 (a"), None);
        assert_eq!(start_time("7 (a) S 1"), None);
    }

    #[test]
    fn blocked_signal_waits_until_taken() {
        let blocked = block(&[Signal::Report]).unwrap();
        assert_eq!(blocked.take(Nanos::ZERO), None);
        let pid = std::process::id() as libc::pid_t;
        // SAFETY: the calling thread exists and blocks this signal. The signal is sent to this
        // thread alone, because other threads of the test process do not block it.
        let rc = unsafe { libc::syscall(libc::SYS_tgkill, pid, libc::gettid(), libc::SIGUSR1) };
        assert_eq!(rc, 0);
        assert_eq!(blocked.take(Nanos::from_secs(1)), Some(Signal::Report));
    }
}
