//! The sockets of a simulated node. One thread receives, waits for the replies that the model
//! schedules, and sends them: it sleeps until shortly before a reply, then spins.

use std::io;
use std::net::{SocketAddr, TcpListener};

use dwell_engine::node_sim::{
    MAX_SOCKETS, NodeArrival, NodeCounts, NodeReply, NodeSettings, NodeSim, NodeStream,
};
use dwell_io::clock::monotonic;
use dwell_io::datagram::{DatagramSocket, Marks, Peer, is_out_of_resources};
use dwell_io::pacer::SPIN_LEAD;
use dwell_io::poller::Poller;
use dwell_io::port::{SocketOptions, StampRequest, Wait};
use dwell_io::tcp::{self, TcpConn, TimedReceive};
use dwell_sample::RxStamps;
use dwell_stats::Distribution;
use dwell_units::Nanos;
use dwell_wire::text::ACKNOWLEDGE;

/// Interval between checks of the stop flag.
const STOP_CHECK_INTERVAL: Nanos = Nanos::from_millis(100);

/// Maximum number of bytes per read.
const READ_LEN: usize = 2_048;

/// Maximum number of messages received from one socket per turn.
const RECEIVE_BATCH: usize = 64;

/// Maximum number of bytes that wait for a client which does not read its replies.
const MAX_UNSENT: usize = 65_536;

/// Poller tokens: datagram sockets from 0, listeners and connections from these.
const FIRST_LISTENER: u64 = 1 << 16;
const FIRST_CONNECTION: u64 = 1 << 17;

/// Transport of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Datagram,
    Stream,
}

/// Where a request came from.
#[derive(Clone, Copy)]
enum Origin {
    /// Index of the socket, and the client.
    Datagram(usize, Peer),
    /// Index and number of the connection: another connection may use the index later.
    Stream(usize, u64),
}

/// An accepted connection.
struct Connection {
    number: u64,
    conn: TcpConn,
    stream: NodeStream,
}

/// See the module documentation.
pub(super) struct NodeSockets {
    node: NodeSim<Origin>,
    poller: Poller,
    datagrams: Vec<DatagramSocket>,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Connection>>,
    /// Connections accepted so far.
    accepted: u64,
    buffer: Box<[u8]>,
    control: TimedReceive,
    /// Whether the kernel timestamps arrivals.
    stamped: bool,
    pub(super) replies: u64,
    pub(super) send_failed: u64,
    /// From the arrival of a request to its read.
    pub(super) server_lag: Distribution,
    /// From the read of a request to its reply.
    pub(super) service: Distribution,
    /// Time by which replies were late.
    pub(super) schedule_error: Distribution,
}

impl NodeSockets {
    /// Creates a node without sockets. Its clock starts now.
    pub(super) fn new(settings: NodeSettings, seed: u64) -> io::Result<Self> {
        Ok(Self {
            node: NodeSim::new(settings, monotonic(), seed),
            poller: Poller::new(MAX_SOCKETS)?,
            datagrams: Vec::new(),
            listeners: Vec::new(),
            connections: Vec::new(),
            accepted: 0,
            buffer: vec![0; READ_LEN].into_boxed_slice(),
            control: TimedReceive::default(),
            stamped: true,
            replies: 0,
            send_failed: 0,
            server_lag: Distribution::new(),
            service: Distribution::new(),
            schedule_error: Distribution::new(),
        })
    }

