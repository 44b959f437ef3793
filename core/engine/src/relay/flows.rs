//! Flow table of a relay, by client address. When the table is full, the flow that has been idle
//! for longest is evicted. All memory is allocated at the start and every operation takes constant
//! time.

use std::collections::HashMap;
use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};

/// Marks the end of a list: no slot has this index.
const NO_SLOT: u32 = u32::MAX;

/// Identifies a flow by its slot and a generation count, so that the id of a removed flow does not
/// match a later one in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    slot: u32,
    generation: u32,
}

impl FlowId {
    /// Packs the id into a `u64`.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// Unpacks an id from [`FlowId::to_u64`].
    pub fn from_u64(number: u64) -> Self {
        Self { slot: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Counters of a flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows inserted.
    pub opened: u64,
    /// Flows evicted to make room.
    pub evicted: u64,
    /// Flows expired after the idle time-out.
    pub expired: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Flows<T> {
    by_client: HashMap<SocketAddr, u32>,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    max_flows: usize,
    idle: Nanos,
    /// Ends of the list of flows in order of last use.
    oldest: u32,
    newest: u32,
    counts: FlowCounts,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    older: u32,
    newer: u32,
    entry: Option<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    client: SocketAddr,
    used: Instant<Monotonic>,
    flow: T,
}

impl<T> Flows<T> {
    /// Creates a table of at most `max_flows` flows (at least one) that may expire after being idle
    /// for longer than `idle`.
    pub fn new(max_flows: usize, idle: Nanos) -> Self {
        let max_flows = max_flows.clamp(1, NO_SLOT as usize);
        Self {
            // Twice the capacity, so that the map reuses entries of removed flows instead of
            // growing.
            by_client: HashMap::with_capacity(2 * max_flows),
            slots: Vec::with_capacity(max_flows),
            free: Vec::with_capacity(max_flows),
            max_flows,
            idle,
            oldest: NO_SLOT,
            newest: NO_SLOT,
            counts: FlowCounts::default(),
        }
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.by_client.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// Counters so far.
    pub fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// Id of the flow of `client`.
    pub fn of(&self, client: &SocketAddr) -> Option<FlowId> {
        let slot = *self.by_client.get(client)?;
        Some(FlowId { slot, generation: self.slots[slot as usize].generation })
    }

    /// Returns a flow, unless it was removed.
    pub fn find(&mut self, id: FlowId) -> Option<&mut T> {
        let slot =
            self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.entry.as_mut().map(|entry| &mut entry.flow)
    }

    /// Returns a flow and marks it as used at `now`, unless it was removed.
    pub fn touch(&mut self, id: FlowId, now: Instant<Monotonic>) -> Option<&mut T> {
        let slot = self.slots.get(id.slot as usize)?;
        if slot.generation != id.generation || slot.entry.is_none() {
            return None;
        }
        if self.newest != id.slot {
            self.unlink(id.slot);
            self.append(id.slot);
        }
        let entry = self.slots[id.slot as usize].entry.as_mut()?;
        entry.used = now;
        Some(&mut entry.flow)
    }

    /// Inserts the flow of a client that has none. Returns its id and the evicted flow, if any.
    pub fn insert(
        &mut self,
        client: SocketAddr,
        flow: T,
        now: Instant<Monotonic>,
    ) -> (FlowId, Option<T>) {
        let evicted = if self.len() == self.max_flows { self.evict() } else { None };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, older: NO_SLOT, newer: NO_SLOT, entry: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.entry = Some(Entry { client, used: now, flow });
        let id = FlowId { slot, generation: place.generation };
        self.append(slot);
        self.by_client.insert(client, slot);
        self.counts.opened += 1;
        (id, evicted)
    }

    /// Evicts the flow that has been idle for longest.
    pub fn evict(&mut self) -> Option<T> {
        let entry = self.remove(self.oldest)?;
        self.counts.evicted += 1;
        Some(entry)
    }

    /// Id of the flow that has been idle for longest, if that exceeds the idle time-out.
    pub fn overdue(&self, now: Instant<Monotonic>) -> Option<FlowId> {
        let slot = self.slots.get(self.oldest as usize)?;
        let idle = now - slot.entry.as_ref()?.used;
        (idle > self.idle).then_some(FlowId { slot: self.oldest, generation: slot.generation })
    }

    /// Removes a flow if it is still [`Flows::overdue`].
    pub fn expire(&mut self, id: FlowId, now: Instant<Monotonic>) -> Option<T> {
        if self.overdue(now) != Some(id) {
            return None;
        }
        self.counts.expired += 1;
        self.remove(id.slot)
    }

    /// Iterates over all flows in arbitrary order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (FlowId, &mut T)> + '_ {
        self.slots.iter_mut().enumerate().filter_map(|(n, slot)| {
            let id = FlowId { slot: n as u32, generation: slot.generation };
            Some((id, &mut slot.entry.as_mut()?.flow))
        })
    }

    fn remove(&mut self, slot: u32) -> Option<T> {
        let place = self.slots.get_mut(slot as usize)?;
        let entry = place.entry.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.unlink(slot);
        self.by_client.remove(&entry.client);
        self.free.push(slot);
        Some(entry.flow)
    }

    fn append(&mut self, slot: u32) {
        let last = self.newest;
        self.slots[slot as usize].older = last;
        self.slots[slot as usize].newer = NO_SLOT;
        match self.slots.get_mut(last as usize) {
            Some(last) => last.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = (self.slots[slot as usize].older, self.slots[slot as usize].newer);
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn client(port: u16) -> SocketAddr {
        SocketAddr::new("192.0.2.1".parse().unwrap(), port)
    }

    fn at(n: i64) -> Instant<Monotonic> {
        Instant::from_nanos(n)
    }

    proptest! {
        #[test]
        fn table_matches_a_least_recently_used_list(
            max_flows in 1_usize..6, idle in 1_i64..20,
            steps in prop::collection::vec((1_u16..9, 0_i64..6, any::<bool>()), 1..300),
        ) {
            let mut flows = Flows::new(max_flows, Nanos(idle));
            let mut model: VecDeque<(u16, i64)> = VecDeque::new();
            let mut now = 0;
            for (port, passed, expires) in steps {
                now += passed;
                if expires {
                    let expected = model.pop_front_if(|(_, used)| now - *used > idle);
                    let expired = flows.overdue(at(now)).and_then(|id| flows.expire(id, at(now)));
                    prop_assert_eq!(expired, expected.map(|(port, _)| port));
                    continue;
                }
                match flows.of(&client(port)) {
                    Some(id) => {
                        prop_assert_eq!(flows.touch(id, at(now)).copied(), Some(port));
                        let place = model.iter().position(|(p, _)| *p == port).unwrap();
                        model.remove(place);
                    }
                    None => {
                        prop_assert!(model.iter().all(|(p, _)| *p != port));
                        let (id, evicted) = flows.insert(client(port), port, at(now));
                        prop_assert_eq!(flows.find(id).copied(), Some(port));
                        let expected = if model.len() == max_flows { model.pop_front() } else { None };
                        prop_assert_eq!(evicted, expected.map(|(port, _)| port));
                    }
                }
                model.push_back((port, now));
                prop_assert_eq!(flows.len(), model.len());
            }
        }
    }

    #[test]
    fn flood_is_bounded_and_spares_the_active_flow() {
        let mut flows = Flows::new(100, Nanos::from_secs(1));
        let (busy, _) = flows.insert(client(1), 1, at(0));
        for (n, port) in (2..=u16::MAX).enumerate() {
            if n % 50 == 0 {
                assert!(flows.touch(busy, at(n as i64)).is_some(), "{n}");
            }
            flows.insert(client(port), port, at(n as i64));
        }
        assert_eq!((flows.len(), flows.slots.len()), (100, 100));
        let counts = flows.counts();
        assert_eq!(counts, FlowCounts { opened: 65_535, evicted: 65_435, expired: 0 });
    }

    #[test]
    fn flow_used_since_overdue_does_not_expire() {
        let mut flows = Flows::new(2, Nanos(10));
        let (first, _) = flows.insert(client(1), 1, at(0));
        flows.insert(client(2), 2, at(5));
        assert_eq!(flows.overdue(at(20)), Some(first));
        flows.touch(first, at(20));
        assert_eq!(flows.expire(first, at(20)), None);
        assert_eq!((flows.len(), flows.counts().expired), (2, 0));
    }

    #[test]
    fn id_of_removed_flow_does_not_match_its_successor() {
        let mut flows = Flows::new(1, Nanos::from_secs(1));
        let (first, _) = flows.insert(client(1), 'a', at(0));
        let (second, evicted) = flows.insert(client(2), 'b', at(1));
        assert_eq!(evicted, Some('a'));
        assert_eq!(flows.find(first), None);
        assert_eq!(flows.touch(first, at(2)), None);
        assert_eq!(flows.find(second), Some(&mut 'b'));
        assert_eq!(FlowId::from_u64(second.to_u64()), second);
    }
}
