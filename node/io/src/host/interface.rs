//! Network interfaces: the one that leads to a host, its driver, offloads and queueing discipline.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dwell_host::netlink::{Attributes, attribute, text_of, u32_of};

use crate::host::ethtool;
pub use crate::host::ethtool::Stamping;
use crate::host::rtnetlink::{self, Kind, Object};

/// Offsets of the index and of the flags in struct ifinfomsg (linux/rtnetlink.h).
const LINK_INDEX: usize = 4;
const LINK_FLAGS: usize = 8;

/// Offset of the interface's index in struct ifaddrmsg (linux/if_addr.h).
const ADDRESS_INDEX: usize = 4;

/// Offset of the interface's index in struct tcmsg (linux/rtnetlink.h).
const QDISC_INDEX: usize = 4;

/// Number of a nested attribute of IFLA_XDP: the id of the program (linux/if_link.h).
const IFLA_XDP_PROG_ID: u16 = 4;

/// Number of a nested attribute of RTA_METRICS: the MTU (linux/rtnetlink.h).
const RTAX_MTU: u16 = 2;

/// Places of counters in struct rtnl_link_stats64 (linux/if_link.h).
const TX_ERRORS: usize = 5;
const RX_DROPPED: usize = 6;
const TX_DROPPED: usize = 7;
const RX_MISSED_ERRORS: usize = 15;

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
    let links = rtnetlink::dump(&Object::new(Kind::Link))?;
    let dropped = |link: &Object| {
        Some(Dropped {
            index: index(link),
            name: name(link)?,
            rx: counter(link, RX_DROPPED)?,
            tx: counter(link, TX_DROPPED)?,
            rx_missed: counter(link, RX_MISSED_ERRORS)?,
        })
    };
    Ok(links.iter().filter_map(dropped).collect())
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
    let links = rtnetlink::dump(&Object::new(Kind::Link))?;
    let mut links: Vec<_> = links.iter().map(interface).collect();
    links.sort_by_key(|link| link.index);
    Ok(links)
}

/// Returns the IPv4 addresses of this network namespace, without loopback addresses.
pub fn ipv4_addresses() -> io::Result<Vec<Ipv4Addr>> {
    let mut request = Object::new(Kind::Address);
    request.set(0, &[libc::AF_INET as u8]);
    let found = rtnetlink::dump(&request)?;
    let own = |found: &Object| match address(found, libc::IFA_LOCAL) {
        Some(IpAddr::V4(own)) if !own.is_loopback() => Some(own),
        _ => None,
    };
    let mut addresses: Vec<_> = found.iter().filter_map(own).collect();
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
    let own = |found: &Object| {
        // The far end of a point-to-point link has the other attribute.
        let local = address(found, libc::IFA_LOCAL);
        let address_or_prefix = local.or_else(|| address(found, libc::IFA_ADDRESS))?;
        let broadcast = match address(found, libc::IFA_BROADCAST) {
            Some(IpAddr::V4(v4)) => Some(v4),
            _ => None,
        };
        let interface = found.u32(ADDRESS_INDEX);
        Some(OwnAddress { interface, address: address_or_prefix, broadcast })
    };
    Ok(rtnetlink::dump(&Object::new(Kind::Address))?.iter().filter_map(own).collect())
}

/// Returns the id of the XDP program on the interface with this index, if any.
pub fn xdp_program(index: u32) -> io::Result<Option<u32>> {
    let link = link(index)?;
    let nested = link.as_ref().and_then(|link| link.attribute(libc::IFLA_XDP));
    let id = nested.and_then(|nested| attribute(nested, IFLA_XDP_PROG_ID));
    Ok(id.and_then(u32_of))
}

/// Returns the number of packets that the interface with this index failed to send since its
/// creation: errors and drops of its driver.
pub fn send_failures(index: u32) -> io::Result<u64> {
    let failures = |link: &Object| Some(counter(link, TX_ERRORS)? + counter(link, TX_DROPPED)?);
    Ok(link(index)?.as_ref().and_then(failures).unwrap_or(0))
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
    let link = match link(index) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        other => other?,
    };
    Ok(link.map(|link| LinkState {
        mtu: mtu(&link),
        ethernet: link.attribute(libc::IFLA_ADDRESS).and_then(|mac| mac.try_into().ok()),
    }))
}

