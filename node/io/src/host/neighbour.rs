//! The receiver of a packet on its first link, by rtnetlink: the next hop of a route, and the
//! link-layer addresses of an interface and its neighbours.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::host::interface;
use crate::host::rtnetlink::{self, Kind, Object};

/// An Ethernet address.
pub(crate) type MacAddress = [u8; 6];

/// Attribute of a route: a next hop of another family than the route (linux/rtnetlink.h).
const RTA_VIA: u16 = 18;

/// Returns the address that packets to `peer` are handed to: that of `peer` or of a gateway.
pub(crate) fn next_hop(peer: SocketAddr) -> io::Result<IpAddr> {
    let gateway = |route: Object| {
        let gateway = route.attribute(libc::RTA_GATEWAY).and_then(rtnetlink::address);
        // struct rtvia: the address follows its family.
        let via = || rtnetlink::address(route.attribute(RTA_VIA)?.get(2..)?);
        gateway.or_else(via)
    };
    Ok(interface::route(peer)?.and_then(gateway).unwrap_or(peer.ip()))
}

/// Offset of the type in struct ifinfomsg (linux/rtnetlink.h).
const LINK_TYPE: usize = 2;

/// Returns the link-layer address of the interface with this index; `None` if it is not Ethernet.
/// That of the loopback interface is all zeros.
pub(crate) fn own_mac(index: u32) -> io::Result<Option<MacAddress>> {
    let ethernet = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];
    let link = interface::link(index)?.filter(|link| ethernet.contains(&link.u16(LINK_TYPE)));
    Ok(link.and_then(|link| link.attribute(libc::IFLA_ADDRESS)?.try_into().ok()))
}

/// Offsets of the interface's index and of the state in struct ndmsg (linux/neighbour.h).
const NEIGHBOUR_INDEX: usize = 4;
const NEIGHBOUR_STATE: usize = 8;

/// Returns the link-layer address of the neighbour `address` on the interface with this index, if
/// the kernel has resolved it.
pub(crate) fn neighbour_mac(index: u32, address: IpAddr) -> io::Result<Option<MacAddress>> {
    let unknown = [libc::NUD_INCOMPLETE, libc::NUD_FAILED, libc::NUD_NONE];
    let is_wanted = |neighbour: &&Object| {
        neighbour.u32(NEIGHBOUR_INDEX) == index
            && !unknown.contains(&neighbour.u16(NEIGHBOUR_STATE))
            && neighbour.attribute(libc::NDA_DST).and_then(rtnetlink::address) == Some(address)
    };
    let neighbours = rtnetlink::dump(&Object::new(Kind::Neighbour))?;
    let mut wanted = neighbours.iter().filter(is_wanted);
    Ok(wanted.find_map(|neighbour| neighbour.attribute(libc::NDA_LLADDR)?.try_into().ok()))
}
