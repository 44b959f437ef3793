//! Makes packets that are sent after a pause about as punctual as others: see [`crate::warmth`]. What
//! that leaves cold is the device's driver: the first two or three packets of a train were off by one to three
//! microseconds, so that others lead it ([`super::Numbers`]).

use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};

use super::Course;
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

/// but none so shortly before, nor when the one before it took a good part of what is left,
const QUIET: Nanos = Nanos::from_micros(6);
const MARGIN: i64 = 2;

/// nor so soon after the departure before, which has warmed the way better than they do: their way ends on
/// this machine. Of gaps of 46 us, where one more was sent 12 us after a departure, the median error was 70
/// instead of 32 ns (C: 20), and 28 instead of 18 in a calmer hour.
const FRESH: Nanos = Nanos::from_micros(15);

/// What a departure finds in the caches.
pub(super) struct Warmth {
    sink: Option<warmth::Warmth>,
}

impl Warmth {
    /// For trains by the socket whose address is `local`, with the stamps that it asks for. Where nothing can
    /// be had that it can send to, nothing is warmed.
    pub(super) fn new(local: SocketAddr, stamps: StampRequest) -> Self {
        Self { sink: warmth::Warmth::at(local).ok().map(|sink| sink.stamped(stamps)) }
    }

    /// Gets ready for the departure at `due`, which is waited for in this manner, as far as there is time.
    /// `knock` does what the engine can do of its own to warm its path.
    pub(super) fn before(
        &self,
        due: Instant<Monotonic>,
        manner: Manner,
        course: &Course<'_>,
        memory: &[u8],
        mut knock: impl FnMut(),
    ) {
        let Some(sink) = &self.sink else { return };
        let mut took = Nanos::ZERO;
        for ahead in steps(due - monotonic()) {
            if due - monotonic() < ahead {
                continue;
            }
            let Some(begun) = course.wait(manner, due - ahead) else { return };
            if due - begun < QUIET.max(Nanos(took.0 * MARGIN)) {
                return;
            }
            sink.pass(memory);
            knock();
            took = monotonic() - begun;
        }
    }
}

/// How long before a departure they are sent, where it is so long until then.
fn steps(room: Nanos) -> impl Iterator<Item = Nanos> {
    let times = (EARLY - LAST).0 / EVERY.0;
    let steps = (0..=times).rev().map(|n| Nanos(LAST.0 + n * EVERY.0));
    steps.skip_while(move |ahead| *ahead + FRESH > room)
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
        // Of gaps of 92, 46, 32 and 16 us, with what sending takes.
        assert_eq!(micros(90), [72, 52, 32, 12]);
        assert_eq!([micros(44), micros(30)], [[12], [12]]);
        assert!(micros(14).is_empty());
        assert!(micros(-5).is_empty());
    }

    fn micros(room: i64) -> Vec<i64> {
        steps(Nanos::from_micros(room)).map(|step| step.0 / 1_000).collect()
    }
}
