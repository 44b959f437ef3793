//! Joins timestamps that several points of one machine report separately into one record per
//! packet. Memory is bounded.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_units::{Instant, Nanos, Realtime};

/// One timestamp of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointStamp {
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

/// Counters of [`StampJoiner`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinCounters {
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
pub struct StampJoiner {
    points: Vec<Point>,
    timeout: Nanos,
    max_pending: usize,
    open: HashMap<(u32, u64), Pending>,
    /// Number and key of pending packets in order of arrival. Entries of completed packets stay
    /// until removed; their number differs from that of a later packet with the same key.
    queue: VecDeque<(u64, (u32, u64))>,
    next: u64,
    joined: JoinCounters,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    since: Instant<Realtime>,
    size: u16,
    stamps: PointStamps,
}

impl StampJoiner {
    /// Creates a joiner. A packet is complete once each of `points` has reported it. It is
    /// delivered incomplete after `timeout`, or when it is the oldest of more than `max_pending`
    /// pending packets.
    pub fn new(points: &[Point], timeout: Nanos, max_pending: usize) -> Self {
        let max_pending = max_pending.max(1);
        Self {
            points: points.to_vec(),
            timeout,
            max_pending,
            open: HashMap::with_capacity(max_pending),
            queue: VecDeque::with_capacity(2 * max_pending),
            next: 0,
            joined: JoinCounters::default(),
        }
    }

    /// Adds a timestamp. Calls `each` for every packet that this completes or evicts.
    pub fn take(&mut self, stamp: &PointStamp, each: &mut dyn FnMut(&PacketObservation)) {
        let key = (stamp.flow, stamp.id);
        let number = self.next;
        let open = match self.open.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.next += 1;
                self.queue.push_back((number, key));
                let stamps = PointStamps::default();
                entry.insert(Pending { number, since: stamp.at, size: stamp.size, stamps })
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
        if self.open.len() > self.max_pending || self.queue.len() >= 2 * self.max_pending {
            self.evict(each);
        }
    }

    /// Delivers packets that have been pending for longer than the time-out.
    pub fn expire(&mut self, now: Instant<Realtime>, each: &mut dyn FnMut(&PacketObservation)) {
        while let Some((number, key)) = self.queue.front().copied() {
            match self.open.get(&key).filter(|open| open.number == number) {
                Some(open) if now - open.since < self.timeout => return,
                Some(_) => self.end(key, each),
                None => {}
            }
            self.queue.pop_front();
        }
    }

    /// Delivers all pending packets. Called when no more timestamps will arrive.
    pub fn finish(&mut self, each: &mut dyn FnMut(&PacketObservation)) {
        while let Some((number, key)) = self.queue.pop_front() {
            if self.open.get(&key).is_some_and(|open| open.number == number) {
                self.end(key, each);
            }
        }
    }

    /// Counters so far.
    pub fn joined(&self) -> JoinCounters {
        self.joined
    }

    /// Removes queue entries of completed packets up to the oldest pending one, which is evicted if
    /// too many are pending.
    fn evict(&mut self, each: &mut dyn FnMut(&PacketObservation)) {
        while let Some((number, key)) = self.queue.pop_front() {
            if self.open.get(&key).is_none_or(|open| open.number != number) {
                continue;
            }
            if self.open.len() <= self.max_pending && self.queue.len() < 2 * self.max_pending - 1 {
                self.queue.push_front((number, key));
                return;
            }
            self.joined.evicted += 1;
            self.end(key, each);
            return;
        }
    }

