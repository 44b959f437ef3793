//! One-sided exact binomial tests of a share of probes against an allowed share.

use crate::probability::binomial_at_most;

/// Accepted probability of a wrong verdict on each side.
const MAX_ERROR_PROBABILITY: f64 = 0.05;

/// Largest number of probes reported as sufficient.
const MAX_REPORTED_PROBES: u64 = 1_000_000_000;

/// Returns whether the true share exceeds `allowed`, between 0 and 1, given `hits` among `probes`
/// independent probes; `None` if neither answer has 95 % confidence.
pub(super) fn exceeds(hits: u64, probes: u64, allowed: f64) -> Option<bool> {
    let (hits, probes) = (hits.min(probes) as f64, probes as f64);
    // Probability of at least this many hits at the allowed share.
    if 1.0 - binomial_at_most(hits - 1.0, probes, allowed) <= MAX_ERROR_PROBABILITY {
        return Some(true);
    }
    // Probability of at most this many hits at the allowed share.
    (binomial_at_most(hits, probes, allowed) <= MAX_ERROR_PROBABILITY).then_some(false)
}

/// Returns the number of probes that would decide with the same share of hits; `None` above a
/// billion. Without hits it is the exact minimum, otherwise an estimate.
pub(super) fn sufficient_probes(hits: u64, probes: u64, allowed: f64) -> Option<u64> {
    let decides = |n: u64| {
        let scaled = (u128::from(hits) * u128::from(n)).div_ceil(u128::from(probes.max(1)));
        exceeds(scaled as u64, n, allowed).is_some()
    };
    let mut high = probes.max(1);
    while !decides(high) {
        high = high.checked_mul(2).filter(|n| *n <= MAX_REPORTED_PROBES)?;
    }
    let mut low = probes;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if decides(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_percentile_needs_its_number_of_probes() {
        // The smallest n with q^n <= 0.05.
        for (allowed, needed) in [(0.5, 5), (0.1, 29), (0.05, 59), (0.01, 299), (0.001, 2_995)] {
            assert_eq!(exceeds(0, needed, allowed), Some(false), "{allowed}");
            assert_eq!(exceeds(0, needed - 1, allowed), None, "{allowed}");
            assert_eq!(sufficient_probes(0, 2, allowed), Some(needed), "{allowed}");
        }
    }

    #[test]
    fn share_near_the_allowed_one_stays_undecided() {
        assert_eq!(exceeds(1, 100, 0.01), None);
        assert_eq!(exceeds(10, 100, 0.01), Some(true));
        assert_eq!(exceeds(3, 3, 0.01), Some(true), "three of three probes exceed it");
        assert_eq!(exceeds(100_000, 10_000_000, 0.011), Some(false));
        let guide = sufficient_probes(4, 200, 0.01).unwrap();
        assert!((300..2_000).contains(&guide), "{guide}");
        assert_eq!(sufficient_probes(1, 100, 0.01), None, "the share is the allowed one");
    }
}
