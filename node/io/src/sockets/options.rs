//! Options of sockets.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::sys::address::unspecified;
use crate::sys::sockopt;
use crate::timestamps::{StampRequest, TxStampRequest};

/// Options of a socket. The default is for probes; [`Self::server`] and [`Self::relay`] are for the
/// other end and for relays. Streams ignore those of datagrams.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Local address to send from.
    pub source: Option<IpAddr>,
    /// Interface to send through (SO_BINDTODEVICE).
    pub interface: Option<String>,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
    /// DSCP, 0 to 63: the upper six bits of TOS or traffic class.
    pub dscp: Option<u8>,
    /// Timestamps to request.
    pub stamps: StampRequest,
    /// Timestamps of sent packets among them.
    pub tx_stamps: TxStampRequest,
    /// Receive calls read the clock, which costs 25 to 40 ns each. Kernel timestamps imply it.
    pub timed: bool,
    /// Report the TTL or hop limit of received packets.
    pub receive_ttl: bool,
    /// Report the TOS or traffic class of received packets.
    pub receive_tos: bool,
    /// Queue ICMP errors about sent packets (IP_RECVERR).
    pub icmp_errors: bool,
    /// Report packets that are too long for the path instead of fragmenting them.
    pub dont_fragment: bool,
    /// Merge packets of one length that are sent together into one UDP_SEGMENT message. Ignored
    /// with timestamps of sent packets, because the kernel timestamps such a message once.
    pub merge: bool,
    /// Allow one client its own socket on the same port, if this one is bound to one address.
    pub share_port: bool,
    /// Streams: delay segments while data is not acknowledged (no TCP_NODELAY).
    pub nagle: bool,
    /// Streams: acknowledge received data at once (TCP_QUICKACK).
    pub quick_ack: bool,
    /// Buffers to request.
    pub buffers: Buffers,
}

/// Socket buffers to request. With the default of 208 KiB, the buffer and not the CPU decides which
/// packets are lost. A smaller buffer than requested only affects bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// 4 MiB to receive, up to the system's limit: one call, for sockets that are opened often.
    #[default]
    Probe,
    /// 16 MiB to receive, beyond the system's limit if permitted: about 43,000 small packets.
    Server,
    /// 32 MiB in both directions, beyond the system's limit if permitted.
    Bulk,
}

impl Buffers {
    const PROBE_LEN: c_int = 4 << 20;
    const SERVER_LEN: c_int = 16 << 20;
    const BULK_LEN: c_int = 32 << 20;

    fn request(self, fd: &OwnedFd) {
        match self {
            Self::Probe => {
                let _ = sockopt::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, Self::PROBE_LEN);
            }
            Self::Server => sockopt::enlarge_receive_buffer(fd, Self::SERVER_LEN),
            Self::Bulk => {
                sockopt::enlarge_receive_buffer(fd, Self::BULK_LEN);
                sockopt::enlarge_send_buffer(fd, Self::BULK_LEN);
            }
        }
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            source: None,
            interface: None,
            ttl: None,
            dscp: None,
            stamps: StampRequest::User,
            tx_stamps: TxStampRequest::Driver,
            timed: true,
            receive_ttl: false,
            receive_tos: false,
            icmp_errors: true,
            dont_fragment: false,
            merge: false,
            share_port: false,
            nagle: false,
            quick_ack: false,
            buffers: Buffers::Probe,
        }
    }
}

impl SocketOptions {
    /// Maximum DSCP: a 6-bit field (RFC 2474, section 3).
    pub const MAX_DSCP: u8 = 63;

    /// Options of a socket that answers or counts the packets of any sender.
    pub fn server() -> Self {
        Self {
            tx_stamps: TxStampRequest::None,
            timed: false,
            icmp_errors: false,
            buffers: Buffers::Server,
            ..Self::default()
        }
    }

    /// Options of the sockets of a relay.
    pub fn relay() -> Self {
        Self {
            tx_stamps: TxStampRequest::DriverAndQdisc,
            buffers: Buffers::Bulk,
            ..Self::default()
        }
    }

    /// Returns the source address of probes to `peer`; a link-local one gets the peer's scope.
    pub(crate) fn source_towards(&self, peer: SocketAddr) -> SocketAddr {
        let mut source = SocketAddr::new(self.source.unwrap_or_else(|| unspecified(peer.ip())), 0);
        if let (SocketAddr::V6(source), SocketAddr::V6(peer)) = (&mut source, peer)
            && source.ip().is_unicast_link_local()
        {
            source.set_scope_id(peer.scope_id());
        }
        source
    }

    /// Applies the options that datagrams and streams share. `like` determines the family.
    pub(crate) fn apply(&self, fd: &OwnedFd, like: IpAddr) -> io::Result<()> {
        if let Some(interface) = &self.interface {
            let result = {
                let name = interface.as_bytes();
                let len = name.len() as libc::socklen_t;
                // SAFETY: the kernel reads `len` bytes of `name`, which outlives the call.
                unsafe {
                    libc::setsockopt(
                        fd.as_raw_fd(),
                        libc::SOL_SOCKET,
                        libc::SO_BINDTODEVICE,
                        name.as_ptr().cast(),
                        len,
                    )
                }
            };
            sockopt::check(result)?;
        }
        if let Some(ttl) = self.ttl {
            sockopt::set_ip(fd, like, libc::IP_TTL, libc::IPV6_UNICAST_HOPS, ttl)?;
        }
        if let Some(dscp) = self.dscp {
            if dscp > Self::MAX_DSCP {
                // Shifted, it would lose its upper bits and become another code point.
                return Err(io::ErrorKind::InvalidInput.into());
            }
            sockopt::set_ip(fd, like, libc::IP_TOS, libc::IPV6_TCLASS, dscp << 2)?;
        }
        Ok(())
    }

    /// Applies the options of datagrams, except for timestamps.
    pub(crate) fn apply_to_datagrams(&self, fd: &OwnedFd, like: IpAddr) -> io::Result<()> {
        if self.icmp_errors {
            sockopt::receive_errors(fd, like, true)?;
        }
        self.buffers.request(fd);
        if self.receive_ttl {
            sockopt::set_ip(fd, like, libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT, true)?;
        }
        if self.receive_tos {
            sockopt::set_ip(fd, like, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS, true)?;
        }
        if self.dont_fragment {
            const _: () = assert!(libc::IP_PMTUDISC_DO == libc::IPV6_PMTUDISC_DO);
            let (v4, v6) = (libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER);
            sockopt::set_ip(fd, like, v4, v6, libc::IP_PMTUDISC_DO)?;
            if like.is_ipv6() {
                sockopt::set(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1 as c_int)?;
            }
        }
        Ok(())
    }
}
