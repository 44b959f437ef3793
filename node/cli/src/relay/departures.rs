//! Sent packets that wait for their transmit timestamps. Each is claimed once, by its socket and
//! the key of its send call. Bounded: packets that wait too long, or whose slot a newer packet
//! needs, are released with the timestamps they have.

use std::collections::VecDeque;

use dwell_sample::{PacketObservation, Point, TxStamp};
use dwell_units::{Instant, Monotonic, Nanos};

/// Maximum number of waiting packets, a power of two.
const MAX_WAITING: usize = 1 << 12;

/// Time after which a timestamp is given up: no transmit queue holds a packet that long.
const STAMP_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Packets that wait for transmit timestamps.
pub(super) struct Departures {
    slots: Vec<Option<Waiting>>,
    /// Slots in send order; some have been claimed since.
    order: VecDeque<(u32, StampKey)>,
    waiting: usize,
}

/// Identifies a packet: token of its socket, and the kernel's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StampKey {
    socket: u64,
    key: u32,
}

struct Waiting {
    stamp_key: StampKey,
    since: Instant<Monotonic>,
    observation: PacketObservation,
}

impl StampKey {
    /// Consecutive keys of one socket map to consecutive slots.
    fn slot(self) -> usize {
        let spread = self.socket.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (spread as usize).wrapping_add(self.key as usize) % MAX_WAITING
    }
}

