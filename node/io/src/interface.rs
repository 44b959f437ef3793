//! Network interfaces: which one leads to a host, and what stands between a socket and its wire.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric};
use netlink_packet_route::tc::{TcAttribute, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use crate::ethtool;
pub use crate::ethtool::Stamping;

/// A network interface. What could not be found out is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number, unique in its network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// It is switched on.
    pub up: bool,
    /// The largest IP packet, in bytes.
    pub mtu: Option<u32>,
    /// Its root queueing discipline.
    pub qdisc: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
    /// Offloads that merge, split or checksum packets and are switched on, by ethtool's names.
    pub offloads: Option<Vec<String>>,
    /// Where its driver says that it can stamp packets.
    pub stamping: Option<Stamping>,
}

/// What an interface dropped since it was made, as its driver and the kernel counted it (struct
/// rtnl_link_stats64, linux/if_link.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The interface's number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Received and not handed on.
    pub rx: u64,
    /// Not sent. What a queueing discipline drops is not among them.
    pub tx: u64,
    /// Never received: the card had no room for them.
    pub rx_missed: u64,
}

/// What all interfaces of this network namespace dropped so far. Asked by rtnetlink: /sys shows the
/// interfaces of the namespace in which it was mounted.
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

/// The offload that leaves it to the card, or to whoever takes the packet behind it, to cut a message
/// into datagrams (UDP_SEGMENT): until then they are one buffer.
pub const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

/// Offloads that merge received UDP datagrams into one buffer before anybody has stamped them, or may.
/// `rx-gro` alone is not among them: it merges datagrams only for sockets that ask for it (UDP_GRO).
const MERGES_RECEIVED: [&str; 4] = ["rx-lro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding"];

/// Queueing disciplines that limit a rate, or may.
const LIMITERS: [&str; 6] = ["tbf", "htb", "hfsc", "cake", "netem", "taprio"];

/// Switches [`UDP_SEGMENTATION`] of the interface `name` on or off; returns what it was. Needs
/// CAP_NET_ADMIN.
///
/// # Errors
/// See [`switch_offload`].
pub fn switch_udp_segmentation(name: &str, on: bool) -> io::Result<bool> {
    switch_offload(name, UDP_SEGMENTATION, on)
}

/// Switches an offload, by the name that ethtool gives it, of the interface `name` on or off; returns what
/// it was. Needs CAP_NET_ADMIN.
///
/// # Errors
/// Not allowed, no such interface, or the driver leaves it as it is.
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

/// All interfaces of this network namespace, by number.
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

/// The IPv4 addresses of this network namespace by which other machines may reach it.
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

/// The interface by which packets to `peer` leave, as the routing table says now; for an address
/// of this machine, the loopback interface.
pub fn towards(peer: SocketAddr) -> io::Result<Option<Interface>> {
    let Some(index) = index_towards(peer)? else { return Ok(None) };
    Ok(all()?.into_iter().find(|interface| interface.index == index))
}

/// The number of the interface by which packets to `peer` leave; asks no driver anything.
pub fn index_towards(peer: SocketAddr) -> io::Result<Option<u32>> {
    Ok(route(peer)?.into_iter().flat_map(|route| route.attributes).find_map(|attribute| {
        match attribute {
            RouteAttribute::Oif(index) => Some(index),
            _ => None,
        }
    }))
}

/// The largest IP packet that the route to `peer` takes, in bytes, where the routing table says one or
/// the kernel has learnt it of the way (RFC 1191, RFC 8201); asks no driver anything.
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

