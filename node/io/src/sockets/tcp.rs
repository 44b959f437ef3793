//! TCP connections of a prober and of a reflector. A "message" here is a piece of the stream;
//! framing is the caller's. The transmit timestamp of a message is that of the first transmission
//! of its last byte, its receive timestamps are those of its last segment.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dwell_sample::RxStamps;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::clock::{monotonic, realtime};
use crate::sockets::datagram::is_broadcast;
use crate::sockets::port::{
    Arrival, Connection, Notice, Port, SendError, Sent, SocketOptions, StampRequest,
    TxStampRequest, Wait,
};
use crate::sockets::socket_error::{is_icmp, none_if_transient, send_error};
use crate::sockets::tcp_info::tcp_info;
use crate::sys::control::{self, ControlBuffer};
use crate::sys::time::timeval;
use crate::sys::{sockopt, syscall};
use crate::timestamps;

/// Maximum number of messages whose timestamps are awaited; the oldest is forgotten.
const MAX_UNSTAMPED: usize = 1_024;

/// Initial capacity in bytes for the rest of a message that did not fit; a longer one grows it
/// once.
const REST_CAPACITY: usize = 65_536;

/// Maximum number of ICMP errors read after a connection failed.
const MAX_CONNECT_NOTICES: usize = 32;

/// A connection to the probed peer. Sending never blocks: a peer that does not read must neither
/// delay the schedule nor keep replies from being received.
pub struct TcpPort {
    fd: OwnedFd,
    local: SocketAddr,
    control: Box<ControlBuffer>,
    timeout: Nanos,
    departures: Option<Departures>,
    /// Duration of connect(2).
    connect_time: Nanos,
    quick_ack: bool,
    /// Rest of a message that was sent in part. It goes first; otherwise the stream would stay
    /// corrupt.
    rest: Vec<u8>,
}

/// Maps offsets of the stream to messages. The kernel identifies timestamps of a stream by the
/// offset of a message's last byte, counted from when timestamps were requested
/// (SOF_TIMESTAMPING_OPT_ID in Documentation/networking/timestamping.rst).
struct Departures {
    /// Bytes sent so far.
    offset: u32,
    /// Messages sent so far.
    messages: u32,
    /// Offset of the last byte and number of each message, oldest first.
    unstamped: VecDeque<(u32, u32)>,
}

impl Departures {
    fn new() -> Self {
        Self { offset: 0, messages: 0, unstamped: VecDeque::with_capacity(MAX_UNSTAMPED) }
    }

    /// Records a sent message of `len` bytes; returns its number.
    fn note(&mut self, len: usize) -> u32 {
        self.offset = self.offset.wrapping_add(len as u32);
        let number = self.messages;
        self.messages = number.wrapping_add(1);
        if self.unstamped.len() == MAX_UNSTAMPED {
            self.unstamped.pop_front();
        }
        self.unstamped.push_back((self.offset.wrapping_sub(1), number));
        number
    }

    /// Returns the message whose last byte is at `offset`. It stays listed, because it has several
    /// timestamps.
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
    pub fn connect(peer: SocketAddr, timeout: Nanos, options: &SocketOptions) -> io::Result<Self> {
        Self::connect_with_notices(peer, timeout, options, &mut |_| {})
    }

