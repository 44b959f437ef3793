//! Conversion of socket addresses to and from the kernel's form.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Port of the discard protocol (RFC 863). A packet to it makes the kernel resolve the next hop,
/// and the target ignores it.
pub(crate) const DISCARD_PORT: u16 = 9;

/// An IP address in the kernel's form, with its length. The storage fits both families; the kernel
/// truncates longer addresses of other families.
#[derive(Clone, Copy)]
pub(crate) struct RawAddress {
    storage: libc::sockaddr_in6,
    pub(crate) len: libc::socklen_t,
}

const _: () = assert!(
    mem::size_of::<libc::sockaddr_in>() <= mem::size_of::<libc::sockaddr_in6>()
        && mem::align_of::<libc::sockaddr_in>() <= mem::align_of::<libc::sockaddr_in6>()
);

impl RawAddress {
    /// Length to pass to a call that writes an address.
    pub(crate) const STORAGE_LEN: libc::socklen_t =
        mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t;

    /// Returns storage for an address that a call writes.
    pub(crate) fn empty() -> Self {
        Self {
            // SAFETY: sockaddr_in6 is plain data for which all zeros is a valid value.
            storage: unsafe { mem::zeroed() },
            len: Self::STORAGE_LEN,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    /// Returns the address; `None` if its family is neither AF_INET nor AF_INET6.
    pub(crate) fn to_std(self) -> Option<SocketAddr> {
        match i32::from(self.storage.sin6_family) {
            libc::AF_INET => {
                // SAFETY: the family says that the storage, which is large enough and aligned for
                // it (checked above), holds a sockaddr_in.
                let v4 = unsafe { *(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = self.storage;
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_in6 is at least as large and as aligned (checked above).
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in>().write(sin) };
                raw.len = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                raw.storage = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
            }
        }
        raw
    }
}

/// Returns the unspecified address in the family of `like`.
pub(crate) fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_the_kernels_form() {
        for text in ["192.0.2.1:7", "[2001:db8::1]:862", "[::1]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::from(address).to_std(), Some(address));
        }
        assert_eq!(RawAddress::empty().to_std(), None);
    }
}
