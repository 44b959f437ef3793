//! Network interfaces: the one that leads to a host, its driver, offloads and queueing discipline.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, LinkXdp};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric};
use netlink_packet_route::tc::{TcAttribute, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use crate::host::ethtool;
pub use crate::host::ethtool::Stamping;

/// A network interface. Unknown properties are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index, unique in its network namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// It is up.
    pub up: bool,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Root queueing discipline.
    pub qdisc: Option<String>,
    /// Driver.
    pub driver: Option<String>,
    /// Enabled offloads that merge, split or checksum packets, by ethtool's names.
    pub offloads: Option<Vec<String>>,
    /// Timestamping abilities that its driver claims.
    pub stamping: Option<Stamping>,
}

/// Packets that an interface has dropped since its creation, as counted by its driver and the
/// kernel (struct rtnl_link_stats64, linux/if_link.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Received but not delivered.
    pub rx: u64,
    /// Not sent, not counting drops by queueing disciplines.
    pub tx: u64,
    /// Not received for lack of room in the card.
    pub rx_missed: u64,
}

/// Returns the drop counters of all interfaces of this network namespace. Uses rtnetlink, because
/// /sys shows the namespace in which it was mounted.
pub fn dropped() -> io::Result<Vec<Dropped>> {
    let messages = ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
    Ok(messages.into_iter().filter_map(counters).collect())
}

fn counters(message: RouteNetlinkMessage) -> Option<Dropped> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let (mut name, mut counted) = (None, None);
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name = Some(found),
            LinkAttribute::Stats64(found) => counted = Some(found),
            _ => {}
        }
    }
    let counted = counted?;
    Some(Dropped {
        index: link.header.index,
        name: name?,
        rx: counted.rx_dropped,
        tx: counted.tx_dropped,
        rx_missed: counted.rx_missed_errors,
    })
}

/// The offload that leaves segmentation of a message into datagrams (UDP_SEGMENT) to the card, or
/// to the next receiver of the packet. Until then the datagrams are one buffer.
pub const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

/// Offloads that merge, or may merge, received UDP datagrams into one buffer before they are
/// timestamped. `rx-gro` alone does not: it merges datagrams only for sockets that request it
/// (UDP_GRO).
const RECEIVE_MERGING_OFFLOADS: [&str; 4] =
    ["rx-lro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding"];

/// Queueing disciplines that limit, or may limit, a rate.
const RATE_LIMITERS: [&str; 6] = ["tbf", "htb", "hfsc", "cake", "netem", "taprio"];

/// Switches [`UDP_SEGMENTATION`] of the interface `name` on or off; returns its previous state.
/// Needs CAP_NET_ADMIN.
///
/// # Errors
/// See [`switch_offload`].
pub fn switch_udp_segmentation(name: &str, on: bool) -> io::Result<bool> {
    switch_offload(name, UDP_SEGMENTATION, on)
}

/// Switches the offload `offload`, by ethtool's name, of the interface `name` on or off; returns
/// its previous state. Needs CAP_NET_ADMIN.
///
/// # Errors
/// Not permitted, no such interface, or the driver does not change it.
pub fn switch_offload(name: &str, offload: &str, on: bool) -> io::Result<bool> {
    let is_on = || Ok::<_, io::Error>(ethtool::offloads(name)?.iter().any(|o| o == offload));
    let was = is_on()?;
    if was != on {
        ethtool::switch(name, offload, on)?;
        if is_on()? != on {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
    }
    Ok(was)
}

/// Returns all interfaces of this network namespace, sorted by index.
pub fn all() -> io::Result<Vec<Interface>> {
    let messages = ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
    let links = messages.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(interface(link)),
        _ => None,
    });
    let mut links: Vec<_> = links.collect();
    links.sort_by_key(|link| link.index);
    Ok(links)
}

/// Returns the IPv4 addresses of this network namespace, without loopback addresses.
pub fn ipv4_addresses() -> io::Result<Vec<Ipv4Addr>> {
    let mut request = AddressMessage::default();
    request.header.family = AddressFamily::Inet;
    let messages = ask(RouteNetlinkMessage::GetAddress(request), NLM_F_DUMP)?;
    let attributes = messages.into_iter().flat_map(|message| match message {
        RouteNetlinkMessage::NewAddress(address) => address.attributes,
        _ => Vec::new(),
    });
    let addresses = attributes.filter_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(own)) if !own.is_loopback() => Some(own),
        _ => None,
    });
    let mut addresses: Vec<_> = addresses.collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

/// An address of this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// Index of its interface.
    pub interface: u32,
    /// Address.
    pub address: IpAddr,
    /// Broadcast address of its network.
    pub broadcast: Option<Ipv4Addr>,
}

