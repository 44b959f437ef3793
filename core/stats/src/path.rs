//! Delays of the relays on a way, as in-band telemetry brings them back.

use dwell_engine::stamps::Hop;

use crate::distribution::{Distribution, Figures};

/// Most places that figures are kept of; what relays say beyond is counted only.
const MOST: usize = 64;

/// Where on the way something was said: a way may change, and every relay then has its own figures
/// for each place that it was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// On the way back.
    pub back: bool,
    /// Which relay on this way, from 1.
    pub number: u32,
    /// The relay's own number.
    pub node: u32,
}

/// Figures of one relay at one place.
#[derive(Clone, Debug)]
pub struct PlaceFigures {
    /// Where.
    pub place: Place,
    /// From its first stamp until `tx_app`.
    pub node_delay: Figures,
    /// `rx_kernel` to `rx_app`; nothing where the relay has no kernel stamps.
    pub queueing_in: Figures,
    /// `rx_app` to `tx_app`
    pub processing: Figures,
}

#[derive(Clone, Debug, Default)]
struct Delays {
    node_delay: Distribution,
    queueing_in: Distribution,
    processing: Distribution,
}

/// Streaming figures of all relays that said anything. Memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct PathDelays {
    places: Vec<(Place, Delays)>,
    replies: u64,
    empty: u64,
    beyond: u64,
}

impl PathDelays {
    /// Takes in what a reply brought back.
    pub fn record(&mut self, hops: &[Hop]) {
        self.replies += 1;
        self.empty += u64::from(hops.is_empty());
        let mut numbers = [0, 0];
        for hop in hops {
            let number = &mut numbers[usize::from(hop.back)];
            *number += 1;
            let place = Place { back: hop.back, number: *number, node: hop.node };
            let Some(delays) = self.at(place) else {
                self.beyond += 1;
                continue;
            };
            delays.node_delay.record(hop.node_delay());
            delays.processing.record(hop.processing);
            if let Some(queueing_in) = hop.queueing_in {
                delays.queueing_in.record(queueing_in);
            }
        }
    }

    fn at(&mut self, place: Place) -> Option<&mut Delays> {
        let found = self.places.iter().position(|(known, _)| *known == place);
        let found = found.or_else(|| {
            (self.places.len() < MOST).then(|| {
                self.places.push((place, Delays::default()));
                self.places.len() - 1
            })
        })?;
        Some(&mut self.places[found].1)
    }

    /// Replies taken in.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Of those, the ones in which no relay had written anything.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// Slots of more places than figures are kept of.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// The figures, in the order of the way there and back.
    pub fn figures(&self) -> Vec<PlaceFigures> {
        let mut all: Vec<_> = self
            .places
            .iter()
            .map(|(place, delays)| PlaceFigures {
                place: *place,
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
    fn every_relay_has_figures_of_its_own_in_the_order_of_the_way() {
        let mut path = PathDelays::default();
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
            .map(|it| (it.place.back, it.place.number, it.place.node, it.node_delay.min.unwrap().0))
            .collect();
        let expected = [(false, 1, 7, 150), (false, 2, 9, 160), (true, 1, 9, 70), (true, 2, 7, 80)];
        assert_eq!(seen, expected);
        assert_eq!((path.replies(), path.empty()), (11, 1));
        assert_eq!(figures[2].queueing_in.count, 0, "absent rather than zero");
    }

    #[test]
    fn a_flood_of_node_numbers_takes_bounded_memory() {
        let mut path = PathDelays::default();
        (0..1_000).for_each(|node| path.record(&[hop(node, false, 1)]));
        assert_eq!((path.figures().len(), path.beyond()), (MOST, 1_000 - MOST as u64));
    }
}
