//! Sent packets that wait for their transmit timestamps. Each is claimed once, by its socket and
//! the key of its send call. Bounded: packets that wait too long, or whose slot a newer packet
//! needs, are released with the timestamps they have.

use std::collections::VecDeque;

use dwell_engine::observation::{PacketObservation, Point};
use dwell_engine::stamps::TxStamp;
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
    name: StampKey,
    since: Instant<Monotonic>,
    passage: PacketObservation,
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

    /// Adds a packet sent on `socket` with this key. `told` gets the packets displaced by it.
    pub(super) fn note(
        &mut self,
        socket: u64,
        key: u32,
        passage: PacketObservation,
        now: Instant<Monotonic>,
        told: &mut impl FnMut(PacketObservation),
    ) {
        let name = StampKey { socket, key };
        let slot = name.slot();
        if let Some(before) = self.slots[slot].take() {
            self.waiting -= 1;
            told(before.passage);
        }
        while let Some(name) = self.order.front().map(|(_, name)| *name)
            && (self.order.len() == self.order.capacity() || !self.waits(name))
        {
            self.order.pop_front();
            self.release(name, told);
        }
        self.slots[slot] = Some(Waiting { name, since: now, passage });
        self.order.push_back((slot as u32, name));
        self.waiting += 1;
    }

    /// Adds a timestamp. `told` gets the packet if no other timestamp is missing.
    pub(super) fn stamp(
        &mut self,
        socket: u64,
        key: u32,
        stamp: TxStamp,
        told: &mut impl FnMut(PacketObservation),
    ) {
        let name = StampKey { socket, key };
        let slot = &mut self.slots[name.slot()];
        let Some(waiting) = slot.as_mut().filter(|waiting| waiting.name == name) else { return };
        match stamp {
            TxStamp::Sched(at) => waiting.passage.stamps.set(Point::TxSched, at),
            TxStamp::Kernel(at) => waiting.passage.stamps.set(Point::TxKernel, at),
            // Hardware timestamps are in another clock domain.
            TxStamp::Hw(_) => return,
        }
        let stamps = &waiting.passage.stamps;
        if stamps.get(Point::TxSched).is_some() && stamps.get(Point::TxKernel).is_some() {
            self.release(name, told);
        }
    }

    /// Releases packets that have waited for `STAMP_TIMEOUT` at `now`.
    pub(super) fn overdue(
        &mut self,
        now: Instant<Monotonic>,
        told: &mut impl FnMut(PacketObservation),
    ) {
        while let Some((slot, name)) = self.order.front().copied() {
            let waiting = self.slots[slot as usize].as_ref().filter(|w| w.name == name);
            if waiting.is_some_and(|waiting| now - waiting.since < STAMP_TIMEOUT) {
                return;
            }
            self.order.pop_front();
            self.release(name, told);
        }
    }

    fn waits(&self, name: StampKey) -> bool {
        self.slots[name.slot()].as_ref().is_some_and(|waiting| waiting.name == name)
    }

    fn release(&mut self, name: StampKey, told: &mut impl FnMut(PacketObservation)) {
        if let Some(waiting) = self.slots[name.slot()].take_if(|waiting| waiting.name == name) {
            self.waiting -= 1;
            told(waiting.passage);
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::observation::{PacketOutcome, PointStamps};
    use dwell_units::Realtime;

    use super::*;

    fn passage(id: u64) -> PacketObservation {
        PacketObservation {
            flow: 0,
            id,
            size: 100,
            fate: PacketOutcome::Sent,
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
        let mut told = Vec::new();
        departures.note(1, 5, passage(50), at(0), &mut |p| told.push(p));
        departures.note(2, 5, passage(60), at(0), &mut |p| told.push(p));
        departures.stamp(1, 5, TxStamp::Sched(real(1)), &mut |p| told.push(p));
        departures.stamp(3, 5, TxStamp::Kernel(real(2)), &mut |p| told.push(p));
        assert!(told.is_empty());
        departures.stamp(1, 5, TxStamp::Kernel(real(3)), &mut |p| told.push(p));
        assert_eq!((told.len(), told[0].id), (1, 50));
        let between = told[0].stamps.between(Point::TxSched, Point::TxKernel);
        assert_eq!(between, Some(Nanos(2)));
        departures.stamp(1, 5, TxStamp::Kernel(real(9)), &mut |p| told.push(p));
        assert_eq!(told.len(), 1, "a stamp is claimed once");
    }

    #[test]
    fn departure_without_stamps_is_released_after_timeout() {
        let mut departures = Departures::new();
        let mut told = Vec::new();
        for n in 0..10 {
            departures.note(1, n, passage(n.into()), at(n.into()), &mut |p| told.push(p));
        }
        departures.stamp(1, 3, TxStamp::Sched(real(1)), &mut |p| told.push(p));
        departures.overdue(at(4) + STAMP_TIMEOUT, &mut |p| told.push(p));
        assert_eq!(told.iter().map(|p| p.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(departures.are_awaited());
        departures.overdue(at(100) + STAMP_TIMEOUT, &mut |p| told.push(p));
        assert!(told.len() == 10 && !departures.are_awaited());
    }

    #[test]
    fn each_departure_is_released_once_and_waiting_is_bounded() {
        let mut departures = Departures::new();
        let mut told = Vec::new();
        let sent = 5 * MAX_WAITING as u64;
        for n in 0..sent {
            let (socket, key) = (n % 7, (n / 7) as u32);
            departures.note(socket, key, passage(n), at(n as i64), &mut |p| told.push(p.id));
            if n % 3 == 0 {
                departures.stamp(socket, key, TxStamp::Sched(real(1)), &mut |p| told.push(p.id));
                departures.stamp(socket, key, TxStamp::Kernel(real(2)), &mut |p| told.push(p.id));
            }
            assert!(departures.waiting <= MAX_WAITING);
        }
        assert!(departures.order.capacity() <= 4 * MAX_WAITING);
        departures.overdue(at(sent as i64) + STAMP_TIMEOUT, &mut |p| told.push(p.id));
        told.sort_unstable();
        assert_eq!(told, (0..sent).collect::<Vec<_>>());
    }
}
