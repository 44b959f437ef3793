//! TCP connections: a prober's and a reflector's. A "message" here is a piece of the stream;
//! framing is the caller's. The TX stamp of a message is that of its last byte's first departure,
//! its RX stamps are those of its last segment.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use dwell_units::{Instant, Monotonic, Nanos};

use crate::address::unspecified;
use crate::calls;
use crate::clock::realtime;
use crate::message::{self, Control};
use crate::port::{Arrival, Notice, Port, PortOptions, SendError, Sent, StampRequest, Wait};
use crate::socket;
use crate::udp::{nothing, receive_flags};

/// Messages whose stamp may still come; the oldest is forgotten.
const UNSTAMPED: usize = 1_024;

/// A connection to the peer that is probed.
pub struct TcpPort {
    fd: OwnedFd,
    local: SocketAddr,
    control: Box<Control>,
    timeout: Nanos,
    departures: Option<Departures>,
    /// What is left of a message that left in part: it goes first, or the stream would be garbage
    /// for ever.
    rest: Vec<u8>,
}

/// The kernel names stamps of a stream by the offset of a message's last byte, counted from when
/// stamps were asked for (SOF_TIMESTAMPING_OPT_ID in Documentation/networking/timestamping.rst).
/// This is the list of who that is.
struct Departures {
    /// Bytes sent so far.
    offset: u32,
    /// Messages sent so far.
    messages: u32,
    /// Offset of the last byte, and number of the message; oldest first.
    unstamped: VecDeque<(u32, u32)>,
}

impl Departures {
    fn new() -> Self {
        Self { offset: 0, messages: 0, unstamped: VecDeque::with_capacity(UNSTAMPED) }
    }

    /// A message of `len` bytes was sent; returns its number.
    fn note(&mut self, len: usize) -> u32 {
        self.offset = self.offset.wrapping_add(len as u32);
        let number = self.messages;
        self.messages = number.wrapping_add(1);
        if self.unstamped.len() == UNSTAMPED {
            self.unstamped.pop_front();
        }
        self.unstamped.push_back((self.offset.wrapping_sub(1), number));
        number
    }

    /// The message whose last byte is at `offset`. It stays listed: its stamps are several.
    fn at(&self, offset: u32) -> Option<u32> {
        self.unstamped.iter().rev().find(|(last, _)| *last == offset).map(|(_, number)| *number)
    }
}

impl std::fmt::Debug for TcpPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpPort").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl TcpPort {
    /// Connects to `peer`; gives up after `timeout`.
    pub fn connect(peer: SocketAddr, timeout: Nanos, options: &PortOptions) -> io::Result<Self> {
        let fd = socket::open(peer.ip(), libc::SOCK_STREAM, 0)?;
        socket::apply(&fd, peer.ip(), options)?;
        if options.source.is_some() {
            let source = options.source.unwrap_or_else(|| unspecified(peer.ip()));
            socket::bind(&fd, SocketAddr::new(source, 0))?;
        }
        // For connect(), the send time-out is the connection's.
        let micros = (timeout.0 / 1_000).max(1);
        let time = libc::timeval { tv_sec: micros / 1_000_000, tv_usec: micros % 1_000_000 };
        socket::set(&fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, time)?;
        socket::connect(&fd, peer).map_err(|error| match error.raw_os_error() {
            Some(libc::EINPROGRESS) => io::Error::from_raw_os_error(libc::ETIMEDOUT),
            _ => error,
        })?;
        socket::set(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1_i32)?;
        // Nothing was sent yet, so the kernel's offsets count from the first message.
        socket::request_stamps(&fd, options.stamps, true, options.sched_stamps)?;
        let stamped = options.stamps != StampRequest::User;
        Ok(Self {
            local: socket::local_addr(&fd)?,
            fd,
            control: Control::new(),
            timeout: Nanos::MAX,
            departures: stamped.then(Departures::new),
            rest: Vec::new(),
        })
    }

    /// Sends as much of `message` as fits within the send time-out, or at once; returns how much.
    fn send_some(&self, message: &[u8], flags: c_int) -> Result<usize, SendError> {
        let mut sent = 0;
        while sent < message.len() {
            match calls::send(&self.fd, &message[sent..], libc::MSG_NOSIGNAL | flags) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match socket::send_error(calls::errno(&error)) {
                    Ok(SendError::Full) => break,
                    known => return Err(known.unwrap_or(SendError::Closed)),
                },
            }
        }
        Ok(sent)
    }

    /// Sends what is left of the last message; says whether nothing is.
    fn finish(&mut self, flags: c_int) -> Result<bool, SendError> {
        if !self.rest.is_empty() {
            let sent = self.send_some(&self.rest, flags)?;
            self.rest.drain(..sent);
        }
        Ok(self.rest.is_empty())
    }
}