/// Returns all addresses of this network namespace.
pub fn addresses() -> io::Result<Vec<OwnAddress>> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let addresses = ask(request, NLM_F_DUMP)?.into_iter().filter_map(|message| {
        let RouteNetlinkMessage::NewAddress(message) = message else { return None };
        let (mut local, mut prefix, mut broadcast) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                // The far end of a point-to-point link has the other attribute.
                AddressAttribute::Local(found) => local = Some(*found),
                AddressAttribute::Address(found) => prefix = Some(*found),
                AddressAttribute::Broadcast(found) => broadcast = Some(*found),
                _ => {}
            }
        }
        let address = local.or(prefix)?;
        Some(OwnAddress { interface: message.header.index, address, broadcast })
    });
    Ok(addresses.collect())
}

/// Returns the id of the XDP program on the interface with this index, if any.
pub fn xdp_program(index: u32) -> io::Result<Option<u32>> {
    let attributes = link_attributes(index)?.into_iter().flat_map(|attribute| match attribute {
        LinkAttribute::Xdp(attributes) => attributes,
        _ => Vec::new(),
    });
    Ok(attributes.into_iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id) => Some(id),
        _ => None,
    }))
}

/// Returns the number of packets that the interface with this index failed to send since its
/// creation: errors and drops of its driver.
pub fn send_failures(index: u32) -> io::Result<u64> {
    let attributes = link_attributes(index)?.into_iter();
    let counted = attributes.filter_map(|attribute| match attribute {
        LinkAttribute::Stats64(counted) => Some(counted.tx_errors + counted.tx_dropped),
        _ => None,
    });
    Ok(counted.sum())
}

/// Returns the Ethernet address of the interface with this index, all zeros for the loopback
/// interface; `None` if its frames have no Ethernet header.
pub fn ethernet_address(index: u32) -> io::Result<Option<[u8; 6]>> {
    crate::host::neighbour::own_mac(index)
}

/// State of an interface that may change while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Ethernet address, all zeros for the loopback interface.
    pub ethernet: Option<[u8; 6]>,
}

/// Returns the state of the interface with this index; `None` if it does not exist in this network
/// namespace. Queries no driver.
///
/// # Errors
/// The kernel does not answer.
pub fn link_state(index: u32) -> io::Result<Option<LinkState>> {
    let attributes = match link_attributes(index) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        other => other?,
    };
    let mut state = LinkState { mtu: None, ethernet: None };
    for attribute in attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => state.mtu = Some(mtu),
            LinkAttribute::Address(address) => state.ethernet = address.try_into().ok(),
            _ => {}
        }
    }
    Ok(Some(state))
}

fn link_attributes(index: u32) -> io::Result<Vec<LinkAttribute>> {
    let mut request = LinkMessage::default();
    request.header.index = index;
    let messages = ask(RouteNetlinkMessage::GetLink(request), 0)?;
    Ok(messages
        .into_iter()
        .flat_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => link.attributes,
            _ => Vec::new(),
        })
        .collect())
}

/// Returns the interface through which packets to `peer` leave, by the current routing table; for
/// an address of this machine, the loopback interface.
pub fn towards(peer: SocketAddr) -> io::Result<Option<Interface>> {
    let Some(index) = index_towards(peer)? else { return Ok(None) };
    Ok(all()?.into_iter().find(|interface| interface.index == index))
}

/// Returns the index of the interface through which packets to `peer` leave. Queries no driver.
pub fn index_towards(peer: SocketAddr) -> io::Result<Option<u32>> {
    Ok(route(peer)?.into_iter().flat_map(|route| route.attributes).find_map(|attribute| {
        match attribute {
            RouteAttribute::Oif(index) => Some(index),
            _ => None,
        }
    }))
}

/// Returns the MTU of the route to `peer` in bytes, if the routing table sets one or the kernel has
/// discovered it (RFC 1191, RFC 8201). Queries no driver.
pub fn path_mtu(peer: SocketAddr) -> io::Result<Option<u32>> {
    let attributes = route(peer)?.into_iter().flat_map(|route| route.attributes);
    let metrics = attributes.flat_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => metrics,
        _ => Vec::new(),
    });
    Ok(metrics.into_iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) => Some(mtu),
        _ => None,
    }))
}

/// Returns the current route to `peer`.
pub(crate) fn route(peer: SocketAddr) -> io::Result<Option<RouteMessage>> {
    let mut route = RouteMessage::default();
    let (family, address, bits) = match peer {
        SocketAddr::V4(v4) => (libc::AF_INET, RouteAddress::Inet(*v4.ip()), 32),
        SocketAddr::V6(v6) => (libc::AF_INET6, RouteAddress::Inet6(*v6.ip()), 128),
    };
    if let SocketAddr::V6(v6) = peer
        && v6.scope_id() != 0
    {
        // The scope of a link-local address names its interface.
        route.attributes.push(RouteAttribute::Oif(v6.scope_id()));
    }
    route.header.address_family = (family as u8).into();
    route.header.destination_prefix_length = bits;
    route.attributes.push(RouteAttribute::Destination(address));
    let messages = ask(RouteNetlinkMessage::GetRoute(route), 0)?;
    Ok(messages.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    }))
}

/// Keeps the segmentation offload of an interface off until dropped.
#[derive(Debug)]
pub struct SegmentationOff(String);

impl Drop for SegmentationOff {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = switch_udp_segmentation(&self.0, true);
    }
}

