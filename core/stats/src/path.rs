//! Delays in the relays of a path, from in-band telemetry.

use dwell_sample::Hop;

use crate::distribution::{Distribution, Figures};

/// Maximum number of positions with figures; telemetry of further positions is only counted.
const MAX_POSITIONS: usize = 64;

/// Position of a relay on the path. A path may change; a relay then has separate figures for each
/// of its positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPosition {
    /// On the backward path.
    pub back: bool,
    /// Position on this direction of the path, from 1.
    pub number: u32,
    /// Node id of the relay.
    pub node: u32,
}

/// Figures of one relay at one position.
#[derive(Clone, Debug)]
pub struct PathPositionFigures {
    /// The position.
    pub place: PathPosition,
    /// `rx_kernel` to `tx_app`; empty if the relay has no kernel timestamps.
    pub node_delay: Figures,
    /// `rx_kernel` to `rx_app`; empty if the relay has no kernel timestamps.
    pub queueing_in: Figures,
    /// `rx_app` to `tx_app`.
    pub processing: Figures,
}

#[derive(Clone, Debug, Default)]
struct Delays {
    node_delay: Distribution,
    queueing_in: Distribution,
    processing: Distribution,
}

/// Streaming figures of all relays that filled telemetry slots, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct PathDelays {
    positions: Vec<(PathPosition, Delays)>,
    /// Number of telemetry slots per packet.
    slots: usize,
    replies: u64,
    empty: u64,
    cut: u64,
    beyond: u64,
}

impl PathDelays {
    /// Creates an empty record for packets with `slots` telemetry slots.
    pub fn of_slots(slots: usize) -> Self {
        Self { slots, ..Self::default() }
    }

    /// Adds the telemetry of a reply.
    pub fn record(&mut self, hops: &[Hop]) {
        self.replies += 1;
        let back = hops.iter().filter(|hop| hop.back).count();
        self.cut += u64::from(hops.len() >= self.slots && back < hops.len() - back);
        self.empty += u64::from(hops.is_empty());
        let mut numbers = [0, 0];
        for hop in hops {
            let number = &mut numbers[usize::from(hop.back)];
            *number += 1;
            let position = PathPosition { back: hop.back, number: *number, node: hop.node };
            let Some(delays) = self.at(position) else {
                self.beyond += 1;
                continue;
            };
            delays.processing.record(hop.processing);
            hop.node_delay().into_iter().for_each(|delay| delays.node_delay.record(delay));
            hop.queueing_in.into_iter().for_each(|delay| delays.queueing_in.record(delay));
        }
    }

    fn at(&mut self, position: PathPosition) -> Option<&mut Delays> {
        let found = self.positions.iter().position(|(known, _)| *known == position);
        let found = found.or_else(|| {
            (self.positions.len() < MAX_POSITIONS).then(|| {
                self.positions.push((position, Delays::default()));
                self.positions.len() - 1
            })
        })?;
        Some(&mut self.positions[found].1)
    }

    /// Number of replies added.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Number of replies with no filled slot.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// Number of replies whose slots ran out before the backward path had as many entries as the
    /// forward path.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Number of slots ignored because there were too many positions.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Figures by position: the forward path, then the backward path.
    pub fn figures(&self) -> Vec<PathPositionFigures> {
        let mut all: Vec<_> = self
            .positions
            .iter()
            .map(|(position, delays)| PathPositionFigures {
                place: *position,
                node_delay: delays.node_delay.figures(),
                queueing_in: delays.queueing_in.figures(),
                processing: delays.processing.figures(),
            })
            .collect();
        all.sort_by_key(|figures| figures.place);
        all
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::Nanos;

    use super::*;

    fn hop(node: u32, back: bool, processing: i64) -> Hop {
        let queueing_in = (!back).then_some(Nanos(100));
        Hop { node, back, queueing_in, processing: Nanos(processing) }
    }

    #[test]
    fn relay_figures_are_in_path_order() {
        let mut path = PathDelays::of_slots(4);
        for _ in 0..10 {
            path.record(&[
                hop(7, false, 50),
                hop(9, false, 60),
                hop(9, true, 70),
                hop(7, true, 80),
            ]);
        }
        path.record(&[]);
        let figures = path.figures();
        let seen: Vec<_> = figures
            .iter()
            .map(|it| (it.place.back, it.place.number, it.place.node, it.processing.min.unwrap().0))
            .collect();
        let expected = [(false, 1, 7, 50), (false, 2, 9, 60), (true, 1, 9, 70), (true, 2, 7, 80)];
        assert_eq!(seen, expected);
        assert_eq!((path.replies(), path.empty(), path.cut()), (11, 1, 0));
        assert_eq!(figures[2].queueing_in.count, 0, "absent rather than zero");
    }

    #[test]
    fn node_delay_without_a_kernel_timestamp_is_absent() {
        let mut path = PathDelays::of_slots(4);
        path.record(&[hop(7, false, 50), hop(7, true, 80)]);
        let one_without = Hop { queueing_in: None, ..hop(7, false, 5_000) };
        path.record(&[one_without, hop(7, true, 80)]);
        let [there, back] = &path.figures()[..] else { panic!("two positions") };
        assert_eq!((there.node_delay.count, there.node_delay.max), (1, Some(Nanos(150))));
        assert_eq!((there.processing.count, there.processing.max), (2, Some(Nanos(5_000))));
        assert_eq!((back.node_delay.count, back.processing.count), (0, 2));
    }

    #[test]
    fn replies_with_too_few_slots_are_counted_as_cut() {
        let mut path = PathDelays::of_slots(3);
        let hops = [hop(7, false, 1), hop(9, false, 1), hop(9, true, 1), hop(7, true, 1)];
        path.record(&hops[..3]);
        assert_eq!(path.cut(), 1);
        path.record(&hops[..2]);
        assert_eq!(path.cut(), 1, "a slot is left, so the telemetry is complete");
        let mut sufficient = PathDelays::of_slots(4);
        sufficient.record(&hops);
        assert_eq!(sufficient.cut(), 0);
    }

    #[test]
    fn flood_of_node_numbers_takes_bounded_memory() {
        let mut path = PathDelays::default();
        (0..1_000).for_each(|node| path.record(&[hop(node, false, 1)]));
        assert_eq!(
            (path.figures().len(), path.beyond()),
            (MAX_POSITIONS, 1_000 - MAX_POSITIONS as u64)
        );
    }
}
