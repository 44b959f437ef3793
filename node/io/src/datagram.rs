//! UDP sockets of a relay: the one that clients send to, and those connected to where it goes.
//! None of their calls waits; [`crate::poller`] does.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use dwell_engine::stamps::RxStamps;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::address::RawAddress;
use crate::calls;
use crate::clock::{monotonic, realtime};
use crate::message::{self, Control};
use crate::pending;
use crate::port::{Notice, SendError, Sent, StampRequest};
use crate::socket;
use crate::udp::{self, Beside, Marks};

/// Asked of the kernel: the default 208 KiB, not the CPU, decides loss (PEERS.md).
const BUFFER: c_int = 32 << 20;

/// Where the count of dropped packets stands in SO_MEMINFO (SK_MEMINFO_DROPS, linux/sock_diag.h).
const DROPS: usize = 8;

/// How a socket is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndOptions {
    /// Which stamps to ask for.
    pub stamps: StampRequest,
    /// Report what is too long for the path instead of sending it in fragments.
    pub whole: bool,
    /// Let packets of one length leave as one that the kernel cuts (UDP_SEGMENT), where they are sent
    /// together and not stamped: what is cut is stamped once.
    pub merge: bool,
    /// A client may get a socket of its own, if this one listens at one address ([`UdpEnd::own`]).
    pub own: bool,
}

/// Who sent a packet, and which address of ours it was sent to: all that a reply needs.
#[derive(Clone, Copy)]
pub struct Peer {
    pub(crate) raw: RawAddress,
    pub(crate) source: Option<IpAddr>,
    address: SocketAddr,
}

impl Peer {
    pub(crate) fn new(raw: RawAddress, source: Option<IpAddr>) -> Option<Self> {
        // A socket that was shut reports no address.
        let address = if raw.len == 0 { None } else { raw.to_std() }?;
        Some(Self { raw, source, address })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of ours that it sent to, where the socket is bound to all of them.
    pub fn sent_to(&self) -> Option<IpAddr> {
        self.source
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peer({})", self.address)
    }
}

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// Its stamps.
    pub rx: RxStamps,
    /// Who sent it, if the socket is not connected.
    pub from: Option<Peer>,
}

/// A UDP socket.
pub struct UdpEnd {
    pub(crate) fd: OwnedFd,
    local: SocketAddr,
    control: Box<Control>,
    /// Control data comes with packets: stamps, or the address they were sent to.
    pub(crate) beside: bool,
    stamped: bool,
    pub(crate) connected: bool,
    /// A client may have a socket of its own at its port.
    shares: bool,
    /// Payloads up to this long may leave it as one that the kernel cuts, as far as is known.
    pub(crate) cuts: usize,
    /// The kernel's OPT_ID counter; see [`crate::udp`].
    next_key: u32,
    /// Which stamps were asked for.
    stamps: StampRequest,
    /// Until then, keys are counted and not told: stamps by the count before may still come.
    quiet_until: Option<Instant<Monotonic>>,
}

/// Stamps that take longer do not come: a queue of a second is a long one.
const LATEST: Nanos = Nanos::from_secs(1);

