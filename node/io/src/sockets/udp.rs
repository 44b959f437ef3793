//! UDP sockets: the connected one of a prober and the listening one of a reflector.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use dwell_sample::RxStamps;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::clock::realtime;
use crate::sockets::datagram;
use crate::sockets::port::{
    Arrival, Notice, Port, SendError, Sent, SocketOptions, StampRequest, Wait,
};
use crate::sockets::socket_error::{self, send_error, should_retry};
use crate::sys::address::RawAddress;
pub use crate::sys::control::Marks;
use crate::sys::control::{self, ControlBuffer, OutgoingControl};
use crate::sys::{sockopt, syscall};
use crate::timestamps::{self, KeyCounter};

/// A UDP socket connected to the probed peer.
#[derive(Debug)]
pub struct UdpPort {
    pub(crate) link: Link,
    local: SocketAddr,
}

impl UdpPort {
    /// Opens a socket that sends to `peer`.
    pub fn connect(peer: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let fd = sockopt::open(peer.ip(), libc::SOCK_DGRAM, 0)?;
        options.apply(&fd, peer.ip())?;
        sockopt::bind(&fd, options.source_towards(peer))?;
        sockopt::connect(&fd, peer)?;
        Ok(Self { local: sockopt::local_addr(&fd)?, link: Link::new(fd, peer.ip(), options)? })
    }
}

impl Port for UdpPort {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        self.link.send(message)
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        self.link.receive(buffer, wait)
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        self.link.notices(limit, each);
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        sockopt::sleep_until(&self.link.fd, until);
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// A connected datagram socket with timestamps, shared by UDP and ICMP probing.
pub(crate) struct Link {
    pub(crate) fd: OwnedFd,
    control: Box<ControlBuffer>,
    /// Receiving needs control data, for timestamps or the TTL.
    control_data: bool,
    pub(crate) keys: KeyCounter,
    timeout: Nanos,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(fd: OwnedFd, peer: IpAddr, options: &SocketOptions) -> io::Result<Self> {
        options.apply_to_datagrams(&fd, peer)?;
        timestamps::request(&fd, options.stamps, options.tx_stamps)?;
        let keys = KeyCounter::new(options.stamps, options.tx_stamps);
        Ok(Self {
            fd,
            control: ControlBuffer::new(),
            control_data: keys.is_stamped() || options.receive_ttl,
            keys,
            timeout: Nanos::MAX,
        })
    }

    pub(crate) fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        let mut failed = 0;
        loop {
            let app = realtime();
            // Non-blocking: the schedule is kept even if the socket's buffer is full.
            let Err(error) = syscall::send(&self.fd, message, libc::MSG_DONTWAIT) else {
                return Ok(Sent { app, key: self.keys.take() });
            };
            if let Some(error) = self.failed(syscall::errno(&error), failed) {
                return Err(error);
            }
            failed += 1;
        }
    }

    /// Handles a send that failed with `errno`, after `before` earlier failures for the same
    /// packet. Returns the error, or `None` if the packet is to be sent again.
    pub(crate) fn failed(&mut self, errno: c_int, before: usize) -> Option<SendError> {
        self.keys.skip_if_taken(errno);
        let again = should_retry(errno, before);
        (!again).then(|| send_error(errno))
    }

    pub(crate) fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        let flags = receive_flags(&self.fd, &mut self.timeout, wait)?;
        socket_error::receive(|again| {
            let flags = if again { flags | libc::MSG_DONTWAIT } else { flags };
            if self.control_data {
                let came = control::receive(&self.fd, buffer, &mut self.control, None, flags)?;
                let (len, rx, ttl) = (came.len, came.rx(), came.control_data.ttl);
                return Ok(Arrival { len, rx, channel: 0, ttl });
            }
            let len = syscall::receive(&self.fd, buffer, flags)?;
            let rx = RxStamps { hw: None, kernel: None, app: realtime() };
            Ok(Arrival { len, rx, channel: 0, ttl: None })
        })
    }

    pub(crate) fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        timestamps::notices(&self.fd, &mut self.control, limit, each);
    }
}

/// Sets the time-out of a receive call and returns its flags.
pub(crate) fn receive_flags(fd: &OwnedFd, current: &mut Nanos, wait: Wait) -> io::Result<c_int> {
    match wait {
        Wait::No => Ok(libc::MSG_DONTWAIT),
        Wait::AtMost(wait) => sockopt::receive_timeout(fd, current, wait).map(|()| 0),
        Wait::Forever => sockopt::receive_timeout(fd, current, Nanos::MAX).map(|()| 0),
    }
}

