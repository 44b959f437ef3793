//! Measured time: which times are plausible, and how a record with a wrong clock is dated later.

use crate::period::{DAY_NS, SECOND_NS};
use crate::spans::TimeSpan;

/// Maximum age of a record at its arrival.
pub(crate) const MAX_AGE_NS: i64 = 15 * DAY_NS;

/// Maximum time by which a node's clock may be ahead of the hub's.
const MAX_LEAD_NS: i64 = 300 * SECOND_NS;

/// Whether a record that arrived at this time may have been measured at that time, both in nanoseconds
/// since 1970. A time further away is that of a wrong clock.
pub fn is_plausible(measured_ns: i64, arrival_ns: i64) -> bool {
    let age = i128::from(arrival_ns) - i128::from(measured_ns);
    (-i128::from(MAX_LEAD_NS)..=i128::from(MAX_AGE_NS)).contains(&age)
}

/// CLOCK_REALTIME and CLOCK_BOOTTIME of a node at one instant, from a record with a plausible time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockPairing {
    /// CLOCK_BOOTTIME in nanoseconds.
    pub boot_ns: i64,
    /// CLOCK_REALTIME in nanoseconds since 1970.
    pub wall_ns: i64,
    /// Whether a daemon had declared CLOCK_REALTIME synchronised.
    pub is_synchronised: bool,
}

impl ClockPairing {
    fn wall_of(self, boot_ns: i64) -> Option<i64> {
        self.wall_ns.checked_add(boot_ns.checked_sub(self.boot_ns)?)
    }
}

/// The clock pairings of one boot. The dates that they give do not depend on their order.
#[derive(Debug, Default)]
pub(crate) struct BootClock {
    /// In ascending order.
    synchronised: Vec<ClockPairing>,
    /// In ascending order.
    others: Vec<ClockPairing>,
}

impl BootClock {
    pub(crate) fn new(mut pairings: Vec<ClockPairing>) -> Self {
        pairings.sort_unstable();
        let (synchronised, others) =
            pairings.into_iter().partition(|pairing| pairing.is_synchronised);
        Self { synchronised, others }
    }

    /// Returns the measured time of a record: by the nearest pairing of a synchronised clock, or its own
    /// if that is plausible, or by the nearest other pairing. `None` if none gives a plausible time.
    pub(crate) fn date(&self, boot_ns: i64, own_ns: Option<i64>, arrival_ns: i64) -> Option<i64> {
        let by = |pairings: &[ClockPairing]| {
            let wall_ns = nearest(boot_ns, pairings)?.wall_of(boot_ns)?;
            is_plausible(wall_ns, arrival_ns).then_some(wall_ns)
        };
        by(&self.synchronised).or(own_ns).or_else(|| by(&self.others))
    }

    /// Returns the span of CLOCK_BOOTTIME in which the pairing of this instant may be the nearest of its
    /// kind, so that it may date records there.
    pub(crate) fn reach(&self, pairing: &ClockPairing) -> TimeSpan {
        let pairings = if pairing.is_synchronised { &self.synchronised } else { &self.others };
        let boot_ns = pairing.boot_ns;
        let before = pairings.partition_point(|other| other.boot_ns < boot_ns).checked_sub(1);
        let after = pairings.partition_point(|other| other.boot_ns <= boot_ns);
        let middle = |other: &ClockPairing| {
            let sum = i128::from(other.boot_ns) + i128::from(boot_ns);
            // The middle of two numbers of 64 bits has 64 bits.
            sum.div_euclid(2) as i64
        };
        let from_ns = before.map_or(i64::MIN, |before| middle(&pairings[before]));
        let to_ns = pairings.get(after).map_or(i64::MAX, |after| middle(after).saturating_add(2));
        (from_ns, to_ns)
    }
}

