//! UDP sockets, connected or not, for probes, servers and relays; ICMP sockets build on them. The
//! descriptor blocks, and every call states whether it waits.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use dwell_sample::RxStamps;
use dwell_units::{Instant, Monotonic, Nanos};

use super::gate::{Gate, Shutter};
use super::port::{
    Arrival, Notice, Port, SendError, Sent, SocketOptions, StampRequest, TxStampRequest, Wait,
};
use super::socket_error::{self, send_error};
use crate::clock::{monotonic, realtime};
use crate::sys::address::RawAddress;
use crate::sys::control::{self, ControlBuffer, OutgoingControl, ReceivedControl};
use crate::sys::{sockopt, syscall};
use crate::timestamps::{self, KeyCounter};

pub use crate::sys::control::Marks;

/// Time after which a timestamp is no longer expected; one second is a long queueing delay.
const TIMESTAMP_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Sender of a packet and the local address that it was sent to: what a reply needs.
#[derive(Clone, Copy)]
pub struct Peer {
    pub(crate) raw: RawAddress,
    pub(crate) source: Option<IpAddr>,
    address: SocketAddr,
}

impl Peer {
    pub(crate) fn new(raw: RawAddress, source: Option<IpAddr>) -> Option<Self> {
        // A socket that was shut down reports no address.
        let address = if raw.len == 0 { None } else { raw.to_std() }?;
        Some(Self { raw, source, address })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the local address that it sent to, if the socket is bound to all addresses.
    pub fn sent_to(&self) -> Option<IpAddr> {
        self.source
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peer({})", self.address)
    }
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// Receive timestamps; `None` if the socket is not timed ([`SocketOptions::timed`]).
    pub rx: Option<RxStamps>,
    /// TTL or hop limit, if requested.
    pub ttl: Option<u8>,
    /// TOS or traffic class, if requested.
    pub tos: Option<u8>,
    /// The destination is a broadcast or multicast address, including a subnet's broadcast address.
    pub to_many: bool,
    /// Sender; `None` on connected sockets.
    pub from: Option<Peer>,
}

impl Datagram {
    /// Returns the receive timestamps; reads the clock now if the socket is not timed.
    pub fn rx_or_now(&self) -> RxStamps {
        self.rx.unwrap_or_else(now)
    }
}

/// Returns receive timestamps without any of the kernel.
fn now() -> RxStamps {
    RxStamps { hw: None, driver: None, kernel: None, app: realtime() }
}

/// A UDP socket, connected or not, or an ICMP socket.
pub struct DatagramSocket {
    pub(crate) fd: OwnedFd,
    local: SocketAddr,
    control: Box<ControlBuffer>,
    timeout: Nanos,
    pub(crate) keys: KeyCounter,
    /// Receive calls read the clock.
    timed: bool,
    /// Receive calls return the sender.
    pub(crate) names_sender: bool,
    /// Packets come with control data: timestamps, header fields, or their destination address.
    pub(crate) has_control: bool,
    /// Payloads up to this length may be merged, as far as is known.
    pub(crate) max_merged_len: usize,
    /// A client may have its own socket on this port.
    shares_port: bool,
    /// TTL or hop limit that [`Self::reply`] has set; `None` is the system's default.
    reply_ttl: Option<u8>,
}

impl DatagramSocket {
    /// Opens a socket that exchanges packets with `peer` only.
    pub fn connect(peer: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let fd = Self::open(peer.ip(), options)?;
        if options.source.is_some() {
            sockopt::bind(&fd, options.source_towards(peer))?;
        }
        sockopt::connect(&fd, peer)?;
        Self::new(fd, options)
    }

    /// Opens a socket that receives from any sender at `local`. An IPv6 socket is IPv6-only.
    pub fn bind(local: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let fd = Self::open(local.ip(), options)?;
        let everywhere = local.ip().is_unspecified();
        if local.is_ipv6() {
            sockopt::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1 as c_int)?;
        }
        if everywhere {
            sockopt::set_ip(&fd, local.ip(), libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO, true)?;
        }
        // A second socket on one address would take packets from a wildcard listener until it is
        // connected.
        let shares_port = options.share_port && !everywhere && Self::enable_sharing(&fd)?;
        if shares_port {
            Self::bind_exclusively(&fd, local)?;
        } else {
            sockopt::bind(&fd, local)?;
        }
        let socket = Self::new(fd, options)?;
        let has_control = socket.has_control || everywhere;
        Ok(Self { names_sender: true, has_control, shares_port, ..socket })
    }

