//! Whether an engine is punctual, on a machine whose host may take its CPUs for milliseconds.

use dwell_io::clock::monotonic;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::fixture::{GAP, SLOTS, TRAINS};

/// Lateness in nanoseconds from which on a packet is not punctual.
pub(crate) const LATE_NS: i64 = 30_000;

/// Lateness of a train's packets in nanoseconds; of packets due together, that of the first.
pub(crate) type Lateness = Vec<i64>;

/// Returns the lateness of the machine itself: watches the clock at these instants and sends
/// nothing. As in a train, an interruption shifts all later instants.
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

/// Returns the lateness by the schedule as shifted by earlier interruptions: by the lateness of the
/// first packet after each, whose own jitter makes that of later ones slightly negative. Far below
/// zero, a train catches up, which none should do.
fn moved(late: &Lateness) -> Lateness {
    let mut behind = 0;
    let moved = |late: &i64| {
        let by = late - behind;
        if !(-LATE_NS..=GAP.0).contains(&by) {
            behind = if *late < LATE_NS { 0 } else { *late };
        }
        by
    };
    late.iter().map(moved).collect()
}

/// Compares trains of an engine with the machine's own lateness beside each. The engine may
/// interrupt at most one packet in twenty, and must keep at least half as many packets punctual.
pub(crate) fn assert_punctual(sent: &[Lateness], watched: &[Lateness]) {
    let least = *sent.iter().flatten().min().unwrap();
    assert!(least < LATE_NS, "no packet was punctual: {sent:?}");
    // An interruption shifts the packets that follow, so that a stall of the machine counts once.
    let interruptions = |late: &Lateness| {
        late.windows(2).filter(|pair| pair[1] - pair[0] >= LATE_NS).count() as i64
    };
    // Stalls are random, but what delays the engine itself occurs in nearly every train.
    let mut more: Vec<_> =
        sent.iter().zip(watched).map(|(s, w)| interruptions(s) - interruptions(w)).collect();
    more.sort_unstable();
    assert!(
        more[TRAINS / 4] <= (SLOTS / 20) as i64,
        "trains were interrupted more often than the machine itself: {more:?}; {sent:?}"
    );
    let punctual = |trains: &[Lateness]| {
        trains.iter().flat_map(moved).filter(|late| late.abs() < LATE_NS).count()
    };
    let (of_sent, of_watched) = (punctual(sent), punctual(watched));
    assert!(of_watched >= TRAINS * SLOTS / 4, "on this machine nothing is punctual: {watched:?}");
    assert!(
        2 * of_sent >= of_watched,
        "{of_sent} packets were punctual, {of_watched} where nothing was sent: {sent:?}"
    );
}

#[test]
fn only_delays_of_the_engine_count_as_unpunctual() {
    let train = |late: &dyn Fn(usize) -> i64| vec![(0..SLOTS).map(late).collect(); TRAINS];
    let calm: Vec<Lateness> = train(&|_| 1_000);
    let stalled = train(&|n| if n < 20 { 1_000 } else { 5_000_000 });
    // The first packet after the stall was later than the others.
    let settled = train(&|n| if n < 10 { 1_000 } else { 5_000_500 - 40 * n as i64 });
    assert_punctual(&calm, &calm);
    assert_punctual(&stalled, &calm);
    assert_punctual(&stalled, &stalled);
    assert_punctual(&settled, &calm);
    let late = train(&|_| 40_000);
    let every_other = train(&|n| if n % 2 == 0 { 1_000 } else { 40_000 });
    let the_last_ones = train(&|n| if n < 20 { 1_000 } else { 100_000 });
    // Sent back to back until the stall is made up for.
    let caught_up =
        train(&|n| if n < 10 { 1_000 } else { (18_000_000 - 300_000 * n as i64).max(0) });
    for sent in [late, every_other, the_last_ones, caught_up] {
        let judged = std::panic::catch_unwind(|| assert_punctual(&sent, &calm));
        assert!(judged.is_err(), "{:?}", sent[0]);
    }
}
