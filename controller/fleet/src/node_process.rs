//! The child process that leads to a node, and its pipes. A device may hang at any step, so each step
//! can have a deadline.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Maximum length of a line from a device in bytes. Longer lines of standard error are split.
const MAX_LINE_LEN: u64 = 4_096;

/// Last lines of standard error that are kept to explain a failure.
const MAX_STDERR_LINES: usize = 4;

/// Maximum time until a stop request takes effect.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time for a process to exit after its input is closed, before it is killed. A node exits within a
/// second.
const EXIT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Time to wait for the end of standard error of a process that has exited.
const STDERR_END_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum length of a write that never blocks on a pipe that poll(2) reports as writable: PIPE_BUF.
const WRITE_LEN: usize = 4_096;

/// A running child process and its pipes. Dropping it ends the process and its process group.
#[derive(Debug)]
pub(crate) struct NodeProcess {
    pub(crate) group: ProcessGroup,
    pub(crate) input: ChildStdin,
    pub(crate) output: BufReader<TimedOutput>,
    pub(crate) errors: ErrorLines,
}

impl NodeProcess {
    /// Starts the command, which makes its own process group. `stop` ends every wait.
    pub(crate) fn start(mut command: Command, stop: Arc<AtomicBool>) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = ProcessGroup { child, deadline: None, is_over: false };
        let (Some(input), Some(output), Some(stderr)) = pipes else {
            return Err(io::Error::other("the child process has no pipes"));
        };
        let output = BufReader::new(TimedOutput { output, deadline: None, stop });
        Ok(Self { group, input, output, errors: ErrorLines::of(stderr) })
    }

    /// Limits the following reads.
    pub(crate) fn limit(&mut self, time: Duration) {
        self.output.get_mut().deadline = Some(Instant::now() + time);
    }

    /// Removes the limit of reads.
    pub(crate) fn unlimited(&mut self) {
        self.output.get_mut().deadline = None;
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// `TimedOut` at the deadline, `UnexpectedEof` if the output ended, `Interrupted` after a stop
    /// request.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.output).take(MAX_LINE_LEN).read_until(b'\n', &mut line)?;
        match line.pop() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&line).into_owned()),
            _ if line.len() as u64 + 1 >= MAX_LINE_LEN => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"))
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes a line.
    pub(crate) fn say(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes())
    }

    /// Copies `from` to the device. Ends early, without an error, if the device answers before it has
    /// everything.
    ///
    /// # Errors
    /// Those of `from`; `TimedOut` if nothing could be written for `timeout`.
    pub(crate) fn copy(&mut self, from: &mut impl Read, timeout: Duration) -> io::Result<()> {
        let mut piece = [0; WRITE_LEN];
        loop {
            let len = match from.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut rest = &piece[..len];
            while !rest.is_empty() {
                if !self.is_writable(Instant::now() + timeout)? {
                    return Ok(());
                }
                match self.input.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    // The device has ended the transfer; its answer says why.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Waits until the input is writable; `false` if there is output to read instead.
    fn is_writable(&self, deadline: Instant) -> io::Result<bool> {
        let (input, output) = (self.input.as_fd(), self.output.get_ref().output.as_fd());
        let mut pipes = [PollFd::new(&output, PollFlags::IN), PollFd::new(&input, PollFlags::OUT)];
        wait(&mut pipes, deadline, &self.output.get_ref().stop)?;
        Ok(pipes[0].revents().is_empty())
    }
}

/// Waits until one of the pipes is ready.
fn wait(pipes: &mut [PollFd<'_>], deadline: Instant, stop: &AtomicBool) -> io::Result<()> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "interrupted"));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let slice = Timespec::try_from(left.min(STOP_POLL_INTERVAL)).unwrap_or_default();
        match poll(pipes, Some(&slice)) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Standard output of the process, with a deadline.
#[derive(Debug)]
pub(crate) struct TimedOutput {
    output: ChildStdout,
    /// `None` waits without limit, and regardless of `stop`.
    deadline: Option<Instant>,
    stop: Arc<AtomicBool>,
}

impl Read for TimedOutput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let output = self.output.as_fd();
            wait(&mut [PollFd::new(&output, PollFlags::IN)], deadline, &self.stop)?;
        }
        self.output.read(bytes)
    }
}

/// The process group of a child, which leads it.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    child: Child,
    /// Time at which it is killed; `None` while it is in use.
    deadline: Option<Instant>,
    is_over: bool,
}

impl ProcessGroup {
    /// Starts the time after which the process is killed. Its input was closed.
    pub(crate) fn ending(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + EXIT_TIMEOUT);
    }

    /// Kills the process and its children, such as a proxy command, and waits for its end.
    pub(crate) fn kill(&mut self) {
        if self.is_over {
            return;
        }
        // The group exists until its leader has been waited for.
        let _ = self.id().map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
        self.is_over = true;
    }

    fn id(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Whether the process has exited. It remains a zombie.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = self.id().map(|id| waitid(WaitId::Pid(id), options));
        self.is_over || !matches!(ended, Some(Ok(None)))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let deadline = self.deadline.unwrap_or_else(Instant::now);
        while !self.has_exited() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        self.kill();
    }
}

/// The last lines of standard error.
#[derive(Debug)]
pub(crate) struct ErrorLines {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl ErrorLines {
    fn of(stderr: ChildStderr) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            loop {
                let mut line = Vec::new();
                match (&mut stderr).take(MAX_LINE_LEN).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                let mut lines = kept.lock().unwrap_or_else(PoisonError::into_inner);
                lines.extend((!line.is_empty()).then_some(line));
                if lines.len() > MAX_STDERR_LINES {
                    lines.pop_front();
                }
            }
        });
        Self { lines, reader }
    }

    /// Waits for the end of standard error, which a process in the background may delay without
    /// limit, and returns its last lines.
    pub(crate) fn at_end(&self) -> String {
        let deadline = Instant::now() + STDERR_END_TIMEOUT;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> NodeProcess {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        NodeProcess::start(command, Arc::default()).unwrap()
    }

    #[test]
    fn noisy_standard_error_is_kept_in_part() {
        // 8 MiB without the end of a line, then lines.
        let mut noisy =
            run("head -c 8388608 /dev/zero | tr '\\0' x >&2; printf '\na\n\nb' >&2; echo done");
        noisy.limit(Duration::from_secs(60));
        assert_eq!(noisy.line().unwrap(), "done");
        let errors = noisy.errors.at_end();
        assert!(errors.ends_with("x; a; b"), "{}", errors.len());
        assert!(errors.len() <= MAX_STDERR_LINES * MAX_LINE_LEN as usize, "{}", errors.len());
    }
}