    /// Allows other sockets of ours on its port that receive none of its packets. Returns `false`
    /// on old kernels, which cannot.
    fn enable_sharing(fd: &OwnedFd) -> io::Result<bool> {
        let may =
            sockopt::share_port(fd, true).and_then(|()| sockopt::first_receives_all(fd)).is_ok();
        if !may {
            sockopt::share_port(fd, false)?;
        }
        Ok(may)
    }

    /// Binds a socket that may share its port to a port not in use, and ends the sharing.
    fn bind_exclusively(fd: &OwnedFd, mut address: SocketAddr) -> io::Result<()> {
        let free = sockopt::open(address.ip(), libc::SOCK_DGRAM, 0)?;
        sockopt::bind(&free, address)?;
        address.set_port(sockopt::local_addr(&free)?.port());
        drop(free);
        sockopt::bind(fd, address)?;
        sockopt::share_port(fd, false)
    }

    /// Opens a socket on the port of `listener`, which was opened with
    /// [`SocketOptions::share_port`], for packets from and to `peer` only: the kernel need not look
    /// up the route for every reply. Earlier packets of the peer stay with the listener. At most one
    /// may exist at a time: until a second one is connected, the kernel would give it packets of
    /// other clients (seen with Linux 6.18).
    ///
    /// # Errors
    /// The listener is bound to all addresses, or a call failed. The listener stays usable.
    pub fn for_peer(listener: &Self, peer: &Peer, options: &SocketOptions) -> io::Result<Self> {
        if !listener.shares_port {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let fd = Self::open(listener.local.ip(), options)?;
        // Share the port only briefly, so that no other program gets it.
        let share = |shared| {
            [&listener.fd, &fd].into_iter().try_for_each(|fd| sockopt::share_port(fd, shared))
        };
        let made = share(true)
            .and_then(|()| sockopt::bind(&fd, listener.local))
            .and_then(|()| sockopt::connect(&fd, peer.address));
        share(false)?;
        made?;
        Ok(Self { names_sender: true, ..Self::new(fd, options)? })
    }

    /// Redirects the peer of a socket from [`Self::for_peer`] to the listener, as if this socket did
    /// not exist. Earlier packets can still be received here; no more can be sent.
    pub fn release_peer(&self) -> io::Result<()> {
        // A connected socket receives from its peer only, and no other socket has this address.
        sockopt::connect(&self.fd, self.local)
    }

    fn open(like: IpAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
        let fd = sockopt::open(like, libc::SOCK_DGRAM, 0)?;
        options.apply(&fd, like)?;
        options.apply_to_datagrams(&fd, like)?;
        Ok(fd)
    }

    /// Wraps the descriptor of a socket connected to `peer`.
    pub(crate) fn from_fd(fd: OwnedFd, peer: IpAddr, options: &SocketOptions) -> io::Result<Self> {
        options.apply_to_datagrams(&fd, peer)?;
        Self::new(fd, options)
    }

    /// Wraps a descriptor, as of a connected socket, and requests its timestamps.
    fn new(fd: OwnedFd, options: &SocketOptions) -> io::Result<Self> {
        let stamps = timestamps::request(&fd, options.stamps, options.tx_stamps)?;
        let stamped = stamps != StampRequest::User;
        let keys = KeyCounter::new(stamps, options.tx_stamps);
        Ok(Self {
            local: sockopt::local_addr(&fd)?,
            fd,
            control: ControlBuffer::new(),
            timeout: Nanos::MAX,
            timed: options.timed || stamped,
            names_sender: false,
            has_control: stamped || options.receive_ttl || options.receive_tos,
            max_merged_len: if options.merge && !keys.is_stamped() { usize::MAX } else { 0 },
            keys,
            shares_port: false,
            reply_ttl: None,
        })
    }

    /// Returns the address that it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether a packet is waiting to be received.
    pub fn has_unread(&self) -> bool {
        let mut one = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, exclusively borrowed; the call returns at once.
        let ready = unsafe { libc::poll(&mut one, 1, 0) };
        ready == 1 && one.revents & libc::POLLIN != 0
    }

    /// Whether timestamps of sent packets will arrive through [`Self::notices`].
    pub fn is_stamped(&self) -> bool {
        self.keys.is_stamped()
    }

    /// Receives one packet; `None` if none arrived or the socket was shut down. A pending ICMP error
    /// is not returned; it stays in the error queue (see [`Self::notices`]). A packet longer than
    /// `buffer` is truncated.
    #[inline]
    pub fn receive_from(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Datagram>> {
        let flags = wait.receive_flags(&self.fd, &mut self.timeout)?;
        let Self { fd, control, timed, names_sender, has_control, .. } = self;
        let (timed, names_sender, has_control) = (*timed, *names_sender, *has_control);
        let received = socket_error::receive(|again| {
            let flags = if again { flags | libc::MSG_DONTWAIT } else { flags };
            let mut raw = RawAddress::empty();
            let sender = names_sender.then_some(&mut raw);
            if !has_control {
                let len = syscall::receive_from(fd, buffer, sender, flags)?;
                let rx = timed.then(now);
                let from = if names_sender { Peer::new(raw, None) } else { None };
                return Ok(Datagram { len, rx, ttl: None, tos: None, to_many: false, from });
            }
            let received = control::receive(fd, buffer, control, sender, flags, timed)?;
            let ReceivedControl { ttl, tos, to, to_many, .. } = received.control_data;
            let from = if names_sender { Peer::new(raw, to) } else { None };
            Ok(Datagram { len: received.len, rx: received.rx(), ttl, tos, to_many, from })
        })?;
        // A socket that was shut down reports no sender.
        Ok(received.filter(|datagram| datagram.from.is_some() || !names_sender))
    }

    /// Reads the clock and sends one packet to the connected peer. If the call returns a pending
    /// ICMP error, the packet is sent again. Does not wait for room: the schedule is kept even if
    /// the socket's buffer is full.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        self.send_repeatedly(|fd| syscall::send(fd, message, libc::MSG_DONTWAIT))
    }

    /// Like [`Self::send`], to `to` and from the address that it had sent to.
    #[inline]
    pub fn send_to(&mut self, message: &[u8], to: &Peer) -> Result<Sent, SendError> {
        self.send_repeatedly(|fd| match to.source {
            None => syscall::send_to(fd, message, libc::MSG_DONTWAIT, Some(&to.raw)),
            Some(source) => {
                let mut control = OutgoingControl::new(to.address, Some(source), Marks::default());
                control::send(fd, message, Some(&to.raw), &mut control, libc::MSG_DONTWAIT)
            }
        })
    }

    #[inline]
    fn send_repeatedly(
        &mut self,
        send: impl Fn(&OwnedFd) -> io::Result<usize>,
    ) -> Result<Sent, SendError> {
        let mut failed = 0;
        loop {
            let app = realtime();
            let Err(error) = send(&self.fd) else {
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
        let again = socket_error::should_retry(errno, before);
        (!again).then(|| send_error(errno))
    }

    /// Answers `to`, from the address that it had sent to, with these header fields. Reads no clock
    /// and may wait for room. An error is about this packet if the socket queues no ICMP errors
    /// ([`SocketOptions::icmp_errors`]), so nothing is sent again.
    pub fn reply(&mut self, message: &[u8], to: &Peer, marks: Marks) -> Result<(), SendError> {
        let sent = if to.source.is_none() && marks.tos.is_none() {
            // Control data costs time per reply, and replies of one path have the same TTL.
            self.set_reply_ttl(marks.ttl)?;
            syscall::send_to(&self.fd, message, 0, Some(&to.raw))
        } else {
            if marks.ttl.is_none() {
                self.set_reply_ttl(None)?;
            }
            let mut control = OutgoingControl::new(to.address, to.source, marks);
            control::send(&self.fd, message, Some(&to.raw), &mut control, 0)
        };
        sent.map(drop).map_err(|error| send_error(syscall::errno(&error)))
    }

    /// Sets the TTL or hop limit of the socket, unless it has it already.
    pub(crate) fn set_reply_ttl(&mut self, ttl: Option<u8>) -> Result<(), SendError> {
        if ttl == self.reply_ttl {
            return Ok(());
        }
        // -1 restores the default.
        let value = ttl.map_or(-1, c_int::from);
        let (v4, v6) = (libc::IP_TTL, libc::IPV6_UNICAST_HOPS);
        let set = sockopt::set_ip(&self.fd, self.local.ip(), v4, v6, value);
        set.map_err(|error| send_error(syscall::errno(&error)))?;
        self.reply_ttl = ttl;
        Ok(())
    }

    /// Restarts the kernel's key counter after a packet could not be sent and may or may not have
    /// taken a key. Keys are withheld until timestamps under way have arrived.
    pub(crate) fn restart_keys(&mut self) {
        // After a failure, keys are withheld for good.
        let _ = self.keys.restart(&self.fd, TIMESTAMP_TIMEOUT);
    }

    /// Reads up to `limit` entries of the error queue, oldest first.
    pub fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        timestamps::notices(&self.fd, &mut self.control, limit, each);
    }

    /// Returns the number of packets dropped for lack of room or by a shut [`Gate`], if the kernel
    /// reports it.
    pub fn overflowed(&self) -> Option<u64> {
        sockopt::drop_count(&self.fd)
    }

    /// Returns a handle that ends receive calls of another thread, for good.
    pub fn shutter(&self) -> io::Result<Shutter> {
        self.fd.try_clone().map(Shutter)
    }

    /// Returns a gate for another thread; there must be only one. It starts open, and keeps its
    /// state when dropped.
    pub fn gate(&self) -> io::Result<Gate> {
        self.fd.try_clone().map(Gate::new)
    }
}

impl Port for DatagramSocket {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        self.send(message)
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        let received = self.receive_from(buffer, wait)?;
        Ok(received.map(|datagram| {
            let Datagram { len, ttl, .. } = datagram;
            Arrival { len, rx: datagram.rx_or_now(), channel: 0, ttl }
        }))
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        self.notices(limit, each);
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        sockopt::sleep_until(&self.fd, until);
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for DatagramSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramSocket").field("local", &self.local).finish_non_exhaustive()
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

/// Whether `address` belongs to this machine. The port is ignored; the scope of a link-local
/// address is not.
pub fn is_ours(mut address: SocketAddr) -> bool {
    address.set_port(0);
    sockopt::open(address.ip(), libc::SOCK_DGRAM, 0)
        .and_then(|fd| sockopt::bind(&fd, address))
        .is_ok()
}

/// Whether a socket could not be opened for lack of descriptors, memory or ports, so that closing
/// another one helps.
pub fn is_out_of_resources(error: &io::Error) -> bool {
    // Connecting an unbound socket assigns a port or fails with EAGAIN (net/ipv4/af_inet.c,
    // inet_autobind).
    const SHORTAGE_ERRORS: [c_int; 5] =
        [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
    error.raw_os_error().is_some_and(|errno| SHORTAGE_ERRORS.contains(&errno))
}

/// Whether sockets of this family can request the kernel's timestamps.
pub fn has_stamps(like: IpAddr) -> bool {
    sockopt::open(like, libc::SOCK_DGRAM, 0)
        .and_then(|fd| {
            timestamps::request(&fd, StampRequest::Kernel, TxStampRequest::DriverAndQdisc)
        })
        .is_ok()
}

/// Waits until the kernel timestamps arriving packets: a request takes effect some milliseconds
/// later, for all sockets of the machine. Tests with packets over loopback; returns whether one was
/// timestamped within `limit`. A socket with the request must stay open, or timestamping may be
/// disabled again.
pub fn await_stamps(limit: Nanos) -> bool {
    let end = monotonic() + limit;
    let probe = || -> io::Result<bool> {
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::relay() };
        let mut there =
            DatagramSocket::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), &options)?;
        let mut here = DatagramSocket::connect(there.local_addr(), &SocketOptions::relay())?;
        while monotonic() < end {
            here.send(b"?").map_err(io::Error::other)?;
            let received = there.receive_from(&mut [0; 1], Wait::No)?;
            if received.is_some_and(|datagram| datagram.rx.is_some_and(|rx| rx.kernel.is_some())) {
                return Ok(true);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(false)
    };
    probe().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::poller::Poller;
    use dwell_sample::TxStamp;

    const WAIT: Wait = Wait::AtMost(Nanos::from_millis(500));

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::new("127.0.0.1".parse().unwrap(), port)
    }

    fn take(end: &mut DatagramSocket, buffer: &mut [u8]) -> Datagram {
        let mut poller = Poller::new(4).unwrap();
        poller.add(&*end, 7).unwrap();
        loop {
            assert!(poller.wait(Wait::AtMost(Nanos::from_secs(5))).unwrap() > 0);
            assert_eq!(poller.ready(0).token, 7);
            if let Some(received) = end.receive_from(buffer, Wait::No).unwrap() {
                return received;
            }
            end.notices(32, &mut |_| {});
        }
    }

    #[test]
    fn reply_leaves_from_address_of_request() {
        for (listen, to) in [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.3"), ("::", "::1")] {
            let options = SocketOptions::relay();
            let address = SocketAddr::new(listen.parse().unwrap(), 0);
            let mut server = DatagramSocket::bind(address, &options).unwrap();
            let to = SocketAddr::new(to.parse().unwrap(), server.local_addr().port());
            let mut client = DatagramSocket::connect(to, &options).unwrap();
            client.send(b"there").unwrap();
            let mut buffer = [0; 100];
            let received = take(&mut server, &mut buffer);
            let peer = received.from.unwrap();
            assert_eq!(
                (&buffer[..received.len], peer.address()),
                (&b"there"[..], client.local_addr())
            );
            server.send_to(b"back", &peer).unwrap();
            let received = take(&mut client, &mut buffer);
            assert_eq!(&buffer[..received.len], b"back", "{listen}");
        }
    }

    #[test]
    fn own_socket_serves_one_client_and_listener_the_others() {
        for listen in ["127.0.0.1", "::1"] {
            let options = SocketOptions { share_port: true, ..SocketOptions::relay() };
            let mut listener =
                DatagramSocket::bind(SocketAddr::new(listen.parse().unwrap(), 0), &options)
                    .unwrap();
            let to = listener.local_addr();
            let mut client = DatagramSocket::connect(to, &options).unwrap();
            let mut other = DatagramSocket::connect(to, &options).unwrap();
            let mut buffer = [0; 100];
            client.send(b"first").unwrap();
            let peer = take(&mut listener, &mut buffer).from.unwrap();
            {
                // Until it is connected, it receives no packets.
                let fd = DatagramSocket::open(to.ip(), &options).unwrap();
                [&fd, &listener.fd].iter().for_each(|fd| sockopt::share_port(fd, true).unwrap());
                sockopt::bind(&fd, to).unwrap();
                for _ in 0..9 {
                    DatagramSocket::connect(to, &options).unwrap().send(b"?").unwrap();
                    take(&mut listener, &mut buffer);
                }
                sockopt::share_port(&listener.fd, false).unwrap();
            }
            let mut own = DatagramSocket::for_peer(&listener, &peer, &options).unwrap();
            for (end, at) in [(&mut client, &mut own), (&mut other, &mut listener)] {
                end.send(b"there").unwrap();
                let from = take(at, &mut buffer).from.unwrap();
                assert_eq!(from.address(), end.local_addr(), "{listen}");
                assert_eq!(from.sent_to(), peer.sent_to(), "{listen}");
            }
            own.send(b"back").unwrap();
            let received = take(&mut client, &mut buffer);
            assert_eq!(&buffer[..received.len], b"back", "{listen}");
            assert!(own.receive_from(&mut buffer, Wait::No).unwrap().is_none());
            // No other socket gets the port, not even one that would share it.
            let fd = DatagramSocket::open(to.ip(), &options).unwrap();
            sockopt::share_port(&fd, true).unwrap();
            assert!(sockopt::bind(&fd, to).is_err(), "{listen}");
            assert!(DatagramSocket::bind(to, &options).is_err(), "{listen}");
        }
        let options = SocketOptions { share_port: true, ..SocketOptions::relay() };
        let mut everywhere = DatagramSocket::bind("0.0.0.0:0".parse().unwrap(), &options).unwrap();
        let to = loopback(everywhere.local_addr().port());
        DatagramSocket::connect(to, &options).unwrap().send(b"?").unwrap();
        let peer = take(&mut everywhere, &mut [0; 1]).from.unwrap();
        assert!(DatagramSocket::for_peer(&everywhere, &peer, &options).is_err());
    }

    #[test]
    fn kernel_timestamps_of_both_directions_match_their_packet() {
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::relay() };
        let mut server = DatagramSocket::bind(loopback(0), &options).unwrap();
        let mut client = DatagramSocket::connect(server.local_addr(), &options).unwrap();
        let mut buffer = [0; 100];
        assert!(await_stamps(Nanos::from_secs(10)));
        for _ in 0..100 {
            let sent = client.send(b"x").unwrap();
            let received = take(&mut server, &mut buffer);
            let mut stamps = Vec::new();
            client.notices(32, &mut |notice| match notice {
                Notice::TxStamp { key, stamp } if Some(key) == sent.key => stamps.push(stamp),
                _ => {}
            });
            if let ([TxStamp::Sched(before), TxStamp::Kernel(left)], Some(kernel)) =
                (&stamps[..], received.rx.unwrap().kernel)
            {
                assert!(sent.app <= *before && before <= left && *left <= kernel);
                assert!(kernel <= received.rx.unwrap().app);
            } else {
                panic!("{stamps:?} {:?}", received.rx);
            }
        }
    }

    #[test]
    fn dropped_packets_are_counted() {
        let server = DatagramSocket::bind(loopback(0), &SocketOptions::relay()).unwrap();
        sockopt::set(&server.fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 1 as c_int).unwrap();
        let mut client =
            DatagramSocket::connect(server.local_addr(), &SocketOptions::relay()).unwrap();
        (0..50).for_each(|_| assert!(client.send(&[0; 1_000]).is_ok()));
        assert!(server.overflowed().unwrap() > 30);
    }

    #[test]
    fn address_of_another_machine_is_not_ours() {
        assert!(is_ours("127.0.0.1:7".parse().unwrap()));
        assert!(!is_ours("192.0.2.7:7".parse().unwrap()));
    }

    /// Reports all that is known of a request.
    fn all() -> SocketOptions {
        let (timed, receive_ttl, receive_tos) = (true, true, true);
        SocketOptions { timed, receive_ttl, receive_tos, ..SocketOptions::server() }
    }

    fn pair(address: &str, stamps: StampRequest) -> (DatagramSocket, DatagramSocket) {
        let address = address.parse().unwrap();
        let options = SocketOptions { stamps, ..all() };
        let server = DatagramSocket::bind(SocketAddr::new(address, 0), &options).unwrap();
        let options = SocketOptions { stamps, ttl: Some(77), dscp: Some(46), ..Default::default() };
        let port = DatagramSocket::connect(server.local_addr(), &options).unwrap();
        (port, server)
    }

    /// Waits at most a second for the driver's timestamp of packet `key`.
    fn stamp_of(port: &mut DatagramSocket, key: u32) -> Option<Instant<dwell_units::Realtime>> {
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
            let mut received = |server: &mut DatagramSocket| {
                let request = server.receive_from(&mut buffer, WAIT).unwrap();
                request.map(|request| request.len)
            };
            let mut send = |len| port.send(&[7; 8][..len]).unwrap();
            // Over loopback a packet has mostly arrived when the send call returns.
            let unread = |gate: &Gate, expected| {
                let until = monotonic() + Nanos::from_secs(1);
                while gate.unread() < expected && monotonic() < until {}
                gate.unread()
            };
            send(1);
            assert_eq!(received(&mut server), Some(1), "{address}");
            gate.shut();
            gate.shut();
            send(2);
            send(3);
            assert_eq!((unread(&gate, 2), server.overflowed()), (2, Some(2)), "{address}");
            gate.open().unwrap();
            send(4);
            assert_eq!((received(&mut server), gate.unread()), (Some(4), 2));
            gate.shut();
            send(5);
            assert_eq!((unread(&gate, 3), received(&mut server)), (3, None));
        }
    }

