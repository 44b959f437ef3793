//! Observation of one packet by one machine: the points that timestamped it, and their timestamps.
//! Senders, relays, traces and receivers all report packets in this form. Observations of one
//! packet are joined by flow and id.

use dwell_units::{Instant, Nanos, Realtime};

dwell_units::named! {
    /// A point at which a packet is timestamped with CLOCK_REALTIME. Variants are in packet order:
    /// in, through and out. The first and the last machine on the path have only some of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Point {
        /// XDP, in the receiving driver.
        RxDriver = "rx_driver",
        /// The kernel's software timestamp on entry to the stack.
        RxKernel = "rx_kernel",
        /// tcx ingress.
        RxTcx = "rx_tcx",
        /// Netfilter PRE_ROUTING.
        PreRouting = "pre_routing",
        /// The program, directly after its receive call.
        RxApp = "rx_app",
        /// The program, directly before its send call.
        TxApp = "tx_app",
        /// Netfilter POST_ROUTING.
        PostRouting = "post_routing",
        /// The kernel's software timestamp before the queueing discipline.
        TxSched = "tx_sched",
        /// tcx egress, also before the queueing discipline.
        TxTcx = "tx_tcx",
        /// The kernel's software timestamp in the sending driver.
        TxKernel = "tx_kernel",
        /// The program, directly after its send call. On a virtual link the receiver may already
        /// have the packet.
        TxAppDone = "tx_app_done",
    }
}

/// Timestamps of one packet on one machine. Half the size of an array of options, because several
/// hundred thousand of them per second are copied between threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointStamps {
    /// Bit mask of the points with a timestamp.
    present: u16,
    /// Nanoseconds since the epoch of CLOCK_REALTIME; 0 without a timestamp.
    at: [i64; Point::ALL.len()],
}

impl PointStamps {
    /// Timestamp of `point`, if any.
    pub fn get(&self, point: Point) -> Option<Instant<Realtime>> {
        let stamped = self.present & 1 << point as u16 != 0;
        stamped.then(|| Instant::from_nanos(self.at[point as usize]))
    }

    /// Sets the timestamp of `point`. Keeps an existing one, because a packet passes a point once.
    pub fn set(&mut self, point: Point, at: Instant<Realtime>) {
        if self.present & 1 << point as u16 == 0 {
            self.present |= 1 << point as u16;
            self.at[point as usize] = at.as_nanos();
        }
    }

    /// Time between two points; `None` unless both have a timestamp.
    pub fn between(&self, from: Point, to: Point) -> Option<Nanos> {
        Some(self.get(to)? - self.get(from)?)
    }

    /// Iterates over the points with a timestamp, in packet order.
    pub fn iter(&self) -> impl Iterator<Item = (Point, Instant<Realtime>)> + '_ {
        Point::ALL.into_iter().filter_map(|point| Some((point, self.get(point)?)))
    }

    /// Adds the timestamps of `other`, another observer on the same machine, where this one has
    /// none.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(point, at)| self.set(point, at));
    }
}

/// Outcome of a packet on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketOutcome {
    /// Sent or forwarded.
    Sent,
    /// Received by its final receiver.
    Received,
    /// Received and not forwarded.
    Dropped,
    /// Observed in transit at one or more points.
    Observed,
}

impl PacketOutcome {
    /// All variants, in the order of their numbers in binary formats.
    pub const ALL: [Self; 4] = [Self::Sent, Self::Received, Self::Dropped, Self::Observed];
}

/// One packet on one machine. Small and `Copy`, because a timing thread passes it through a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketObservation {
    /// Index in the machine's flow table. Ids are unique only within a flow.
    pub flow: u32,
    /// Packet id in the flow: from the packet's header, or else its position in the flow.
    pub id: u64,
    /// Payload length in bytes, as received; as sent if this machine is the sender.
    pub size: u16,
    /// Outcome of the packet.
    pub outcome: PacketOutcome,
    /// Timestamps.
    pub stamps: PointStamps,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_needs_both_stamps_and_the_first_stamp_stays() {
        let mut stamps = PointStamps::default();
        stamps.set(Point::RxApp, Instant::from_nanos(100));
        assert_eq!(stamps.between(Point::RxApp, Point::TxApp), None);
        let mut other = PointStamps::default();
        other.set(Point::RxApp, Instant::from_nanos(7));
        other.set(Point::TxApp, Instant::from_nanos(350));
        stamps.merge(&other);
        assert_eq!(stamps.between(Point::RxApp, Point::TxApp), Some(Nanos(250)));
        assert_eq!(stamps.iter().count(), 2);
    }
}