    /// Connects like [`TcpPort::connect`]. If that fails, `each` is called with the ICMP errors in
    /// the queue, which name the reason more exactly than an errno (since Linux 5.16).
    pub fn connect_with_notices(
        peer: SocketAddr,
        timeout: Nanos,
        options: &SocketOptions,
        each: &mut dyn FnMut(Notice),
    ) -> io::Result<Self> {
        let fd = sockopt::open(peer.ip(), libc::SOCK_STREAM, 0)?;
        options.apply(&fd, peer.ip())?;
        if options.source.is_some() {
            sockopt::bind(&fd, options.source_towards(peer))?;
        }
        // connect(2) uses the send time-out.
        let time = timeval(timeout.max(Nanos::from_micros(1)));
        sockopt::set(&fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, time)?;
        sockopt::receive_errors(&fd, peer.ip(), true)?;
        let start = monotonic();
        sockopt::connect(&fd, peer).map_err(|error| {
            timestamps::notices(&fd, &mut ControlBuffer::new(), MAX_CONNECT_NOTICES, each);
            match error.raw_os_error() {
                Some(libc::EINPROGRESS) => io::Error::from_raw_os_error(libc::ETIMEDOUT),
                _ => error,
            }
        })?;
        let connect_time = monotonic() - start;
        // An established connection survives ICMP errors (RFC 1122 section 4.2.3.9).
        sockopt::receive_errors(&fd, peer.ip(), false)?;
        sockopt::set(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(!options.nagle))?;
        // Nothing was sent yet, so the kernel counts offsets from the first message.
        let stamps = match timestamps::request(&fd, options.stamps, options.tx_stamps) {
            // The peer has reset the connection already (net/core/sock.c, `sock_set_timestamping`), which
            // the first send reports.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => StampRequest::User,
            requested => requested?,
        };
        let stamped = stamps != StampRequest::User;
        Ok(Self {
            local: sockopt::local_addr(&fd)?,
            fd,
            control: ControlBuffer::new(),
            timeout: Nanos::MAX,
            connect_time,
            quick_ack: options.quick_ack,
            departures: stamped.then(Departures::new),
            rest: Vec::with_capacity(REST_CAPACITY),
        })
    }

    /// Sends as much of `message` as fits now; returns the number of bytes.
    fn send_some(&self, message: &[u8]) -> Result<usize, SendError> {
        let mut sent = 0;
        while sent < message.len() {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            match syscall::send(&self.fd, &message[sent..], flags) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match syscall::errno(&error) {
                    errno if is_icmp(errno) => return Err(SendError::Closed),
                    errno => match send_error(errno) {
                        SendError::Full | SendError::Dropped => break,
                        known => return Err(known),
                    },
                },
            }
        }
        Ok(sent)
    }

    /// Sends the rest of the last message; returns whether nothing is left.
    fn finish(&mut self) -> Result<bool, SendError> {
        if !self.rest.is_empty() {
            let sent = self.send_some(&self.rest)?;
            self.rest.drain(..sent);
        }
        Ok(self.rest.is_empty())
    }

    /// Sleeps until data arrives, the rest can be sent, or `until`.
    fn sleep(&self, until: Instant<Monotonic>) {
        let room = if self.rest.is_empty() { 0 } else { libc::POLLOUT };
        sockopt::sleep_for(&self.fd, libc::POLLIN | room, until);
    }
}

impl Port for TcpPort {
    /// A message that fits only in part counts as sent; later calls send its rest first.
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        if !self.finish()? {
            return Err(SendError::Full);
        }
        let app = realtime();
        let sent = self.send_some(message)?;
        if sent == 0 {
            return Err(SendError::Full);
        }
        self.rest.extend_from_slice(&message[sent..]);
        let key = self.departures.as_mut().map(|departures| departures.note(message.len()));
        Ok(Sent { app, key })
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        // Receiving reports a peer that is gone.
        let _ = self.finish();
        let wait = match wait {
            Wait::AtMost(most) if !self.rest.is_empty() => {
                self.sleep(monotonic().saturating_add(most));
                let _ = self.finish();
                Wait::No
            }
            wait => wait,
        };
        let flags = wait.receive_flags(&self.fd, &mut self.timeout)?;
        if self.quick_ack {
            // The kernel clears it as it sees fit (tcp(7)).
            sockopt::set(&self.fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1_i32)?;
        }
        match control::receive(&self.fd, buffer, &mut self.control, None, flags, true) {
            Ok(came) if came.len == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(came) => {
                let arrival = |rx| Arrival { len: came.len, rx, channel: 0, ttl: None };
                Ok(came.rx().map(arrival))
            }
            Err(error) => none_if_transient(error),
        }
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        let Some(departures) = &self.departures else { return };
        timestamps::notices(&self.fd, &mut self.control, limit, &mut |notice| match notice {
            Notice::TxStamp { key: offset, stamp } => {
                if let Some(key) = departures.at(offset) {
                    each(Notice::TxStamp { key, stamp });
                }
            }
            error => each(error),
        });
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        self.sleep(until);
        let _ = self.finish();
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn connection(&self) -> Option<Connection> {
        Some(Connection { connect: self.connect_time, info: tcp_info(&self.fd).ok() })
    }
}

