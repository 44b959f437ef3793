//! Plausibility check of a reflector's timestamps.
//!
//! The reflector has a probe after it was sent and before its reply is received, so each reply
//! bounds the offset of its clock from ours: T2 - T4 <= offset <= T2 - T1. Two replies contradict
//! each other if their bounds do not overlap, that is, if T2_i - T2_j lies outside [T1_i - T4_j,
//! T4_i - T1_j]. All replies agree exactly if all bounds have an offset in common, so it suffices
//! to keep their intersection. The cost per reply is constant.

use dwell_sample::{Remote, RxStamps};
use dwell_units::{Instant, Nanos, Realtime};

/// Inverse of the maximum relative rate error between two clocks, each at most 500 ppm off.
const MAX_DRIFT_INVERSE: i64 = 1_000;

/// Tolerance for the resolution of the reflector's clock, in nanoseconds.
const CLOCK_RESOLUTION: i64 = 1_000;

/// Number of agreeing replies that confirms a reference. To replace a reference, one reply more
/// than this must agree against it.
const MIN_CONFIRMING_REPLIES: u32 = 2;

/// Checks the replies of one reflector. No single reply is trusted: a reference that several later
/// replies contradict in agreement is replaced, whether the first reply was wrong or a clock was
/// stepped.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteClock {
    reference: Option<Bounds>,
    /// Bounds of the replies that contradict the reference, since the last one that agreed with it.
    challenger: Option<Bounds>,
    /// Highest accepted id.
    highest: i64,
    /// Lowest id accepted after a change of reference. Lower ids may be neighbours of probes
    /// accepted with the old one.
    first: i64,
}

/// Bounds of the reflector's clock offset at one time.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i64,
    high: i64,
    /// Local time of the last update.
    at: i64,
    /// Number of replies that agree with them.
    support: u32,
}

impl RemoteClock {
    pub(super) const fn new() -> Self {
        Self { reference: None, challenger: None, highest: i64::MIN, first: i64::MIN }
    }

    /// Whether the reflector's timestamps for probe `id`, sent at `sent`, are consistent with those
    /// accepted so far. Warm-up ids are negative and count up to 0.
    pub(super) fn accepts(
        &mut self,
        id: u64,
        sent: Instant<Realtime>,
        remote: &Remote,
        rx: &RxStamps,
    ) -> bool {
        if !is_possible(sent, remote, rx) {
            return false;
        }
        let bounds = Bounds::of(sent, remote.rx, rx.app);
        let id = id.cast_signed();
        if !self.agrees(&bounds) {
            return false;
        }
        let accepted = id >= self.first;
        if accepted {
            self.highest = self.highest.max(id);
        }
        accepted
    }

    /// Whether `bounds` agree with the reference. May replace the reference.
    fn agrees(&mut self, bounds: &Bounds) -> bool {
        let Some(reference) = &mut self.reference else {
            self.reference = Some(*bounds);
            return true;
        };
        if reference.admit(bounds) {
            self.challenger = None;
            return true;
        }
        let needed = reference.support.min(MIN_CONFIRMING_REPLIES);
        let Some(mut challenger) = self.challenger.filter(|challenger| challenger.overlaps(bounds))
        else {
            self.challenger = Some(*bounds);
            return false;
        };
        challenger.admit(bounds);
        if challenger.support <= needed {
            self.challenger = Some(challenger);
            return false;
        }
        self.reference = Some(challenger);
        self.challenger = None;
        // Consecutive probes must not be accepted with different references, or the difference
        // between their delays would include that between the references.
        self.first = self.highest.saturating_add(2);
        true
    }
}

impl Bounds {
    fn of(sent: Instant<Realtime>, far: Instant<Realtime>, back: Instant<Realtime>) -> Self {
        let (sent, far, back) = (sent.as_nanos(), far.as_nanos(), back.as_nanos());
        Self { low: far.saturating_sub(back), high: far.saturating_sub(sent), at: back, support: 1 }
    }

    /// Intersection of both bounds at the time of `other`. A high bound below the low one is a
    /// contradiction.
    fn common(&self, other: &Self) -> (i64, i64) {
        let elapsed = other.at.saturating_sub(self.at).saturating_abs();
        let drift = elapsed / MAX_DRIFT_INVERSE;
        let low = self.low.saturating_sub(drift).max(other.low);
        let high = self.high.saturating_add(drift).min(other.high);
        (low, high)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (low, high) = self.common(other);
        low.saturating_sub(high) <= CLOCK_RESOLUTION
    }

    /// Narrows the bounds by those of another reply. Returns `false` if they do not overlap.
    fn admit(&mut self, other: &Self) -> bool {
        if !self.overlaps(other) {
            return false;
        }
        let (low, high) = self.common(other);
        let support = self.support.saturating_add(1);
        *self = Self { low: low.min(high), high: high.max(low), at: other.at, support };
        true
    }
}

