//! Sent packets of a flow that wait for kernel timestamps.

use dwell_sample::{PacketObservation, Point, TxStamp};

/// Bounded window of packets by error queue key. A packet leaves when its last timestamp arrives or
/// a newer packet needs its slot.
pub(super) struct UnstampedPackets {
    /// Indexed by key modulo the length, a power of two.
    slots: Box<[Slot]>,
    waiting: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    key: u32,
    observation: Option<PacketObservation>,
}

impl UnstampedPackets {
    /// Creates a window of `len` packets, rounded up to a power of two.
    pub(super) fn new(len: usize) -> Self {
        let empty = Slot { key: 0, observation: None };
        Self { slots: vec![empty; len.next_power_of_two()].into(), waiting: 0 }
    }

    /// Returns the number of waiting packets.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a packet; returns the packet it displaces.
    pub(super) fn push(
        &mut self,
        key: u32,
        observation: PacketObservation,
    ) -> Option<PacketObservation> {
        let slot = self.slot(key);
        let before = slot.observation.replace(observation);
        slot.key = key;
        self.waiting += usize::from(before.is_none());
        before
    }

    /// Adds a timestamp; returns the packet if it was the last one missing.
    pub(super) fn stamp(&mut self, key: u32, stamp: TxStamp) -> Option<PacketObservation> {
        let slot = self.slot(key);
        let observation = slot.observation.as_mut().filter(|_| slot.key == key)?;
        match stamp {
            TxStamp::Sched(at) => observation.stamps.set(Point::TxSched, at),
            TxStamp::Kernel(at) => observation.stamps.set(Point::TxKernel, at),
            TxStamp::Hw(_) => {}
        }
        observation.stamps.get(Point::TxKernel)?;
        let complete = slot.observation.take();
        self.waiting -= 1;
        complete
    }

    /// Hands out all waiting packets without their missing timestamps.
    pub(super) fn give_up(&mut self, mut each: impl FnMut(PacketObservation)) {
        let left = self.slots.iter_mut().filter_map(|slot| slot.observation.take());
        left.for_each(&mut each);
        self.waiting = 0;
    }

    fn slot(&mut self, key: u32) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[key as usize & mask]
    }
}

#[cfg(test)]
mod tests {
    use dwell_sample::{PacketOutcome, PointStamps};
    use dwell_units::Instant;

    use super::*;

    fn packet(id: u64) -> PacketObservation {
        let stamps = PointStamps::default();
        PacketObservation { flow: 0, id, size: 100, outcome: PacketOutcome::Sent, stamps }
    }

    fn kernel(at: i64) -> TxStamp {
        TxStamp::Kernel(Instant::from_nanos(at))
    }

    #[test]
    fn unstamped_packet_gets_stamps_of_its_key_once() {
        let mut unstamped = UnstampedPackets::new(4);
        for key in 0..3 {
            assert_eq!(unstamped.push(key, packet(u64::from(key) + 1)), None);
        }
        assert_eq!(unstamped.stamp(1, TxStamp::Sched(Instant::from_nanos(5))), None);
        let complete = unstamped.stamp(1, kernel(9)).unwrap();
        assert_eq!(complete.id, 2);
        assert_eq!(complete.stamps.between(Point::TxSched, Point::TxKernel).unwrap().0, 4);
        assert_eq!(unstamped.stamp(1, kernel(9)), None, "it was handed out");
        assert_eq!(unstamped.stamp(5, kernel(9)), None, "another packet's key");
        assert_eq!(unstamped.waiting(), 2);
    }

    #[test]
    fn unstamped_packet_is_released_without_stamps() {
        let mut unstamped = UnstampedPackets::new(2);
        unstamped.push(0, packet(1));
        unstamped.push(1, packet(2));
        assert_eq!(unstamped.push(2, packet(3)).unwrap().id, 1);
        let mut left = Vec::new();
        unstamped.give_up(|observation| left.push(observation.id));
        assert_eq!(left, [3, 2]);
        assert_eq!(unstamped.waiting(), 0);
    }
}
