//! One-way path of a packet: from its sender through a node to its receiver. The end-to-end delay
//! is computed from the timestamps of both ends. Tests verify that its components add up to it
//! (`docs/anatomy.md`; Miya 2020, S0.3).

use dwell_sample::{Point, PointStamps};
use dwell_units::{Instant, Nanos, Realtime};

use crate::delay_component::DelayComponent;

/// Timestamps of one packet at every machine of its path, each on the machine's own clock. Machines
/// may share a clock: see [`Leg::machines`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneWayPath {
    /// At the sender.
    pub sender: PointStamps,
    /// At the relaying node; empty without a node.
    pub node: PointStamps,
    /// At the receiver; empty if the packet did not arrive.
    pub receiver: PointStamps,
}

impl OneWayPath {
    /// Timestamps at a machine.
    pub const fn at(&self, machine: Machine) -> &PointStamps {
        match machine {
            Machine::Sender => &self.sender,
            Machine::Node => &self.node,
            Machine::Receiver => &self.receiver,
        }
    }

    /// Timestamps at a machine, to be changed.
    pub const fn at_mut(&mut self, machine: Machine) -> &mut PointStamps {
        match machine {
            Machine::Sender => &mut self.sender,
            Machine::Node => &mut self.node,
            Machine::Receiver => &mut self.receiver,
        }
    }
}

dwell_units::named! {
    /// A machine of a one-way path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Machine {
        /// The first.
        Sender = "sender",
        /// Between the others.
        Node = "node",
        /// The last.
        Receiver = "receiver",
    }
}

dwell_units::named! {
    /// Component of the one-way delay outside the node, or the whole delay.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Leg {
        /// `tx_app` of the sender to `rx_app` of the receiver.
        EndToEnd = "end_to_end_ns",
        /// In the sender's stack: `tx_app` to the start of the link.
        SenderOut = "sender_out_ns",
        /// From the sender to the node; includes the sender's queueing discipline if that emulates
        /// the link.
        LinkIn = "link_in_ns",
        /// From the node to the receiver. With a relaying program it starts after the node's
        /// queueing discipline, which is a separate component.
        LinkOut = "link_out_ns",
        /// Sum of all links, as in Miya 2020 (S0.15): both links, including the node's queueing
        /// discipline if that emulates the link, or the only link without a node.
        LinkDelay = "link_delay_ns",
        /// In the receiver's socket and until the program wakes up: end of the link to `rx_app`.
        ReceiverIn = "receiver_in_ns",
    }
}

/// Timestamps at which links begin and end: the deepest ones available in a trial, the same for all
/// its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEndpoints {
    /// Start of the sender's link.
    pub sender: Point,
    /// Start and end of the node; `None` without a node, or if no pair of timestamps is complete.
    pub node: Option<DelayComponent>,
    /// End of the receiver's link.
    pub receiver: Point,
    /// Whether the path has a node: a packet has a timestamp there, or the caller states it.
    has_node: bool,
    /// Whether queueing disciplines emulate links: see [`LinkEndpoints::with_queue_as_link`].
    queue_is_link: bool,
    /// Start of the link from the node: after its queueing discipline, if that has a timestamp.
    link_out_start: Point,
}