/// The route that packets to `peer` take now.
pub(crate) fn route(peer: SocketAddr) -> io::Result<Option<RouteMessage>> {
    let mut route = RouteMessage::default();
    let (family, address, bits) = match peer {
        SocketAddr::V4(v4) => (libc::AF_INET, RouteAddress::Inet(*v4.ip()), 32),
        SocketAddr::V6(v6) => (libc::AF_INET6, RouteAddress::Inet6(*v6.ip()), 128),
    };
    if let SocketAddr::V6(v6) = peer
        && v6.scope_id() != 0
    {
        // A link-local address says itself by which interface it is reached.
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

/// An interface whose segmentation offload is off until this is dropped.
#[derive(Debug)]
pub struct Uncut(String);

impl Drop for Uncut {
    fn drop(&mut self) {
        // An interface that is gone has nothing to be switched on.
        let _ = switch_udp_segmentation(&self.0, true);
    }
}

impl Interface {
    /// Whether the kernel sends on IPv4 packets that come in by it; `true` where that cannot be
    /// found out.
    pub fn is_forwarding(&self) -> bool {
        let setting = format!("/proc/sys/net/ipv4/conf/{}/forwarding", self.name);
        !std::fs::read(setting).is_ok_and(|state| state.starts_with(b"0"))
    }

    /// Which of its offloads let UDP datagrams that are sent as one message leave with one stamp, so
    /// that the gaps between them are nought; `None` if its driver tells of no offloads.
    pub fn merges_sent(&self) -> Option<Vec<&str>> {
        self.active(&[UDP_SEGMENTATION])
    }

    /// Switches off what [`Self::merges_sent`] tells of, until the returned value is dropped; `None` where
    /// there is nothing to switch off.
    ///
    /// # Errors
    /// It is not allowed (CAP_NET_ADMIN), or the driver leaves it on.
    pub fn cut_sent(&self) -> io::Result<Option<Uncut>> {
        let was_on = switch_udp_segmentation(&self.name, false)?;
        Ok(was_on.then(|| Uncut(self.name.clone())))
    }

    /// Which of its offloads merge received UDP datagrams into one buffer with one stamp; `None` if its
    /// driver tells of no offloads.
    pub fn merges_received(&self) -> Option<Vec<&str>> {
        self.active(&MERGES_RECEIVED)
    }

    fn active(&self, which: &[&str]) -> Option<Vec<&str>> {
        let offloads = self.offloads.as_ref()?.iter().map(String::as_str);
        Some(offloads.filter(|offload| which.contains(offload)).collect())
    }

    /// Whether it ends in a program (drivers/net/tun.c, of tun and of tap): what leaves by it is stamped
    /// as it is handed to that, before any limit that the link has. `false` where that cannot be found out.
    pub fn ends_in_a_program(&self) -> bool {
        self.driver.as_deref() == Some("tun")
    }

    /// A queueing discipline of it that limits the rate of what leaves, or may: its root, or one below that, as
    /// where a card has several queues.
    ///
    /// # Errors
    /// The kernel does not tell.
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
        Ok(kinds.find(|kind| LIMITERS.contains(&kind.as_str())))
    }

    /// Whether its driver says that the card stamps packets both ways.
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
    // The loopback interface has no driver to ask; some drivers do not answer.
    found.driver = ethtool::driver(&found.name).ok().filter(|name| !name.is_empty());
    found.offloads = ethtool::offloads(&found.name).ok();
    found.stamping = ethtool::stamping(&found.name).ok();
    found
}

/// Sends one request to rtnetlink and collects its answer.
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
            // Messages are aligned to four bytes; a length of 0 would go on for ever.
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
    fn a_loopback_address_is_reached_by_the_loopback_interface() {
        for peer in ["127.0.0.1:9", "127.9.9.9:9", "[::1]:9"] {
            let found = towards(peer.parse().unwrap()).unwrap().expect("a route to loopback");
            assert_eq!(found.name, "lo", "{peer}");
            assert!(found.up && found.mtu.is_some_and(|mtu| mtu >= 1_280), "{found:?}");
        }
    }

    #[test]
    fn every_interface_tells_what_it_dropped() {
        let names = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let told = names(dropped().unwrap().into_iter().map(|told| told.name).collect());
        assert_eq!(told, names(all().unwrap().into_iter().map(|found| found.name).collect()));
        assert!(told.contains(&"lo".to_owned()), "{told:?}");
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_driver() {
        assert!(ethtool::driver("no-such-thing").is_err());
        assert!(ethtool::driver(&"x".repeat(100)).is_err());
    }
}