impl Interface {
    /// Whether the kernel forwards IPv4 packets that arrive on it; `true` if unknown.
    pub fn is_forwarding(&self) -> bool {
        let setting = format!("/proc/sys/net/ipv4/conf/{}/forwarding", self.name);
        !std::fs::read(setting).is_ok_and(|state| state.starts_with(b"0"))
    }

    /// Returns its enabled offloads that let UDP datagrams sent as one message leave with one
    /// timestamp, and so without gaps; `None` if its driver reports no offloads.
    pub fn send_merging_offloads(&self) -> Option<Vec<&str>> {
        self.active(&[UDP_SEGMENTATION])
    }

    /// Switches off the offloads of [`Self::send_merging_offloads`] until the returned value is
    /// dropped; `None` if they were off already.
    ///
    /// # Errors
    /// Not permitted (CAP_NET_ADMIN), or the driver does not switch them off.
    pub fn disable_segmentation(&self) -> io::Result<Option<SegmentationOff>> {
        let was_on = switch_udp_segmentation(&self.name, false)?;
        Ok(was_on.then(|| SegmentationOff(self.name.clone())))
    }

    /// Returns its enabled offloads that merge received UDP datagrams into one buffer with one
    /// timestamp; `None` if its driver reports no offloads.
    pub fn receive_merging_offloads(&self) -> Option<Vec<&str>> {
        self.active(&RECEIVE_MERGING_OFFLOADS)
    }

    fn active(&self, which: &[&str]) -> Option<Vec<&str>> {
        let offloads = self.offloads.as_ref()?.iter().map(String::as_str);
        Some(offloads.filter(|offload| which.contains(offload)).collect())
    }

    /// Whether it is a tun or tap interface (drivers/net/tun.c). Packets are then timestamped when
    /// they are handed to the program, before any rate limit of the link. `false` if unknown.
    pub fn is_tun_or_tap(&self) -> bool {
        self.driver.as_deref() == Some("tun")
    }

    /// Returns a queueing discipline of it that limits, or may limit, the sending rate: its root,
    /// or one below the root on cards with several queues.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn limiter(&self) -> io::Result<Option<String>> {
        let messages =
            ask(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()), NLM_F_DUMP)?;
        let own = messages.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(of)
                if u32::try_from(of.header.index) == Ok(self.index) =>
            {
                Some(of.attributes)
            }
            _ => None,
        });
        let mut kinds = own.flatten().filter_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind),
            _ => None,
        });
        Ok(kinds.find(|kind| RATE_LIMITERS.contains(&kind.as_str())))
    }

    /// Whether its driver claims that the card timestamps packets in both directions.
    pub fn has_stamping_card(&self) -> bool {
        self.stamping.is_some_and(|able| able.tx_hardware && able.rx_hardware)
    }
}

fn interface(link: LinkMessage) -> Interface {
    let mut found = Interface {
        index: link.header.index,
        name: String::new(),
        up: link.header.flags.contains(LinkFlags::Up),
        mtu: None,
        qdisc: None,
        driver: None,
        offloads: None,
        stamping: None,
    };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name = name,
            LinkAttribute::Mtu(mtu) => found.mtu = Some(mtu),
            LinkAttribute::Qdisc(qdisc) => found.qdisc = Some(qdisc),
            _ => {}
        }
    }
    // The loopback interface has no driver; some drivers do not answer.
    found.driver = ethtool::driver(&found.name).ok().filter(|name| !name.is_empty());
    found.offloads = ethtool::offloads(&found.name).ok();
    found.stamping = ethtool::stamping(&found.name).ok();
    found
}

/// Sends one request to rtnetlink and collects the answers.
pub(crate) fn ask(
    request: RouteNetlinkMessage,
    flags: u16,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            // Messages are aligned to four bytes; a length of 0 would loop forever.
            let len = (message.header.length as usize).next_multiple_of(4).max(16);
            rest = rest.get(len..).unwrap_or(&[]);
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => return Ok(answers),
            }
        }
        if flags & NLM_F_DUMP == 0 {
            return Ok(answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_address_is_reached_by_loopback_interface() {
        for peer in ["127.0.0.1:9", "127.9.9.9:9", "[::1]:9"] {
            let found = towards(peer.parse().unwrap()).unwrap().expect("a route to loopback");
            assert_eq!(found.name, "lo", "{peer}");
            assert!(found.up && found.mtu.is_some_and(|mtu| mtu >= 1_280), "{found:?}");
        }
    }

    #[test]
    fn drop_counters_cover_every_interface() {
        let names = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let counted = names(dropped().unwrap().into_iter().map(|drops| drops.name).collect());
        assert_eq!(counted, names(all().unwrap().into_iter().map(|found| found.name).collect()));
        assert!(counted.contains(&"lo".to_owned()), "{counted:?}");
    }

    #[test]
    fn missing_interface_has_no_driver() {
        assert!(ethtool::driver("no-such-thing").is_err());
        assert!(ethtool::driver(&"x".repeat(100)).is_err());
    }
}