/// Returns the nearest of pairings in ascending order; of two that are equally near, the smaller one.
fn nearest(boot_ns: i64, pairings: &[ClockPairing]) -> Option<ClockPairing> {
    let at = pairings.partition_point(|pairing| pairing.boot_ns < boot_ns);
    let before = at.checked_sub(1).map(|before| {
        let same_boot_ns = pairings[before].boot_ns;
        pairings[pairings.partition_point(|pairing| pairing.boot_ns < same_boot_ns)]
    });
    let distance = |pairing: &ClockPairing| pairing.boot_ns.abs_diff(boot_ns);
    before.into_iter().chain(pairings.get(at).copied()).min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 20_000 * DAY_NS;

    #[test]
    fn plausible_time_is_near_the_arrival() {
        assert!(is_plausible(NOW, NOW));
        assert!(is_plausible(NOW - 14 * DAY_NS, NOW));
        assert!(is_plausible(NOW - 15 * DAY_NS, NOW));
        assert!(!is_plausible(NOW - 15 * DAY_NS - 1, NOW));
        assert!(!is_plausible(NOW - 16 * DAY_NS, NOW));
        assert!(is_plausible(NOW + 300 * SECOND_NS, NOW));
        assert!(!is_plausible(NOW + 300 * SECOND_NS + 1, NOW));
        for wrong in [0, i64::MIN, i64::MAX, NOW + 3_650 * DAY_NS] {
            assert!(!is_plausible(wrong, NOW), "{wrong}");
        }
    }

    fn pairing(boot_ns: i64, wall_ns: i64) -> ClockPairing {
        ClockPairing { boot_ns, wall_ns, is_synchronised: true }
    }

    #[test]
    fn nearest_pairing_dates_an_instant() {
        let date = |boot_ns: i64, pairings: &[ClockPairing]| {
            BootClock::new(pairings.to_vec()).date(boot_ns, None, NOW)
        };
        let (early, late) = (pairing(100, NOW), pairing(300, NOW + 500));
        assert_eq!(date(40, &[]), None);
        assert_eq!(date(40, &[late]), Some(NOW + 240));
        assert_eq!(date(40, &[late, early]), Some(NOW - 60));
        assert_eq!(date(299, &[early, late]), Some(NOW + 499));
        let tie = [date(200, &[early, late]), date(200, &[late, early])];
        assert_eq!(tie, [Some(NOW + 100); 2], "the same in any order");
        let twice = [pairing(100, NOW + 7), early];
        assert_eq!(date(150, &twice), Some(NOW + 50), "the smaller one");
        assert_eq!(date(i64::MAX, &[early]), None, "no overflow");
    }

    #[test]
    fn synchronised_pairing_precedes_the_own_time() {
        let other = ClockPairing { is_synchronised: false, ..pairing(100, NOW - DAY_NS) };
        let clock = BootClock::new(vec![other]);
        assert_eq!(clock.date(110, None, NOW), Some(NOW - DAY_NS + 10));
        assert_eq!(clock.date(110, Some(NOW - 5), NOW), Some(NOW - 5));
        let clock = BootClock::new(vec![other, pairing(5_000, NOW)]);
        assert_eq!(clock.date(110, Some(NOW - 5), NOW), Some(NOW - 4_890));
        let implausible = BootClock::new(vec![pairing(0, 0)]);
        assert_eq!(implausible.date(110, Some(NOW - 5), NOW), Some(NOW - 5));
    }

    proptest! {
        /// A new pairing changes the nearest one only within its reach.
        #[test]
        fn pairing_dates_only_what_it_reaches(
            known in prop::collection::vec((0..60_i64, 0..3_i64, any::<bool>()), 0..8),
            (boot_ns, wall_ns, is_synchronised) in (0..60_i64, 0..3_i64, any::<bool>()),
        ) {
            let of = |(boot_ns, wall_ns, is_synchronised): (i64, i64, bool)| {
                ClockPairing { boot_ns, wall_ns: NOW + 100 * wall_ns, is_synchronised }
            };
            let mut pairings: Vec<_> = known.into_iter().map(of).collect();
            let before = BootClock::new(pairings.clone());
            let added = of((boot_ns, wall_ns, is_synchronised));
            pairings.push(added);
            let after = BootClock::new(pairings);
            let (from_ns, to_ns) = after.reach(&added);
            for boot_ns in (-5..65).filter(|at| !(from_ns..to_ns).contains(at)) {
                let dates = [&before, &after].map(|clock| clock.date(boot_ns, None, NOW));
                prop_assert_eq!(dates[0], dates[1], "{}", boot_ns);
            }
        }
    }
}
