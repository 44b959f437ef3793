//! Makes packets after a pause about as punctual as others: see [`crate::cache_warming`]. The
//! device's driver stays cold: the first two or three packets of a train were off by 1 to 3 us, so
//! lead-in packets go first ([`super::Numbers`]).

use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};

use super::TrainProgress;
use super::cost::Cost;
use crate::clock::monotonic;
use crate::pacing::cache_warming;
use crate::pacing::pacer::WaitMode;
use crate::sockets::port::StampRequest;

/// Time before a departure from which on datagrams are sent to ourselves. They use a separate
/// socket, so that their timestamps do not mix with the train's.
const WARM_START: Nanos = Nanos::from_micros(300);

/// Interval of these datagrams. Programs that share the caches soon evict what one datagram
/// fetched. On a machine with shared caches, the median error of gaps of 240 us was 200 to 350 ns
/// with one datagram 300 us and one 100 us before, and 60 to 90 ns with all of these. More
/// datagrams, or later ones, did not help.
const WARM_INTERVAL: Nanos = Nanos::from_micros(20);

/// Time before a departure at which the last datagram is sent.
const WARM_END: Nanos = Nanos::from_micros(12);

/// Minimum time left for a datagram, also if its cost ([`Cost`]) is lower.
const MIN_WARM_TIME: Nanos = Nanos::from_micros(6);

/// Minimum time after the previous departure, which has warmed the path better than a datagram to
/// ourselves, whose path ends on this machine. In gaps of 46 us, one more datagram 12 us after a
/// departure raised the median error from 78 to 102 ns in a busy hour.
const MIN_PAUSE: Nanos = Nanos::from_micros(15);

/// Minimum time before a departure for a datagram in the middle of a gap that is too short for the
/// schedule above. On a machine with shared caches, the median error of gaps of 16 us was 77 ns
/// without it and 57 ns with it (C: 63 ns).
const MIN_HALF_GAP: Nanos = Nanos::from_micros(8);

/// Minimum time left for corking a packet.
const MIN_CORK_TIME: Nanos = Nanos(2_500);

/// Warms the caches before departures.
pub(super) struct CacheWarmer {
    sink: Option<cache_warming::CacheWarmer>,
    cost: Cost,
    /// Packets are corked.
    cork: bool,
    /// Cost of corking, learnt from the datagrams before a train's first packet, which are corked
    /// too.
    cork_cost: Cost,
}

impl CacheWarmer {
    /// Warms the path of the socket whose address is `local`, with the timestamps that it requests.
    /// Warms nothing if no socket can be opened.
    pub(super) fn new(local: SocketAddr, stamps: StampRequest) -> Self {
        let sink = cache_warming::CacheWarmer::at(local).ok().map(|sink| sink.one_way(stamps));
        Self {
            sink,
            cost: Cost::new(MIN_WARM_TIME),
            cork: false,
            cork_cost: Cost::new(MIN_CORK_TIME),
        }
    }

    /// Enables corking of packets.
    pub(super) fn with_corking(self) -> Self {
        Self { cork: true, ..self }
    }

    /// Starts a new train.
    pub(super) fn begin(&mut self) {
        self.cost.begin();
        self.cork_cost.begin();
    }

    /// Whether `left` is enough to cork a packet. Always `false` while the cost is unknown: a
    /// train's own packets must not pay for finding it out.
    pub(super) fn can_cork(&self, left: Nanos) -> bool {
        self.cork_cost.is_known() && self.cork_cost.fits(left)
    }

    /// Prepares the departure at `due`, as far as there is time, waiting in `wait_mode`.
    /// `warm_engine` warms the parts of the path that only this engine uses.
    pub(super) fn before(
        &mut self,
        due: Instant<Monotonic>,
        wait_mode: WaitMode,
        progress: &TrainProgress<'_>,
        memory: &[u8],
        mut warm_engine: impl FnMut(),
    ) {
        let Some(sink) = &self.sink else { return };
        // Based on when the previous packet was due, not on how long sending it took: that is
        // longer in busy hours, when this matters most.
        let gap = due - progress.before().unwrap_or_else(monotonic);
        for ahead in steps(gap) {
            if due - monotonic() < ahead {
                continue;
            }
            let Some(begun) = progress.wait(wait_mode, due - ahead) else { return };
            if !self.cost.fits(due - begun) {
                return;
            }
            // Corking within a train did not improve gaps, because it takes longer.
            if self.cork && progress.before().is_none() {
                sink.pass_corked(memory).into_iter().for_each(|took| self.cork_cost.learn(took));
            } else {
                sink.pass(memory);
            }
            warm_engine();
            self.cost.learn(monotonic() - begun);
        }
    }
}

/// Returns how long before a departure datagrams are sent, if `gap` has passed since the previous
/// one.
fn steps(gap: Nanos) -> impl Iterator<Item = Nanos> {
    let times = (WARM_START - WARM_END).0 / WARM_INTERVAL.0;
    let steps = (0..=times).rev().map(|n| Nanos(WARM_END.0 + n * WARM_INTERVAL.0));
    let half = Nanos(gap.0 / 2);
    let middle = (gap < WARM_END + MIN_PAUSE && half >= MIN_HALF_GAP).then_some(half);
    middle.into_iter().chain(steps.skip_while(move |ahead| *ahead + MIN_PAUSE > gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warming_starts_early_and_ends_shortly_before_departure() {
        let steps = micros(10_000);
        assert_eq!((steps.len(), steps[0], steps[1], steps[14]), (15, 292, 272, 12));
    }

    #[test]
    fn no_warming_right_after_previous_departure() {
        assert_eq!(micros(92), [72, 52, 32, 12]);
        assert_eq!([micros(46), micros(32), micros(27)], [[12], [12], [12]]);
    }

    #[test]
    fn short_gap_is_warmed_in_the_middle_and_shortest_not_at_all() {
        assert_eq!([micros(26), micros(16)], [[13], [8]]);
        assert!(micros(15).is_empty());
        assert!(micros(-5).is_empty());
    }

    fn micros(gap: i64) -> Vec<i64> {
        steps(Nanos::from_micros(gap)).map(|step| step.0 / 1_000).collect()
    }
}