/// Whether `address` is a broadcast address of a network that this machine is in. The kernel
/// refuses to connect a socket without SO_BROADCAST to one (net/ipv4/datagram.c); nothing is sent.
/// A prohibited route gives the same error, with or without the option.
pub fn is_broadcast(address: Ipv4Addr) -> bool {
    let Ok(probe) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return false };
    let refused = probe.connect((address, 9)).map_err(|error| error.raw_os_error());
    refused == Err(Some(libc::EACCES))
        && probe.set_broadcast(true).and_then(|()| probe.connect((address, 9))).is_ok()
}

/// A UDP socket that answers any client.
pub struct UdpServer {
    fd: OwnedFd,
    local: SocketAddr,
    control: Option<Box<ControlBuffer>>,
    timeout: Nanos,
    /// Sender of the last request in the kernel's form, so that the reply needs no conversion.
    last_sender: RawAddress,
    /// Timestamps or all metadata were requested.
    timed: bool,
    /// TTL or hop limit that the socket is set to; `None` is the system's default.
    ttl: Option<u8>,
}

/// A received request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// Sender.
    pub from: SocketAddr,
    /// Destination address, if the socket is bound to all addresses.
    pub to: Option<IpAddr>,
    /// The destination is a broadcast or multicast address, including a subnet's broadcast address.
    pub to_many: bool,
    /// Receive timestamps, if timestamps or all metadata were requested.
    pub rx: Option<RxStamps>,
    /// TTL or hop limit of the request.
    pub ttl: Option<u8>,
    /// TOS or traffic class of the request.
    pub tos: Option<u8>,
}

impl UdpServer {
    /// Opens a socket on `address`. An IPv6 socket is IPv6-only.
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let fd = sockopt::open(address.ip(), libc::SOCK_DGRAM, 0)?;
        let on: c_int = 1;
        let everywhere = address.ip().is_unspecified();
        if address.is_ipv6() {
            sockopt::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, on)?;
        }
        if everywhere {
            if address.is_ipv4() {
                sockopt::set(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, on)?;
            } else {
                sockopt::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, on)?;
            }
        }
        options.apply_to_datagrams(&fd, address.ip())?;
        timestamps::request(&fd, options.stamps, options.tx_stamps)?;
        sockopt::bind(&fd, address)?;
        let timed = options.timed || options.stamps != StampRequest::User;
        let has_control = timed || everywhere || options.receive_ttl || options.receive_tos;
        Ok(Self {
            local: sockopt::local_addr(&fd)?,
            fd,
            control: has_control.then(ControlBuffer::new),
            timeout: Nanos::MAX,
            last_sender: RawAddress::empty(),
            timed,
            ttl: None,
        })
    }

    /// Returns a handle that ends receive calls of another thread, for good.
    pub fn shutter(&self) -> io::Result<Shutter> {
        self.fd.try_clone().map(Shutter)
    }

    /// Returns a gate for another thread; there must be only one. It starts open, and keeps its
    /// state when dropped.
    pub fn gate(&self) -> io::Result<Gate> {
        self.fd.try_clone().map(|fd| Gate { fd, shut_at: None, unread: 0 })
    }

    /// Returns the address that it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the number of packets dropped for lack of room or by a shut [`Gate`], if the kernel
    /// reports it.
    pub fn overflowed(&self) -> Option<u64> {
        datagram::overflowed(&self.fd)
    }

    /// Receives one request; `None` if none arrived.
    pub fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Request>> {
        let flags = receive_flags(&self.fd, &mut self.timeout, wait)?;
        let Some(control) = &mut self.control else {
            return self.receive_bare(buffer, flags);
        };
        self.last_sender.len = RawAddress::STORAGE_LEN;
        let came =
            match control::receive(&self.fd, buffer, control, Some(&mut self.last_sender), flags) {
                Ok(came) => came,
                Err(error) => return socket_error::none_if_transient(error),
            };
        let Some(from) = self.from() else { return Ok(None) };
        let rx = self.timed.then(|| came.rx());
        let control::ReceivedControl { ttl, tos, to, to_many, .. } = came.control_data;
        Ok(Some(Request { len: came.len, from, to, to_many, rx, ttl, tos }))
    }

    /// Answers `request`, which must be the last one received here, from the address that it was
    /// sent to.
    pub fn reply(
        &mut self,
        message: &[u8],
        request: &Request,
        marks: Marks,
    ) -> Result<(), SendError> {
        let sent = if request.to.is_none() && marks.tos.is_none() {
            // Control data costs time per reply, and replies of one path have the same TTL.
            self.set_ttl(marks.ttl)?;
            syscall::send_to(&self.fd, message, 0, Some(&self.last_sender))
        } else {
            if marks.ttl.is_none() {
                self.set_ttl(None)?;
            }
            let mut control = OutgoingControl::new(request.from, request.to, marks);
            control::send(&self.fd, message, Some(&self.last_sender), &mut control, 0)
        };
        // A socket that is not connected and has no IP_RECVERR gets no ICMP errors, so a failure is
        // about this reply.
        sent.map(drop).map_err(|error| send_error(syscall::errno(&error)))
    }

    /// Sets the TTL or hop limit of the socket, unless it has it already.
    fn set_ttl(&mut self, ttl: Option<u8>) -> Result<(), SendError> {
        if ttl == self.ttl {
            return Ok(());
        }
        let (level, option) = match self.local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TTL),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        };
        // -1 restores the default.
        let value = ttl.map_or(-1, c_int::from);
        let set = sockopt::set(&self.fd, level, option, value);
        set.map_err(|error| send_error(syscall::errno(&error)))?;
        self.ttl = ttl;
        Ok(())
    }

    fn receive_bare(&mut self, buffer: &mut [u8], flags: c_int) -> io::Result<Option<Request>> {
        let received =
            match syscall::receive_from(&self.fd, buffer, Some(&mut self.last_sender), flags) {
                Ok(received) => received,
                Err(error) => return socket_error::none_if_transient(error),
            };
        let Some(from) = self.from() else { return Ok(None) };
        let len = received;
        let (to, to_many) = (None, false);
        Ok(Some(Request { len, from, to, to_many, rx: None, ttl: None, tos: None }))
    }

    /// Returns the sender of the last message; `None` if the socket was shut down.
    fn from(&self) -> Option<SocketAddr> {
        if self.last_sender.len == 0 { None } else { self.last_sender.to_std() }
    }
}

