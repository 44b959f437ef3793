//! Makes packets after a pause about as punctual as others: see [`crate::warmth`]. The device's
//! driver stays cold: the first two or three packets of a train were off by 1 to 3 us, so lead-in
//! packets go first ([`super::Numbers`]).

use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};

use super::Course;
use super::cost::Cost;
use crate::clock::monotonic;
use crate::pacer::Manner;
use crate::port::StampRequest;
use crate::warmth;

/// Time before a departure from which on datagrams are sent to ourselves. They use a separate
/// socket, so that their timestamps do not mix with the train's.
const EARLY: Nanos = Nanos::from_micros(300);

/// Interval of these datagrams. Others who share the caches soon evict what one of them fetched.
/// Where caches were shared with strangers, the median error of gaps of 240 us was 200 to 350 ns
/// with one datagram 300 us and one 100 us before, and 60 to 90 ns with all of these. More
/// datagrams, or later ones, did not help.
const EVERY: Nanos = Nanos::from_micros(20);

/// Time before a departure at which the last datagram is sent.
const LAST: Nanos = Nanos::from_micros(12);

/// Minimum time left for a datagram, also if its cost ([`Cost`]) is lower.
const QUIET: Nanos = Nanos::from_micros(6);

/// Minimum time after the previous departure, which has warmed the path better than a datagram to
/// ourselves, whose path ends on this machine. In gaps of 46 us, one more datagram 12 us after a
/// departure raised the median error from 78 to 102 ns in a busy hour.
const FRESH: Nanos = Nanos::from_micros(15);

/// Minimum time before a departure for a datagram in the middle of a gap that is too short for the
/// schedule above. Where caches were shared with strangers, the median error of gaps of 16 us was
/// 77 ns without it and 57 ns with it (C: 63 ns).
const MIDDLE: Nanos = Nanos::from_micros(8);

/// Minimum time left for corking a packet.
const HANDING: Nanos = Nanos(2_500);

/// Warms the caches before departures.
pub(super) struct Warmth {
    sink: Option<warmth::Warmth>,
    cost: Cost,
    /// Packets are corked.
    held: bool,
    /// Cost of corking, learnt from the datagrams before a train's first packet, which are corked
    /// too.
    handing: Cost,
}

impl Warmth {
    /// Warms the path of the socket whose address is `local`, with the timestamps that it requests.
    /// Warms nothing if no socket can be opened.
    pub(super) fn new(local: SocketAddr, stamps: StampRequest) -> Self {
        let sink = warmth::Warmth::at(local).ok().map(|sink| sink.one_way(stamps));
        Self { sink, cost: Cost::new(QUIET), held: false, handing: Cost::new(HANDING) }
    }

    /// Enables corking of packets.
    pub(super) fn held(self) -> Self {
        Self { held: true, ..self }
    }

    /// Starts a new train.
    pub(super) fn begin(&mut self) {
        self.cost.begin();
        self.handing.begin();
    }

    /// Whether `left` is enough to cork a packet. Always `false` while the cost is unknown: a
    /// train's own packets must not pay for finding it out.
    pub(super) fn has_time_to_hand_over(&self, left: Nanos) -> bool {
        self.handing.is_known() && self.handing.fits(left)
    }

    /// Prepares the departure at `due`, as far as there is time, waiting as `manner` says. `knock`
    /// is the engine's own way of warming its path.
    pub(super) fn before(
        &mut self,
        due: Instant<Monotonic>,
        manner: Manner,
        course: &Course<'_>,
        memory: &[u8],
        mut knock: impl FnMut(),
    ) {
        let Some(sink) = &self.sink else { return };
        // Based on when the previous packet was due, not on how long sending it took: that is
        // longer in busy hours, when this matters most.
        let gap = due - course.before().unwrap_or_else(monotonic);
        for ahead in steps(gap) {
            if due - monotonic() < ahead {
                continue;
            }
            let Some(begun) = course.wait(manner, due - ahead) else { return };
            if !self.cost.fits(due - begun) {
                return;
            }
            // Corking within a train did not improve gaps, because it takes longer.
            if self.held && course.before().is_none() {
                sink.pass_held(memory).into_iter().for_each(|took| self.handing.learn(took));
            } else {
                sink.pass(memory);
            }
            knock();
            self.cost.learn(monotonic() - begun);
        }
    }
}

/// Returns how long before a departure datagrams are sent, if `gap` has passed since the previous
/// one.
fn steps(gap: Nanos) -> impl Iterator<Item = Nanos> {
    let times = (EARLY - LAST).0 / EVERY.0;
    let steps = (0..=times).rev().map(|n| Nanos(LAST.0 + n * EVERY.0));
    let half = Nanos(gap.0 / 2);
    let middle = (gap < LAST + FRESH && half >= MIDDLE).then_some(half);
    middle.into_iter().chain(steps.skip_while(move |ahead| *ahead + FRESH > gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_sent_from_early_on_and_the_last_shortly_before() {
        let steps = micros(10_000);
        assert_eq!((steps.len(), steps[0], steps[1], steps[14]), (15, 292, 272, 12));
    }

    #[test]
    fn none_is_sent_right_after_the_departure_before() {
        assert_eq!(micros(92), [72, 52, 32, 12]);
        assert_eq!([micros(46), micros(32), micros(27)], [[12], [12], [12]]);
    }

    #[test]
    fn in_short_gaps_one_is_sent_in_the_middle_and_none_in_the_shortest() {
        assert_eq!([micros(26), micros(16)], [[13], [8]]);
        assert!(micros(15).is_empty());
        assert!(micros(-5).is_empty());
    }

    fn micros(gap: i64) -> Vec<i64> {
        steps(Nanos::from_micros(gap)).map(|step| step.0 / 1_000).collect()
    }
}
