//! `dwell worker` processes and their pipes.

use std::collections::BTreeMap;
use std::io;
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dwell_protocol::{Event, Frame, Request, VERSION, read_frame, write_message};

use crate::keepalive::Keepalive;
use crate::node_clock::NodeClock;
use crate::node_process::{NodeProcess, ProcessGroup};
use crate::{ClockDomain, ClockReadings, FleetError, FromNode, TrialEdge};

/// Arguments of dwell that make it execute the jobs of a node.
pub(crate) const WORKER_ARGUMENTS: [&str; 1] = ["worker"];

/// Maximum number of messages from a node that wait to be taken. A node that sends more is not read, so
/// that it cannot fill the memory.
const MAX_WAITING_MESSAGES: usize = 64;

/// A message and the number of its connection. A released connection may still send messages.
type NodeMessage = (u64, FromNode);

/// The open connections of a fleet.
#[derive(Debug)]
pub(crate) struct Connections {
    nodes: BTreeMap<String, Connection>,
    /// Number of connections opened so far.
    opened: u64,
    /// `None` if idle nodes need no requests.
    keepalive: Option<Keepalive>,
    sender: Sender<NodeMessage>,
    receiver: Receiver<NodeMessage>,
}

impl Default for Connections {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { nodes: BTreeMap::new(), opened: 0, keepalive: None, sender, receiver }
    }
}

impl Connections {
    /// Returns connections that carry a request from time to time, because the nodes end otherwise.
    pub(crate) fn with_keepalive() -> Self {
        Self { keepalive: Some(Keepalive::start()), ..Self::default() }
    }

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
        if !self.is_open(node) {
            let command = start();
            let program = command.get_program().to_string_lossy().into_owned();
            let process = NodeProcess::start(command, Arc::default())
                .map_err(|source| FleetError::Start { program, source })?;
            self.adopt(node, process, None);
        }
        self.send(node, request)
    }

    /// Takes over a node that has been started. `first` is an event that was already read.
    pub(crate) fn adopt(&mut self, node: &str, process: NodeProcess, first: Option<Event>) {
        self.opened += 1;
        let clock = Arc::new(NodeClock::default());
        if let Some(event) = first.and_then(|event| clock.take(event)) {
            let _ = self.sender.send((self.opened, FromNode::Event(event)));
        }
        let opened = Connection::of(process, clock, self.opened, self.sender.clone());
        if let Some(keepalive) = &self.keepalive {
            keepalive.add(&opened.input, &opened.clock);
        }
        self.nodes.insert(node.to_owned(), opened);
    }

    /// Sends a request to a connected node.
    ///
    /// # Errors
    /// The node has ended, or was never connected.
    pub(crate) fn send(&mut self, node: &str, request: &Request) -> Result<(), FleetError> {
        let sent = match self.nodes.get(node) {
            Some(connection) => connection.send(request),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        sent.map_err(|source| FleetError::Gone { node: node.to_owned(), source })
    }

    /// Whether a node is connected, as far as its messages taken by [`Self::next`] show.
    pub(crate) fn is_open(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Exchanges requests with the clocks of all nodes at the same time. Other messages of the nodes
    /// stay in their order.
    pub(crate) fn measure_clocks(&self, edge: TrialEdge) -> BTreeMap<String, ClockReadings> {
        let measure = |clock: &NodeClock, input: &NodeInput| {
            clock.measure(edge, |request| send(input, request))
        };
        thread::scope(|scope| {
            let measuring: Vec<_> = self
                .nodes
                .iter()
                .map(|(node, Connection { clock, input, .. })| {
                    (node, scope.spawn(move || measure(clock, input)))
                })
                .collect();
            let readings = measuring.into_iter().filter_map(|(node, measured)| {
                // A thread that panicked has no readings.
                Some((node.clone(), measured.join().ok()?))
            });
            readings.collect()
        })
    }

    /// Returns the clocks of the nodes whose kernels are known.
    pub(crate) fn clock_domains(&self) -> impl Iterator<Item = (&str, ClockDomain)> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|(node, connection)| Some((node.as_str(), connection.clock.domain()?)))
    }

    /// Returns the next message of any node, waiting at most `wait`. Messages of released connections
    /// are dropped.
    pub(crate) fn next(&mut self, wait: Duration) -> Option<(String, FromNode)> {
        let deadline = Instant::now() + wait;
        let (node, message) = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (number, message) = self.receiver.recv_timeout(left).ok()?;
            let open = self.nodes.iter().find(|(_, connection)| connection.number == number);
            if let Some((node, connection)) = open {
                let _ = connection.waiting.try_recv();
                break (node.clone(), message);
            }
        };
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

/// The input of a node; `None` after it was closed.
pub(crate) type NodeInput = Mutex<Option<ChildStdin>>;

/// Sends a request.
///
/// # Errors
/// The input was closed, or the node has ended.
pub(crate) fn send(input: &NodeInput, request: &Request) -> io::Result<()> {
    let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
    write_message(input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?, request)
}

