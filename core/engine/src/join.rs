//! Joins timestamps that several points of one machine report separately into one record per
//! packet. Memory is bounded.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use dwell_units::{Instant, Nanos, Realtime};

use crate::passage::{Fate, Passage, Point, PointStamps};

/// One timestamp of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The packet's flow.
    pub flow: u32,
    /// Packet id within the flow.
    pub id: u64,
    /// Payload length in bytes.
    pub size: u16,
    /// Point that took the timestamp.
    pub point: Point,
    /// Time of the timestamp.
    pub at: Instant<Realtime>,
}

/// Counters of [`Join`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// Packets, complete or not.
    pub packets: u64,
    /// Packets that some points did not report: they started or ended on this machine, were
    /// dropped, or changed their flow.
    pub incomplete: u64,
    /// Incomplete packets evicted because too many were pending.
    pub evicted: u64,
    /// Timestamps of a point that had already reported the packet.
    pub repeated: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Join {
    points: Vec<Point>,
    patience: Nanos,
    most: usize,
    open: HashMap<(u32, u64), Open>,
    /// Number and key of pending packets in order of arrival. Entries of completed packets stay
    /// until removed; their number differs from that of a later packet with the same key.
    queue: VecDeque<(u64, (u32, u64))>,
    next: u64,
    joined: Joined,
}

#[derive(Debug)]
struct Open {
    number: u64,
    since: Instant<Realtime>,
    size: u16,
    stamps: PointStamps,
}

impl Join {
    /// Creates a joiner. A packet is complete once each of `points` has reported it. It is
    /// delivered incomplete after `patience`, or when it is the oldest of more than `most` pending
    /// packets.
    pub fn new(points: &[Point], patience: Nanos, most: usize) -> Self {
        let most = most.max(1);
        Self {
            points: points.to_vec(),
            patience,
            most,
            open: HashMap::with_capacity(most),
            queue: VecDeque::with_capacity(2 * most),
            next: 0,
            joined: Joined::default(),
        }
    }

