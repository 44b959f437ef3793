//! The receiver of a packet on its first link, by rtnetlink: the next hop of a route, and the
//! link-layer addresses of an interface and its neighbours.

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteVia};

use crate::host::interface;

/// An Ethernet address.
pub(crate) type MacAddress = [u8; 6];

/// Returns the address that packets to `peer` are handed to: that of `peer` or of a gateway.
pub(crate) fn next_hop(peer: SocketAddr) -> io::Result<IpAddr> {
    let route = interface::route(peer)?;
    let gateway =
        route.into_iter().flat_map(|route| route.attributes).find_map(
            |attribute| match attribute {
                RouteAttribute::Gateway(RouteAddress::Inet(v4))
                | RouteAttribute::Via(RouteVia::Inet(v4)) => Some(IpAddr::V4(v4)),
                RouteAttribute::Gateway(RouteAddress::Inet6(v6))
                | RouteAttribute::Via(RouteVia::Inet6(v6)) => Some(IpAddr::V6(v6)),
                _ => None,
            },
        );
    Ok(gateway.unwrap_or(peer.ip()))
}

/// Returns the link-layer address of the interface with this index; `None` if it is not Ethernet.
/// That of the loopback interface is all zeros.
pub(crate) fn own_mac(index: u32) -> io::Result<Option<MacAddress>> {
    let dump = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let links = interface::ask(dump, NLM_F_DUMP)?.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) if link.header.index == index => Some(link),
        _ => None,
    });
    let ethernet = [LinkLayerType::Ether, LinkLayerType::Loopback];
    let link = links.into_iter().find(|link| ethernet.contains(&link.header.link_layer_type));
    Ok(link.and_then(|link| {
        link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Address(address) => address.try_into().ok(),
            _ => None,
        })
    }))
}

/// Returns the link-layer address of the neighbour `address` on the interface with this index, if
/// the kernel has resolved it.
pub(crate) fn neighbour_mac(index: u32, address: IpAddr) -> io::Result<Option<MacAddress>> {
    let dump = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    let wanted = match address {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    let is_wanted = |neighbour: &NeighbourMessage| {
        let unknown = [NeighbourState::Incomplete, NeighbourState::Failed, NeighbourState::None];
        let is_it = NeighbourAttribute::Destination(wanted.clone());
        neighbour.header.ifindex == index
            && !unknown.contains(&neighbour.header.state)
            && neighbour.attributes.contains(&is_it)
    };
    let mut neighbours = interface::ask(dump, NLM_F_DUMP)?.into_iter();
    Ok(neighbours.find_map(|message| match message {
        RouteNetlinkMessage::NewNeighbour(neighbour) if is_wanted(&neighbour) => {
            neighbour.attributes.into_iter().find_map(|attribute| match attribute {
                NeighbourAttribute::LinkLayerAddress(address) => address.try_into().ok(),
                _ => None,
            })
        }
        _ => None,
    }))
}
