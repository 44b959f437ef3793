//! Packets that lead a train. After a pause the kernel's and the driver's way of a packet has left the
//! caches, more of it than after one of the train's gaps, and the train's first gaps would be off by more than
//! the others; so it begins a few packets early, and those are not counted.

use dwell_units::Nanos;

/// So many lead a train.
pub const LEADS: usize = 3;

/// Gaps are short up to this: longer ones leave no more in the caches than what precedes a train, and
/// leading by them would take long.
const SHORT: Nanos = Nanos::from_millis(20);

/// The first of them leaves at least so long before the others: it may be late by that.
const AHEAD: Nanos = Nanos::from_micros(100);

/// They are at least so far apart.
const LEAST: Nanos = Nanos::from_micros(1);

/// How many lead a train of so many packets that are so many nanoseconds apart on average: two packets
/// are no train.
#[must_use]
pub fn leads_of(packets: usize, mean_gap: f64) -> usize {
    if packets > 2 && mean_gap <= SHORT.0 as f64 { LEADS } else { 0 }
}

/// How long before a train the first of those leaves that lead it, in the same words.
#[must_use]
pub fn lead_time(packets: usize, mean_gap: f64) -> Nanos {
    if leads_of(packets, mean_gap) == 0 { Nanos::ZERO } else { before(Nanos(mean_gap as i64))[0] }
}

/// When the packets leave that lead a train whose own leave at these instants: at its mean gap before its
/// first packet, so that they ask no more of the way than the train does.
#[must_use]
pub fn leads(at: &[Nanos]) -> [Nanos; LEADS] {
    let (first, last) = at.first().copied().zip(at.last().copied()).unwrap_or_default();
    before(Nanos((last - first).0 / (at.len().max(2) as i64 - 1))).map(|before| first - before)
}

fn before(gap: Nanos) -> [Nanos; LEADS] {
    let gap = gap.max(LEAST);
    [gap + gap + gap.max(AHEAD), gap + gap, gap]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_a_train_asks_no_more_of_the_way_than_the_train() {
        let train =
            |gap: i64, count: i64| (0..count).map(|n| Nanos(7 + n * gap)).collect::<Vec<_>>();
        let before = |gap, count| leads(&train(gap, count)).map(|at| at.0 - 7);
        assert_eq!(before(12_000, 50), [-124_000, -24_000, -12_000]);
        assert_eq!(before(240_000, 3), [-720_000, -480_000, -240_000]);
        assert_eq!(
            [lead_time(50, 12_000.0), lead_time(3, 240_000.0)].map(|time| time.0),
            [124_000, 720_000]
        );
        // They are never due with what they lead.
        assert_eq!(before(0, 9), [-102_000, -2_000, -1_000]);
    }

    #[test]
    fn slow_trains_and_pairs_are_led_by_nothing() {
        assert_eq!([leads_of(3, 0.0), leads_of(50, 20_000_000.0)], [LEADS; 2]);
        for (packets, gap) in [(50, 20_000_001.0), (2, 0.0), (2, 12_000.0), (1, 0.0), (0, 0.0)] {
            assert_eq!(leads_of(packets, gap), 0, "{packets} packets, {gap} ns apart");
            assert_eq!(lead_time(packets, gap), Nanos::ZERO);
        }
    }
}