/// A connection to a node.
#[derive(Debug)]
struct Connection {
    group: ProcessGroup,
    input: Arc<NodeInput>,
    clock: Arc<NodeClock>,
    number: u64,
    /// An entry for each message that waits to be taken. No more messages are read while it is full.
    waiting: Receiver<()>,
}

impl Connection {
    /// A thread forwards the node's messages to `messages`, except those about its clock.
    fn of(
        process: NodeProcess,
        clock: Arc<NodeClock>,
        number: u64,
        messages: Sender<NodeMessage>,
    ) -> Self {
        let NodeProcess { group, input, mut output, errors } = process;
        let read = Arc::clone(&clock);
        let (places, waiting) = mpsc::sync_channel(MAX_WAITING_MESSAGES);
        thread::spawn(move || {
            let reason = forward_messages(&mut output, &read, number, &messages, &places);
            read.end();
            // Standard error may end after the last event.
            let lines = errors.at_end();
            let details = if lines.is_empty() { String::new() } else { format!(": {lines}") };
            let _ = messages.send((number, FromNode::Gone(format!("{reason}{details}"))));
        });
        Self { group, input: Arc::new(Mutex::new(Some(input))), clock, number, waiting }
    }

    fn send(&self, request: &Request) -> io::Result<()> {
        send(&self.input, request)
    }

    /// Closes the node's input, which makes it stop all jobs and exit.
    fn close(&mut self) {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.group.ending();
    }
}

/// Forwards messages until the stream ends or fails. Waits for a place in `places` for each message.
/// Returns the reason for the end.
fn forward_messages(
    from: &mut impl io::Read,
    clock: &NodeClock,
    number: u64,
    messages: &Sender<NodeMessage>,
    places: &SyncSender<()>,
) -> String {
    loop {
        let message = match read_frame::<Event>(from) {
            Ok(Some(Frame::Message(Event::Hello { version, dwell, .. }))) if version != VERSION => {
                return format!(
                    "node runs dwell {dwell} with node protocol version {version}; this dwell needs \
                     version {VERSION}"
                );
            }
            Ok(Some(Frame::Message(event))) => match clock.take(event) {
                Some(event) => FromNode::Event(event),
                None => continue,
            },
            Ok(Some(Frame::Data(job, bytes))) => FromNode::Data(job, bytes),
            Ok(None) => return "its process ended".into(),
            Err(error) => return format!("its messages cannot be read: {error}"),
        };
        if places.send(()).is_err() || messages.send((number, message)).is_err() {
            return "the receiver is gone".into();
        }
    }
}

impl Drop for Connection {
    /// Closes the connection. The process group waits until the node has exited.
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn endless_messages_wait_in_the_pipe() {
        const COUNT: usize = 50 * MAX_WAITING_MESSAGES;
        let mut frames = Vec::new();
        for _ in 0..COUNT {
            write_message(&mut frames, &Event::Alive { job: dwell_protocol::JobId(1) }).unwrap();
        }
        let frame_len = frames.len() / COUNT;
        let mut from = io::Cursor::new(frames);
        let (sender, receiver) = mpsc::channel();
        let (places, waiting) = mpsc::sync_channel(MAX_WAITING_MESSAGES);
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let reader = thread::spawn(move || {
            let mut from = Counting { from: &mut from, read: &counted };
            forward_messages(&mut from, &NodeClock::default(), 1, &sender, &places)
        });
        for taken in 0..COUNT {
            // Each place and one message that waits for a place.
            let most = (taken + MAX_WAITING_MESSAGES + 1) * frame_len;
            assert!(read.load(Ordering::SeqCst) <= most, "after {taken} messages");
            assert!(matches!(receiver.recv(), Ok((1, FromNode::Event(_)))));
            waiting.recv().unwrap();
        }
        assert_eq!(reader.join().unwrap(), "its process ended");
    }

    /// Counts the bytes that are read.
    struct Counting<'a, R> {
        from: &'a mut R,
        read: &'a AtomicUsize,
    }

    impl<R: io::Read> io::Read for Counting<'_, R> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let len = self.from.read(bytes)?;
            self.read.fetch_add(len, Ordering::SeqCst);
            Ok(len)
        }
    }

    #[test]
    fn messages_of_released_connections_are_skipped() {
        let mut command = Command::new("cat");
        command.process_group(0);
        let mut connections = Connections::default();
        connections.adopt("n1", NodeProcess::start(command, Arc::default()).unwrap(), None);
        let released = connections.opened + 1;
        for _ in 0..3 {
            let message = FromNode::Gone("it was released".into());
            connections.sender.send((released, message)).unwrap();
        }
        let event = FromNode::Event(Event::Alive { job: dwell_protocol::JobId(1) });
        connections.sender.send((connections.opened, event)).unwrap();
        let next = connections.next(Duration::ZERO);
        assert!(matches!(&next, Some((node, FromNode::Event(_))) if node == "n1"), "{next:?}");
        assert!(connections.next(Duration::ZERO).is_none());
    }
}
