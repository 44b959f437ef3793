//! UDP sockets of a relay: the listener that clients send to, and sockets connected to the
//! destination. No call blocks; [`crate::poller`] waits.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use dwell_sample::RxStamps;
use dwell_units::Nanos;

use crate::clock::{monotonic, realtime};
use crate::sockets::port::{Notice, SendError, Sent, SocketOptions, StampRequest};
use crate::sockets::socket_error::{self, send_error};
use crate::sys::address::RawAddress;
use crate::sys::control::{self, ControlBuffer, Marks, OutgoingControl};
use crate::sys::{sockopt, syscall};
use crate::timestamps::{self, KeyCounter, TxStampRequest};

/// Index of the drop counter in SO_MEMINFO (SK_MEMINFO_DROPS, linux/sock_diag.h).
const DROPS_INDEX: usize = 8;

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
    /// Receive timestamps.
    pub rx: RxStamps,
    /// Sender, if the socket is not connected.
    pub from: Option<Peer>,
}

/// A UDP socket.
pub struct UdpEnd {
    pub(crate) fd: OwnedFd,
    local: SocketAddr,
    control: Box<ControlBuffer>,
    /// Packets come with control data: timestamps, or their destination address.
    pub(crate) control_data: bool,
    pub(crate) connected: bool,
    /// A client may have its own socket on this port.
    shares: bool,
    /// Payloads up to this length may be merged, as far as is known.
    pub(crate) max_merged_len: usize,
    pub(crate) keys: KeyCounter,
}

/// Time after which a timestamp is no longer expected; one second is a long queueing delay.
const TIMESTAMP_TIMEOUT: Nanos = Nanos::from_secs(1);

impl UdpEnd {
    /// Opens a socket that receives from any sender at `address`. An IPv6 socket is IPv6-only.
    pub fn listen(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let fd = Self::open(address.ip(), options)?;
        let everywhere = address.ip().is_unspecified();
        match address {
            SocketAddr::V6(_) => {
                sockopt::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1 as c_int)?;
                if everywhere {
                    sockopt::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1 as c_int)?;
                }
            }
            SocketAddr::V4(_) if everywhere => {
                sockopt::set(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1 as c_int)?;
            }
            SocketAddr::V4(_) => {}
        }
        // A second socket on one address would take packets from a wildcard listener until it is
        // connected.
        let shares = options.share_port && !everywhere && Self::enable_sharing(&fd)?;
        if shares {
            Self::bind_exclusively(&fd, address)?;
        } else {
            sockopt::bind(&fd, address)?;
        }
        Ok(Self { shares, ..Self::new(fd, false, everywhere, options)? })
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

    /// Opens a socket on the port of `listener`, which was opened with [`SocketOptions::share_port`], for
    /// packets from and to `peer` only: the kernel need not look up the route for every reply.
    /// Earlier packets of the peer stay with the listener. At most one may exist at a time: until a
    /// second one is connected, the kernel would give it packets of other clients (seen with Linux
    /// 6.18).
    ///
    /// # Errors
    /// The listener is bound to all addresses, or a call failed. The listener stays usable.
    pub fn own(listener: &Self, peer: &Peer, options: &SocketOptions) -> io::Result<Self> {
        if !listener.shares {
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
        Self::new(fd, false, false, options)
    }

    /// Redirects the peer of a socket from [`UdpEnd::own`] to the listener, as if this socket did
    /// not exist. Earlier packets can still be received here; no more can be sent.
    pub fn release_peer(&self) -> io::Result<()> {
        // A connected socket receives from its peer only, and no other socket has this address.
        sockopt::connect(&self.fd, self.local)
    }

    /// Opens a socket that exchanges packets with `peer` only.
    pub fn connect(peer: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let fd = Self::open(peer.ip(), options)?;
        sockopt::connect(&fd, peer)?;
        Self::new(fd, true, false, options)
    }

    fn open(like: IpAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
        let fd = sockopt::open(like, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
        options.apply_to_datagrams(&fd, like)?;
        Ok(fd)
    }

    fn new(
        fd: OwnedFd,
        connected: bool,
        everywhere: bool,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        timestamps::request(&fd, options.stamps, options.tx_stamps)?;
        let keys = KeyCounter::new(options.stamps, options.tx_stamps);
        let stamped = keys.is_stamped();
        Ok(Self {
            local: sockopt::local_addr(&fd)?,
            fd,
            control: ControlBuffer::new(),
            control_data: stamped || everywhere,
            connected,
            shares: false,
            max_merged_len: if options.merge && !stamped { usize::MAX } else { 0 },
            keys,
        })
    }

    /// Returns the address that it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether a datagram is waiting to be received.
    pub fn has_unread(&self) -> bool {
        let mut one = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, exclusively borrowed; the call returns at once.
        let ready = unsafe { libc::poll(&mut one, 1, 0) };
        ready == 1 && one.revents & libc::POLLIN != 0
    }

    /// Whether timestamps of sent packets will arrive through [`UdpEnd::notices`].
    pub fn is_stamped(&self) -> bool {
        self.keys.is_stamped()
    }

    /// Receives one packet; `None` if none is queued. A pending ICMP error is not returned; it
    /// stays in the error queue (see [`UdpEnd::notices`]).
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        socket_error::receive(|_| {
            let mut raw = RawAddress::empty();
            if self.control_data {
                let from = (!self.connected).then_some(&mut raw);
                let came = control::receive(&self.fd, buffer, &mut self.control, from, 0)?;
                let from = self.peer(raw, came.control_data.to);
                return Ok(Datagram { len: came.len, rx: came.rx(), from });
            }
            let from = (!self.connected).then_some(&mut raw);
            let len = syscall::receive_from(&self.fd, buffer, from, 0)?;
            let rx = RxStamps { hw: None, kernel: None, app: realtime() };
            Ok(Datagram { len, rx, from: self.peer(raw, None) })
        })
    }

    pub(crate) fn peer(&self, raw: RawAddress, source: Option<IpAddr>) -> Option<Peer> {
        if self.connected { None } else { Peer::new(raw, source) }
    }

    /// Sends one packet. A socket that is not connected needs `to`, and sends from the address that
    /// `to` had sent to. If the call returns a pending ICMP error, the packet is sent again.
    pub fn send(&mut self, message: &[u8], to: Option<&Peer>) -> Result<Sent, SendError> {
        let mut failed = 0;
        loop {
            let app = realtime();
            let sent = match to {
                None => syscall::send(&self.fd, message, 0),
                Some(Peer { source: None, raw, .. }) => {
                    syscall::send_to(&self.fd, message, 0, Some(raw))
                }
                Some(Peer { source: Some(source), raw, address }) => {
                    let mut control =
                        OutgoingControl::new(*address, Some(*source), Marks::default());
                    control::send(&self.fd, message, Some(raw), &mut control, 0)
                }
            };
            let Err(error) = sent else {
                return Ok(Sent { app, key: self.keys.take() });
            };
            if let Some(error) = self.failed(&error, failed) {
                return Err(error);
            }
            failed += 1;
        }
    }

    /// Restarts the kernel's key counter after a packet could not be sent and may or may not have
    /// taken a key. Keys are withheld until timestamps under way have arrived.
    pub(crate) fn restart_keys(&mut self) {
        // After a failure, keys are withheld for good.
        let _ = self.keys.restart(&self.fd, TIMESTAMP_TIMEOUT);
    }

    /// Handles a failed send after `before` earlier failures for the same packet. Returns the
    /// error, or `None` if the packet is to be sent again.
    pub(crate) fn failed(&mut self, error: &io::Error, before: usize) -> Option<SendError> {
        let errno = syscall::errno(error);
        self.keys.skip_if_taken(errno);
        let again = socket_error::should_retry(errno, before);
        (!again).then(|| send_error(errno))
    }

    /// Reads up to `limit` entries of the error queue, oldest first.
    pub fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        timestamps::notices(&self.fd, &mut self.control, limit, each);
    }

    /// Returns the number of packets dropped for lack of room, if the kernel reports it.
    pub fn overflowed(&self) -> Option<u64> {
        overflowed(&self.fd)
    }
}

