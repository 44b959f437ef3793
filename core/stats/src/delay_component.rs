//! Components of a packet's delay at one machine (`docs/anatomy.md`), and their figures.

use dwell_sample::{Point, PointStamps};
use dwell_units::Nanos;

use crate::distribution::{Distribution, Figures};

dwell_units::named! {
    /// Component of the delay at one machine: the time between two timestamps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum DelayComponent {
        /// Between kernel timestamps: `rx_kernel` to `tx_kernel`.
        NodeDelay = "node_delay_ns",
        /// Between netfilter hooks: `pre_routing` to `post_routing`. The only one available on a
        /// machine that routes in the kernel; relay modes are compared with it.
        NodeDelayNetfilter = "node_delay_netfilter_ns",
        /// Between drivers: `rx_driver` to `tx_tcx`.
        NodeDelayDriver = "node_delay_driver_ns",
        /// In the socket buffer and until the program wakes up: `rx_kernel` to `rx_app`.
        QueueingIn = "queueing_in_ns",
        /// In the relaying program: `rx_app` to `tx_app`.
        Processing = "processing_ns",
        /// As defined by Miya 2020, including the send call: `rx_app` to `tx_app_done`. Overlaps
        /// other components and is not part of any sum.
        ProcessingWithSend = "processing_s0_ns",
        /// From the send call to the queueing discipline: `tx_app` to `tx_sched`.
        QueueingOut = "queueing_out_ns",
        /// From the queueing discipline to the driver: `tx_sched` to `tx_kernel`.
        Qdisc = "qdisc_ns",
    }
}

impl DelayComponent {
    /// Components of [`DelayComponent::NodeDelay`] in packet order; they sum to it by definition.
    pub const OF_NODE_DELAY: [Self; 4] =
        [Self::QueueingIn, Self::Processing, Self::QueueingOut, Self::Qdisc];

    /// First and last timestamp of the component.
    pub const fn ends(self) -> (Point, Point) {
        match self {
            Self::NodeDelay => (Point::RxKernel, Point::TxKernel),
            Self::NodeDelayNetfilter => (Point::PreRouting, Point::PostRouting),
            Self::NodeDelayDriver => (Point::RxDriver, Point::TxTcx),
            Self::QueueingIn => (Point::RxKernel, Point::RxApp),
            Self::Processing => (Point::RxApp, Point::TxApp),
            Self::ProcessingWithSend => (Point::RxApp, Point::TxAppDone),
            Self::QueueingOut => (Point::TxApp, Point::TxSched),
            Self::Qdisc => (Point::TxSched, Point::TxKernel),
        }
    }

    /// Delay of this packet in the component; `None` unless both timestamps exist.
    pub fn of(self, stamps: &PointStamps) -> Option<Nanos> {
        let (from, to) = self.ends();
        stamps.between(from, to)
    }
}

/// Figures of every component over packets that passed one machine, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct ComponentFigures {
    packets: u64,
    stamped: [u64; Point::ALL.len()],
    distributions: [Distribution; DelayComponent::ALL.len()],
}

impl ComponentFigures {
    /// Adds a packet with any set of timestamps.
    pub fn record(&mut self, stamps: &PointStamps) {
        self.packets += 1;
        for (point, _) in stamps.iter() {
            self.stamped[point as usize] += 1;
        }
        for (component, distribution) in
            DelayComponent::ALL.into_iter().zip(&mut self.distributions)
        {
            if let Some(delay) = component.of(stamps) {
                distribution.record(delay);
            }
        }
    }

    /// Number of packets added.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of packets without this timestamp. `None` if no packet has it: the timestamp is then
    /// unavailable, not missing.
    pub fn missing(&self, point: Point) -> Option<u64> {
        let stamped = self.stamped[point as usize];
        (stamped > 0).then(|| self.packets - stamped)
    }

    /// Figures of every component that occurs, in the order of results.
    pub fn figures(&self) -> impl Iterator<Item = (DelayComponent, Figures)> + '_ {
        DelayComponent::ALL
            .into_iter()
            .zip(&self.distributions)
            .filter(|(_, distribution)| distribution.count() > 0)
            .map(|(component, distribution)| (component, distribution.figures()))
    }

    /// Distribution of one component.
    pub fn distribution(&self, component: DelayComponent) -> &Distribution {
        &self.distributions[component as usize]
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
    fn components_of_a_relayed_packet_sum_to_its_node_delay() {
        let whole = stamps(&[
            (Point::RxKernel, 100),
            (Point::RxApp, 130),
            (Point::TxApp, 190),
            (Point::TxSched, 200),
            (Point::TxKernel, 260),
            (Point::TxAppDone, 270),
        ]);
        let sum: i64 = DelayComponent::OF_NODE_DELAY
            .iter()
            .map(|component| component.of(&whole).unwrap().0)
            .sum();
        assert_eq!(Some(Nanos(sum)), DelayComponent::NodeDelay.of(&whole));
        assert_eq!(DelayComponent::ProcessingWithSend.of(&whole), Some(Nanos(140)));
    }

    #[test]
    fn routed_packet_has_no_program_components() {
        let mut components = ComponentFigures::default();
        components.record(&stamps(&[(Point::PreRouting, 5), (Point::PostRouting, 25)]));
        let figures: Vec<_> = components.figures().collect();
        assert_eq!(figures.len(), 1);
        assert_eq!(
            (figures[0].0, figures[0].1.min),
            (DelayComponent::NodeDelayNetfilter, Some(Nanos(20)))
        );
        assert_eq!(components.missing(Point::RxApp), None);
    }

    #[test]
    fn missing_timestamps_are_counted_per_point() {
        let mut components = ComponentFigures::default();
        components.record(&stamps(&[(Point::RxKernel, 5), (Point::RxApp, 6)]));
        components.record(&stamps(&[(Point::RxApp, 9)]));
        assert_eq!(
            (components.missing(Point::RxKernel), components.missing(Point::RxApp)),
            (Some(1), Some(0))
        );
        assert_eq!(components.packets(), 2);
    }
}