impl LinkEndpoints {
    /// Determines the endpoints from the timestamps available in any of these paths.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a OneWayPath>) -> Self {
        Self::from_paths(paths, false)
    }

    /// Like [`LinkEndpoints::of`], for links emulated by the sending machine's queueing discipline:
    /// waiting there counts as link delay, not as delay of the sender or node (`docs/anatomy.md`).
    pub fn with_queue_as_link<'a>(paths: impl IntoIterator<Item = &'a OneWayPath>) -> Self {
        Self::from_paths(paths, true)
    }

    fn from_paths<'a>(
        paths: impl IntoIterator<Item = &'a OneWayPath>,
        queue_is_link: bool,
    ) -> Self {
        let [mut sender, mut node, mut receiver] = [0_u32; 3];
        let points = |stamps: &PointStamps| {
            stamps.iter().fold(0, |bits, (point, _)| bits | 1_u32 << point as u32)
        };
        for path in paths {
            sender |= points(&path.sender);
            node |= points(&path.node);
            receiver |= points(&path.receiver);
        }
        let has = |bits: u32, point: Point| bits & 1 << point as u32 != 0;
        let candidates = [
            DelayComponent::NodeDelay,
            DelayComponent::NodeDelayDriver,
            DelayComponent::NodeDelayNetfilter,
        ];
        let both = |component: &DelayComponent| {
            let (from, to) = ends(*component, queue_is_link);
            has(node, from) && has(node, to)
        };
        let or = |bits, preferred, other| if has(bits, preferred) { preferred } else { other };
        let sent = if queue_is_link { Point::TxSched } else { Point::TxKernel };
        let component = candidates.into_iter().find(both);
        let link_out_start = match component.map(|component| ends(component, queue_is_link).1) {
            Some(Point::TxSched) => or(node, Point::TxKernel, Point::TxSched),
            Some(other) => other,
            None => Point::TxKernel,
        };
        Self {
            sender: or(sender, sent, Point::TxApp),
            node: component,
            receiver: or(receiver, Point::RxKernel, Point::RxApp),
            has_node: node != 0,
            queue_is_link,
            link_out_start,
        }
    }

    /// First and last timestamp of the node delay; `None` without a node delay.
    pub fn node_ends(&self) -> Option<(Point, Point)> {
        self.node.map(|component| ends(component, self.queue_is_link))
    }

    /// Delay of a packet in a component of the node; `None` unless both timestamps exist.
    pub fn delay_in(&self, component: DelayComponent, stamps: &PointStamps) -> Option<Nanos> {
        let (from, to) = ends(component, self.queue_is_link);
        stamps.between(from, to)
    }

    /// Declares that the path has a node even if no packet has a timestamp there. The time between
    /// both ends then contains more than links, so the link delay is unavailable.
    #[must_use]
    pub fn through_a_node(self) -> Self {
        Self { has_node: true, ..self }
    }

    /// Components that sum to [`Leg::EndToEnd`] for every packet with all their timestamps, in
    /// packet order.
    pub fn sum(&self) -> Vec<PathComponent> {
        let mut all = vec![PathComponent::Leg(Leg::SenderOut)];
        match self.node {
            Some(node) => {
                all.push(PathComponent::Leg(Leg::LinkIn));
                match node {
                    DelayComponent::NodeDelay => {
                        let queue = self.link_out_start == Point::TxKernel;
                        let components = DelayComponent::OF_NODE_DELAY
                            .into_iter()
                            .filter(|component| queue || *component != DelayComponent::Qdisc);
                        all.extend(components.map(PathComponent::Component));
                    }
                    other => all.push(PathComponent::Component(other)),
                }
                all.push(PathComponent::Leg(Leg::LinkOut));
            }
            None => all.push(PathComponent::Leg(Leg::LinkDelay)),
        }
        all.push(PathComponent::Leg(Leg::ReceiverIn));
        all
    }
}

/// First and last timestamp of a component. A node ends before a queueing discipline that emulates
/// a link.
const fn ends(component: DelayComponent, queue_is_link: bool) -> (Point, Point) {
    match component {
        DelayComponent::NodeDelay if queue_is_link => (Point::RxKernel, Point::TxSched),
        other => other.ends(),
    }
}

/// Component of the one-way delay, outside or inside a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathComponent {
    /// Outside a node.
    Leg(Leg),
    /// Inside a node.
    Component(DelayComponent),
}

impl Leg {
    /// Machines at which the leg begins and ends. The leg is a delay only if the clocks of both are
    /// related. The clock of the node cancels out of [`Leg::LinkDelay`].
    pub const fn machines(self) -> (Machine, Machine) {
        match self {
            Self::EndToEnd | Self::LinkDelay => (Machine::Sender, Machine::Receiver),
            Self::SenderOut => (Machine::Sender, Machine::Sender),
            Self::LinkIn => (Machine::Sender, Machine::Node),
            Self::LinkOut => (Machine::Node, Machine::Receiver),
            Self::ReceiverIn => (Machine::Receiver, Machine::Receiver),
        }
    }

    /// Timestamp at which the leg begins, on the clock of its first machine; `None` without one.
    pub fn start(self, path: &OneWayPath, endpoints: &LinkEndpoints) -> Option<Instant<Realtime>> {
        match self {
            Self::EndToEnd | Self::SenderOut => path.sender.get(Point::TxApp),
            Self::LinkIn | Self::LinkDelay => path.sender.get(endpoints.sender),
            Self::LinkOut => path.node.get(endpoints.link_out_start),
            Self::ReceiverIn => path.receiver.get(endpoints.receiver),
        }
    }