    /// Adds a timestamp. Calls `each` for every packet that this completes or evicts.
    pub fn take(&mut self, stamp: &Stamp, each: &mut dyn FnMut(&Passage)) {
        let key = (stamp.flow, stamp.id);
        let number = self.next;
        let open = match self.open.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.next += 1;
                self.queue.push_back((number, key));
                let stamps = PointStamps::default();
                entry.insert(Open { number, since: stamp.at, size: stamp.size, stamps })
            }
        };
        if open.stamps.get(stamp.point).is_some() {
            self.joined.repeated += 1;
            return;
        }
        open.stamps.set(stamp.point, stamp.at);
        if self.points.iter().all(|point| open.stamps.get(*point).is_some()) {
            self.end(key, each);
        }
        if self.open.len() > self.most || self.queue.len() >= 2 * self.most {
            self.evict(each);
        }
    }

    /// Delivers packets that have been pending for longer than the time-out.
    pub fn expire(&mut self, now: Instant<Realtime>, each: &mut dyn FnMut(&Passage)) {
        while let Some((number, key)) = self.queue.front().copied() {
            match self.open.get(&key).filter(|open| open.number == number) {
                Some(open) if now - open.since < self.patience => return,
                Some(_) => self.end(key, each),
                None => {}
            }
            self.queue.pop_front();
        }
    }

    /// Delivers all pending packets. Called when no more timestamps will arrive.
    pub fn finish(&mut self, each: &mut dyn FnMut(&Passage)) {
        while let Some((number, key)) = self.queue.pop_front() {
            if self.open.get(&key).is_some_and(|open| open.number == number) {
                self.end(key, each);
            }
        }
    }

    /// Counters so far.
    pub fn joined(&self) -> Joined {
        self.joined
    }

    /// Removes queue entries of completed packets up to the oldest pending one, which is evicted if
    /// too many are pending.
    fn evict(&mut self, each: &mut dyn FnMut(&Passage)) {
        while let Some((number, key)) = self.queue.pop_front() {
            if self.open.get(&key).is_none_or(|open| open.number != number) {
                continue;
            }
            if self.open.len() <= self.most && self.queue.len() < 2 * self.most - 1 {
                self.queue.push_front((number, key));
                return;
            }
            self.joined.evicted += 1;
            self.end(key, each);
            return;
        }
    }

    fn end(&mut self, (flow, id): (u32, u64), each: &mut dyn FnMut(&Passage)) {
        let Some(Open { size, stamps, .. }) = self.open.remove(&(flow, id)) else { return };
        self.joined.packets += 1;
        if self.points.iter().any(|point| stamps.get(*point).is_none()) {
            self.joined.incomplete += 1;
        }
        each(&Passage { flow, id, size, fate: Fate::Seen, stamps });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [Point; 2] = [Point::PreRouting, Point::PostRouting];

    fn stamp(id: u64, point: Point, at: i64) -> Stamp {
        Stamp { flow: 0, id, size: 100, point, at: Instant::from_nanos(at) }
    }

    fn join(most: usize, stamps: &[Stamp]) -> (Join, Vec<Passage>) {
        let mut join = Join::new(&POINTS, Nanos(1_000), most);
        let mut passages = Vec::new();
        stamps.iter().for_each(|stamp| join.take(stamp, &mut |passage| passages.push(*passage)));
        (join, passages)
    }

    #[test]
    fn a_packet_is_whole_when_every_point_has_told_of_it_in_whatever_order() {
        let (join, passages) = join(
            8,
            &[
                stamp(1, Point::PreRouting, 10),
                stamp(2, Point::PostRouting, 40),
                stamp(1, Point::PostRouting, 30),
                stamp(2, Point::PreRouting, 20),
            ],
        );
        assert_eq!(passages.iter().map(|p| p.id).collect::<Vec<_>>(), [1, 2]);
        let delay = |p: &Passage| p.stamps.between(Point::PreRouting, Point::PostRouting);
        assert!(passages.iter().all(|p| delay(p) == Some(Nanos(20))));
        assert_eq!(join.joined(), Joined { packets: 2, ..Joined::default() });
    }

    #[test]
    fn a_packet_that_a_point_never_tells_of_goes_incomplete_after_a_time() {
        let (mut join, mut passages) =
            join(8, &[stamp(1, Point::PreRouting, 10), stamp(2, Point::PreRouting, 500)]);
        let mut take = |passage: &Passage| passages.push(*passage);
        join.expire(Instant::from_nanos(1_009), &mut take);
        assert_eq!(join.joined().packets, 0);
        join.expire(Instant::from_nanos(1_010), &mut take);
        assert_eq!(join.joined(), Joined { packets: 1, incomplete: 1, ..Joined::default() });
        join.finish(&mut take);
        assert_eq!(join.joined().incomplete, 2);
        assert_eq!(passages.iter().map(|p| p.id).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_flood_of_packets_without_an_end_pushes_out_the_oldest() {
        let stamps: Vec<_> = (0..100).map(|id| stamp(id, Point::PreRouting, id as i64)).collect();
        let (join, passages) = join(8, &stamps);
        assert_eq!(passages.iter().map(|p| p.id).collect::<Vec<_>>(), (0..92).collect::<Vec<_>>());
        assert_eq!(join.joined().evicted, 92);
        assert!(join.queue.len() <= 16 && join.open.len() <= 8);
    }

    #[test]
    fn one_packet_that_stays_open_among_many_that_pass_neither_holds_memory_nor_loses_them() {
        let mut stamps = vec![stamp(u64::MAX, Point::PreRouting, 0)];
        for id in 0..1_000 {
            stamps.push(stamp(id, Point::PreRouting, 1));
            stamps.push(stamp(id, Point::PostRouting, 2));
        }
        let (join, passages) = join(8, &stamps);
        assert!(join.queue.len() <= 16, "{}", join.queue.len());
        assert_eq!(passages.iter().filter(|p| p.stamps.iter().count() == 2).count(), 1_000);
    }

    #[test]
    fn an_id_that_comes_again_after_its_packet_was_whole_is_another_packet() {
        let once = [stamp(1, Point::PreRouting, 10), stamp(1, Point::PostRouting, 20)];
        let (join_twice, passages) = join(8, &[once, once].concat());
        assert_eq!((passages.len(), join_twice.joined().repeated), (2, 0));
        let (join_repeated, _) =
            join(8, &[stamp(1, Point::PreRouting, 10), stamp(1, Point::PreRouting, 20)]);
        assert_eq!(join_repeated.joined().repeated, 1);
    }
}
