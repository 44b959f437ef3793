//! Addresses of nodes and links. IPv4 addresses are from 198.18.0.0/15, which RFC 2544 reserves for
//! benchmarks of networks; IPv6 addresses are from one unique local prefix (RFC 4193). They are the
//! same in every lab, because no lab can reach another.
//!
//! | what | IPv4 | IPv6 |
//! |---|---|---|
//! | node n (from 1), its own | `198.19.(n/256).(n%256)/32` | `fd64:7765:6c6c:ffff::n/128` |
//! | link k (from 0) | `198.18.0.0 + 4k`, /30 | `fd64:7765:6c6c:(k+1)::/64` |
//! | its ends a and b | .1 and .2 of it | ::1 and ::2 of it |
//! | the bridge or radio channel of a forced line | `198.18.0.0/24` | `fd64:7765:6c6c:1::/64` |
//! | node n (from 1) on it | .n of it | ::n of it |

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Addresses of a node or an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
}

/// Length of the IPv4 prefix of a link.
pub(crate) const LINK_V4_LEN: u8 = 30;
/// Length of the IPv6 prefix of a link.
pub(crate) const LINK_V6_LEN: u8 = 64;

/// Length of the IPv4 prefix of a shared medium.
pub(crate) const BRIDGE_V4_LEN: u8 = 24;
/// Length of the IPv6 prefix of a shared medium.
pub(crate) const BRIDGE_V6_LEN: u8 = 64;

/// End of a link that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    A = 1,
    B = 2,
}

impl End {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// "dwell" in ASCII fills the 40 random bits of the prefix.
const ULA: [u16; 3] = [0xfd64, 0x7765, 0x6c6c];

/// Returns the own addresses of the node with index `place`.
pub(crate) fn node(place: usize) -> Addresses {
    let number = place as u32 + 1;
    let v4 = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 19, 0, 0)) + number);
    Addresses { v4, v6: ula(0xffff, number as u16) }
}

/// Returns the addresses of one end of the link with index `place`.
pub(crate) fn link_end(place: usize, end: End) -> Addresses {
    let subnet = link_subnet(place);
    Addresses {
        v4: Ipv4Addr::from(u32::from(subnet.v4) + end as u32),
        v6: ula(place as u16 + 1, end as u16),
    }
}

/// Returns the first address of each of the link's prefixes.
pub(crate) fn link_subnet(place: usize) -> Addresses {
    let v4 = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 4 * place as u32);
    Addresses { v4, v6: ula(place as u16 + 1, 0) }
}

/// Returns the addresses on the shared medium of a forced line of the node with index `place`. A forced
/// line has no links.
pub(crate) fn on_bridge(place: usize) -> Addresses {
    let number = place as u32 + 1;
    let v4 = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + number);
    Addresses { v4, v6: ula(1, number as u16) }
}

/// A hardware address: locally administered, and readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hardware(pub(crate) [u8; 6]);

/// Returns the hardware address of one end of a link.
pub(crate) fn hardware(place: usize, end: End) -> Hardware {
    Hardware([0x02, 0x64, 0x77, (place >> 8) as u8, place as u8, end as u8])
}

/// Returns the hardware address of the device of the node with index `place`. No end of a link has the
/// 0xfe, because a lab has fewer links.
pub(crate) fn device_hardware(place: usize) -> Hardware {
    Hardware([0x02, 0x64, 0x77, 0xfe, 0, place as u8 + 1])
}

/// BSSID of the ad hoc network of a Wi-Fi lab. It is the same in every lab, because no lab can hear
/// another; no node has the second 0xff.
pub(crate) const RADIO_NETWORK: Hardware = Hardware([0x02, 0x64, 0x77, 0xff, 0xff, 0]);

/// Returns the hardware address of a node on a shared medium; no end of a link has the 0xff.
pub(crate) fn bridge_hardware(place: usize) -> Hardware {
    Hardware([0x02, 0x64, 0x77, 0xff, 0, place as u8 + 1])
}

impl Hardware {
    /// Returns the link-local address that the kernel derives from it (RFC 4291, appendix A).
    pub(crate) fn link_local(self) -> Ipv6Addr {
        let Self([a, b, c, d, e, f]) = self;
        let pair = |high, low| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f))
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([a, b, c, d, e, last]) = self;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

fn ula(subnet: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(ULA[0], ULA[1], ULA[2], subnet, 0, 0, 0, host)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::topology::{MAX_LINKS, MAX_NODES};

    #[test]
    fn addresses_in_largest_lab_are_unique() {
        let nodes = (0..MAX_NODES).map(node);
        let ends = (0..MAX_LINKS).flat_map(|k| [link_end(k, End::A), link_end(k, End::B)]);
        let all: Vec<Addresses> = nodes.chain(ends).collect();
        let v4: HashSet<_> = all.iter().map(|a| a.v4).collect();
        let v6: HashSet<_> = all.iter().map(|a| a.v6).collect();
        assert_eq!((v4.len(), v6.len()), (all.len(), all.len()));
        assert!(v4.iter().all(|a| matches!(a.octets(), [198, 18 | 19, ..])));
    }

    #[test]
    fn hardware_addresses_are_unique() {
        let ends = (0..MAX_LINKS).flat_map(|k| [hardware(k, End::A), hardware(k, End::B)]);
        let nodes = (0..MAX_NODES).map(bridge_hardware);
        let all: Vec<Hardware> = ends.chain(nodes).chain([RADIO_NETWORK]).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    fn addresses_match_documented_table() {
        assert_eq!(node(0).v4, Ipv4Addr::new(198, 19, 0, 1));
        assert_eq!(node(249).v6.to_string(), "fd64:7765:6c6c:ffff::fa");
        assert_eq!(link_end(64, End::B).v4, Ipv4Addr::new(198, 18, 1, 2));
        assert_eq!(link_end(0, End::A).v6.to_string(), "fd64:7765:6c6c:1::1");
        assert_eq!(hardware(258, End::A).to_string(), "02:64:77:01:02:01");
        assert_eq!(hardware(258, End::A).link_local().to_string(), "fe80::64:77ff:fe01:201");
        assert_eq!(on_bridge(249).v4, Ipv4Addr::new(198, 18, 0, 250));
        assert_eq!(on_bridge(1).v6.to_string(), "fd64:7765:6c6c:1::2");
    }
}
