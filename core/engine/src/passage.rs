//! A packet's way through a machine: every point at which it was stamped there, and none at which
//! it was not. Senders, relays, traces and receivers all tell of packets so, and what they tell of
//! the same packet is joined by its flow and id.

use dwell_units::{Instant, Nanos, Realtime};

/// A point at which a packet is stamped, on the clock of packet stamps. In packet order: in, through
/// and out again; a machine at an end of the way has only some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Point {
    /// XDP, in the receiving driver.
    RxDriver,
    /// The kernel's software stamp on entry to the stack.
    RxKernel,
    /// tcx ingress.
    RxTcx,
    /// Netfilter PRE_ROUTING.
    PreRouting,
    /// The program, right after its receive call.
    RxApp,
    /// The program, right before its send call.
    TxApp,
    /// Netfilter POST_ROUTING.
    PostRouting,
    /// The kernel's software stamp before the queueing discipline.
    TxSched,
    /// tcx egress, before the queueing discipline too.
    TxTcx,
    /// The kernel's software stamp at the sending driver.
    TxKernel,
    /// The program, right after its send call. On a virtual link the far end may have received
    /// the packet before this.
    TxAppDone,
}

impl Point {
    /// Every point, in packet order.
    pub const ALL: [Self; 11] = [
        Self::RxDriver,
        Self::RxKernel,
        Self::RxTcx,
        Self::PreRouting,
        Self::RxApp,
        Self::TxApp,
        Self::PostRouting,
        Self::TxSched,
        Self::TxTcx,
        Self::TxKernel,
        Self::TxAppDone,
    ];

    /// The name, as DESIGN's table of words has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RxDriver => "rx_driver",
            Self::RxKernel => "rx_kernel",
            Self::RxTcx => "rx_tcx",
            Self::PreRouting => "pre_routing",
            Self::RxApp => "rx_app",
            Self::TxApp => "tx_app",
            Self::PostRouting => "post_routing",
            Self::TxSched => "tx_sched",
            Self::TxTcx => "tx_tcx",
            Self::TxKernel => "tx_kernel",
            Self::TxAppDone => "tx_app_done",
        }
    }

    /// The point of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }
}

/// The stamps of one packet on one machine. Half the size that options would take: passages are
/// copied from thread to thread by the hundred thousand a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointStamps {
    /// A bit for each point that was stamped.
    present: u16,
    /// Nanoseconds since the epoch of CLOCK_REALTIME; 0 where there is no stamp.
    at: [i64; Point::ALL.len()],
}

impl PointStamps {
    /// The stamp of this point, if it came.
    pub fn get(&self, point: Point) -> Option<Instant<Realtime>> {
        let stamped = self.present & 1 << point as u16 != 0;
        stamped.then(|| Instant::from_nanos(self.at[point as usize]))
    }

    /// Notes a stamp. A point keeps the first stamp that it got: a packet passes once.
    pub fn set(&mut self, point: Point, at: Instant<Realtime>) {
        if self.present & 1 << point as u16 == 0 {
            self.present |= 1 << point as u16;
            self.at[point as usize] = at.as_nanos();
        }
    }

    /// From one point to another; `None` unless both were stamped.
    pub fn between(&self, from: Point, to: Point) -> Option<Nanos> {
        Some(self.get(to)? - self.get(from)?)
    }

    /// The points that were stamped, in packet order.
    pub fn iter(&self) -> impl Iterator<Item = (Point, Instant<Realtime>)> + '_ {
        Point::ALL.into_iter().filter_map(|point| Some((point, self.get(point)?)))
    }

    /// Takes what another observer of the same machine saw, where nothing was known yet.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(point, at)| self.set(point, at));
    }
}

/// What became of a packet at this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fate {
    /// It was sent, or sent on.
    Sent,
    /// It arrived at its receiver.
    Received,
    /// It was received and not sent on.
    Dropped,
    /// It was seen passing, at some points or all.
    Seen,
}

impl Fate {
    /// Every fate, in the order of its number in binary formats.
    pub const ALL: [Self; 4] = [Self::Sent, Self::Received, Self::Dropped, Self::Seen];
}

/// One packet at one machine. Small and `Copy`, because a timing thread hands it over through a
/// ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its flow: a number of the machine's own flow table. Ids mean nothing without it, for every
    /// flow counts from the same number.
    pub flow: u32,
    /// Its id in the flow, as the packet's own header or else the order of sending tells it.
    pub id: u64,
    /// Bytes of payload, as it was received; as it was sent, where the machine is the sender.
    pub size: u16,
    /// What became of it.
    pub fate: Fate,
    /// Its stamps.
    pub stamps: PointStamps,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_stands_at_its_own_number_and_is_found_by_its_name() {
        for (number, point) in Point::ALL.into_iter().enumerate() {
            assert_eq!(point as usize, number);
            assert_eq!(Point::named(point.name()), Some(point));
        }
        assert_eq!(Point::named("tx"), None);
    }

    #[test]
    fn a_delay_needs_both_of_its_stamps_and_a_stamp_is_never_moved() {
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
