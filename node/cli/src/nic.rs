//! Packets that this machine's network interfaces dropped during a measurement.

use std::net::SocketAddr;

use dwell_io::interface::{self, Dropped, Interface};
use dwell_record::NicDropped;

/// Maximum number of peers to look up in the routing table. Further peers use the same interfaces.
const MAX_PEERS: usize = 64;

/// Drop counters of all interfaces at the start of a measurement.
#[derive(Debug)]
pub(crate) struct NicWatch(Vec<Dropped>);

impl NicWatch {
    /// Reads the counters. Not for timing threads.
    pub(crate) fn start() -> Self {
        Self(interface::dropped().unwrap_or_default())
    }

    /// Packets that the interface dropped since the start; `None` if it is unknown.
    pub(crate) fn of(&self, interface: Option<&Interface>) -> Option<Vec<NicDropped>> {
        self.since(&[interface?.index])
    }

    /// Packets that the interfaces towards `peers` dropped since the start. Packets from `peers`
    /// arrive by the same interfaces if routing is symmetric.
    pub(crate) fn towards(
        &self,
        peers: impl IntoIterator<Item = SocketAddr>,
    ) -> Option<Vec<NicDropped>> {
        let mut hosts: Vec<SocketAddr> = Vec::new();
        for peer in peers {
            if hosts.len() < MAX_PEERS && hosts.iter().all(|host| host.ip() != peer.ip()) {
                hosts.push(peer);
            }
        }
        let indices = hosts.into_iter().filter_map(|host| interface::index_towards(host).ok()?);
        self.since(&indices.collect::<Vec<_>>())
    }

    fn since(&self, indices: &[u32]) -> Option<Vec<NicDropped>> {
        since(&self.0, &interface::dropped().ok()?, indices)
    }
}

/// Counter differences of the interfaces with these indices. Omits an interface that is missing
/// from either reading or whose counters went back.
fn since(before: &[Dropped], now: &[Dropped], indices: &[u32]) -> Option<Vec<NicDropped>> {
    let grown = |now: &Dropped| {
        let before = before.iter().find(|it| it.index == now.index && it.name == now.name)?;
        Some(NicDropped {
            interface: now.name.clone(),
            rx_dropped: now.rx.checked_sub(before.rx)?,
            tx_dropped: now.tx.checked_sub(before.tx)?,
            rx_missed: now.rx_missed.checked_sub(before.rx_missed)?,
        })
    };
    let known = now.iter().filter(|it| indices.contains(&it.index)).filter_map(grown);
    let known: Vec<NicDropped> = known.collect();
    (!known.is_empty()).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(index: u32, [rx, tx, rx_missed]: [u64; 3]) -> Dropped {
        Dropped { index, name: format!("n{index}"), rx, tx, rx_missed }
    }

    #[test]
    fn nic_drops_count_only_since_start_and_per_interface() {
        let before = [counted(1, [5, 0, 7]), counted(2, [0; 3]), counted(3, [9, 9, 9])];
        let now = [counted(1, [8, 1, 7]), counted(2, [0; 3]), counted(3, [99, 99, 99])];
        let found = since(&before, &now, &[1, 2]).unwrap();
        assert_eq!(found.iter().map(NicDropped::total).collect::<Vec<_>>(), [4, 0]);
        let NicDropped { interface, rx_dropped, tx_dropped, rx_missed } = &found[0];
        assert_eq!((interface.as_str(), *rx_dropped, *tx_dropped, *rx_missed), ("n1", 3, 1, 0));
    }

    #[test]
    fn unknown_or_reset_interface_is_absent_not_zero() {
        let before = [counted(1, [5, 0, 0]), counted(2, [1, 1, 1])];
        assert_eq!(since(&before, &[counted(1, [4, 0, 0])], &[1]), None);
        assert_eq!(since(&before, &[counted(3, [0; 3])], &[3]), None);
        let renamed = Dropped { name: "other".into(), ..counted(2, [1, 1, 1]) };
        assert_eq!(since(&before, &[renamed], &[2]), None);
        assert_eq!(since(&before, &before, &[]), None);
        assert_eq!(NicWatch::start().of(None), None);
    }
}