    #[test]
    fn dscp_above_63_is_refused() {
        for address in ["127.0.0.1:9", "[::1]:9"] {
            let open = |dscp| {
                let options = SocketOptions { dscp: Some(dscp), ..Default::default() };
                DatagramSocket::connect(address.parse().unwrap(), &options)
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
            let request = server.receive_from(&mut buffer, WAIT).unwrap().expect("the request");
            assert_eq!(&buffer[..request.len], b"probe");
            assert_eq!((request.ttl, request.tos), (Some(77), Some(46 << 2)), "{address}");
        }
    }

    #[test]
    fn reply_leaves_with_given_ttl_and_tos() {
        for address in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
            let any: IpAddr = address.parse().unwrap();
            let options = all();
            let mut server = DatagramSocket::bind(SocketAddr::new(any, 0), &options).unwrap();
            let host = if any.is_ipv4() { "127.0.0.1" } else { "::1" }.parse().unwrap();
            let to = SocketAddr::new(host, server.local_addr().port());
            // Another server sends the request, because it can read the TTL of the reply.
            let mut client = DatagramSocket::bind(SocketAddr::new(host, 0), &options).unwrap();
            let server_address = Peer::new(RawAddress::from(to), None).unwrap();
            let mut buffer = [0; 64];
            for marks in [
                Marks { tos: Some(0x28), ttl: Some(1) },
                Marks { tos: None, ttl: Some(255) },
                Marks { tos: None, ttl: None },
                Marks { tos: None, ttl: Some(63) },
                Marks { tos: Some(0x28), ttl: None },
            ] {
                client.reply(b"who", &server_address, Marks::default()).unwrap();
                let received =
                    server.receive_from(&mut buffer, WAIT).unwrap().expect("the request");
                server.reply(b"me", &received.from.unwrap(), marks).unwrap();
                let reply = client.receive_from(&mut buffer, WAIT).unwrap().expect("the reply");
                let expected = (marks.ttl.or(received.ttl), marks.tos.or(Some(0)));
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
                let request = server.receive_from(&mut buffer, WAIT).unwrap().expect("the request");
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
        let mut server = DatagramSocket::bind(address, &SocketOptions::server()).unwrap();
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
        assert!(server.receive_from(&mut [0; 64], WAIT).unwrap().is_some());
    }

    #[test]
    fn wildcard_server_replies_from_requested_address() {
        let any = &SocketOptions::server();
        let mut server = DatagramSocket::bind("0.0.0.0:0".parse().unwrap(), any).unwrap();
        let port = server.local_addr().port();
        let asked = SocketAddr::new("127.0.0.2".parse().unwrap(), port);
        let mut prober = DatagramSocket::connect(asked, &SocketOptions::default()).unwrap();
        prober.send(b"who").unwrap();
        let mut buffer = [0; 64];
        let request = server.receive_from(&mut buffer, WAIT).unwrap().expect("the request");
        assert_eq!(request.from.unwrap().sent_to(), Some("127.0.0.2".parse().unwrap()));
        server.reply(b"me", &request.from.unwrap(), Marks::default()).unwrap();
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
            let mut server = DatagramSocket::bind(any_address.parse().unwrap(), any).unwrap();
            let to = SocketAddr::new(to.parse().unwrap(), server.local_addr().port());
            let client = UdpSocket::bind(any_address).unwrap();
            client.set_broadcast(true).unwrap();
            client.send_to(b"who", to).unwrap();
            let request = server.receive_from(&mut [0; 64], WAIT).unwrap().expect("the request");
            let sent_to = request.from.unwrap().sent_to();
            assert_eq!((sent_to, request.to_many), (Some(to.ip()), many));
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