impl UdpEnd {
    /// A socket that takes what anybody sends to `address`. An IPv6 socket takes IPv6 only.
    pub fn listen(address: SocketAddr, options: EndOptions) -> io::Result<Self> {
        let fd = Self::open(address.ip(), options)?;
        let everywhere = address.ip().is_unspecified();
        match address {
            SocketAddr::V6(_) => {
                socket::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1 as c_int)?;
                if everywhere {
                    socket::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1 as c_int)?;
                }
            }
            SocketAddr::V4(_) if everywhere => {
                socket::set(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1 as c_int)?;
            }
            SocketAddr::V4(_) => {}
        }
        // What is bound to one address would get what goes to all of them, until it is connected.
        let shares = options.own && !everywhere && Self::may_share(&fd)?;
        if shares {
            Self::bind_alone(&fd, address)?;
        } else {
            socket::bind(&fd, address)?;
        }
        Ok(Self { shares, ..Self::new(fd, false, everywhere, options)? })
    }

    /// Whether others of ours may be bound to its port and get nothing of what is its own. An old kernel
    /// cannot.
    fn may_share(fd: &OwnedFd) -> io::Result<bool> {
        let may = socket::share_port(fd, true).and_then(|()| socket::first_takes_all(fd)).is_ok();
        if !may {
            socket::share_port(fd, false)?;
        }
        Ok(may)
    }

    /// Binds what may share a port to one that is nobody's, and shares it no longer.
    fn bind_alone(fd: &OwnedFd, mut address: SocketAddr) -> io::Result<()> {
        let free = socket::open(address.ip(), libc::SOCK_DGRAM, 0)?;
        socket::bind(&free, address)?;
        address.set_port(socket::local_addr(&free)?.port());
        drop(free);
        socket::bind(fd, address)?;
        socket::share_port(fd, false)
    }

    /// A socket of the port of `listener`, which was opened for such a one ([`EndOptions::own`]), for what
    /// `peer` alone sends to it and is sent by it: the kernel need not find the way for every reply. What the
    /// peer sent before lies at the listener. There may be one at a time: while a second is not connected yet,
    /// the kernel would give it what others send (seen with Linux 6.18).
    ///
    /// # Errors
    /// Any, as of a listener of all addresses; it goes on as before.
    pub fn own(listener: &Self, peer: &Peer, options: EndOptions) -> io::Result<Self> {
        if !listener.shares {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let fd = Self::open(listener.local.ip(), options)?;
        // For this moment only: nobody else shall get the port.
        let share = |shared| {
            [&listener.fd, &fd].into_iter().try_for_each(|fd| socket::share_port(fd, shared))
        };
        let made = share(true)
            .and_then(|()| socket::bind(&fd, listener.local))
            .and_then(|()| socket::connect(&fd, peer.address));
        share(false)?;
        made?;
        Self::new(fd, false, false, options)
    }

    /// From now on what the peer of a socket that is [`UdpEnd::own`] sends goes to the listener again, as if
    /// there was none; what came before can still be received here. Nothing is sent from it any more.
    pub fn turn_away(&self) -> io::Result<()> {
        // Whoever is connected hears only its peer, and nobody but itself has its address.
        socket::connect(&self.fd, self.local)
    }

    /// A socket that exchanges packets with `peer` only.
    pub fn connect(peer: SocketAddr, options: EndOptions) -> io::Result<Self> {
        let fd = Self::open(peer.ip(), options)?;
        socket::connect(&fd, peer)?;
        Self::new(fd, true, false, options)
    }

    fn open(like: IpAddr, options: EndOptions) -> io::Result<OwnedFd> {
        let fd = socket::open(like, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
        socket::receive_errors(&fd, like, true)?;
        for (force, ask) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Best effort: a smaller buffer only matters to bursts.
            if socket::set(&fd, libc::SOL_SOCKET, force, BUFFER).is_err() {
                let _ = socket::set(&fd, libc::SOL_SOCKET, ask, BUFFER);
            }
        }
        if options.whole {
            match like {
                IpAddr::V4(_) => {
                    let whole = libc::IP_PMTUDISC_DO;
                    socket::set(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, whole)?;
                }
                IpAddr::V6(_) => {
                    let whole = libc::IPV6_PMTUDISC_DO;
                    socket::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, whole)?;
                    socket::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1 as c_int)?;
                }
            }
        }
        Ok(fd)
    }

    fn new(
        fd: OwnedFd,
        connected: bool,
        everywhere: bool,
        options: EndOptions,
    ) -> io::Result<Self> {
        socket::request_stamps(&fd, options.stamps, true, true)?;
        let stamped = options.stamps != StampRequest::User;
        Ok(Self {
            local: socket::local_addr(&fd)?,
            fd,
            control: Control::new(),
            beside: stamped || everywhere,
            stamped,
            connected,
            shares: false,
            cuts: if options.merge && !stamped { usize::MAX } else { 0 },
            next_key: 0,
            stamps: options.stamps,
            quiet_until: None,
        })
    }

    /// The address it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether a datagram waits to be received.
    pub fn has_unread(&self) -> bool {
        let mut one = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, exclusively borrowed; the call returns at once.
        let ready = unsafe { libc::poll(&mut one, 1, 0) };
        ready == 1 && one.revents & libc::POLLIN != 0
    }

    /// Whether stamps of packets that leave it will come, by [`UdpEnd::notices`].
    pub fn is_stamped(&self) -> bool {
        self.stamped
    }

    /// Takes one packet; `None` when none is there. A pending ICMP error is noted (see
    /// [`UdpEnd::notices`]) and not an error.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        pending::receive(|_| {
            let mut raw = RawAddress::empty();
            if self.beside {
                let from = (!self.connected).then_some(&mut raw);
                let came = message::receive(&self.fd, buffer, &mut self.control, from, 0)?;
                let from = self.peer(raw, came.beside.to);
                return Ok(Datagram { len: came.len, rx: came.rx(), from });
            }
            let len = if self.connected {
                calls::receive(&self.fd, buffer, 0)?
            } else {
                calls::receive_from(&self.fd, buffer, &mut raw, 0)?
            };
            let rx = RxStamps { hw: None, kernel: None, app: realtime() };
            Ok(Datagram { len, rx, from: self.peer(raw, None) })
        })
    }

    pub(crate) fn peer(&self, raw: RawAddress, source: Option<IpAddr>) -> Option<Peer> {
        if self.connected { None } else { Peer::new(raw, source) }
    }

    /// Sends one packet: to `to`, which only a socket that is not connected needs, from the
    /// address that `to` had sent to. A pending ICMP error that the call returns is noted and the
    /// packet is sent again.
    pub fn send(&mut self, message: &[u8], to: Option<&Peer>) -> Result<Sent, SendError> {
        let mut failed = 0;
        loop {
            let app = realtime();
            let sent = match to {
                None => calls::send(&self.fd, message, 0),
                Some(Peer { source: None, raw, .. }) => calls::send_to(&self.fd, message, 0, raw),
                Some(Peer { source: Some(source), raw, address }) => {
                    let mut beside = Beside::new(*address, Some(*source), Marks::default());
                    udp::send_beside(&self.fd, message, raw, &mut beside)
                }
            };
            let Err(error) = sent else {
                return Ok(Sent { app, key: self.take_key() });
            };
            if let Some(error) = self.failed(&error, failed) {
                return Err(error);
            }
            failed += 1;
        }
    }

    /// The key of a packet that was just sent, if its stamps are to come.
    pub(crate) fn take_key(&mut self) -> Option<u32> {
        let key = self.stamped.then_some(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        if self.quiet_until.is_some_and(|until| until <= monotonic()) {
            self.quiet_until = None;
        }
        key.filter(|_| self.quiet_until.is_none())
    }

    /// A packet could not be sent, and nobody tells whether it took a key: the kernel counts anew. Which
    /// stamps are whose is not known until those that are under way have come.
    pub(crate) fn lose_count(&mut self) {
        if !self.stamped {
            return;
        }
        let again = socket::count_anew(&self.fd, self.stamps, true);
        self.next_key = 0;
        let wait = if again.is_ok() { LATEST } else { Nanos::MAX };
        self.quiet_until = Some(monotonic().saturating_add(wait));
    }

    /// What a failed send means, after `before` others of the same packet; `None`: it is to be made
    /// again.
    pub(crate) fn failed(&mut self, error: &io::Error, before: usize) -> Option<SendError> {
        let errno = calls::errno(error);
        if udp::takes_key(errno) {
            self.next_key = self.next_key.wrapping_add(1);
        }
        let again = pending::is_to_be_sent_again(errno, before);
        (!again).then(|| socket::send_error(errno))
    }

    /// Takes up to `limit` entries of the error queue, oldest first.
    pub fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        message::notices(&self.fd, &mut self.control, limit, each);
    }

    /// Packets that came and found no room here, as far as the kernel tells.
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

