//! Joins timestamps of replies that were taken in the driver with the replies that the pinger
//! received, by the id in the frame.

use std::collections::{HashMap, VecDeque};

use dwell_units::{Instant, Realtime};

use crate::protocol::WireId;

/// Maximum number of timestamps that wait for their reply. When full, the oldest is discarded.
const MAX_WAITING: usize = 1 << 17;

/// Maximum number of warm-up probes.
const MAX_WARM_UP: u64 = 1_000;

/// Timestamps by the id in the frame. Several frames may carry one id: duplicates, and replies whose
/// ids have wrapped.
#[derive(Debug)]
pub struct DriverJoin {
    /// Significant bits of an id.
    bits: u32,
    by_id: HashMap<u64, VecDeque<Instant<Realtime>>>,
    /// Ids in the order of insertion; may contain ids whose timestamps are gone.
    order: VecDeque<(u64, Instant<Realtime>)>,
    waiting: usize,
    /// Timestamps before this instant belong to the warm-up.
    counted_from: Option<Instant<Realtime>>,
    discarded: u64,
}

impl DriverJoin {
    /// Joins by ids of `bits` bits, 1 to 64.
    pub fn new(bits: u32) -> Self {
        Self {
            bits,
            by_id: HashMap::new(),
            order: VecDeque::new(),
            waiting: 0,
            counted_from: None,
            discarded: 0,
        }
    }

    /// Adds the timestamp of a frame.
    pub fn insert(&mut self, id: WireId, at: Instant<Realtime>) {
        while self.waiting >= MAX_WAITING {
            let Some((oldest, at)) = self.order.pop_front() else { break };
            self.discard(oldest, at);
        }
        let id = id.value & self.mask();
        self.by_id.entry(id).or_default().push_back(at);
        self.order.push_back((id, at));
        self.waiting += 1;
    }

    /// Removes and returns the timestamp of the reply to the probe `id` that left at `sent` and
    /// whose reply reached the next point at `received`: the last timestamp between the two. Earlier
    /// timestamps of the same id are discarded.
    pub fn take(
        &mut self,
        id: u64,
        sent: Instant<Realtime>,
        received: Instant<Realtime>,
    ) -> Option<Instant<Realtime>> {
        let counted_from = *self.counted_from.get_or_insert(sent);
        let key = id & self.mask();
        let stamps = self.by_id.get_mut(&key)?;
        // Sorted except for frames that several processors handled at once.
        let last = stamps.iter().rposition(|at| *at <= received)?;
        let at = stamps[last];
        if at < sent {
            return None;
        }
        let earlier = stamps.iter().take(last).filter(|at| **at >= counted_from).count();
        stamps.drain(..=last);
        if stamps.is_empty() {
            self.by_id.remove(&key);
        }
        self.waiting -= last + 1;
        self.discarded += earlier as u64;
        self.trim();
        Some(at)
    }

    /// Number of counted frames that no reply belongs to, if none arrives any more: replies that the
    /// kernel or the pinger dropped.
    pub fn unmatched(&self) -> u64 {
        let Some(from) = self.counted_from else { return self.discarded };
        let counted = self.by_id.iter().filter(|(id, _)| !self.is_warm_up(**id));
        let waiting = counted.flat_map(|(_, stamps)| stamps).filter(|at| **at >= from).count();
        self.discarded + waiting as u64
    }

    /// Removes all timestamps, for instance because a clock was stepped.
    pub fn clear(&mut self) {
        self.by_id.clear();
        self.order.clear();
        self.waiting = 0;
    }

    fn discard(&mut self, id: u64, at: Instant<Realtime>) {
        let Some(stamps) = self.by_id.get_mut(&id) else { return };
        let Some(place) = stamps.iter().position(|found| *found == at) else { return };
        stamps.remove(place);
        self.waiting -= 1;
        self.discarded += u64::from(self.counted_from.is_none_or(|from| at >= from));
        if stamps.is_empty() {
            self.by_id.remove(&id);
        }
    }

