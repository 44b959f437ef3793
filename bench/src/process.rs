//! Child processes of a benchmark: measurements that end on their own, and servers that are
//! stopped. Each has its own process group, so that ^C on the terminal reaches only the benchmark,
//! which passes it on once.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use dwell_io::process::{self, end_with_parent};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::Interrupt;

/// Time-out for a process to become ready, and to end when asked to.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Time-out for an interrupted measurement to conclude, which includes removing its lab.
const CONCLUDE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval for checking processes and the interrupt; coarse, to disturb little.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Exit status and standard output of a measurement.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
}

/// Runs `command` to its end, with its standard error on ours. Passes an interrupt on and gives the
/// command time to conclude, also if this process is killed.
pub fn finish(mut command: Command, interrupt: &Interrupt) -> Result<Finished> {
    let what = describe(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = OwnedChild::spawn(&mut command, &what, process::Signal::Terminate)?;
    let mut pipe = child.0.stdout.take().context("no pipe from standard output")?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).map(|_| text)
    });
    while child.0.try_wait()?.is_none() {
        if interrupt.came() {
            child.end_within(CONCLUDE_TIMEOUT);
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
    let status = child.0.wait()?;
    let text = reader.join().map_err(|_| anyhow!("the reader of {what} panicked"))??;
    Ok(Finished { status, stdout: String::from_utf8_lossy(&text).into_owned() })
}

/// A background server or load, stopped on drop at the latest.
#[derive(Debug)]
pub struct Server {
    child: OwnedChild,
    lines: Receiver<Line>,
    what: String,
    stdout: String,
    talk: String,
}

#[derive(Debug)]
enum Line {
    Stdout(String),
    Stderr(String),
}

impl Server {
    /// Starts `command` and waits for a line with `ready`, if given, on either output.
    pub fn start(command: Command, ready: Option<&str>) -> Result<Self> {
        Self::start_within(command, ready, GRACE_PERIOD)
    }

    /// Like [`Self::start`], with another time-out.
    pub fn start_within(
        mut command: Command,
        ready: Option<&str>,
        timeout: Duration,
    ) -> Result<Self> {
        let what = describe(&command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = OwnedChild::spawn(&mut command, &what, process::Signal::Kill)?;
        let (sender, lines) = mpsc::channel();
        if let Some(pipe) = child.0.stdout.take() {
            let sender = sender.clone();
            thread::spawn(move || forward(pipe, |line| sender.send(Line::Stdout(line)).is_ok()));
        }
        if let Some(pipe) = child.0.stderr.take() {
            thread::spawn(move || forward(pipe, |line| sender.send(Line::Stderr(line)).is_ok()));
        }
        let mut server = Self { child, lines, what, stdout: String::new(), talk: String::new() };
        if let Some(ready) = ready {
            server.await_line(ready, timeout)?;
        }
        Ok(server)
    }

    /// Waits for a process that ends by itself. Returns its standard output.
    ///
    /// # Errors
    /// It failed, did not end in time, or an interrupt came.
    pub fn finish(mut self, timeout: Duration, interrupt: &Interrupt) -> Result<String> {
        let deadline = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.0.try_wait()? {
                break status;
            }
            if interrupt.came() {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                bail!("{} did not end within {timeout:?}", self.what);
            }
            thread::sleep(POLL_INTERVAL);
        };
        self.drain();
        if !status.success() {
            bail!("{} failed ({status}): {}", self.what, self.talk.trim());
        }
        Ok(std::mem::take(&mut self.stdout))
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Stops the server and returns its standard output.
    pub fn stop(mut self) -> Result<String> {
        if let Some(status) = self.child.0.try_wait()? {
            self.drain();
            bail!("{} ended unexpectedly ({status}): {}", self.what, self.talk.trim());
        }
        self.child.end();
        self.drain();
        Ok(std::mem::take(&mut self.stdout))
    }

    fn await_line(&mut self, ready: &str, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let (Line::Stdout(text) | Line::Stderr(text)) = &line;
                    let found = text.contains(ready);
                    self.keep(line);
                    if found {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} did not print '{ready}' within {timeout:?}", self.what)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{} ended at its start: {}", self.what, self.talk.trim())
                }
            }
        }
    }

    fn keep(&mut self, line: Line) {
        let (into, text) = match line {
            Line::Stdout(text) => (&mut self.stdout, text),
            Line::Stderr(text) => (&mut self.talk, text),
        };
        into.push_str(&text);
    }

    /// Reads what is left in the pipes; the process has ended, so the readers end too.
    fn drain(&mut self) {
        let deadline = Instant::now() + GRACE_PERIOD;
        while let Ok(line) =
            self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.keep(line);
        }
    }
}

/// A child that gets a signal when this process is killed. Must be started by the main thread.
#[derive(Debug)]
struct OwnedChild(Child);

impl OwnedChild {
    fn spawn(command: &mut Command, what: &str, signal: process::Signal) -> Result<Self> {
        end_with_parent(command.process_group(0), signal)
            .spawn()
            .map(Self)
            .with_context(|| format!("cannot start {what}"))
    }

    fn end(&mut self) {
        self.end_within(GRACE_PERIOD);
    }

    /// Sends SIGINT, and SIGKILL after the grace period.
    fn end_within(&mut self, grace: Duration) {
        let pid = Pid::from_child(&self.0);
        let deadline = Instant::now() + grace;
        if matches!(self.0.try_wait(), Ok(None)) {
            // The child may end in between; it is not reaped yet, so the process id is still valid.
            let _ = kill_process(pid, Signal::INT);
        }
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            thread::sleep(POLL_INTERVAL / 5);
        }
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        self.end();
    }
}

/// Forwards every line, with its end, until the pipe closes or the receiver is gone.
fn forward(pipe: impl Read, mut hand_on: impl FnMut(String) -> bool) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        if !hand_on(String::from_utf8_lossy(&line).into_owned()) {
            return;
        }
        line.clear();
    }
}

/// Raises the limit of descriptors of this process, and of those that it starts.
pub(crate) fn raise_descriptors(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")?;
    }
    Ok(())
}

/// Formats the command line.
fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn server_waits_for_ready_line_and_keeps_output() {
        let script = "trap 'echo summary; exit 0' INT; echo listening on x >&2; \
                      while :; do sleep 0.01; done";
        let server = Server::start(sh(script), Some("listening on")).unwrap();
        assert_eq!(server.stop().unwrap(), "summary\n");
    }

    #[test]
    fn server_exit_at_start_reports_output() {
        let error = Server::start(sh("echo no port >&2; exit 4"), Some("listening")).unwrap_err();
        assert!(error.to_string().contains("no port"), "{error}");
    }

    #[test]
    fn stopping_dead_server_fails() {
        let server = Server::start(sh("echo listening; exec 1>&-; exit 3"), Some("listening"));
        let mut server = server.unwrap();
        server.child.0.wait().unwrap();
        let error = server.stop().unwrap_err();
        assert!(error.to_string().contains("ended unexpectedly"), "{error}");
    }

    #[test]
    fn measurement_returns_output_and_status() {
        let interrupt = Interrupt::catch().unwrap();
        let finished = finish(sh("echo result; exit 3"), &interrupt).unwrap();
        assert_eq!((finished.stdout.as_str(), finished.status.code()), ("result\n", Some(3)));
    }
}
