//! Assigns the kernel's timestamps to the packets of a train, by the key that each packet took.

use dwell_sample::TxStamp;
use dwell_units::Nanos;

use super::Departure;
use crate::clock::monotonic;
use crate::pacing::pacer::sleep_until;
use crate::sockets::port::Notice;

/// Maximum number of error queue entries read at once.
const NOTICE_BATCH: usize = 32;

/// Assumed time to read one timestamp before any was read, and the minimum later.
const INITIAL_READ_TIME: Nanos = Nanos::from_micros(1);
const MIN_READ_TIME: Nanos = Nanos(300);

/// Maximum factor by which one measurement may raise the assumed time: the thread may have been
/// interrupted.
const MAX_RISE: i64 = 4;

/// Divisor by which the assumed time shrinks when it exceeds the time left: the measurement may
/// have been an outlier.
const DECAY: i64 = 128;

/// Part of the time before a departure that may be spent on reading timestamps.
const READ_SHARE: (i64, i64) = (2, 3);

/// Poll interval for timestamps that are still missing.
pub(super) const POLL_INTERVAL: Nanos = Nanos::from_micros(200);

/// Maps the kernel's keys to the packets of a train.
#[derive(Debug, Default)]
pub(super) struct TimestampIds {
    /// Each key with its packet, in the order taken: keys ascend, except that they wrap.
    taken: Vec<(u32, usize)>,
    refused: u64,
    /// Time to read one timestamp; `None` before the first.
    each: Option<Nanos>,
}

impl TimestampIds {
    /// Forgets the last train and reserves room for the next.
    pub(super) fn begin(&mut self, packets: usize) {
        self.taken.clear();
        self.taken.reserve(packets);
    }

    /// Records that the `n`th packet took this key.
    pub(super) fn note(&mut self, n: usize, key: Option<u32>) {
        self.taken.extend(key.map(|key| (key, n)));
    }

    /// Reads the error queue through `notices`. If `stamped`, waits up to `timeout` for missing
    /// timestamps.
    pub(super) fn collect(
        &mut self,
        left: &mut [Departure],
        stamped: bool,
        timeout: Nanos,
        mut notices: impl FnMut(usize, &mut dyn FnMut(Notice)),
    ) {
        let until = monotonic() + timeout;
        loop {
            while self.take(NOTICE_BATCH, left, &mut notices) == NOTICE_BATCH {}
            let mut keyed = self.taken.iter().filter_map(|(_, n)| left.get(*n));
            let is_awaited = keyed.any(|left| left.app.is_some() && left.kernel.is_none());
            if !stamped || !is_awaited || monotonic() >= until {
                return;
            }
            sleep_until(monotonic() + POLL_INTERVAL);
        }
    }

    /// Reads as many timestamps as fit into `room`, the time until a departure.
    pub(super) fn take_within(
        &mut self,
        room: Nanos,
        left: &mut [Departure],
        notices: &mut impl FnMut(usize, &mut dyn FnMut(Notice)),
    ) {
        let each = self.each.unwrap_or(INITIAL_READ_TIME);
        if let Ok(most @ 1..) = usize::try_from(room.0 * READ_SHARE.0 / READ_SHARE.1 / each.0) {
            self.take(most, left, notices);
        } else if room > Nanos::ZERO {
            self.each = Some(Nanos(each.0 - each.0 / DECAY).max(MIN_READ_TIME));
        }
    }

    /// Returns the number of ICMP errors among the entries so far.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Reads up to `most` entries, but at most [`NOTICE_BATCH`]; returns their number.
    pub(super) fn take(
        &mut self,
        most: usize,
        left: &mut [Departure],
        notices: &mut impl FnMut(usize, &mut dyn FnMut(Notice)),
    ) -> usize {
        let begun = monotonic();
        let mut taken = 0;
        notices(most.min(NOTICE_BATCH), &mut |notice| {
            taken += 1;
            match notice {
                Notice::TxStamp { key, stamp } => {
                    let Some(left) = self.place(key).and_then(|at| left.get_mut(at)) else {
                        return;
                    };
                    // An older timestamp belongs to a packet that took the key before the counter
                    // restarted.
                    match stamp {
                        TxStamp::Sched(at) if left.app <= Some(at) => left.sched = Some(at),
                        TxStamp::Kernel(at) if left.app <= Some(at) => left.kernel = Some(at),
                        _ => {}
                    }
                }
                Notice::Error { icmp, .. } => self.refused += u64::from(icmp),
            }
        });
        if taken > 0 {
            self.learn(Nanos((monotonic() - begun).0 / taken as i64));
        }
        taken
    }

    /// Records how long reading one timestamp took.
    fn learn(&mut self, took: Nanos) {
        let most = self.each.map_or(took, |each| Nanos(each.0 * MAX_RISE));
        self.each = Some(took.min(most).max(MIN_READ_TIME));
    }

    /// Returns the packet that took `key`.
    fn place(&self, key: u32) -> Option<usize> {
        let (first, _) = *self.taken.first()?;
        let rank = |key: u32| key.wrapping_sub(first);
        let at = self.taken.binary_search_by_key(&rank(key), |(taken, _)| rank(*taken)).ok()?;
        Some(self.taken[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_units::{Instant, Realtime};

    #[test]
    fn timestamp_read_time_is_learnt_and_outliers_decay() {
        let mut keys = TimestampIds::default();
        let mut after = |took| {
            keys.learn(Nanos(took));
            keys.each.unwrap().0
        };
        assert_eq!(after(6_000), 6_000, "a slow machine");
        assert_eq!([after(800), after(10)], [800, MIN_READ_TIME.0]);
        assert_eq!(after(3_000_000), 4 * MIN_READ_TIME.0);
        let mut taken = 0;
        let mut skipped = 0;
        while taken == 0 {
            keys.take_within(Nanos(1_500), &mut [], &mut |_, _| taken += 1);
            skipped += 1;
        }
        assert!((10..40).contains(&skipped), "{skipped}");
    }

    #[test]
    fn timestamps_are_read_as_time_allows() {
        let asked = |room| {
            let mut keys = TimestampIds { each: Some(Nanos(1_000)), ..TimestampIds::default() };
            let mut most = 0;
            keys.take_within(Nanos(room), &mut [], &mut |limit, _| most = limit);
            most
        };
        assert_eq!([-5, 0, 1_000, 1_499, 1_500, 9_000].map(asked), [0, 0, 0, 0, 1, 6]);
        assert_eq!(asked(9_000_000), NOTICE_BATCH);
    }

    #[test]
    fn timestamps_match_packets_across_key_gaps() {
        let mut keys = TimestampIds::default();
        keys.begin(4);
        // The second packet was not sent; before the last one, a failed send took a key.
        for (n, key) in [(0, Some(u32::MAX)), (1, None), (2, Some(0)), (3, Some(2))] {
            keys.note(n, key);
        }
        let at = |nanos| Instant::<Realtime>::from_nanos(nanos);
        let mut queue = vec![(u32::MAX, 10), (0, 30), (1, 77), (2, 40)];
        let mut left = [Departure::default(); 4];
        keys.collect(&mut left, false, Nanos::ZERO, |_, each| {
            for (key, nanos) in queue.drain(..) {
                each(Notice::TxStamp { key, stamp: TxStamp::Kernel(at(nanos)) });
            }
            each(Notice::Error { errno: 111, icmp: true, kind: (3, 3), from: None });
        });
        let kernel = left.map(|left| left.kernel);
        assert_eq!(kernel, [Some(at(10)), None, Some(at(30)), Some(at(40))]);
        assert_eq!(keys.refused(), 1);
    }
}
