//! Options of sockets that send probes.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::sys::address::unspecified;
use crate::sys::sockopt;
use crate::timestamps::StampRequest;

/// Options for opening a socket that sends probes.
#[derive(Clone, Debug, Default)]
pub struct PortOptions {
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
    /// Request TX_SCHED timestamps as well.
    pub sched_stamps: bool,
    /// Report the TTL or hop limit of received datagrams.
    pub reply_ttl: bool,
}

impl PortOptions {
    /// Maximum DSCP: a 6-bit field (RFC 2474, section 3).
    pub const MAX_DSCP: u8 = 63;

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

    /// Applies the options that all probing sockets share. `peer` determines the family.
    pub(crate) fn apply(&self, fd: &OwnedFd, peer: IpAddr) -> io::Result<()> {
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
            match peer {
                IpAddr::V4(_) => {
                    sockopt::set(fd, libc::IPPROTO_IP, libc::IP_TTL, c_int::from(ttl))?
                }
                IpAddr::V6(_) => {
                    sockopt::set(
                        fd,
                        libc::IPPROTO_IPV6,
                        libc::IPV6_UNICAST_HOPS,
                        c_int::from(ttl),
                    )?;
                }
            }
        }
        if let Some(dscp) = self.dscp {
            if dscp > Self::MAX_DSCP {
                // Shifted, it would lose its upper bits and become another code point.
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let tos = c_int::from(dscp) << 2;
            match peer {
                IpAddr::V4(_) => sockopt::set(fd, libc::IPPROTO_IP, libc::IP_TOS, tos)?,
                IpAddr::V6(_) => sockopt::set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos)?,
            }
        }
        Ok(())
    }
}
