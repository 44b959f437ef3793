//! What a prober needs of a socket, whatever the protocol: send one message, take one reply, read
//! the error queue. Implemented by `udp`, `icmp` and `tcp`; the timing loop is generic over it.

use std::io;
use std::net::IpAddr;

use dwell_engine::stamps::{RxStamps, TxStamp};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

/// Which kernel stamps to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampRequest {
    /// None: only the program's own clock reads. Leaves the kernel's fast path alone.
    #[default]
    User,
    /// The kernel's software stamps.
    Kernel,
    /// The kernel's and the network card's. Asking a card that has none costs 0.25 us per round
    /// trip, so ask only one whose driver says that it has them.
    Card,
}

/// How to open a socket that sends probes.
#[derive(Clone, Debug, Default)]
pub struct PortOptions {
    /// Local address to send from.
    pub source: Option<IpAddr>,
    /// Interface to send through (SO_BINDTODEVICE).
    pub interface: Option<String>,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
    /// DSCP, 0 to 63; put in the upper six bits of TOS or traffic class.
    pub dscp: Option<u8>,
    /// Which stamps to ask for.
    pub stamps: StampRequest,
    /// Ask for TX_SCHED as well.
    pub sched_stamps: bool,
    /// Report the TTL or hop limit of arriving datagrams.
    pub reply_ttl: bool,
}

impl PortOptions {
    /// The largest DSCP: a field of 6 bits (RFC 2474, 3).
    pub const MOST_DSCP: u8 = 63;
}

/// What a send call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// `tx_app`: the clock just before the call that succeeded.
    pub app: Instant<Realtime>,
    /// The kernel's OPT_ID key of this packet, if TX stamps were asked for: the `key` of the
    /// [`Notice::TxStamp`] that will come.
    pub key: Option<u32>,
}

/// Why a message could not be sent. No strings inside: this is the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The socket's buffer is full (EAGAIN, ENOBUFS).
    #[error("the socket's buffer is full")]
    Full,
    /// The message does not fit (EMSGSIZE).
    #[error("it is too long for the path; use a smaller -s")]
    TooLong,
    /// There is no way there (ENETUNREACH, EHOSTUNREACH, ENETDOWN).
    #[error("there is no way to the target ({})", io::Error::from_raw_os_error(*.0))]
    Unreachable(i32),
    /// A TCP peer is gone (EPIPE, ECONNRESET).
    #[error("the connection is closed")]
    Closed,
    /// Anything else, by errno.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Other(i32),
}

/// A message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// Stamps of the message.
    pub rx: RxStamps,
    /// Which of several sockets it came on, counted from 0; 0 where there is one.
    pub channel: u64,
    /// TTL or hop limit it arrived with, if asked for (see [`PortOptions::reply_ttl`]).
    pub ttl: Option<u8>,
}

/// News from a socket's error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A stamp of a packet that this socket sent.
    TxStamp {
        /// The packet, as in [`Sent::key`].
        key: u32,
        /// Where it was taken, and when.
        stamp: TxStamp,
    },
    /// An ICMP or local error about a packet that this socket sent.
    Error {
        /// The errno it stands for (ECONNREFUSED, EHOSTUNREACH, EMSGSIZE ...).
        errno: i32,
        /// Whether ICMP brought it (else the local kernel did).
        icmp: bool,
        /// ICMP type and code, if ICMP brought it.
        kind: (u8, u8),
        /// Who said so, if known.
        from: Option<IpAddr>,
    },
}

/// How long a receive call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most this long, asleep in the kernel. The kernel's timers may return late, and a signal
    /// may return early: the caller looks at the clock.
    AtMost(Nanos),
    /// Until a message comes, a signal does, or the socket is shut. Spares the kernel a timer.
    Forever,
}

/// A socket that sends probes to one peer and receives its replies.
pub trait Port {
    /// Reads the clock and sends one message. A pending ICMP error that the call returns is noted
    /// (see [`Port::notices`]) and the message is sent again.
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError>;

    /// Takes one message; `None` when none came. A pending ICMP error is noted and not an error.
    /// A message longer than `buffer` is cut.
    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>>;

    /// Takes up to `limit` (at most 32 is wise) entries of the error queue, oldest first.
    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice));

    /// Sleeps until a message or an error is there or `until` has come, whichever is first.
    fn sleep_until(&mut self, until: Instant<Monotonic>);

    /// The local address that packets leave from.
    fn local_addr(&self) -> std::net::SocketAddr;

    /// Bytes of a stream that belonged to no message so far; `None` where messages are datagrams.
    fn stray_bytes(&self) -> Option<u64> {
        None
    }
}