impl Port for TcpPort {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        if !self.finish(0)? {
            return Err(SendError::Full);
        }
        let app = realtime();
        let sent = self.send_some(message, 0)?;
        if sent == 0 {
            return Err(SendError::Full);
        }
        self.rest.extend_from_slice(&message[sent..]);
        let key = self.departures.as_mut().map(|departures| departures.note(message.len()));
        Ok(Sent { app, key })
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        // A peer that is gone is found out by receiving.
        let _ = self.finish(libc::MSG_DONTWAIT);
        let flags = receive_flags(&self.fd, &mut self.timeout, wait)?;
        match message::receive(&self.fd, buffer, &mut self.control, None, flags) {
            Ok(came) if came.len == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(came) => Ok(Some(Arrival { len: came.len, rx: came.rx(), channel: 0 })),
            Err(error) => nothing(error),
        }
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        let Some(departures) = &self.departures else { return };
        message::notices(&self.fd, &mut self.control, limit, &mut |notice| match notice {
            Notice::TxStamp { key: offset, stamp } => {
                if let Some(key) = departures.at(offset) {
                    each(Notice::TxStamp { key, stamp });
                }
            }
            error => each(error),
        });
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        socket::sleep_until(&self.fd, until);
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// Listens on `address`; an IPv6 socket takes IPv6 only. Accepting waits at most `wait`, or not at
/// all.
pub fn listen(address: SocketAddr, wait: Option<Nanos>) -> io::Result<TcpListener> {
    let fd = socket::open(address.ip(), libc::SOCK_STREAM, 0)?;
    if address.is_ipv6() {
        socket::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1_i32)?;
    }
    // So that a reflector can be started again at once.
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1_i32)?;
    socket::bind(&fd, address)?;
    use std::os::fd::AsRawFd;
    // SAFETY: listen() takes plain integers.
    socket::check(unsafe { libc::listen(fd.as_raw_fd(), 128) })?;
    if let Some(wait) = wait {
        let mut unset = Nanos::MAX;
        socket::receive_timeout(&fd, &mut unset, wait)?;
    }
    let listener = TcpListener::from(fd);
    listener.set_nonblocking(wait.is_none())?;
    Ok(listener)
}

/// A reflector's end of a connection.
#[derive(Debug)]
pub struct TcpConn {
    stream: TcpStream,
    /// Who connected.
    pub peer: SocketAddr,
}

impl TcpConn {
    /// Takes over an accepted connection. `wait` bounds every receive call; `None` never waits.
    pub fn new(stream: TcpStream, peer: SocketAddr, wait: Option<Nanos>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(wait.is_none())?;
        stream.set_read_timeout(wait.map(Nanos::to_std))?;
        stream.set_write_timeout(Some(Nanos::from_secs(1).to_std()))?;
        Ok(Self { stream, peer })
    }

    /// Takes what is there; `None` when nothing came, an error at the end of the stream.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(Some(len)),
            Err(error) => nothing(error),
        }
    }

    /// Sends all of `message`, or fails within a second.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(message)
    }
}