impl Departures {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..MAX_WAITING).map(|_| None).collect(),
            order: VecDeque::with_capacity(2 * MAX_WAITING),
            waiting: 0,
        }
    }

    /// Whether any packet waits for timestamps.
    pub(super) fn are_awaited(&self) -> bool {
        self.waiting > 0
    }

    /// Adds a packet sent on `socket` with this key. Calls `released` with each packet that it
    /// displaces.
    pub(super) fn note(
        &mut self,
        socket: u64,
        key: u32,
        observation: PacketObservation,
        now: Instant<Monotonic>,
        released: &mut impl FnMut(PacketObservation),
    ) {
        let stamp_key = StampKey { socket, key };
        let slot = stamp_key.slot();
        if let Some(before) = self.slots[slot].take() {
            self.waiting -= 1;
            released(before.observation);
        }
        while let Some(stamp_key) = self.order.front().map(|(_, stamp_key)| *stamp_key)
            && (self.order.len() == self.order.capacity() || !self.waits(stamp_key))
        {
            self.order.pop_front();
            self.release(stamp_key, released);
        }
        self.slots[slot] = Some(Waiting { stamp_key, since: now, observation });
        self.order.push_back((slot as u32, stamp_key));
        self.waiting += 1;
    }

    /// Adds a timestamp. Calls `released` with the packet if no other timestamp is missing.
    pub(super) fn stamp(
        &mut self,
        socket: u64,
        key: u32,
        stamp: TxStamp,
        released: &mut impl FnMut(PacketObservation),
    ) {
        let stamp_key = StampKey { socket, key };
        let slot = &mut self.slots[stamp_key.slot()];
        let Some(waiting) = slot.as_mut().filter(|waiting| waiting.stamp_key == stamp_key) else {
            return;
        };
        match stamp {
            TxStamp::Sched(at) => waiting.observation.stamps.set(Point::TxSched, at),
            TxStamp::Kernel(at) => waiting.observation.stamps.set(Point::TxKernel, at),
            // Hardware timestamps are in another clock domain.
            TxStamp::Hw(_) => return,
        }
        let stamps = &waiting.observation.stamps;
        if stamps.get(Point::TxSched).is_some() && stamps.get(Point::TxKernel).is_some() {
            self.release(stamp_key, released);
        }
    }

    /// Releases packets that have waited for `STAMP_TIMEOUT` at `now`.
    pub(super) fn overdue(
        &mut self,
        now: Instant<Monotonic>,
        released: &mut impl FnMut(PacketObservation),
    ) {
        while let Some((slot, stamp_key)) = self.order.front().copied() {
            let waiting = self.slots[slot as usize].as_ref().filter(|w| w.stamp_key == stamp_key);
            if waiting.is_some_and(|waiting| now - waiting.since < STAMP_TIMEOUT) {
                return;
            }
            self.order.pop_front();
            self.release(stamp_key, released);
        }
    }

    fn waits(&self, stamp_key: StampKey) -> bool {
        self.slots[stamp_key.slot()].as_ref().is_some_and(|waiting| waiting.stamp_key == stamp_key)
    }

    fn release(&mut self, stamp_key: StampKey, released: &mut impl FnMut(PacketObservation)) {
        if let Some(waiting) =
            self.slots[stamp_key.slot()].take_if(|waiting| waiting.stamp_key == stamp_key)
        {
            self.waiting -= 1;
            released(waiting.observation);
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_sample::{PacketOutcome, PointStamps};
    use dwell_units::Realtime;

    use super::*;

    fn observation(id: u64) -> PacketObservation {
        PacketObservation {
            flow: 0,
            id,
            size: 100,
            outcome: PacketOutcome::Sent,
            stamps: PointStamps::default(),
        }
    }

    fn at(n: i64) -> Instant<Monotonic> {
        Instant::from_nanos(n)
    }

    fn real(n: i64) -> Instant<Realtime> {
        Instant::from_nanos(n)
    }

    #[test]
    fn stamps_are_matched_by_socket_and_key() {
        let mut departures = Departures::new();
        let mut released = Vec::new();
        departures.note(1, 5, observation(50), at(0), &mut |p| released.push(p));
        departures.note(2, 5, observation(60), at(0), &mut |p| released.push(p));
        departures.stamp(1, 5, TxStamp::Sched(real(1)), &mut |p| released.push(p));
        departures.stamp(3, 5, TxStamp::Kernel(real(2)), &mut |p| released.push(p));
        assert!(released.is_empty());
        departures.stamp(1, 5, TxStamp::Kernel(real(3)), &mut |p| released.push(p));
        assert_eq!((released.len(), released[0].id), (1, 50));
        let between = released[0].stamps.between(Point::TxSched, Point::TxKernel);
        assert_eq!(between, Some(Nanos(2)));
        departures.stamp(1, 5, TxStamp::Kernel(real(9)), &mut |p| released.push(p));
        assert_eq!(released.len(), 1, "a stamp is claimed once");
    }

    #[test]
    fn departure_without_stamps_is_released_after_timeout() {
        let mut departures = Departures::new();
        let mut released = Vec::new();
        for n in 0..10 {
            departures.note(1, n, observation(n.into()), at(n.into()), &mut |p| released.push(p));
        }
        departures.stamp(1, 3, TxStamp::Sched(real(1)), &mut |p| released.push(p));
        departures.overdue(at(4) + STAMP_TIMEOUT, &mut |p| released.push(p));
        assert_eq!(released.iter().map(|p| p.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(departures.are_awaited());
        departures.overdue(at(100) + STAMP_TIMEOUT, &mut |p| released.push(p));
        assert!(released.len() == 10 && !departures.are_awaited());
    }

    #[test]
    fn each_departure_is_released_once_and_waiting_is_bounded() {
        let mut departures = Departures::new();
        let mut released = Vec::new();
        let sent = 5 * MAX_WAITING as u64;
        for n in 0..sent {
            let (socket, key) = (n % 7, (n / 7) as u32);
            departures
                .note(socket, key, observation(n), at(n as i64), &mut |p| released.push(p.id));
            if n % 3 == 0 {
                departures
                    .stamp(socket, key, TxStamp::Sched(real(1)), &mut |p| released.push(p.id));
                departures
                    .stamp(socket, key, TxStamp::Kernel(real(2)), &mut |p| released.push(p.id));
            }
            assert!(departures.waiting <= MAX_WAITING);
        }
        assert!(departures.order.capacity() <= 4 * MAX_WAITING);
        departures.overdue(at(sent as i64) + STAMP_TIMEOUT, &mut |p| released.push(p.id));
        released.sort_unstable();
        assert_eq!(released, (0..sent).collect::<Vec<_>>());
    }
}