    /// Delay of this packet in the leg; `None` unless all timestamps exist.
    pub fn of(self, path: &OneWayPath, endpoints: &LinkEndpoints) -> Option<Nanos> {
        let (sender, receiver) =
            (path.sender.get(endpoints.sender), path.receiver.get(endpoints.receiver));
        let node = endpoints.node_ends();
        match self {
            Self::EndToEnd => {
                Some(path.receiver.get(Point::RxApp)? - path.sender.get(Point::TxApp)?)
            }
            Self::SenderOut => path.sender.between(Point::TxApp, endpoints.sender),
            Self::LinkIn => Some(path.node.get(node?.0)? - sender?),
            Self::LinkOut => {
                node?;
                Some(receiver? - path.node.get(endpoints.link_out_start)?)
            }
            Self::LinkDelay if endpoints.has_node => {
                let link_in = Self::LinkIn.of(path, endpoints)?;
                let link_out = receiver? - path.node.get(node?.1)?;
                Some(Nanos(link_in.0 + link_out.0))
            }
            Self::LinkDelay => Some(receiver? - sender?),
            Self::ReceiverIn => path.receiver.between(endpoints.receiver, Point::RxApp),
        }
    }
}

impl PathComponent {
    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leg(leg) => leg.name(),
            Self::Component(component) => component.name(),
        }
    }

    /// Delay of this packet in the component; `None` unless all timestamps exist.
    pub fn of(self, path: &OneWayPath, endpoints: &LinkEndpoints) -> Option<Nanos> {
        match self {
            Self::Leg(leg) => leg.of(path, endpoints),
            Self::Component(component) => endpoints.delay_in(component, &path.node),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stamps(all: &[(Point, i64)]) -> PointStamps {
        let mut stamps = PointStamps::default();
        all.iter().for_each(|(point, at)| stamps.set(*point, Instant::from_nanos(*at)));
        stamps
    }

    /// A packet with these times between successive timestamps.
    fn relayed(steps: &[i64; 9]) -> OneWayPath {
        let mut at = 1_000_000;
        let mut next = |step: i64| {
            at += step;
            at
        };
        let sender = stamps(&[(Point::TxApp, next(0)), (Point::TxKernel, next(steps[0]))]);
        let node = stamps(&[
            (Point::RxKernel, next(steps[1])),
            (Point::PreRouting, next(steps[2])),
            (Point::RxApp, next(steps[3])),
            (Point::TxApp, next(steps[4])),
            (Point::TxSched, next(steps[5])),
            (Point::TxKernel, next(steps[6])),
        ]);
        let receiver = stamps(&[(Point::RxKernel, next(steps[7])), (Point::RxApp, next(steps[8]))]);
        OneWayPath { sender, node, receiver }
    }

    proptest! {
        #[test]
        fn components_sum_to_the_end_to_end_delay(
            steps in proptest::array::uniform9(-50_i64..1_000_000),
        ) {
            let path = relayed(&steps);
            let endpoints = LinkEndpoints::of([&path]);
            prop_assert_eq!(endpoints.node, Some(DelayComponent::NodeDelay));
            let sum: i64 = endpoints.sum().iter().map(|component| component.of(&path, &endpoints).unwrap().0).sum();
            prop_assert_eq!(Leg::EndToEnd.of(&path, &endpoints), Some(Nanos(sum)));
            prop_assert_eq!(sum, steps.iter().sum::<i64>());
        }

        #[test]
        fn leg_depends_only_on_the_clocks_of_its_machines(
            steps in proptest::array::uniform9(-50_i64..1_000_000),
            shift in 1_i64..1_000_000_000,
        ) {
            let path = relayed(&steps);
            let endpoints = LinkEndpoints::of([&path]);
            for machine in Machine::ALL {
                let mut shifted = path;
                let mut stamps = PointStamps::default();
                path.at(machine).iter().for_each(|(point, at)| stamps.set(point, at + Nanos(shift)));
                *shifted.at_mut(machine) = stamps;
                for leg in Leg::ALL {
                    let (first, last) = leg.machines();
                    let delay = leg.of(&path, &endpoints).unwrap();
                    let lead = i64::from(last == machine) - i64::from(first == machine);
                    let expected = delay + Nanos(lead * shift);
                    prop_assert_eq!(leg.of(&shifted, &endpoints), Some(expected), "{:?}", leg);
                }
            }
        }

        #[test]
        fn missing_stamp_removes_components_but_not_the_total(
            gone in 2_usize..8,
        ) {
            let whole = relayed(&[10; 9]);
            let mut path = whole;
            path.node = PointStamps::default();
            let kept = whole.node.iter().enumerate().filter(|(n, _)| n + 2 != gone);
            kept.for_each(|(_, (point, at))| path.node.set(point, at));
            let endpoints = LinkEndpoints::of([&whole, &path]);
            prop_assert_eq!(Leg::EndToEnd.of(&path, &endpoints), Some(Nanos(90)));
            let absent = endpoints.sum().iter().filter(|component| component.of(&path, &endpoints).is_none()).count();
            // The second node timestamp is netfilter's, which no component of this source uses.
            prop_assert_eq!(absent, if gone == 3 { 0 } else { 2 });
        }
    }

    #[test]
    fn routed_packet_has_links_and_no_program_components() {
        let path = OneWayPath {
            sender: stamps(&[(Point::TxApp, 0), (Point::TxKernel, 5)]),
            node: stamps(&[(Point::PreRouting, 25), (Point::PostRouting, 32)]),
            receiver: stamps(&[(Point::RxKernel, 60), (Point::RxApp, 71)]),
        };
        let endpoints = LinkEndpoints::of([&path]);
        assert_eq!(endpoints.node, Some(DelayComponent::NodeDelayNetfilter));
        let delays: Vec<_> =
            endpoints.sum().iter().map(|s| s.of(&path, &endpoints).unwrap().0).collect();
        assert_eq!(delays, [5, 20, 7, 28, 11]);
        assert_eq!(Leg::LinkDelay.of(&path, &endpoints), Some(Nanos(48)));
        assert_eq!(DelayComponent::Processing.of(&path.node), None);
    }

    #[test]
    fn wait_in_link_queue_counts_as_link_delay() {
        let path = OneWayPath {
            sender: stamps(&[(Point::TxApp, 0), (Point::TxSched, 3), (Point::TxKernel, 7_690_003)]),
            node: stamps(&[
                (Point::RxKernel, 7_690_010),
                (Point::RxApp, 7_690_020),
                (Point::TxApp, 7_690_040),
                (Point::TxSched, 7_690_046),
                (Point::TxKernel, 7_811_046),
            ]),
            receiver: stamps(&[(Point::RxKernel, 7_811_054), (Point::RxApp, 7_811_060)]),
        };
        let plain = LinkEndpoints::of([&path]);
        assert_eq!(plain.delay_in(DelayComponent::NodeDelay, &path.node), Some(Nanos(121_036)));
        assert_eq!(Leg::LinkDelay.of(&path, &plain), Some(Nanos(15)));
        let endpoints = LinkEndpoints::with_queue_as_link([&path]);
        assert_eq!(endpoints.delay_in(DelayComponent::NodeDelay, &path.node), Some(Nanos(36)));
        assert_eq!(endpoints.delay_in(DelayComponent::Qdisc, &path.node), Some(Nanos(121_000)));
        assert_eq!(Leg::SenderOut.of(&path, &endpoints), Some(Nanos(3)));
        assert_eq!(Leg::LinkIn.of(&path, &endpoints), Some(Nanos(7_690_007)));
        assert_eq!(Leg::LinkDelay.of(&path, &endpoints), Some(Nanos(7_690_007 + 121_008)));
        for endpoints in [plain, endpoints] {
            let sum: i64 = endpoints.sum().iter().map(|s| s.of(&path, &endpoints).unwrap().0).sum();
            assert_eq!(sum, 7_811_060, "{endpoints:?}");
        }
        // Without a timestamp after the queue, the queue is part of the link.
        let mut without_last = path;
        without_last.node = PointStamps::default();
        path.node.iter().take(4).for_each(|(point, at)| without_last.node.set(point, at));
        let endpoints = LinkEndpoints::with_queue_as_link([&without_last]);
        assert_eq!(Leg::LinkOut.of(&without_last, &endpoints), Some(Nanos(121_008)));
        let sum: i64 =
            endpoints.sum().iter().map(|s| s.of(&without_last, &endpoints).unwrap().0).sum();
        assert_eq!(sum, 7_811_060);
    }

    #[test]
    fn path_without_node_timestamps_has_no_link_delay() {
        let direct = OneWayPath {
            sender: stamps(&[(Point::TxApp, 0)]),
            node: PointStamps::default(),
            receiver: stamps(&[(Point::RxApp, 40)]),
        };
        let endpoints = LinkEndpoints::of([&direct]);
        assert_eq!(Leg::LinkDelay.of(&direct, &endpoints), Some(Nanos(40)));
        assert_eq!(Leg::LinkIn.of(&direct, &endpoints), None);
        let half = OneWayPath { node: stamps(&[(Point::PreRouting, 10)]), ..direct };
        assert_eq!(Leg::LinkDelay.of(&half, &LinkEndpoints::of([&half])), None);
        let endpoints = endpoints.through_a_node();
        assert_eq!(
            Leg::LinkDelay.of(&direct, &endpoints),
            None,
            "a node without timestamps leaves no link delay"
        );
        assert_eq!(Leg::EndToEnd.of(&direct, &endpoints), Some(Nanos(40)));
    }
}
