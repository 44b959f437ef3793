//! The way of a packet that goes one way: from its sender, through a node, to its receiver. The
//! delay from end to end is taken from the stamps of both ends; that its parts sum to it is checked,
//! never assumed (DESIGN section 1, S0.3).

use dwell_engine::passage::{Point, PointStamps};
use dwell_units::Nanos;

use crate::part::Part;

/// The stamps of one packet at every machine of its way, all of one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Where it was sent.
    pub sender: PointStamps,
    /// At the node that sent it on; none at all where there is no such node.
    pub node: PointStamps,
    /// Where it arrived; none at all if it did not.
    pub receiver: PointStamps,
}

/// A part of the way outside the node, or the whole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// The sender's `tx_app` to the receiver's `rx_app`.
    EndToEnd,
    /// In the sender's stack: `tx_app` to where the link begins.
    SenderOut,
    /// From the sender to the node.
    LinkIn,
    /// From the node to the receiver.
    LinkOut,
    /// All links of the way: both, as S0 summed them (S0.15), or the only one where no node is
    /// between.
    LinkDelay,
    /// In the receiver's socket, and waking up: from where the link ends to `rx_app`.
    ReceiverIn,
}

/// At which stamps links begin and end: the deepest that a trial has, the same for all its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rungs {
    /// Where the sender's link begins.
    pub sender: Point,
    /// Where the node begins and ends; `None` where there is no node, or no rung with both.
    pub node: Option<Part>,
    /// Where the receiver's link ends.
    pub receiver: Point,
    /// Whether there is a node between: any packet was stamped at one, or the caller knows of it.
    between: bool,
}

impl Rungs {
    /// Those that any of these ways have.
    pub fn of<'a>(ways: impl IntoIterator<Item = &'a Way>) -> Self {
        let [mut sender, mut node, mut receiver] = [0_u32; 3];
        let points = |stamps: &PointStamps| {
            stamps.iter().fold(0, |bits, (point, _)| bits | 1_u32 << point as u32)
        };
        for way in ways {
            sender |= points(&way.sender);
            node |= points(&way.node);
            receiver |= points(&way.receiver);
        }
        let has = |bits: u32, point: Point| bits & 1 << point as u32 != 0;
        let rungs = [Part::NodeDelay, Part::NodeDelayDriver, Part::NodeDelayNetfilter];
        let both = |part: &Part| {
            let (from, to) = part.ends();
            has(node, from) && has(node, to)
        };
        let or = |bits, deep, app| if has(bits, deep) { deep } else { app };
        Self {
            sender: or(sender, Point::TxKernel, Point::TxApp),
            node: rungs.into_iter().find(both),
            receiver: or(receiver, Point::RxKernel, Point::RxApp),
            between: node != 0,
        }
    }

    /// The same, of ways that lead through a node even where no packet was stamped there: what lies
    /// between the ends is then more than links, and no link delay is to be had.
    #[must_use]
    pub fn through_a_node(self) -> Self {
        Self { between: true, ..self }
    }

    /// The parts of the way that sum to [`Leg::EndToEnd`] in every packet that has all their
    /// stamps, in packet order.
    pub fn sum(&self) -> Vec<Slice> {
        let mut slices = vec![Slice::Leg(Leg::SenderOut)];
        match self.node {
            Some(node) => {
                slices.push(Slice::Leg(Leg::LinkIn));
                match node {
                    Part::NodeDelay => slices.extend(Part::OF_NODE_DELAY.map(Slice::Part)),
                    other => slices.push(Slice::Part(other)),
                }
                slices.push(Slice::Leg(Leg::LinkOut));
            }
            None => slices.push(Slice::Leg(Leg::LinkDelay)),
        }
        slices.push(Slice::Leg(Leg::ReceiverIn));
        slices
    }
}

/// A part of a way, outside a node or inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Outside.
    Leg(Leg),
    /// Inside.
    Part(Part),
}

impl Leg {
    /// Every leg, in the order of results.
    pub const ALL: [Self; 6] = [
        Self::EndToEnd,
        Self::SenderOut,
        Self::LinkIn,
        Self::LinkOut,
        Self::LinkDelay,
        Self::ReceiverIn,
    ];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndToEnd => "end_to_end_ns",
            Self::SenderOut => "sender_out_ns",
            Self::LinkIn => "link_in_ns",
            Self::LinkOut => "link_out_ns",
            Self::LinkDelay => "link_delay_ns",
            Self::ReceiverIn => "receiver_in_ns",
        }
    }

    /// What this packet spent in it; `None` unless all its stamps came.
    pub fn of(self, way: &Way, rungs: &Rungs) -> Option<Nanos> {
        let (sender, receiver) = (way.sender.get(rungs.sender), way.receiver.get(rungs.receiver));
        let node = rungs.node.map(Part::ends);
        match self {
            Self::EndToEnd => Some(way.receiver.get(Point::RxApp)? - way.sender.get(Point::TxApp)?),
            Self::SenderOut => way.sender.between(Point::TxApp, rungs.sender),
            Self::LinkIn => Some(way.node.get(node?.0)? - sender?),
            Self::LinkOut => Some(receiver? - way.node.get(node?.1)?),
            Self::LinkDelay if rungs.between => {
                let (there, on) = (Self::LinkIn.of(way, rungs)?, Self::LinkOut.of(way, rungs)?);
                Some(Nanos(there.0 + on.0))
            }
            Self::LinkDelay => Some(receiver? - sender?),
            Self::ReceiverIn => way.receiver.between(rungs.receiver, Point::RxApp),
        }
    }
}