/// Ends receive calls on a [`UdpServer`].
#[derive(Debug)]
pub struct Shutter(OwnedFd);

impl Shutter {
    /// Makes receive calls return at once, with nothing, from now on.
    pub fn shut(&self) {
        // SAFETY: takes plain integers. Linux shuts down an unconnected socket too, although it
        // returns ENOTCONN (net/ipv4/af_inet.c, inet_shutdown).
        unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RD) };
    }
}

/// Admits packets to a [`UdpServer`] or drops them. A shut gate drops packets before they are
/// queued, which costs a sender on the same machine next to nothing. Queued packets would take
/// memory outside its caches, and reading them would take CPU time.
#[derive(Debug)]
pub struct Gate {
    fd: OwnedFd,
    /// Drop counter of the kernel when the gate was shut.
    shut_at: Option<u64>,
    unread: u64,
}

impl Gate {
    /// Shuts the gate, provided that the kernel counts the packets it drops.
    pub fn shut(&mut self) {
        if self.shut_at.is_none() {
            let dropped = datagram::overflowed(&self.fd);
            self.shut_at = dropped.filter(|_| sockopt::drop_all(&self.fd, true).is_ok());
        }
    }

    /// Opens the gate.
    pub fn open(&mut self) -> io::Result<()> {
        if self.shut_at.is_some() {
            sockopt::drop_all(&self.fd, false)?;
            self.unread = self.unread();
            self.shut_at = None;
        }
        Ok(())
    }

    /// Returns the number of packets that arrived while it was shut.
    pub fn unread(&self) -> u64 {
        let now = self.shut_at.and_then(|_| datagram::overflowed(&self.fd));
        // The kernel's counter has 32 bits.
        let since = |(now, then): (u64, u64)| u64::from((now as u32).wrapping_sub(then as u32));
        self.unread + now.zip(self.shut_at).map_or(0, since)
    }
}

#[cfg(test)]
mod tests {
    use dwell_sample::TxStamp;

    use super::*;
    use crate::clock::monotonic;

    const WAIT: Wait = Wait::AtMost(Nanos::from_millis(500));

    /// Reports all that is known of a request.
    fn all() -> SocketOptions {
        let (timed, receive_ttl, receive_tos) = (true, true, true);
        SocketOptions { timed, receive_ttl, receive_tos, ..SocketOptions::server() }
    }

    fn pair(address: &str, stamps: StampRequest) -> (UdpPort, UdpServer) {
        let address = address.parse().unwrap();
        let options = SocketOptions { stamps, ..all() };
        let server = UdpServer::bind(SocketAddr::new(address, 0), &options).unwrap();
        let options = SocketOptions { stamps, ttl: Some(77), dscp: Some(46), ..Default::default() };
        let port = UdpPort::connect(server.local_addr(), &options).unwrap();
        (port, server)
    }

