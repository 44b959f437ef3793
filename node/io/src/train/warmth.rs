//! Makes packets that are sent after a pause about as punctual as others: see [`crate::warmth`]. What
//! that leaves cold is the device's driver: the first two or three packets of a train were off by one to three
//! microseconds, so that others lead it ([`super::Numbers`]).

use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};

use super::Course;
use super::cost::Cost;
use crate::clock::monotonic;
use crate::pacer::Manner;
use crate::port::StampRequest;
use crate::warmth;

/// From so long before a departure on, datagrams are sent to ourselves, by a socket that is not the
/// train's, among whose stamps theirs would wait,
const EARLY: Nanos = Nanos::from_micros(300);

/// this often: what one of them fetched, whoever shares the caches with this processor soon pushes out. Where
/// they were shared with strangers, gaps of 240 us were 200 to 350 ns off (the median) with a datagram 300 and
/// one 100 us before, and 60 to 90 ns with all of these. More of them, or others closer to the departure,
/// were no better.
const EVERY: Nanos = Nanos::from_micros(20);

/// The last one goes so long before the departure,
const LAST: Nanos = Nanos::from_micros(12);

/// but none so shortly before, nor when one takes a good part of what is left ([`Cost`]),
const QUIET: Nanos = Nanos::from_micros(6);

/// nor so soon after the departure before, which has warmed the way better than they do: their way ends on
/// this machine. Of gaps of 46 us, where one more was sent 12 us after a departure, the median error was 102
/// instead of 78 ns in a busy hour.
const FRESH: Nanos = Nanos::from_micros(15);

/// In a gap that is too short for that, one goes in its middle, which is at least so long before the departure.
/// Where the caches were shared with strangers, gaps of 16 us were off by 77 ns (the median) without and by 57 with
/// it (C: 63).
const MIDDLE: Nanos = Nanos::from_micros(8);

/// A packet is handed over ahead where no less than this is left.
const HANDING: Nanos = Nanos(2_500);

/// What a departure finds in the caches.
pub(super) struct Warmth {
    sink: Option<warmth::Warmth>,
    cost: Cost,
    /// Packets are handed over ahead,
    held: bool,
    /// which costs this, as the datagrams before a train's first packet tell, to which it happens too.
    handing: Cost,
}

impl Warmth {
    /// For trains by the socket whose address is `local`, with the stamps that it asks for. Where nothing can
    /// be had that it can send to, nothing is warmed.
    pub(super) fn new(local: SocketAddr, stamps: StampRequest) -> Self {
        let sink = warmth::Warmth::at(local).ok().map(|sink| sink.one_way(stamps));
        Self { sink, cost: Cost::new(QUIET), held: false, handing: Cost::new(HANDING) }
    }

    /// The same for packets that are handed over ahead.
    pub(super) fn held(self) -> Self {
        Self { held: true, ..self }
    }

    /// Another train begins.
    pub(super) fn begin(&mut self) {
        self.cost.begin();
        self.handing.begin();
    }

    /// Whether so much is left that a packet can be handed over ahead. Never before it is known what that costs: a
    /// train's own packets are not to pay for finding out.
    pub(super) fn has_time_to_hand_over(&self, left: Nanos) -> bool {
        self.handing.is_known() && self.handing.fits(left)
    }

    /// Gets ready for the departure at `due`, which is waited for in this manner, as far as there is time.
    /// `knock` does what the engine can do of its own to warm its path.
    pub(super) fn before(
        &mut self,
        due: Instant<Monotonic>,
        manner: Manner,
        course: &Course<'_>,
        memory: &[u8],
        mut knock: impl FnMut(),
    ) {
        let Some(sink) = &self.sink else { return };
        // By when the one before was due, not by what sending it took: that is longer in busy hours, when this
        // matters most.
        let gap = due - course.before().unwrap_or_else(monotonic);
        for ahead in steps(gap) {
            if due - monotonic() < ahead {
                continue;
            }
            let Some(begun) = course.wait(manner, due - ahead) else { return };
            if !self.cost.fits(due - begun) {
                return;
            }
            // Of those within a train, gaps were no better: it takes longer.
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

/// How long before a departure they are sent that follows another, or nothing, by `gap`.
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