impl AsFd for UdpEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for UdpEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpEnd").field("local", &self.local).finish_non_exhaustive()
    }
}

/// Returns the number of packets dropped by this socket for lack of room, if the kernel reports it.
pub(crate) fn overflowed(fd: &OwnedFd) -> Option<u64> {
    let mut memory = [0_u32; DROPS_INDEX + 1];
    let mut len = mem::size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `memory`, and the length to `len`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &mut len,
        )
    };
    let has_drops = sockopt::check(result).is_ok() && len as usize == mem::size_of_val(&memory);
    has_drops.then(|| memory[DROPS_INDEX].into())
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
        let mut there = UdpEnd::listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), &options)?;
        let mut here = UdpEnd::connect(there.local_addr(), &SocketOptions::relay())?;
        while monotonic() < end {
            here.send(b"?", None).map_err(io::Error::other)?;
            let came = there.receive(&mut [0; 1])?;
            if came.is_some_and(|came| came.rx.kernel.is_some()) {
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
    use crate::sockets::port::Wait;
    use dwell_sample::TxStamp;

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::new("127.0.0.1".parse().unwrap(), port)
    }

    fn take(end: &mut UdpEnd, buffer: &mut [u8]) -> Datagram {
        let mut poller = Poller::new(4).unwrap();
        poller.add(&*end, 7).unwrap();
        loop {
            assert!(poller.wait(Wait::AtMost(Nanos::from_secs(5))).unwrap() > 0);
            assert_eq!(poller.ready(0).token, 7);
            if let Some(came) = end.receive(buffer).unwrap() {
                return came;
            }
            end.notices(32, &mut |_| {});
        }
    }

    #[test]
    fn reply_leaves_from_address_of_request() {
        for (listen, to) in [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.3"), ("::", "::1")] {
            let options = SocketOptions::relay();
            let address = SocketAddr::new(listen.parse().unwrap(), 0);
            let mut server = UdpEnd::listen(address, &options).unwrap();
            let to = SocketAddr::new(to.parse().unwrap(), server.local_addr().port());
            let mut client = UdpEnd::connect(to, &options).unwrap();
            client.send(b"there", None).unwrap();
            let mut buffer = [0; 100];
            let came = take(&mut server, &mut buffer);
            let peer = came.from.unwrap();
            assert_eq!((&buffer[..came.len], peer.address()), (&b"there"[..], client.local_addr()));
            server.send(b"back", Some(&peer)).unwrap();
            let came = take(&mut client, &mut buffer);
            assert_eq!(&buffer[..came.len], b"back", "{listen}");
        }
    }

    #[test]
    fn own_socket_serves_one_client_and_listener_the_others() {
        for listen in ["127.0.0.1", "::1"] {
            let options = SocketOptions { share_port: true, ..SocketOptions::relay() };
            let mut listener =
                UdpEnd::listen(SocketAddr::new(listen.parse().unwrap(), 0), &options).unwrap();
            let to = listener.local_addr();
            let mut client = UdpEnd::connect(to, &options).unwrap();
            let mut other = UdpEnd::connect(to, &options).unwrap();
            let mut buffer = [0; 100];
            client.send(b"first", None).unwrap();
            let peer = take(&mut listener, &mut buffer).from.unwrap();
            {
                // Until it is connected, it receives no packets.
                let fd = UdpEnd::open(to.ip(), &options).unwrap();
                [&fd, &listener.fd].iter().for_each(|fd| sockopt::share_port(fd, true).unwrap());
                sockopt::bind(&fd, to).unwrap();
                for _ in 0..9 {
                    UdpEnd::connect(to, &options).unwrap().send(b"?", None).unwrap();
                    take(&mut listener, &mut buffer);
                }
                sockopt::share_port(&listener.fd, false).unwrap();
            }
            let mut own = UdpEnd::own(&listener, &peer, &options).unwrap();
            for (end, at) in [(&mut client, &mut own), (&mut other, &mut listener)] {
                end.send(b"there", None).unwrap();
                let from = take(at, &mut buffer).from.unwrap();
                assert_eq!(from.address(), end.local_addr(), "{listen}");
                assert_eq!(from.sent_to(), peer.sent_to(), "{listen}");
            }
            own.send(b"back", None).unwrap();
            let came = take(&mut client, &mut buffer);
            assert_eq!(&buffer[..came.len], b"back", "{listen}");
            assert!(own.receive(&mut buffer).unwrap().is_none());
            // No other socket gets the port, not even one that would share it.
            let fd = UdpEnd::open(to.ip(), &options).unwrap();
            sockopt::share_port(&fd, true).unwrap();
            assert!(sockopt::bind(&fd, to).is_err(), "{listen}");
            assert!(UdpEnd::listen(to, &options).is_err(), "{listen}");
        }
        let options = SocketOptions { share_port: true, ..SocketOptions::relay() };
        let mut everywhere = UdpEnd::listen("0.0.0.0:0".parse().unwrap(), &options).unwrap();
        let to = loopback(everywhere.local_addr().port());
        UdpEnd::connect(to, &options).unwrap().send(b"?", None).unwrap();
        let peer = take(&mut everywhere, &mut [0; 1]).from.unwrap();
        assert!(UdpEnd::own(&everywhere, &peer, &options).is_err());
    }

    #[test]
    fn kernel_timestamps_of_both_directions_match_their_packet() {
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::relay() };
        let mut server = UdpEnd::listen(loopback(0), &options).unwrap();
        let mut client = UdpEnd::connect(server.local_addr(), &options).unwrap();
        let mut buffer = [0; 100];
        assert!(await_stamps(Nanos::from_secs(10)));
        for _ in 0..100 {
            let sent = client.send(b"x", None).unwrap();
            let came = take(&mut server, &mut buffer);
            let mut stamps = Vec::new();
            client.notices(32, &mut |notice| match notice {
                Notice::TxStamp { key, stamp } if Some(key) == sent.key => stamps.push(stamp),
                _ => {}
            });
            if let ([TxStamp::Sched(before), TxStamp::Kernel(left)], Some(kernel)) =
                (&stamps[..], came.rx.kernel)
            {
                assert!(sent.app <= *before && before <= left && *left <= kernel);
                assert!(kernel <= came.rx.app);
            } else {
                panic!("{stamps:?} {:?}", came.rx);
            }
        }
    }

    #[test]
    fn dropped_packets_are_counted() {
        let server = UdpEnd::listen(loopback(0), &SocketOptions::relay()).unwrap();
        sockopt::set(&server.fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 1 as c_int).unwrap();
        let mut client = UdpEnd::connect(server.local_addr(), &SocketOptions::relay()).unwrap();
        (0..50).for_each(|_| assert!(client.send(&[0; 1_000], None).is_ok()));
        assert!(server.overflowed().unwrap() > 30);
    }

    #[test]
    fn address_of_another_machine_is_not_ours() {
        assert!(is_ours("127.0.0.1:7".parse().unwrap()));
        assert!(!is_ours("192.0.2.7:7".parse().unwrap()));
    }
}