    /// Drops entries of `order` whose timestamps are gone, so that it stays as short as the table.
    fn trim(&mut self) {
        while let Some((id, at)) = self.order.front() {
            if self.by_id.get(id).is_some_and(|stamps| stamps.contains(at)) {
                break;
            }
            self.order.pop_front();
        }
        if self.order.len() > 2 * MAX_WAITING {
            let by_id = &self.by_id;
            self.order.retain(|(id, at)| by_id.get(id).is_some_and(|all| all.contains(at)));
        }
    }

    /// Whether the id is that of a warm-up probe, which may be answered late. The ids of the warm-up
    /// count up to 0; 16 bits are too few to tell them from others.
    fn is_warm_up(&self, id: u64) -> bool {
        self.bits > 16 && id > self.mask() - MAX_WARM_UP
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: i64) -> Instant<Realtime> {
        Instant::from_nanos(nanos)
    }

    fn join(bits: u32, stamps: &[(u64, i64)]) -> DriverJoin {
        let mut join = DriverJoin::new(bits);
        stamps.iter().for_each(|(id, nanos)| join.insert(WireId::low(*id, bits), at(*nanos)));
        join
    }

    #[test]
    fn lost_and_reordered_replies_shift_no_other() {
        // Probes 0 to 3 leave at 0, 10, 20, 30; the reply to 1 is lost, 3 overtakes 2.
        let mut join = join(32, &[(0, 5), (3, 34), (2, 36)]);
        assert_eq!(join.take(0, at(0), at(6)), Some(at(5)));
        assert_eq!(join.take(1, at(10), at(1_000)), None);
        assert_eq!(join.take(3, at(30), at(35)), Some(at(34)));
        assert_eq!(join.take(2, at(20), at(37)), Some(at(36)));
        assert_eq!(join.unmatched(), 0);
    }

    #[test]
    fn each_duplicate_has_its_own_stamp() {
        let mut join = join(64, &[(7, 100), (7, 130)]);
        assert_eq!(join.take(7, at(90), at(110)), Some(at(100)));
        assert_eq!(join.take(7, at(90), at(140)), Some(at(130)));
        assert_eq!(join.take(7, at(90), at(150)), None);
    }

    #[test]
    fn reply_dropped_after_the_driver_is_counted() {
        // The first of two frames never reached the socket.
        let mut join = join(64, &[(7, 100), (7, 130), (8, 160)]);
        assert_eq!(join.take(7, at(90), at(140)), Some(at(130)));
        assert_eq!(join.unmatched(), 2);
    }

    #[test]
    fn wrapped_id_never_takes_an_older_stamp() {
        let mut join = join(16, &[(5, 100)]);
        assert_eq!(join.take(5 + (1 << 16), at(1_000), at(1_010)), None);
        join.insert(WireId::low(5, 16), at(1_005));
        assert_eq!(join.take(5 + (1 << 16), at(1_000), at(1_010)), Some(at(1_005)));
    }

    #[test]
    fn stamps_of_the_warm_up_are_not_counted_as_unmatched() {
        // One is answered late.
        let mut join = join(64, &[(u64::MAX - 1, 5), (0, 105), (u64::MAX, 107)]);
        assert_eq!(join.take(0, at(100), at(110)), Some(at(105)));
        assert_eq!(join.unmatched(), 0);
    }

    #[test]
    fn table_is_bounded_and_counts_what_it_discards() {
        let mut join = DriverJoin::new(64);
        join.take(0, at(0), at(1));
        for id in 0..MAX_WAITING as u64 + 10 {
            join.insert(WireId::full(id), at(id as i64 + 1));
        }
        assert_eq!((join.waiting, join.discarded), (MAX_WAITING, 10));
        for id in 10..MAX_WAITING as u64 + 10 {
            assert!(join.take(id, at(0), at(id as i64 + 2)).is_some());
        }
        assert_eq!((join.waiting, join.order.len(), join.unmatched()), (0, 0, 10));
    }
}
