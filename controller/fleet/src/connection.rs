//! `dwell worker` processes and their pipes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dwell_protocol::{Event, Frame, Request, VERSION, read_frame, write_message};

use crate::{FleetError, FromNode};

/// Arguments of dwell that make it execute the jobs of a node.
pub(crate) const WORKER_ARGUMENTS: [&str; 1] = ["worker"];

/// Last lines of a node's standard error that are kept to explain why it ended.
const MAX_STDERR_LINES: usize = 4;

/// Time for a node to exit after its input is closed, before it is killed. A node exits within a
/// second.
const EXIT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// A message and the number of its connection. A released connection may still send messages.
type NodeMessage = (u64, FromNode);

/// The open connections of a fleet.
#[derive(Debug)]
pub(crate) struct Connections {
    nodes: BTreeMap<String, Connection>,
    /// Number of connections opened so far.
    opened: u64,
    sender: Sender<NodeMessage>,
    receiver: Receiver<NodeMessage>,
}

impl Default for Connections {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { nodes: BTreeMap::new(), opened: 0, sender, receiver }
    }
}

impl Connections {
    /// Sends a request to a node. Connects first by the command that `start` returns, if necessary.
    ///
    /// # Errors
    /// The command cannot be started, or the node has ended.
    pub(crate) fn request(
        &mut self,
        node: &str,
        request: &Request,
        start: impl FnOnce() -> Command,
    ) -> Result<(), FleetError> {
        let connection = match self.nodes.entry(node.to_owned()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => {
                let command = start();
                let program = command.get_program().to_string_lossy().into_owned();
                self.opened += 1;
                let opened = Connection::open(command, self.opened, self.sender.clone());
                new.insert(opened.map_err(|source| FleetError::Start { program, source })?)
            }
        };
        connection
            .send(request)
            .map_err(|source| FleetError::Gone { node: node.to_owned(), source })
    }

    /// Returns the next message of any node, waiting at most `wait`.
    pub(crate) fn next(&mut self, wait: Duration) -> Option<(String, FromNode)> {
        let (number, message) = self.receiver.recv_timeout(wait).ok()?;
        let open = self.nodes.iter().find(|(_, connection)| connection.number == number);
        // Messages of released connections are dropped.
        let node = open.map(|(node, _)| node.clone())?;
        if matches!(message, FromNode::Gone(_)) {
            self.nodes.remove(&node);
        }
        Some((node, message))
    }

    /// Closes the connection to a node.
    pub(crate) fn release(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Closes all connections. The nodes exit at the same time, not one after the other.
    pub(crate) fn close_all(&mut self) {
        for connection in self.nodes.values_mut() {
            connection.close();
        }
        self.nodes.clear();
    }
}

/// A connection to a node.
#[derive(Debug)]
struct Connection {
    child: Child,
    /// `None` after the input was closed.
    input: Option<ChildStdin>,
    /// Time at which the node is killed; `None` while the input is open.
    deadline: Option<Instant>,
    number: u64,
}

impl Connection {
    /// Starts the process. A thread forwards the node's messages to `messages`.
    fn open(mut command: Command, number: u64, messages: Sender<NodeMessage>) -> io::Result<Self> {
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
        Ok(Self { child, input: Some(input), deadline: None, number })
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        write_message(input, request)
    }

    /// Closes the node's input, which makes it stop all jobs and exit. Returns the time at which it
    /// is killed.
    fn close(&mut self) -> Instant {
        drop(self.input.take());
        *self.deadline.get_or_insert_with(|| Instant::now() + EXIT_TIMEOUT)
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
    /// Closes the connection and waits until the node has exited.
    fn drop(&mut self) {
        let deadline = self.close();
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