    /// Opens a socket.
    pub(super) fn listen(&mut self, transport: Transport, address: SocketAddr) -> io::Result<()> {
        match transport {
            Transport::Datagram => {
                let server = SocketOptions::server();
                let options = SocketOptions { stamps: StampRequest::Kernel, timed: true, ..server };
                let socket = DatagramSocket::bind(address, &options)?;
                self.poller.add(&socket, self.datagrams.len() as u64)?;
                self.datagrams.push(socket);
            }
            Transport::Stream => {
                let listener = tcp::listen(address, None)?;
                self.stamped &= tcp::stamp_arrivals(&listener)?;
                self.poller.add(&listener, FIRST_LISTENER + self.listeners.len() as u64)?;
                self.listeners.push(listener);
            }
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> NodeCounts {
        self.node.counts()
    }

    /// Whether the kernel timestamps arrivals.
    pub(super) fn is_stamped(&self) -> bool {
        self.stamped
    }

    /// Waits for arrivals or the next reply, at most [`STOP_CHECK_INTERVAL`], and handles them.
    pub(super) fn turn(&mut self, busy_poll: bool) -> io::Result<()> {
        let now = monotonic();
        let stop_check = now + STOP_CHECK_INTERVAL;
        let awake = self.node.wake().map_or(stop_check, |due| stop_check.min(due - SPIN_LEAD));
        let wait = match busy_poll || awake <= now {
            true => Wait::No,
            false => {
                self.poller.alarm(awake)?;
                Wait::Forever
            }
        };
        let ready = self.poller.wait(wait)?;
        self.send_due();
        for n in 0..ready {
            let token = self.poller.ready(n).token;
            match token {
                FIRST_CONNECTION.. => self.read_stream((token - FIRST_CONNECTION) as usize),
                FIRST_LISTENER.. => self.accept((token - FIRST_LISTENER) as usize)?,
                _ => self.read_datagrams(token as usize)?,
            }
            self.send_due();
        }
        Ok(())
    }

    fn send_due(&mut self) {
        loop {
            let now = monotonic();
            let Some(NodeReply { to, arrived, read, due }) = self.node.due(now) else { return };
            let sent = match to {
                Origin::Datagram(socket, peer) => {
                    let socket = &mut self.datagrams[socket];
                    socket.reply(ACKNOWLEDGE, &peer, Marks::default()).is_ok()
                }
                Origin::Stream(index, number) => self.send_to_stream(index, number),
            };
            if !sent {
                self.send_failed += 1;
                continue;
            }
            self.replies += 1;
            self.server_lag.record(read - arrived);
            self.service.record(now - read);
            self.schedule_error.record(now - due);
        }
    }

    /// Sends a reply on a connection, if it is still open.
    fn send_to_stream(&mut self, index: usize, number: u64) -> bool {
        let Some(open) = &mut self.connections[index] else { return false };
        if open.number != number {
            return false;
        }
        let sent = open.conn.send(ACKNOWLEDGE).is_ok() && open.conn.unsent() <= MAX_UNSENT;
        if !sent && let Some(open) = self.connections[index].take() {
            self.node.close(open.stream);
        }
        sent
    }

    fn read_datagrams(&mut self, index: usize) -> io::Result<()> {
        let Self { datagrams, node, buffer, .. } = self;
        for _ in 0..RECEIVE_BATCH {
            let Some(request) = datagrams[index].receive_from(buffer, Wait::No)? else { break };
            let Some(peer) = request.from else { continue };
            let at = arrival(&request.rx_or_now());
            let from = Origin::Datagram(index, peer);
            node.receive_datagram(from, &buffer[..request.len], at);
        }
        Ok(())
    }

    /// Accepts the pending connections, and resets those for which there is no socket.
    fn accept(&mut self, index: usize) -> io::Result<()> {
        loop {
            let (stream, peer) = match self.listeners[index].accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_out_of_resources(&error) => return Err(error),
                // The client has gone (accept(2)); the others go on.
                Err(_) => continue,
            };
            let Some(node_stream) = self.node.open() else {
                let _ = tcp::reset_on_close(&stream);
                continue;
            };
            let place = self.connections.iter().position(Option::is_none);
            let place = place.unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let opened = TcpConn::new(stream, peer, None).and_then(|conn| {
                self.poller.add(&conn, FIRST_CONNECTION + place as u64).map(|()| conn)
            });
            match opened {
                Ok(conn) => {
                    self.accepted += 1;
                    let number = self.accepted;
                    self.connections[place] =
                        Some(Connection { number, conn, stream: node_stream });
                    // The request may have arrived with the connection.
                    self.read_stream(place);
                }
                Err(_) => self.node.close(node_stream),
            }
        }
    }

    fn read_stream(&mut self, index: usize) {
        let Self { connections, node, buffer, control, .. } = self;
        let Some(Some(open)) = connections.get_mut(index) else { return };
        let from = Origin::Stream(index, open.number);
        let mut ended = false;
        for _ in 0..RECEIVE_BATCH {
            match open.conn.receive_timed(buffer, control) {
                Ok(Some((len, rx))) => {
                    let at = arrival(&rx);
                    node.receive_stream(&from, &mut open.stream, &buffer[..len], at);
                }
                Ok(None) => break,
                Err(_) => {
                    ended = true;
                    break;
                }
            }
        }
        if ended && let Some(open) = connections[index].take() {
            node.close(open.stream);
        }
    }
}

/// The arrival on the clock of schedules, in the socket by the kernel's timestamp.
fn arrival(rx: &RxStamps) -> NodeArrival {
    let received = monotonic();
    let waited = rx.kernel.map_or(Nanos::ZERO, |kernel| rx.app - kernel);
    // A negative wait is a clock step between the two timestamps.
    NodeArrival { arrived: received - waited.max(Nanos::ZERO), received }
}