/// Makes closing reset the connection, so that the peer does not take the stream for complete
/// (SO_LINGER with time 0, socket(7)). Unsent data is discarded.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    sockopt::set(stream, libc::SOL_SOCKET, libc::SO_LINGER, linger)
}

/// Listens on `address`; an IPv6 socket is IPv6-only. Accepting blocks for at most `wait`; with
/// `None` it does not block.
pub fn listen(address: SocketAddr, wait: Option<Nanos>) -> io::Result<TcpListener> {
    let group = match address.ip() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    if group {
        // The kernel would listen there, but no peer could ever connect.
        let what = format!("{} is a broadcast or multicast address", address.ip());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let fd = sockopt::open(address.ip(), libc::SOCK_STREAM, 0)?;
    if address.is_ipv6() {
        sockopt::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1_i32)?;
    }
    // Lets a reflector restart at once.
    sockopt::set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1_i32)?;
    sockopt::bind(&fd, address)?;
    use std::os::fd::AsRawFd;
    // SAFETY: listen() takes plain integers.
    sockopt::check(unsafe { libc::listen(fd.as_raw_fd(), 128) })?;
    if let Some(wait) = wait {
        let mut unset = Nanos::MAX;
        sockopt::receive_timeout(&fd, &mut unset, wait)?;
    }
    let listener = TcpListener::from(fd);
    listener.set_nonblocking(wait.is_none())?;
    Ok(listener)
}

/// Makes the kernel probe a peer that has been silent for a minute. Reading from a machine that is
/// gone fails 30 s later, or 90 s after sending data that is not acknowledged. More frequent probes
/// would add traffic to the measurement.
pub fn enable_keepalive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set(stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1_i32)?;
    sockopt::set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 60_i32)?;
    sockopt::set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10_i32)?;
    sockopt::set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3_i32)?;
    // The kernel sends no probes while data is unacknowledged (net/ipv4/tcp_timer.c,
    // `tcp_keepalive_timer`).
    sockopt::set(stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 90_000_i32)
}

