//! The reflector turns a request into its reply, in place, so that a reply is never longer than its
//! request. The one exception is `acknowledge` of Chung 2021: 11 bytes for the 7 bytes of
//! `request`. Both fit the shortest Ethernet frame, so nothing is amplified on the wire.

mod limit;
mod loops;
mod plain;
mod replay;
mod stamp;
mod table;

pub use limit::{Budget, Limiter, RateLimits};
pub use loops::{LoopGuard, reply_ttl};
pub use plain::{echo, roundtrip, text};
pub use stamp::{StampConfig, StampReflector};

use std::net::{IpAddr, SocketAddr};

use dwell_units::{Instant, Monotonic, Realtime};

/// Metadata of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestMeta {
    /// Source of the request.
    pub from: SocketAddr,
    /// T2: receive timestamp, from the source closest to the wire.
    pub rx: Instant<Realtime>,
    /// TTL or hop limit of the request.
    pub ttl: Option<u8>,
    /// TOS or traffic class of the request.
    pub tos: Option<u8>,
    /// Current time, for the ageing of sessions.
    pub now: Instant<Monotonic>,
}

/// Reason why a request gets no reply. Without strings, for the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not a request of this protocol.
    Malformed,
    /// The HMAC is invalid. A packet too short for an HMAC is malformed.
    Unauthentic,
    /// Authentic, but answered before or older than the replay window.
    Replayed,
    /// The source exceeds its rate limit.
    Limited,
    /// A reply could loop endlessly or reach a group.
    Loop,
    /// The source sent more than 1,000 identical requests within a second, less than 60 s ago.
    Silenced,
}

/// Whether the addresses alone forbid a reply: the source port is one of this reflector
/// (`own_ports`) or that of echo, chargen or STAMP, or the source or the destination `to` is a
/// group. Reflectors on other ports are recognised by their packets: [`reply_ttl`], [`LoopGuard`]
/// and [`StampReflector`].
pub fn is_loop(from: SocketAddr, to: Option<IpAddr>, own_ports: &[u16]) -> bool {
    const ECHO: u16 = 7;
    const CHARGEN: u16 = 19;
    const STAMP: u16 = 862;
    is_group(from.ip())
        || to.is_some_and(is_group)
        || matches!(from.port(), 0 | ECHO | CHARGEN | STAMP)
        || own_ports.contains(&from.port())
}

/// Whether an address is a group address in any network. The broadcast address of a subnet is not
/// recognised; that takes the netmask, which the code that opens sockets knows.
pub fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflected_ports_and_groups_are_refused() {
        let from = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(!is_loop(from("192.0.2.1:40000"), None, &[862, 7007]));
        for asker in ["192.0.2.1:7", "192.0.2.1:19", "192.0.2.1:862", "[2001:db8::1]:7007"] {
            assert!(is_loop(from(asker), None, &[7007]), "{asker}");
        }
        assert!(is_loop(from("224.0.0.1:40000"), None, &[]));
        assert!(is_loop(from("192.0.2.1:40000"), Some("255.255.255.255".parse().unwrap()), &[]));
        assert!(is_loop(from("[fe80::1]:40000"), Some("ff02::1".parse().unwrap()), &[]));
    }
}