/// Packets that came and found no room at this socket, as far as the kernel tells.
pub(crate) fn overflowed(fd: &OwnedFd) -> Option<u64> {
    let mut memory = [0_u32; DROPS + 1];
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
    let told = socket::check(result).is_ok() && len as usize == mem::size_of_val(&memory);
    told.then(|| memory[DROPS].into())
}

/// Whether `address` is one of this machine's; its port means nothing, the scope of a link-local
/// one does.
pub fn is_ours(mut address: SocketAddr) -> bool {
    address.set_port(0);
    socket::open(address.ip(), libc::SOCK_DGRAM, 0)
        .and_then(|fd| socket::bind(&fd, address))
        .is_ok()
}

/// Whether a socket could not be opened because descriptors, memory or ports are short: closing
/// another one helps.
pub fn is_short(error: &io::Error) -> bool {
    // An unbound socket that is connected gets a port, or EAGAIN (net/ipv4/af_inet.c, inet_autobind).
    const SHORT: [c_int; 5] =
        [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
    error.raw_os_error().is_some_and(|errno| SHORT.contains(&errno))
}

/// Whether sockets of this family can be asked for the kernel's stamps.
pub fn has_stamps(like: IpAddr) -> bool {
    socket::open(like, libc::SOCK_DGRAM, 0)
        .and_then(|fd| socket::request_stamps(&fd, StampRequest::Kernel, true, true))
        .is_ok()
}

/// Waits until the kernel stamps what arrives: asking for it takes effect some milliseconds later,
/// for all sockets of the machine. A packet on loopback tells; returns whether it did within `limit`.
/// Some socket that asked must stay open, or it may be switched off again.
pub fn await_stamps(limit: Nanos) -> bool {
    let end = monotonic() + limit;
    let probe = || -> io::Result<bool> {
        let options = EndOptions { stamps: StampRequest::Kernel, ..EndOptions::default() };
        let mut there = UdpEnd::listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), options)?;
        let mut here = UdpEnd::connect(there.local_addr(), EndOptions::default())?;
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
    use crate::poller::Poller;
    use crate::port::Wait;
    use dwell_engine::stamps::TxStamp;

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
    fn a_packet_goes_there_and_back_from_the_address_it_was_sent_to() {
        for (listen, to) in [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.3"), ("::", "::1")] {
            let options = EndOptions::default();
            let address = SocketAddr::new(listen.parse().unwrap(), 0);
            let mut server = UdpEnd::listen(address, options).unwrap();
            let to = SocketAddr::new(to.parse().unwrap(), server.local_addr().port());
            let mut client = UdpEnd::connect(to, options).unwrap();
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
    fn a_client_with_a_socket_of_its_own_is_served_by_it_and_others_by_the_listener() {
        for listen in ["127.0.0.1", "::1"] {
            let options = EndOptions { own: true, ..EndOptions::default() };
            let mut listener =
                UdpEnd::listen(SocketAddr::new(listen.parse().unwrap(), 0), options).unwrap();
            let to = listener.local_addr();
            let mut client = UdpEnd::connect(to, options).unwrap();
            let mut other = UdpEnd::connect(to, options).unwrap();
            let mut buffer = [0; 100];
            client.send(b"first", None).unwrap();
            let peer = take(&mut listener, &mut buffer).from.unwrap();
            {
                // Until it is connected, it gets nobody's packets.
                let fd = UdpEnd::open(to.ip(), options).unwrap();
                [&fd, &listener.fd].iter().for_each(|fd| socket::share_port(fd, true).unwrap());
                socket::bind(&fd, to).unwrap();
                for _ in 0..9 {
                    UdpEnd::connect(to, options).unwrap().send(b"?", None).unwrap();
                    take(&mut listener, &mut buffer);
                }
                socket::share_port(&listener.fd, false).unwrap();
            }
            let mut own = UdpEnd::own(&listener, &peer, options).unwrap();
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
            // Nobody else gets the port, not even who would share it.
            let fd = UdpEnd::open(to.ip(), options).unwrap();
            socket::share_port(&fd, true).unwrap();
            assert!(socket::bind(&fd, to).is_err(), "{listen}");
            assert!(UdpEnd::listen(to, options).is_err(), "{listen}");
        }
        let options = EndOptions { own: true, ..EndOptions::default() };
        let mut everywhere = UdpEnd::listen("0.0.0.0:0".parse().unwrap(), options).unwrap();
        let to = loopback(everywhere.local_addr().port());
        UdpEnd::connect(to, options).unwrap().send(b"?", None).unwrap();
        let peer = take(&mut everywhere, &mut [0; 1]).from.unwrap();
        assert!(UdpEnd::own(&everywhere, &peer, options).is_err());
    }

    #[test]
    fn the_kernels_stamps_of_both_ways_come_and_name_their_packet() {
        let options = EndOptions { stamps: StampRequest::Kernel, ..EndOptions::default() };
        let mut server = UdpEnd::listen(loopback(0), options).unwrap();
        let mut client = UdpEnd::connect(server.local_addr(), options).unwrap();
        let mut buffer = [0; 100];
        assert!(await_stamps(Nanos::from_secs(10)));
        for _ in 0..100 {
            let sent = client.send(b"x", None).unwrap();
            let came = take(&mut server, &mut buffer);
            let mut told = Vec::new();
            client.notices(32, &mut |notice| match notice {
                Notice::TxStamp { key, stamp } if Some(key) == sent.key => told.push(stamp),
                _ => {}
            });
            if let ([TxStamp::Sched(before), TxStamp::Kernel(left)], Some(kernel)) =
                (&told[..], came.rx.kernel)
            {
                assert!(sent.app <= *before && before <= left && *left <= kernel);
                assert!(kernel <= came.rx.app);
            } else {
                panic!("{told:?} {:?}", came.rx);
            }
        }
    }

    #[test]
    fn packets_that_find_no_room_are_counted() {
        let server = UdpEnd::listen(loopback(0), EndOptions::default()).unwrap();
        socket::set(&server.fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 1 as c_int).unwrap();
        let mut client = UdpEnd::connect(server.local_addr(), EndOptions::default()).unwrap();
        (0..50).for_each(|_| assert!(client.send(&[0; 1_000], None).is_ok()));
        assert!(server.overflowed().unwrap() > 30);
    }

    #[test]
    fn an_address_of_another_machine_is_not_ours() {
        assert!(is_ours("127.0.0.1:7".parse().unwrap()));
        assert!(!is_ours("192.0.2.7:7".parse().unwrap()));
    }
}