/// Returns the interface through which packets to `peer` leave, by the current routing table; for
/// an address of this machine, the loopback interface.
pub fn towards(peer: SocketAddr) -> io::Result<Option<Interface>> {
    let Some(index) = index_towards(peer)? else { return Ok(None) };
    Ok(all()?.into_iter().find(|interface| interface.index == index))
}

/// Returns the index of the interface through which packets to `peer` leave. Queries no driver.
pub fn index_towards(peer: SocketAddr) -> io::Result<Option<u32>> {
    let route = route(peer)?;
    Ok(route.and_then(|route| route.attribute(libc::RTA_OIF).and_then(u32_of)))
}

/// Returns the MTU of the route to `peer` in bytes, if the routing table sets one or the kernel has
/// discovered it (RFC 1191, RFC 8201). Queries no driver.
pub fn path_mtu(peer: SocketAddr) -> io::Result<Option<u32>> {
    let mtu = |route: Object| {
        let metrics = route.attribute(libc::RTA_METRICS)?;
        attribute(metrics, RTAX_MTU).and_then(u32_of)
    };
    Ok(route(peer)?.and_then(mtu))
}

/// Returns the current route to `peer`.
pub(crate) fn route(peer: SocketAddr) -> io::Result<Option<Object>> {
    let mut request = Object::new(Kind::Route);
    let mut attributes = Attributes::default();
    // Family and prefix length are the first fields of struct rtmsg.
    match peer {
        SocketAddr::V4(v4) => {
            request.set(0, &[libc::AF_INET as u8, 32]);
            attributes = attributes.with(libc::RTA_DST, &v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            request.set(0, &[libc::AF_INET6 as u8, 128]);
            attributes = attributes.with(libc::RTA_DST, &v6.ip().octets());
            if v6.scope_id() != 0 {
                // The scope of a link-local address names its interface.
                attributes = attributes.with_u32(libc::RTA_OIF, v6.scope_id());
            }
        }
    }
    request.set_attributes(&attributes);
    rtnetlink::find(&request)
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
        let qdiscs = rtnetlink::dump(&Object::new(Kind::Qdisc))?;
        let own = qdiscs.iter().filter(|qdisc| qdisc.u32(QDISC_INDEX) == self.index);
        let mut kinds = own.filter_map(|qdisc| qdisc.attribute(libc::TCA_KIND).map(text_of));
        Ok(kinds.find(|kind| RATE_LIMITERS.contains(&kind.as_str())))
    }

    /// Whether its driver claims that the card timestamps packets in both directions.
    pub fn has_stamping_card(&self) -> bool {
        self.stamping.is_some_and(|able| able.tx_hardware && able.rx_hardware)
    }
}

fn interface(link: &Object) -> Interface {
    let name = name(link).unwrap_or_default();
    Interface {
        index: index(link),
        up: link.u32(LINK_FLAGS) & libc::IFF_UP as u32 != 0,
        mtu: mtu(link),
        qdisc: link.attribute(libc::IFLA_QDISC).map(text_of),
        // The loopback interface has no driver; some drivers do not answer.
        driver: ethtool::driver(&name).ok().filter(|name| !name.is_empty()),
        offloads: ethtool::offloads(&name).ok(),
        stamping: ethtool::stamping(&name).ok(),
        name,
    }
}

/// Returns the link with this index.
pub(crate) fn link(index: u32) -> io::Result<Option<Object>> {
    let mut request = Object::new(Kind::Link);
    request.set(LINK_INDEX, &index.to_ne_bytes());
    rtnetlink::find(&request)
}

/// Returns the counter with this place.
fn counter(link: &Object, place: usize) -> Option<u64> {
    let (counters, _) = link.attribute(libc::IFLA_STATS64)?.as_chunks();
    counters.get(place).copied().map(u64::from_ne_bytes)
}

fn index(link: &Object) -> u32 {
    link.u32(LINK_INDEX)
}

fn name(link: &Object) -> Option<String> {
    link.attribute(libc::IFLA_IFNAME).map(text_of)
}

fn mtu(link: &Object) -> Option<u32> {
    link.attribute(libc::IFLA_MTU).and_then(u32_of)
}

fn address(object: &Object, number: u16) -> Option<IpAddr> {
    object.attribute(number).and_then(rtnetlink::address)
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