    fn end(&mut self, (flow, id): (u32, u64), each: &mut dyn FnMut(&PacketObservation)) {
        let Some(Pending { size, stamps, .. }) = self.open.remove(&(flow, id)) else { return };
        self.joined.packets += 1;
        if self.points.iter().any(|point| stamps.get(*point).is_none()) {
            self.joined.incomplete += 1;
        }
        each(&PacketObservation { flow, id, size, outcome: PacketOutcome::Observed, stamps });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [Point; 2] = [Point::PreRouting, Point::PostRouting];

    fn stamp(id: u64, point: Point, at: i64) -> PointStamp {
        PointStamp { flow: 0, id, size: 100, point, at: Instant::from_nanos(at) }
    }

    fn join(max_pending: usize, stamps: &[PointStamp]) -> (StampJoiner, Vec<PacketObservation>) {
        let mut join = StampJoiner::new(&POINTS, Nanos(1_000), max_pending);
        let mut observations = Vec::new();
        stamps
            .iter()
            .for_each(|stamp| join.take(stamp, &mut |observation| observations.push(*observation)));
        (join, observations)
    }

    #[test]
    fn packet_completes_when_every_point_reported_in_any_order() {
        let (join, observations) = join(
            8,
            &[
                stamp(1, Point::PreRouting, 10),
                stamp(2, Point::PostRouting, 40),
                stamp(1, Point::PostRouting, 30),
                stamp(2, Point::PreRouting, 20),
            ],
        );
        assert_eq!(observations.iter().map(|p| p.id).collect::<Vec<_>>(), [1, 2]);
        let delay = |p: &PacketObservation| p.stamps.between(Point::PreRouting, Point::PostRouting);
        assert!(observations.iter().all(|p| delay(p) == Some(Nanos(20))));
        assert_eq!(join.joined(), JoinCounters { packets: 2, ..JoinCounters::default() });
    }

    #[test]
    fn packet_missing_a_point_is_incomplete_after_time_out() {
        let (mut join, mut observations) =
            join(8, &[stamp(1, Point::PreRouting, 10), stamp(2, Point::PreRouting, 500)]);
        let mut take = |observation: &PacketObservation| observations.push(*observation);
        join.expire(Instant::from_nanos(1_009), &mut take);
        assert_eq!(join.joined().packets, 0);
        join.expire(Instant::from_nanos(1_010), &mut take);
        assert_eq!(
            join.joined(),
            JoinCounters { packets: 1, incomplete: 1, ..JoinCounters::default() }
        );
        join.finish(&mut take);
        assert_eq!(join.joined().incomplete, 2);
        assert_eq!(observations.iter().map(|p| p.id).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn flood_of_incomplete_packets_evicts_the_oldest() {
        let stamps: Vec<_> = (0..100).map(|id| stamp(id, Point::PreRouting, id as i64)).collect();
        let (join, observations) = join(8, &stamps);
        assert_eq!(
            observations.iter().map(|p| p.id).collect::<Vec<_>>(),
            (0..92).collect::<Vec<_>>()
        );
        assert_eq!(join.joined().evicted, 92);
        assert!(join.queue.len() <= 16 && join.open.len() <= 8);
    }

    #[test]
    fn pending_packet_does_not_block_completed_ones() {
        let mut stamps = vec![stamp(u64::MAX, Point::PreRouting, 0)];
        for id in 0..1_000 {
            stamps.push(stamp(id, Point::PreRouting, 1));
            stamps.push(stamp(id, Point::PostRouting, 2));
        }
        let (join, observations) = join(8, &stamps);
        assert!(join.queue.len() <= 16, "{}", join.queue.len());
        assert_eq!(observations.iter().filter(|p| p.stamps.iter().count() == 2).count(), 1_000);
    }

    #[test]
    fn reused_id_after_completion_is_a_new_packet() {
        let once = [stamp(1, Point::PreRouting, 10), stamp(1, Point::PostRouting, 20)];
        let (join_twice, observations) = join(8, &[once, once].concat());
        assert_eq!((observations.len(), join_twice.joined().repeated), (2, 0));
        let (join_repeated, _) =
            join(8, &[stamp(1, Point::PreRouting, 10), stamp(1, Point::PreRouting, 20)]);
        assert_eq!(join_repeated.joined().repeated, 1);
    }
}
