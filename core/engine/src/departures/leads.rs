//! Packets that lead a train whose gaps are short. After a pause the kernel's and the driver's way of a
//! packet has left the caches, and the first gaps of a train would be off by a microsecond or more, which
//! matters where gaps are short; so the train begins a few packets early, and those are not counted.

use dwell_units::Nanos;

/// So many lead a train.
pub const LEADS: usize = 3;

/// Gaps are short up to this.
const SHORT: Nanos = Nanos::from_micros(300);

/// The first of them leaves at least so long before the others: it may be late by that.
const AHEAD: Nanos = Nanos::from_micros(100);

/// How many lead a train of so many packets that are so many nanoseconds apart on average: two packets
/// are no train.
#[must_use]
pub fn leads_of(packets: usize, mean_gap: f64) -> usize {
    if packets > 2 && mean_gap <= SHORT.0 as f64 { LEADS } else { 0 }
}

/// When the packets leave that lead a train whose own leave at these instants: at its mean gap before its
/// first packet, so that they ask no more of the way than the train does.
#[must_use]
pub fn leads(at: &[Nanos]) -> Vec<Nanos> {
    let [first, .., last] = at else { return Vec::new() };
    let gap = Nanos((*last - *first).0 / (at.len() as i64 - 1));
    if leads_of(at.len(), gap.0 as f64) == 0 {
        return Vec::new();
    }
    [gap + gap + gap.max(AHEAD), gap + gap, gap].map(|before| *first - before).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_a_train_asks_no_more_of_the_way_than_the_train() {
        let train =
            |gap: i64, count: i64| (0..count).map(|n| Nanos(7 + n * gap)).collect::<Vec<_>>();
        let before =
            |gap, count| leads(&train(gap, count)).iter().map(|at| at.0).collect::<Vec<_>>();
        assert_eq!(before(12_000, 50), [7 - 124_000, 7 - 24_000, 7 - 12_000]);
        assert_eq!(before(240_000, 3), [7 - 720_000, 7 - 480_000, 7 - 240_000]);
        assert_eq!(before(12_000, 50).len(), LEADS);
    }

    #[test]
    fn slow_trains_and_pairs_are_led_by_nothing() {
        let train = |gap: i64, count: i64| (0..count).map(|n| Nanos(n * gap)).collect::<Vec<_>>();
        for (gap, count) in [(300_001, 50), (0, 2), (12_000, 2), (0, 1), (0, 0)] {
            assert_eq!(leads(&train(gap, count)), [], "{count} packets, {gap} ns apart");
        }
    }
}