    /// Waits at most a second for the driver's timestamp of packet `key`.
    fn stamp_of(port: &mut UdpPort, key: u32) -> Option<Instant<dwell_units::Realtime>> {
        let until = monotonic() + Nanos::from_secs(1);
        let mut stamp = None;
        while stamp.is_none() && monotonic() < until {
            port.notices(32, &mut |notice| match notice {
                Notice::TxStamp { key: k, stamp: TxStamp::Kernel(at) } if k == key => {
                    stamp = Some(at);
                }
                _ => {}
            });
        }
        stamp
    }

    #[test]
    fn shut_gate_counts_and_drops_packets() {
        for address in ["127.0.0.1", "::1"] {
            let (mut port, mut server) = pair(address, StampRequest::User);
            let mut gate = server.gate().unwrap();
            let mut buffer = [0; 8];
            let mut came = |server: &mut UdpServer| {
                let came = server.receive(&mut buffer, WAIT).unwrap();
                came.map(|request| request.len)
            };
            let mut send = |len| port.send(&[7; 8][..len]).unwrap();
            // Over loopback a packet has mostly arrived when the send call returns.
            let unread = |gate: &Gate, expected| {
                let until = monotonic() + Nanos::from_secs(1);
                while gate.unread() < expected && monotonic() < until {}
                gate.unread()
            };
            send(1);
            assert_eq!(came(&mut server), Some(1), "{address}");
            gate.shut();
            gate.shut();
            send(2);
            send(3);
            assert_eq!((unread(&gate, 2), server.overflowed()), (2, Some(2)), "{address}");
            gate.open().unwrap();
            send(4);
            assert_eq!((came(&mut server), gate.unread()), (Some(4), 2));
            gate.shut();
            send(5);
            assert_eq!((unread(&gate, 3), came(&mut server)), (3, None));
        }
    }