/// Limits the kernel's send and receive buffers of each connection that `listener` accepts to about
/// twice `bytes`. Otherwise each may grow to several MiB (tcp_rmem and tcp_wmem, tcp(7)).
pub fn limit_buffers(listener: &TcpListener, bytes: i32) -> io::Result<()> {
    sockopt::set(listener, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    sockopt::set(listener, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
}

/// Requests the kernel's receive timestamps for every connection that `listener` accepts. Returns
/// whether there are any; see [`TcpConn::receive_timed`].
pub fn stamp_arrivals(listener: &TcpListener) -> io::Result<bool> {
    let granted = timestamps::request(listener, StampRequest::Kernel, TxStampRequest::None)?;
    Ok(granted != StampRequest::User)
}

/// A reflector's end of a connection.
#[derive(Debug)]
pub struct TcpConn {
    stream: TcpStream,
    /// Peer address.
    pub peer: SocketAddr,
    /// Data given to [`TcpConn::send`] that was not sent yet.
    rest: Vec<u8>,
}

/// Buffer of [`TcpConn::receive_timed`].
pub struct TimedReceive(Box<ControlBuffer>);

impl Default for TimedReceive {
    fn default() -> Self {
        Self(ControlBuffer::new())
    }
}

impl AsFd for TcpConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl TcpConn {
    /// Wraps an accepted connection. `wait` is the time-out of every call; with `None` no call
    /// blocks.
    pub fn new(stream: TcpStream, peer: SocketAddr, wait: Option<Nanos>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(wait.is_none())?;
        stream.set_read_timeout(wait.map(Nanos::to_std))?;
        stream.set_write_timeout(wait.map(Nanos::to_std))?;
        Ok(Self { stream, peer, rest: Vec::new() })
    }

    /// Receives available data; `None` if no data has arrived, an error at the end of the stream.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(Some(len)),
            Err(error) => none_if_transient(error),
        }
    }

    /// Receives available data like [`Self::receive`], with the timestamps of its last segment.
    pub fn receive_timed(
        &mut self,
        buffer: &mut [u8],
        control: &mut TimedReceive,
    ) -> io::Result<Option<(usize, RxStamps)>> {
        match control::receive(&self.stream, buffer, &mut control.0, None, 0, true) {
            Ok(came) if came.len == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(came) => Ok(came.rx().map(|rx| (came.len, rx))),
            Err(error) => none_if_transient(error),
        }
    }

    /// Sends `message`. Data that the peer has no room for is kept, and later calls send it first.
    /// The caller limits it by not receiving until [`TcpConn::flush`] returns `true`. Data that an
    /// error kept from being sent is kept too and counted by [`TcpConn::unsent`].
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let sent = match self.flush() {
            Ok(true) => self.send_some(message),
            Ok(false) => Ok(0),
            Err(error) => Err(error),
        };
        let left = *sent.as_ref().unwrap_or(&0);
        self.rest.extend_from_slice(&message[left..]);
        sent.map(drop)
    }

    /// Sends the kept data; returns whether none is left.
    pub fn flush(&mut self) -> io::Result<bool> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            let sent = self.send_some(&rest);
            self.rest = rest;
            self.rest.drain(..sent?);
            if self.rest.is_empty() {
                // Most connections do not need the buffer again.
                self.rest = Vec::new();
            }
        }
        Ok(self.rest.is_empty())
    }

    /// Returns the number of bytes kept.
    pub fn unsent(&self) -> usize {
        self.rest.len()
    }

    fn send_some(&mut self, message: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < message.len() {
            match self.stream.write(&message[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> (TcpStream, TcpConn) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, peer) = listener.accept().unwrap();
        (near, TcpConn::new(far, peer, None).unwrap())
    }

    #[test]
    fn unsent_stream_data_is_kept_and_sent_in_order() {
        let (mut near, mut conn) = connected();
        let mut given = 0_u64;
        // The peer does not read: send until the socket buffers of both sides are full. A late
        // acknowledgement makes room once more.
        loop {
            conn.send(&given.to_be_bytes().repeat(1_000)).unwrap();
            if !conn.flush().unwrap() {
                break;
            }
            given += 1;
        }
        near.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let reader = std::thread::spawn(move || {
            let mut message = [0; 8_000];
            (0..=given).all(|number| {
                near.read_exact(&mut message).unwrap();
                message.chunks(8).all(|part| part == number.to_be_bytes())
            })
        });
        while !reader.is_finished() {
            conn.flush().unwrap();
            std::thread::yield_now();
        }
        assert!(reader.join().unwrap(), "every message arrives whole and in order");
        assert_eq!(conn.unsent(), 0);
    }

    #[test]
    fn sender_does_not_wait_for_peer_that_never_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let connect_timeout = Nanos::from_secs(20);
        let mut port = TcpPort::connect(to, connect_timeout, &SocketOptions::default()).unwrap();
        let (_silent, _) = listener.accept().unwrap();
        let start = monotonic();
        let full = (0..10_000).find_map(|_| port.send(&[0x5a; 60_000]).err());
        assert_eq!(full, Some(SendError::Full));
        assert!(port.receive(&mut [0; 64], Wait::AtMost(Nanos::from_millis(1))).unwrap().is_none());
        assert!(monotonic() - start < Nanos::from_secs(5));
    }
}
