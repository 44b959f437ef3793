//! The parts of a packet's delay at one machine (DESIGN section 1), and their figures.

use dwell_engine::passage::{Point, PointStamps};
use dwell_units::Nanos;

use crate::distribution::{Distribution, Figures};

/// A part of what a packet spent at one machine: from one stamp to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// First to last kernel stamp: `rx_kernel` to `tx_kernel`.
    NodeDelay,
    /// The same on netfilter's rung: `pre_routing` to `post_routing`. The only one that a machine
    /// has which routes in the kernel; modes of relaying are compared on this rung.
    NodeDelayNetfilter,
    /// The same on the drivers' rung: `rx_driver` to `tx_tcx`.
    NodeDelayDriver,
    /// In the socket's buffer, and waking up: `rx_kernel` to `rx_app`.
    QueueingIn,
    /// In the relaying program: `rx_app` to `tx_app`.
    Processing,
    /// As S0 stamped it, with the sending stack in it: `rx_app` to `tx_app_done`. Stands beside
    /// the others and is part of no sum.
    ProcessingS0,
    /// From the send call to the queueing discipline: `tx_app` to `tx_sched`.
    QueueingOut,
    /// In the queueing discipline, to the driver: `tx_sched` to `tx_kernel`.
    Qdisc,
}

impl Part {
    /// Every part, in the order of results.
    pub const ALL: [Self; 8] = [
        Self::NodeDelay,
        Self::NodeDelayNetfilter,
        Self::NodeDelayDriver,
        Self::QueueingIn,
        Self::Processing,
        Self::ProcessingS0,
        Self::QueueingOut,
        Self::Qdisc,
    ];

    /// Those that make up [`Part::NodeDelay`], in packet order: their sum is it, by definition.
    pub const OF_NODE_DELAY: [Self; 4] =
        [Self::QueueingIn, Self::Processing, Self::QueueingOut, Self::Qdisc];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeDelay => "node_delay_ns",
            Self::NodeDelayNetfilter => "node_delay_netfilter_ns",
            Self::NodeDelayDriver => "node_delay_driver_ns",
            Self::QueueingIn => "queueing_in_ns",
            Self::Processing => "processing_ns",
            Self::ProcessingS0 => "processing_s0_ns",
            Self::QueueingOut => "queueing_out_ns",
            Self::Qdisc => "qdisc_ns",
        }
    }

    /// Between which stamps it lies.
    pub const fn ends(self) -> (Point, Point) {
        match self {
            Self::NodeDelay => (Point::RxKernel, Point::TxKernel),
            Self::NodeDelayNetfilter => (Point::PreRouting, Point::PostRouting),
            Self::NodeDelayDriver => (Point::RxDriver, Point::TxTcx),
            Self::QueueingIn => (Point::RxKernel, Point::RxApp),
            Self::Processing => (Point::RxApp, Point::TxApp),
            Self::ProcessingS0 => (Point::RxApp, Point::TxAppDone),
            Self::QueueingOut => (Point::TxApp, Point::TxSched),
            Self::Qdisc => (Point::TxSched, Point::TxKernel),
        }
    }

    /// What this packet spent in it; `None` unless both stamps came.
    pub fn of(self, stamps: &PointStamps) -> Option<Nanos> {
        let (from, to) = self.ends();
        stamps.between(from, to)
    }
}

/// Figures of every part over packets that passed one machine. Memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    packets: u64,
    stamped: [u64; Point::ALL.len()],
    distributions: [Distribution; Part::ALL.len()],
}

impl Parts {
    /// Takes a packet in, whatever stamps it has.
    pub fn record(&mut self, stamps: &PointStamps) {
        self.packets += 1;
        for (point, _) in stamps.iter() {
            self.stamped[point as usize] += 1;
        }
        for (part, distribution) in Part::ALL.into_iter().zip(&mut self.distributions) {
            if let Some(delay) = part.of(stamps) {
                distribution.record(delay);
            }
        }
    }

    /// Packets taken in.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets without this stamp, though others have it; `None` when none has it: then it was not
    /// to be had, which is not a loss of stamps.
    pub fn missing(&self, point: Point) -> Option<u64> {
        let stamped = self.stamped[point as usize];
        (stamped > 0).then(|| self.packets - stamped)
    }

    /// The figures of every part that any packet has, in the order of results.
    pub fn figures(&self) -> impl Iterator<Item = (Part, Figures)> + '_ {
        Part::ALL
            .into_iter()
            .zip(&self.distributions)
            .filter(|(_, distribution)| distribution.count() > 0)
            .map(|(part, distribution)| (part, distribution.figures()))
    }

    /// The delays of one part.
    pub fn distribution(&self, part: Part) -> &Distribution {
        &self.distributions[part as usize]
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::Instant;

    use super::*;

    fn stamps(all: &[(Point, i64)]) -> PointStamps {
        let mut stamps = PointStamps::default();
        all.iter().for_each(|(point, at)| stamps.set(*point, Instant::from_nanos(*at)));
        stamps
    }

    #[test]
    fn the_parts_of_a_relayed_packet_sum_to_its_node_delay() {
        let whole = stamps(&[
            (Point::RxKernel, 100),
            (Point::RxApp, 130),
            (Point::TxApp, 190),
            (Point::TxSched, 200),
            (Point::TxKernel, 260),
            (Point::TxAppDone, 270),
        ]);
        let sum: i64 = Part::OF_NODE_DELAY.iter().map(|part| part.of(&whole).unwrap().0).sum();
        assert_eq!(Some(Nanos(sum)), Part::NodeDelay.of(&whole));
        assert_eq!(Part::ProcessingS0.of(&whole), Some(Nanos(140)));
    }

    #[test]
    fn a_routed_packet_has_no_parts_of_a_program_rather_than_parts_of_zero() {
        let mut parts = Parts::default();
        parts.record(&stamps(&[(Point::PreRouting, 5), (Point::PostRouting, 25)]));
        let figures: Vec<_> = parts.figures().collect();
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].0, figures[0].1.min), (Part::NodeDelayNetfilter, Some(Nanos(20))));
        assert_eq!(parts.missing(Point::RxApp), None);
    }

    #[test]
    fn a_stamp_that_some_packets_lack_is_counted() {
        let mut parts = Parts::default();
        parts.record(&stamps(&[(Point::RxKernel, 5), (Point::RxApp, 6)]));
        parts.record(&stamps(&[(Point::RxApp, 9)]));
        assert_eq!(
            (parts.missing(Point::RxKernel), parts.missing(Point::RxApp)),
            (Some(1), Some(0))
        );
        assert_eq!(parts.packets(), 2);
    }

    #[test]
    fn every_part_stands_at_its_own_number() {
        assert!(Part::ALL.into_iter().enumerate().all(|(n, part)| part as usize == n));
    }
}
