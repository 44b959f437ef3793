//! Measured time: which times are plausible, and how a record with a wrong clock is dated later.

use crate::period::{DAY_NS, SECOND_NS};

/// Maximum age of a record at its arrival.
const MAX_AGE_NS: i64 = 15 * DAY_NS;

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
}

impl ClockPairing {
    fn wall_of(self, boot_ns: i64) -> Option<i64> {
        self.wall_ns.checked_add(boot_ns.checked_sub(self.boot_ns)?)
    }
}

/// Returns the time of day of an instant of CLOCK_BOOTTIME by the nearest pairing of the same boot, or
/// `None` without a pairing. The result does not depend on the order of the pairings.
pub(crate) fn date(boot_ns: i64, pairings: &[ClockPairing]) -> Option<i64> {
    let distance = |pairing: &ClockPairing| i128::from(pairing.boot_ns) - i128::from(boot_ns);
    let nearest =
        pairings.iter().min_by_key(|pairing| (distance(pairing).unsigned_abs(), **pairing))?;
    nearest.wall_of(boot_ns)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn nearest_pairing_dates_an_instant() {
        let early = ClockPairing { boot_ns: 100, wall_ns: NOW };
        let late = ClockPairing { boot_ns: 300, wall_ns: NOW + 500 };
        assert_eq!(date(40, &[]), None);
        assert_eq!(date(40, &[late]), Some(NOW + 240));
        assert_eq!(date(40, &[late, early]), Some(NOW - 60));
        assert_eq!(date(299, &[early, late]), Some(NOW + 499));
        let tie = [date(200, &[early, late]), date(200, &[late, early])];
        assert_eq!(tie, [Some(NOW + 100); 2], "the same in any order");
        assert_eq!(date(i64::MAX, &[early]), None, "no overflow");
    }
}