/// Whether the timestamps of one reply are possible: the residence time must be neither negative
/// nor longer than the round-trip delay. With a common clock, T2 and T3 must also lie between T1
/// and T4.
fn is_possible(sent: Instant<Realtime>, remote: &Remote, rx: &RxStamps) -> bool {
    let residence = remote.tx - remote.rx;
    let rtt = rx.app - sent;
    let limit = rtt.0.saturating_add(rtt.0 / MAX_DRIFT_INVERSE).saturating_add(CLOCK_RESOLUTION);
    if residence < Nanos::ZERO || residence.0 > limit {
        return false;
    }
    let earliest = sent.as_nanos().saturating_sub(CLOCK_RESOLUTION);
    let latest = rx.app.as_nanos().saturating_add(CLOCK_RESOLUTION);
    !remote.same_clock || (remote.rx.as_nanos() >= earliest && remote.tx.as_nanos() <= latest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;
    const SECOND: i64 = 1_000 * MS;
    /// Local time in these tests.
    const NOW: i64 = 1_700_000_000 * SECOND;

    /// Checks a probe sent every 10 ms with a round-trip delay of 1 ms, whose T2 and T3 are `far`
    /// after the midpoint.
    fn judge(clock: &mut RemoteClock, id: i64, far: i64) -> bool {
        let sent = NOW + id * 10 * MS;
        let at = Instant::from_nanos(sent + MS / 2 + far);
        let remote = Remote { rx: at, tx: at, seq: 0, ttl: None, same_clock: false };
        let rx =
            RxStamps { hw: None, driver: None, kernel: None, app: Instant::from_nanos(sent + MS) };
        clock.accepts(id.cast_unsigned(), Instant::from_nanos(sent), &remote, &rx)
    }

    /// Returns the accepted ids when the clock is `far(n)` ahead for probe n.
    fn accepted(ids: std::ops::Range<i64>, far: impl Fn(i64) -> i64) -> Vec<i64> {
        let mut clock = RemoteClock::new();
        ids.filter(|id| judge(&mut clock, *id, far(*id))).collect()
    }

    #[test]
    fn any_constant_offset_is_accepted() {
        for offset in [0, 1, -SECOND, 60 * 365 * 86_400 * SECOND, -NOW] {
            assert_eq!(accepted(-3..9, |_| offset), (-3..9).collect::<Vec<_>>());
        }
    }

    #[test]
    fn single_outlier_is_void_and_changes_nothing() {
        for outlier in [SECOND, -SECOND, 2_000_000_000 * SECOND] {
            let ids = accepted(0..20, |id| if id == 7 { outlier } else { 5 });
            assert_eq!(ids, (0..20).filter(|id| *id != 7).collect::<Vec<_>>());
        }
    }

    #[test]
    fn outlier_as_first_reply_voids_one_good_reply() {
        let ids = accepted(0..20, |id| if id == 0 { 2_000_000_000 * SECOND } else { 5 });
        assert_eq!(ids, [0].into_iter().chain(2..20).collect::<Vec<_>>());
    }

    #[test]
    fn stepped_clock_is_accepted_after_two_void_replies() {
        let ids = accepted(0..20, |id| if id < 10 { 0 } else { 3_600 * SECOND });
        assert_eq!(ids, (0..10).chain(12..20).collect::<Vec<_>>());
    }

    #[test]
    fn constant_time_is_accepted_once() {
        // The reflector always returns the same time.
        assert_eq!(accepted(0..50, |id| -NOW - id * 10 * MS), [0]);
    }

    #[test]
    fn drift_below_a_thousandth_is_accepted() {
        for ppm in [-900, 900] {
            assert_eq!(accepted(0..5_000, |id| id * 10 * ppm).len(), 5_000, "{ppm} ppm");
        }
        // At ten times that rate most replies contradict each other.
        assert!(accepted(0..5_000, |id| id * 10 * MS / 10).len() < 2_500);
    }

    #[test]
    fn common_clock_is_checked_without_a_reference() {
        let (sent, back) = (Instant::from_nanos(NOW), Instant::from_nanos(NOW + MS));
        let rx = RxStamps { hw: None, driver: None, kernel: None, app: back };
        for (at, same_clock, possible) in
            [(MS / 2, true, true), (2 * MS, true, false), (-MS, true, false), (2 * MS, false, true)]
        {
            let far = sent + Nanos(at);
            let remote = Remote { rx: far, tx: far, seq: 0, ttl: None, same_clock };
            assert_eq!(RemoteClock::new().accepts(0, sent, &remote, &rx), possible, "{at}");
        }
    }

    proptest! {
        /// For any timestamps in any order, the delays of two consecutive accepted probes differ by
        /// at most their round-trip delays and the drift.
        #[test]
        fn accepted_neighbours_agree(
            replies in proptest::collection::vec((0_i64..40, -3_i64..3, -MS..MS), 1..200),
        ) {
            let mut clock = RemoteClock::new();
            let mut offsets = std::collections::BTreeMap::<i64, Vec<i64>>::new();
            for (id, offset_group, noise) in replies {
                let far = offset_group * 1_000_000_000 * SECOND + noise;
                if judge(&mut clock, id, far) {
                    offsets.entry(id).or_default().push(far);
                }
            }
            for (id, ours) in &offsets {
                for (a, b) in ours.iter().zip(offsets.get(&(id + 1)).into_iter().flatten()) {
                    prop_assert!((a - b).abs() <= 2 * MS, "{id}: {a} and {b}");
                }
            }
        }

        #[test]
        fn any_timestamps_are_checked_without_panic(values in proptest::collection::vec(any::<i64>(), 8)) {
            let mut clock = RemoteClock::new();
            for at in values.windows(4) {
                let at: Vec<_> = at.iter().map(|nanos| Instant::from_nanos(*nanos)).collect();
                let remote =
                    Remote { rx: at[1], tx: at[2], seq: 0, ttl: None, same_clock: false };
                let rx = RxStamps { hw: None, driver: None, kernel: None, app: at[3] };
                clock.accepts(0, at[0], &remote, &rx);
            }
        }
    }
}
