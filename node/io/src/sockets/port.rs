//! Socket interface of a prober, for any protocol: send one message, receive one reply, read the
//! error queue. Implemented by `udp`, `icmp` and `tcp`; the timing loop is generic over it.

use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;

use dwell_sample::RxStamps;
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::tcp_info::TcpInfo;
use crate::sys::sockopt;

pub use super::options::{Buffers, SocketOptions};
pub use crate::timestamps::{Notice, StampRequest, TxStampRequest};

/// A sent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// `tx_app`: clock read just before the call that succeeded.
    pub app: Instant<Realtime>,
    /// The kernel's OPT_ID key of this packet, if transmit timestamps were requested: the `key` of
    /// its [`Notice::TxStamp`].
    pub key: Option<u32>,
}

/// Why a message could not be sent. Holds no strings, because this is the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The socket's buffer is full (EAGAIN).
    #[error("the socket's buffer is full")]
    Full,
    /// The queueing discipline dropped the packet: its queue is full, or the packet's departure time
    /// is invalid there (ENOBUFS).
    #[error("the queueing discipline of the interface dropped it")]
    Dropped,
    /// The message is too long (EMSGSIZE).
    #[error("the packet is too long for the path; use a smaller -s")]
    TooLong,
    /// There is no route to the target (ENETUNREACH, EHOSTUNREACH, ENETDOWN).
    #[error("there is no route to the target ({})", io::Error::from_raw_os_error(*.0))]
    Unreachable(i32),
    /// The TCP peer has closed the connection (EPIPE, ECONNRESET).
    #[error("the connection is closed")]
    Closed,
    /// Any other error, by errno.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Other(i32),
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// Receive timestamps.
    pub rx: RxStamps,
    /// Index of the socket that received it, from 0; 0 if there is only one.
    pub channel: u64,
    /// TTL or hop limit of the packet, if requested ([`SocketOptions::receive_ttl`]).
    pub ttl: Option<u8>,
}

/// How long a receive call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return at once.
    No,
    /// At most this long, asleep in the kernel. The kernel's timers may return late and a signal
    /// early, so the caller reads the clock.
    AtMost(Nanos),
    /// Until a message or a signal arrives, or the socket is shut down. Needs no kernel timer.
    Forever,
}

impl Wait {
    /// Returns the flags of a receive call. Sets the socket's time-out, if it differs from
    /// `current`.
    pub(crate) fn receive_flags(self, fd: &OwnedFd, current: &mut Nanos) -> io::Result<c_int> {
        match self {
            Self::No => Ok(libc::MSG_DONTWAIT),
            Self::AtMost(wait) => sockopt::receive_timeout(fd, current, wait).map(|()| 0),
            Self::Forever => sockopt::receive_timeout(fd, current, Nanos::MAX).map(|()| 0),
        }
    }
}

/// A socket that sends probes to one peer and receives its replies.
pub trait Port {
    /// Reads the clock and sends one message. If the call returns a pending ICMP error, the error
    /// stays in the error queue (see [`Port::notices`]) and the message is sent again.
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError>;

    /// Receives one message; `None` if none arrived. A pending ICMP error is not returned; it stays
    /// in the error queue. A message longer than `buffer` is truncated.
    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>>;

    /// Reads up to `limit` entries (at most 32 is advisable) of the error queue, oldest first.
    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice));

    /// Sleeps until a message or an error arrives, or until `until`.
    fn sleep_until(&mut self, until: Instant<Monotonic>);

    /// Returns the local address that packets leave from.
    fn local_addr(&self) -> std::net::SocketAddr;

    /// Returns the number of stream bytes that belonged to no message so far; `None` for datagrams.
    fn stray_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the state of the connection; `None` for datagrams.
    fn connection(&self) -> Option<Connection> {
        None
    }
}

/// A TCP connection: its set-up and its state now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Duration of connect(2): one round trip, and more if the SYN was retransmitted.
    pub connect: Nanos,
    /// State in the kernel, if it can be read.
    pub info: Option<TcpInfo>,
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        (**self).send(message)
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        (**self).receive(buffer, wait)
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        (**self).notices(limit, each);
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        (**self).sleep_until(until);
    }

    fn local_addr(&self) -> std::net::SocketAddr {
        (**self).local_addr()
    }

    fn stray_bytes(&self) -> Option<u64> {
        (**self).stray_bytes()
    }

    fn connection(&self) -> Option<Connection> {
        (**self).connection()
    }
}
