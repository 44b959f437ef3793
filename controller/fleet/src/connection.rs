//! A `dwell serve` process and its pipes.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dwell_protocol::{Event, Frame, Request, VERSION, read_frame, write_message};

use crate::FromNode;

/// Last lines of a node's standard error that are kept to explain why it ended.
const MAX_STDERR_LINES: usize = 4;

/// Time for a node to exit after its input is closed, before it is killed. A node exits within a
/// second.
const EXIT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// A message and the number of the connection it came from. A released connection may still send.
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
    /// Starts the process. A thread sends its messages to `told`.
    pub(crate) fn open(
        mut command: Command,
        number: u64,
        told: Sender<NodeMessage>,
    ) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output), Some(talk)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child process has no pipes"));
        };
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let listening = thread::spawn(move || {
            for line in BufReader::new(talk).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(line);
                if kept.len() > MAX_STDERR_LINES {
                    kept.remove(0);
                }
            }
        });
        thread::spawn(move || {
            let why = forward_messages(&mut BufReader::new(output), number, &told);
            // Standard error may end after the last event.
            let _ = listening.join();
            let lines = lines.lock().unwrap_or_else(PoisonError::into_inner).join("; ");
            let said = if lines.is_empty() { String::new() } else { format!(": {lines}") };
            let _ = told.send((number, FromNode::Gone(format!("{why}{said}"))));
        });
        Ok(Self { child, input: Some(input), number })
    }

    pub(crate) fn send(&mut self, request: &Request) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        write_message(input, request)
    }
}

/// Forwards messages until the stream ends or fails. Returns the reason.
fn forward_messages(from: &mut impl io::Read, number: u64, told: &Sender<NodeMessage>) -> String {
    loop {
        let what = match read_frame::<Event>(from) {
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
        if told.send((number, what)).is_err() {
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
