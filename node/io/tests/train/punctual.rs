//! Whether an engine is punctual, on a machine whose host may take its processors for milliseconds.

use dwell_io::clock::monotonic;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::fixture::{GAP, SLOTS, TRAINS};

/// A packet that left later than this was not punctual.
pub(crate) const LATE: i64 = 30_000;

/// How late the packets of a train were, in nanoseconds; of those due together, the first.
pub(crate) type Lateness = Vec<i64>;

/// By how much what is due is late where nothing is sent and the clock alone is watched: what the
/// machine does by itself. As in a train, what leaves a hole moves all that follows.
pub(crate) fn watch(due: &[Instant<Monotonic>]) -> Lateness {
    let mut behind = Nanos::ZERO;
    let late = |due: &Instant<Monotonic>| {
        let mut now = monotonic();
        while now < *due + behind {
            now = monotonic();
        }
        let late = now - *due;
        if late - behind > GAP {
            behind = late;
        }
        late.0
    };
    due.iter().map(late).collect()
}

/// How late packets were by the schedule as the holes before them moved it; less than 0 where a train
/// catches up with what it was late, which none should.
fn moved(late: &Lateness) -> Lateness {
    let mut behind = 0;
    let moved = |late: &i64| {
        let by = late - behind;
        if !(0..=GAP.0).contains(&by) {
            behind = if *late < LATE { 0 } else { *late };
        }
        by
    };
    late.iter().map(moved).collect()
}

/// Trains of an engine, and beside each what the machine did where nothing was sent: the engine itself
/// holds up no more than one of twenty packets, and makes no more packets late than half.
pub(crate) fn assert_punctual(sent: &[Lateness], watched: &[Lateness]) {
    let least = *sent.iter().flatten().min().unwrap();
    assert!(least < LATE, "no packet was punctual: {sent:?}");
    // What holds one up moves those that follow, so that a stall of the machine counts once.
    let held_up =
        |late: &Lateness| late.windows(2).filter(|pair| pair[1] - pair[0] >= LATE).count() as i64;
    // Stalls are counts of chance: what the engine does itself, it does in nearly every train.
    let mut more: Vec<_> = sent.iter().zip(watched).map(|(s, w)| held_up(s) - held_up(w)).collect();
    more.sort_unstable();
    assert!(
        more[TRAINS / 4] <= (SLOTS / 20) as i64,
        "trains were held up so much more often than the machine itself was: {more:?}; {sent:?}"
    );
    let punctual = |trains: &[Lateness]| {
        trains.iter().flat_map(moved).filter(|late| (0..LATE).contains(late)).count()
    };
    let (of_sent, of_watched) = (punctual(sent), punctual(watched));
    assert!(of_watched >= TRAINS * SLOTS / 4, "on this machine nothing is punctual: {watched:?}");
    assert!(
        2 * of_sent >= of_watched,
        "{of_sent} packets were punctual, {of_watched} where nothing was sent: {sent:?}"
    );
}

#[test]
fn trains_that_an_engine_makes_late_are_not_punctual_and_those_that_the_machine_does_are() {
    let train = |late: &dyn Fn(usize) -> i64| vec![(0..SLOTS).map(late).collect(); TRAINS];
    let calm: Vec<Lateness> = train(&|_| 1_000);
    let stalled = train(&|n| if n < 20 { 1_000 } else { 5_000_000 });
    assert_punctual(&calm, &calm);
    assert_punctual(&stalled, &calm);
    assert_punctual(&stalled, &stalled);
    let late = train(&|_| 40_000);
    let every_other = train(&|n| if n % 2 == 0 { 1_000 } else { 40_000 });
    let the_last_ones = train(&|n| if n < 20 { 1_000 } else { 100_000 });
    // Sent back to back until it is as if there had been no stall.
    let caught_up =
        train(&|n| if n < 10 { 1_000 } else { (18_000_000 - 300_000 * n as i64).max(0) });
    for sent in [late, every_other, the_last_ones, caught_up] {
        let judged = std::panic::catch_unwind(|| assert_punctual(&sent, &calm));
        assert!(judged.is_err(), "{:?}", sent[0]);
    }
}