impl Slice {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leg(leg) => leg.name(),
            Self::Part(part) => part.name(),
        }
    }

    /// What this packet spent in it; `None` unless all its stamps came.
    pub fn of(self, way: &Way, rungs: &Rungs) -> Option<Nanos> {
        match self {
            Self::Leg(leg) => leg.of(way, rungs),
            Self::Part(part) => part.of(&way.node),
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::Instant;
    use proptest::prelude::*;

    use super::*;

    fn stamps(all: &[(Point, i64)]) -> PointStamps {
        let mut stamps = PointStamps::default();
        all.iter().for_each(|(point, at)| stamps.set(*point, Instant::from_nanos(*at)));
        stamps
    }

    /// A packet with these times between one stamp and the next.
    fn relayed(steps: &[i64; 9]) -> Way {
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
        Way { sender, node, receiver }
    }

    proptest! {
        #[test]
        fn the_parts_of_a_packet_with_all_stamps_sum_to_what_its_ends_say(
            steps in proptest::array::uniform9(-50_i64..1_000_000),
        ) {
            let way = relayed(&steps);
            let rungs = Rungs::of([&way]);
            prop_assert_eq!(rungs.node, Some(Part::NodeDelay));
            let sum: i64 = rungs.sum().iter().map(|slice| slice.of(&way, &rungs).unwrap().0).sum();
            prop_assert_eq!(Leg::EndToEnd.of(&way, &rungs), Some(Nanos(sum)));
            prop_assert_eq!(sum, steps.iter().sum::<i64>());
        }

        #[test]
        fn a_part_with_a_missing_stamp_is_absent_and_the_whole_is_not(
            gone in 2_usize..8,
        ) {
            let whole = relayed(&[10; 9]);
            let mut way = whole;
            way.node = PointStamps::default();
            let kept = whole.node.iter().enumerate().filter(|(n, _)| n + 2 != gone);
            kept.for_each(|(_, (point, at))| way.node.set(point, at));
            let rungs = Rungs::of([&whole, &way]);
            prop_assert_eq!(Leg::EndToEnd.of(&way, &rungs), Some(Nanos(90)));
            let absent = rungs.sum().iter().filter(|slice| slice.of(&way, &rungs).is_none()).count();
            // The second node stamp is netfilter's, which no part of this rung uses.
            prop_assert_eq!(absent, if gone == 3 { 0 } else { 2 });
        }
    }

    #[test]
    fn a_routed_packet_has_links_up_to_the_hooks_and_no_parts_of_a_program() {
        let way = Way {
            sender: stamps(&[(Point::TxApp, 0), (Point::TxKernel, 5)]),
            node: stamps(&[(Point::PreRouting, 25), (Point::PostRouting, 32)]),
            receiver: stamps(&[(Point::RxKernel, 60), (Point::RxApp, 71)]),
        };
        let rungs = Rungs::of([&way]);
        assert_eq!(rungs.node, Some(Part::NodeDelayNetfilter));
        let parts: Vec<_> = rungs.sum().iter().map(|s| s.of(&way, &rungs).unwrap().0).collect();
        assert_eq!(parts, [5, 20, 7, 28, 11]);
        assert_eq!(Leg::LinkDelay.of(&way, &rungs), Some(Nanos(48)));
        assert_eq!(Part::Processing.of(&way.node), None);
    }

    #[test]
    fn without_a_node_there_is_one_link_and_with_an_unstamped_one_none_is_made_up() {
        let direct = Way {
            sender: stamps(&[(Point::TxApp, 0)]),
            node: PointStamps::default(),
            receiver: stamps(&[(Point::RxApp, 40)]),
        };
        let rungs = Rungs::of([&direct]);
        assert_eq!(Leg::LinkDelay.of(&direct, &rungs), Some(Nanos(40)));
        assert_eq!(Leg::LinkIn.of(&direct, &rungs), None);
        let half = Way { node: stamps(&[(Point::PreRouting, 10)]), ..direct };
        assert_eq!(Leg::LinkDelay.of(&half, &Rungs::of([&half])), None);
        let rungs = rungs.through_a_node();
        assert_eq!(
            Leg::LinkDelay.of(&direct, &rungs),
            None,
            "a node is between that nobody stamped"
        );
        assert_eq!(Leg::EndToEnd.of(&direct, &rungs), Some(Nanos(40)));
    }
}
