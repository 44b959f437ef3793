//! Lead-in packets, sent before a train and not counted.
//!
//! During a pause, more of the kernel's and the driver's send path leaves the caches than during a
//! gap of the train, so the first gaps of a train would be less accurate than the others.

use dwell_units::Nanos;

/// Number of lead-in packets sent before a train.
pub const LEAD_IN_PACKETS: usize = 3;

/// Maximum mean gap of trains that get a lead-in. With longer gaps the caches are as cold within
/// the train as before it, and a lead-in would take long.
const MAX_LEAD_IN_GAP: Nanos = Nanos::from_millis(20);

/// Minimum gap after the first lead-in packet, which may leave late by as much.
const MIN_FIRST_GAP: Nanos = Nanos::from_micros(100);

/// Minimum gap between lead-in packets.
const MIN_GAP: Nanos = Nanos::from_micros(1);

/// Returns the number of lead-in packets for a train of `packets` packets with a mean gap of
/// `mean_gap` nanoseconds. Pairs get none.
#[must_use]
pub fn lead_in_len(packets: usize, mean_gap: f64) -> usize {
    if packets > 2 && mean_gap <= MAX_LEAD_IN_GAP.0 as f64 { LEAD_IN_PACKETS } else { 0 }
}

/// Returns how long before a train its first lead-in packet leaves; 0 without a lead-in.
#[must_use]
pub fn lead_in_duration(packets: usize, mean_gap: f64) -> Nanos {
    if lead_in_len(packets, mean_gap) == 0 {
        Nanos::ZERO
    } else {
        before(Nanos(mean_gap as i64))[0]
    }
}

/// Returns the departure times of the lead-in packets of a train with the departure times `at`.
/// They keep the mean gap of the train, so that they load the path no more than the train does.
#[must_use]
pub fn lead_in(at: &[Nanos]) -> [Nanos; LEAD_IN_PACKETS] {
    let (first, last) = at.first().copied().zip(at.last().copied()).unwrap_or_default();
    before(Nanos((last - first).0 / (at.len().max(2) as i64 - 1))).map(|before| first - before)
}

fn before(gap: Nanos) -> [Nanos; LEAD_IN_PACKETS] {
    let gap = gap.max(MIN_GAP);
    [gap + gap + gap.max(MIN_FIRST_GAP), gap + gap, gap]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_in_keeps_the_mean_gap_of_the_train() {
        let train =
            |gap: i64, count: i64| (0..count).map(|n| Nanos(7 + n * gap)).collect::<Vec<_>>();
        let before = |gap, count| lead_in(&train(gap, count)).map(|at| at.0 - 7);
        assert_eq!(before(12_000, 50), [-124_000, -24_000, -12_000]);
        assert_eq!(before(240_000, 3), [-720_000, -480_000, -240_000]);
        assert_eq!(
            [lead_in_duration(50, 12_000.0), lead_in_duration(3, 240_000.0)].map(|time| time.0),
            [124_000, 720_000]
        );
        // Lead-in packets are never due at the same time as the train.
        assert_eq!(before(0, 9), [-102_000, -2_000, -1_000]);
    }

    #[test]
    fn slow_trains_and_pairs_have_no_lead_in() {
        assert_eq!([lead_in_len(3, 0.0), lead_in_len(50, 20_000_000.0)], [LEAD_IN_PACKETS; 2]);
        for (packets, gap) in [(50, 20_000_001.0), (2, 0.0), (2, 12_000.0), (1, 0.0), (0, 0.0)] {
            assert_eq!(lead_in_len(packets, gap), 0, "{packets} packets, {gap} ns apart");
            assert_eq!(lead_in_duration(packets, gap), Nanos::ZERO);
        }
    }
}
