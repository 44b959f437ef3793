//! A `dwell worker` process and its pipes.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dwell_protocol::{Event, Frame, Request, VERSION, read_frame, write_message};

use crate::FromNode;

/// Arguments of dwell that make it execute the jobs of a node.
pub(crate) const WORKER_ARGUMENTS: [&str; 1] = ["worker"];

/// Last lines of a node's standard error that are kept to explain why it ended.
const MAX_STDERR_LINES: usize = 4;

/// Time for a node to exit after its input is closed, before it is killed. A node exits within a
/// second.
const EXIT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// A message and the number of its connection. A released connection may still send messages.
pub(crate) type NodeMessage = (u64, FromNode);

/// A connection to a node.
#[derive(Debug)]
pub(crate) struct Connection {
    child: Child,
    /// `None` after the input was closed.
    input: Option<ChildStdin>,
    pub(crate) number: u64,
}

impl Connection {
    /// Starts the process. A thread forwards the node's messages to `messages`.
    pub(crate) fn open(
        mut command: Command,
        number: u64,
        messages: Sender<NodeMessage>,
    ) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child process has no pipes"));
        };
        let last_lines = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&last_lines);
        let stderr_reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push(line);
                if lines.len() > MAX_STDERR_LINES {
                    lines.remove(0);
                }
            }
        });
        thread::spawn(move || {
            let reason = forward_messages(&mut BufReader::new(output), number, &messages);
            // Standard error may end after the last event.
            let _ = stderr_reader.join();
            let lines = last_lines.lock().unwrap_or_else(PoisonError::into_inner).join("; ");
            let details = if lines.is_empty() { String::new() } else { format!(": {lines}") };
            let _ = messages.send((number, FromNode::Gone(format!("{reason}{details}"))));
        });
        Ok(Self { child, input: Some(input), number })
    }

    pub(crate) fn send(&mut self, request: &Request) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        write_message(input, request)
    }
}

/// Forwards messages until the stream ends or fails. Returns the reason.
fn forward_messages(
    from: &mut impl io::Read,
    number: u64,
    messages: &Sender<NodeMessage>,
) -> String {
    loop {
        let message = match read_frame::<Event>(from) {
            Ok(Some(Frame::Message(Event::Hello { version, dwell, .. }))) if version != VERSION => {
                return format!(
                    "node runs dwell {dwell} with node protocol version {version}; this dwell needs \
                     version {VERSION}"
                );
            }
            Ok(Some(Frame::Message(event))) => FromNode::Event(event),
            Ok(Some(Frame::Data(job, bytes))) => FromNode::Data(job, bytes),
            Ok(None) => return "its process ended".into(),
            Err(error) => return format!("its messages cannot be read: {error}"),
        };
        if messages.send((number, message)).is_err() {
            return "the receiver is gone".into();
        }
    }
}

impl Drop for Connection {
    /// Closes the node's input, which makes it stop all jobs and exit.
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
