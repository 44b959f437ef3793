//! ICMP echo sockets: the ping socket, and the raw socket as an alternative.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr};

use dwell_units::{Instant, Monotonic};

use crate::sockets::datagram::DatagramSocket;
use crate::sockets::port::{Arrival, Notice, Port, SendError, Sent, SocketOptions, Wait};
use crate::sys::sockopt;

/// ICMP_FILTER and ICMP6_FILTER (linux/icmp.h, linux/icmpv6.h), and the echo reply types.
const ICMP_FILTER: c_int = 1;
const ICMPV6_FILTER: c_int = 1;
const ECHO_REPLY: u32 = 0;
const ECHO_REPLY_V6: u32 = 129;

/// A kind of ICMP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpSocketKind {
    /// SOCK_DGRAM: the kernel chooses the id and delivers our own replies only.
    Ping,
    /// SOCK_RAW: needs CAP_NET_RAW, receives every echo reply.
    Raw,
}

/// An ICMP socket connected to the probed host. Messages are whole ICMP messages, from the type
/// field on.
#[derive(Debug)]
pub struct IcmpPort {
    socket: DatagramSocket,
    kind: IcmpSocketKind,
    v4: bool,
}

impl IcmpPort {
    /// Opens a socket of this kind. For a link-local IPv6 address, which needs a scope, use
    /// [`IcmpPort::connect_scoped`].
    pub fn connect(
        peer: IpAddr,
        kind: IcmpSocketKind,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        Self::connect_scoped(SocketAddr::new(peer, 0), kind, options)
    }

    /// Opens a socket of this kind to the host of `to`, through the interface of its scope. The
    /// port is ignored.
    pub fn connect_scoped(
        mut to: SocketAddr,
        kind: IcmpSocketKind,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        to.set_port(0);
        let peer = to.ip();
        let protocol = if peer.is_ipv4() { libc::IPPROTO_ICMP } else { libc::IPPROTO_ICMPV6 };
        let socket_type = match kind {
            IcmpSocketKind::Ping => libc::SOCK_DGRAM,
            IcmpSocketKind::Raw => libc::SOCK_RAW,
        };
        let fd = sockopt::open(peer, socket_type, protocol)?;
        options.apply(&fd, peer)?;
        if kind == IcmpSocketKind::Raw {
            if peer.is_ipv4() {
                sockopt::set(&fd, libc::SOL_RAW, ICMP_FILTER, !(1_u32 << ECHO_REPLY))?;
            } else {
                let mut block = [u32::MAX; 8];
                block[(ECHO_REPLY_V6 / 32) as usize] &= !(1 << (ECHO_REPLY_V6 % 32));
                sockopt::set(&fd, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, block)?;
            }
        }
        sockopt::bind(&fd, options.source_towards(to))?;
        sockopt::connect(&fd, to)?;
        let socket = DatagramSocket::from_fd(fd, peer, options)?;
        Ok(Self { socket, kind, v4: peer.is_ipv4() })
    }

    /// Returns the kind of socket.
    pub fn kind(&self) -> IcmpSocketKind {
        self.kind
    }

    /// Returns the echo id that replies will carry, if the kernel chose it.
    pub fn kernel_id(&self) -> Option<u16> {
        (self.kind == IcmpSocketKind::Ping).then(|| self.socket.local_addr().port())
    }
}

impl Port for IcmpPort {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        self.socket.send(message)
    }

    /// Removes the IP header that a raw IPv4 socket delivers.
    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        let Some(arrival) = self.socket.receive(buffer, wait)? else { return Ok(None) };
        if self.kind == IcmpSocketKind::Ping || !self.v4 {
            return Ok(Some(arrival));
        }
        let header = buffer.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
        if !(20..=arrival.len).contains(&header) {
            return Ok(Some(Arrival { len: 0, ..arrival }));
        }
        buffer.copy_within(header..arrival.len, 0);
        Ok(Some(Arrival { len: arrival.len - header, ..arrival }))
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        self.socket.notices(limit, each);
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        self.socket.sleep_until(until);
    }

    fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_icmp_target_uses_interface_of_its_scope() {
        let open = |text: &str| {
            IcmpPort::connect_scoped(
                text.parse().unwrap(),
                IcmpSocketKind::Ping,
                &SocketOptions::default(),
            )
            .map(drop)
            .map_err(|error| error.kind())
        };
        if open("[::1]:9") == Err(io::ErrorKind::PermissionDenied) {
            println!(
                "SKIP icmp::tests::link_local_icmp_target_uses_interface_of_its_scope: \
                 net.ipv4.ping_group_range does not permit ping sockets"
            );
            return;
        }
        assert_eq!(open("[fe80::1]:9"), Err(io::ErrorKind::InvalidInput), "no scope");
        // The loopback interface has index 1. The host need not be reachable there.
        assert_ne!(open("[fe80::1%1]:9"), Err(io::ErrorKind::InvalidInput));
    }
}