    #[test]
    fn dscp_above_63_is_refused() {
        for address in ["127.0.0.1:9", "[::1]:9"] {
            let open = |dscp| {
                let options = SocketOptions { dscp: Some(dscp), ..Default::default() };
                UdpPort::connect(address.parse().unwrap(), &options)
            };
            assert!(open(63).is_ok());
            assert_eq!(open(64).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn ttl_and_tos_arrive_with_a_request_in_both_families() {
        for address in ["127.0.0.1", "::1"] {
            let (mut port, mut server) = pair(address, StampRequest::User);
            port.send(b"probe").unwrap();
            let mut buffer = [0; 64];
            let request = server.receive(&mut buffer, WAIT).unwrap().expect("the request");
            assert_eq!(&buffer[..request.len], b"probe");
            assert_eq!((request.ttl, request.tos), (Some(77), Some(46 << 2)), "{address}");
        }
    }

    #[test]
    fn reply_leaves_with_given_ttl_and_tos() {
        for address in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
            let any: IpAddr = address.parse().unwrap();
            let options = all();
            let mut server = UdpServer::bind(SocketAddr::new(any, 0), &options).unwrap();
            let host = if any.is_ipv4() { "127.0.0.1" } else { "::1" }.parse().unwrap();
            let to = SocketAddr::new(host, server.local_addr().port());
            // Another server sends the request, because it can read the TTL of the reply.
            let mut client = UdpServer::bind(SocketAddr::new(host, 0), &options).unwrap();
            client.last_sender = RawAddress::from(to);
            let request = Request {
                len: 0,
                from: to,
                to: None,
                to_many: false,
                rx: None,
                ttl: None,
                tos: None,
            };
            let mut buffer = [0; 64];
            for marks in [
                Marks { tos: Some(0x28), ttl: Some(1) },
                Marks { tos: None, ttl: Some(255) },
                Marks { tos: None, ttl: None },
                Marks { tos: None, ttl: Some(63) },
                Marks { tos: Some(0x28), ttl: None },
            ] {
                client.reply(b"who", &request, Marks::default()).unwrap();
                let came = server.receive(&mut buffer, WAIT).unwrap().expect("the request");
                server.reply(b"me", &came, marks).unwrap();
                let reply = client.receive(&mut buffer, WAIT).unwrap().expect("the reply");
                let expected = (marks.ttl.or(came.ttl), marks.tos.or(Some(0)));
                assert_eq!((reply.ttl, reply.tos), expected, "{address} {marks:?}");
            }
        }
    }

    #[test]
    fn kernel_timestamps_match_packets_in_order() {
        for address in ["127.0.0.1", "::1"] {
            let (mut port, mut server) = pair(address, StampRequest::Kernel);
            let mut buffer = [0; 64];
            // Timestamping starts asynchronously: continue until one packet has both timestamps.
            let mut proven = false;
            let until = monotonic() + Nanos::from_secs(2);
            while monotonic() < until {
                let sent = port.send(b"probe").unwrap();
                let request = server.receive(&mut buffer, WAIT).unwrap().expect("the request");
                let stamps = request.rx.unwrap();
                let Some(rx) = stamps.kernel else { continue };
                let Some(tx) = stamp_of(&mut port, sent.key.unwrap()) else { continue };
                assert!(sent.app <= tx, "tx_app {:?} tx_kernel {tx:?}", sent.app);
                assert!(tx <= rx && rx <= stamps.app);
                proven = true;
                break;
            }
            assert!(proven, "no packet over {address} had both kernel stamps");
        }
    }

    #[test]
    fn keys_stay_matched_after_refused_and_oversized_sends() {
        let (mut port, server) = pair("127.0.0.1", StampRequest::Kernel);
        let address = server.local_addr();
        drop(server);
        // Refused: the next send call returns the error, and the packet is sent again.
        for _ in 0..3 {
            port.send(b"refused").unwrap();
        }
        assert_eq!(port.send(&[0; 65_508]), Err(SendError::TooLong));
        let mut refused = 0;
        port.notices(32, &mut |n| {
            refused += i32::from(matches!(n, Notice::Error { icmp: true, .. }))
        });
        assert!(refused > 0, "the ICMP error is in the queue");
        let mut server = UdpServer::bind(address, &SocketOptions::server()).unwrap();
        let mut matched = false;
        let until = monotonic() + Nanos::from_secs(2);
        while monotonic() < until {
            let sent = port.send(b"received").unwrap();
            let after = realtime();
            let Some(at) = stamp_of(&mut port, sent.key.unwrap()) else { continue };
            assert!(
                sent.app <= at && at <= after + Nanos::from_millis(1),
                "the timestamp of another packet"
            );
            matched = true;
            break;
        }
        assert!(matched, "no timestamp after the failures");
        assert!(server.receive(&mut [0; 64], WAIT).unwrap().is_some());
    }

    #[test]
    fn wildcard_server_replies_from_requested_address() {
        let any = &SocketOptions::server();
        let mut server = UdpServer::bind("0.0.0.0:0".parse().unwrap(), any).unwrap();
        let port = server.local_addr().port();
        let asked = SocketAddr::new("127.0.0.2".parse().unwrap(), port);
        let mut prober = UdpPort::connect(asked, &SocketOptions::default()).unwrap();
        prober.send(b"who").unwrap();
        let mut buffer = [0; 64];
        let request = server.receive(&mut buffer, WAIT).unwrap().expect("the request");
        assert_eq!(request.to, Some("127.0.0.2".parse().unwrap()));
        server.reply(b"me", &request, Marks::default()).unwrap();
        // A connected socket takes replies from the asked address only.
        let reply = prober.receive(&mut buffer, WAIT).unwrap().expect("the reply");
        assert_eq!(&buffer[..reply.len], b"me");
    }

    #[test]
    fn broadcast_requests_are_recognised() {
        let any = &SocketOptions::server();
        for (any_address, to, many) in [
            ("0.0.0.0:0", "127.0.0.2", false),
            ("0.0.0.0:0", "127.255.255.255", true),
            ("[::]:0", "::1", false),
        ] {
            let mut server = UdpServer::bind(any_address.parse().unwrap(), any).unwrap();
            let to = SocketAddr::new(to.parse().unwrap(), server.local_addr().port());
            let client = UdpSocket::bind(any_address).unwrap();
            client.set_broadcast(true).unwrap();
            client.send_to(b"who", to).unwrap();
            let request = server.receive(&mut [0; 64], WAIT).unwrap().expect("the request");
            assert_eq!((request.to, request.to_many), (Some(to.ip()), many));
        }
    }

    #[test]
    fn broadcast_addresses_are_recognised_by_local_routes() {
        for (address, broadcast) in [
            ("127.255.255.255", true),
            ("127.0.0.1", false),
            ("127.0.0.255", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_broadcast(address.parse().unwrap()), broadcast, "{address}");
        }
    }

    #[test]
    fn receive_times_out_without_message() {
        let (mut port, _server) = pair("127.0.0.1", StampRequest::User);
        let wait = Wait::AtMost(Nanos::from_millis(5));
        assert_eq!(port.receive(&mut [0; 64], wait).unwrap(), None);
        assert_eq!(port.receive(&mut [0; 64], Wait::No).unwrap(), None);
    }
}
