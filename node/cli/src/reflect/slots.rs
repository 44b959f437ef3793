//! Chooses the TCP connection to close when a new one arrives and all slots are taken.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use dwell_units::{Instant, Monotonic, Nanos};

/// Connections without a message for longer than this count as idle.
const IDLE_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Length of the IPv6 prefix that counts as one source: the usual assignment to one site.
const V6_PREFIX_BITS: u32 = 56;

/// The slot of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    source: IpAddr,
    /// Arrival of its last message.
    active: Instant<Monotonic>,
}

impl Slot {
    /// A slot for a connection from `peer`.
    pub(super) fn new(peer: IpAddr, now: Instant<Monotonic>) -> Self {
        Self { source: source(peer), active: now }
    }

    /// Notes the arrival of a message.
    pub(super) fn touch(&mut self, now: Instant<Monotonic>) {
        self.active = now;
    }
}

/// The source that a connection counts for: an IPv4 address or an IPv6 prefix.
fn source(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(v6) => {
            let mask = u128::MAX << (u128::BITS - V6_PREFIX_BITS);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

/// Returns the index of the connection to close for a newcomer: the longest idle one of the source
/// with the most connections. If the newcomer's source would still have fewer than that, an active
/// connection may be closed. Otherwise only an idle one is, and the newcomer counts as one more of
/// its source.
pub(super) fn slot_to_close(
    slots: &[(usize, Slot)],
    newcomer: IpAddr,
    now: Instant<Monotonic>,
) -> Option<usize> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (_, slot) in slots {
        *counts.entry(slot.source).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let wanted = counts.entry(source(newcomer)).or_default();
    *wanted += 1;
    let (least_idle, most) = match *wanted {
        wanted if wanted < most => (Nanos(i64::MIN), most),
        wanted => (IDLE_TIMEOUT, most.max(wanted)),
    };
    let idle = |slot: &Slot| now - slot.active;
    slots
        .iter()
        .filter(|(_, slot)| counts.get(&slot.source) == Some(&most) && idle(slot) > least_idle)
        .max_by_key(|(_, slot)| idle(slot))
        .map(|(index, _)| *index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWCOMER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));

    fn now() -> Instant<Monotonic> {
        Instant::from_nanos(100 * IDLE_TIMEOUT.0)
    }

    /// Connections as the last byte of the peer's address, and the idle time in tenths of the
    /// time-out.
    fn chosen(slots: &[(u8, i64)], newcomer: IpAddr) -> Option<usize> {
        let slot = |(peer, idle): &(u8, i64)| {
            let active = now() - Nanos(idle * IDLE_TIMEOUT.0 / 10);
            Slot::new(IpAddr::from([192, 0, 2, *peer]), active)
        };
        let slots: Vec<_> = slots.iter().map(slot).enumerate().collect();
        slot_to_close(&slots, newcomer, now())
    }

    #[test]
    fn longest_idle_connection_of_largest_source_is_closed() {
        assert_eq!(chosen(&[(1, 99), (2, 11), (2, 15), (2, 3), (1, 90)], NEWCOMER), Some(2));
    }

    #[test]
    fn active_connection_is_closed_if_newcomer_has_far_fewer() {
        assert_eq!(chosen(&[(1, 99), (2, 0), (2, 2), (2, 1)], NEWCOMER), Some(2));
        let second = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(chosen(&[(1, 99), (2, 0), (2, 2), (2, 1)], second), Some(2));
    }

    #[test]
    fn active_connections_stay_if_all_sources_are_equal() {
        assert_eq!(chosen(&[(1, 9), (2, 9), (3, 8)], NEWCOMER), None);
        assert_eq!(chosen(&[(1, 9), (2, 12), (3, 11)], NEWCOMER), Some(1));
    }

    #[test]
    fn largest_source_gives_up_its_own_idle_connection() {
        let largest = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(chosen(&[(1, 99), (1, 98), (2, 12), (2, 20)], largest), Some(3));
        assert_eq!(chosen(&[(1, 99), (1, 98), (2, 2), (2, 3)], largest), None);
    }

    #[test]
    fn ipv6_addresses_of_one_site_are_one_source() {
        let peer = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(source(peer("2001:db8:0:1::1")), source(peer("2001:db8:0:ff::2")));
        assert_ne!(source(peer("2001:db8:0:1::1")), source(peer("2001:db8:0:100::1")));
        assert_ne!(source(peer("192.0.2.1")), source(peer("192.0.2.2")));
    }
}
