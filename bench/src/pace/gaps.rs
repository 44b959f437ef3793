//! Accuracy of a stream, from the arrival times of its packets.

use anyhow::{Result, ensure};
use serde::Serialize;

/// Statistics of the gaps of one stream; errors are |gap - nominal gap| in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Gaps {
    pub(super) packets: u64,
    /// Rate of the stream divided by the requested rate.
    pub(super) rate_ratio: f64,
    /// Share of time in gap errors larger than a nominal gap. A sender that does not catch up stays
    /// behind by it.
    pub(super) held_up: f64,
    pub(super) median_ns: f64,
    pub(super) p95_ns: f64,
    /// Error of the first gap.
    pub(super) first_ns: f64,
    /// Median error of all other gaps.
    pub(super) others_ns: f64,
}

impl Gaps {
    /// Evaluates packets that should arrive `nominal_ns` apart.
    ///
    /// # Errors
    /// Fewer than 21 packets, too few for a p95 of the gaps.
    pub(super) fn of(stamps: &[i64], nominal_ns: f64) -> Result<Self> {
        ensure!(stamps.len() > 20, "only {} packets arrived", stamps.len());
        let error = |pair: &[i64]| ((pair[1] - pair[0]) as f64 - nominal_ns).abs();
        let errors: Vec<f64> = stamps.windows(2).map(error).collect();
        let span = (stamps[stamps.len() - 1] - stamps[0]) as f64;
        let holes = errors.iter().filter(|error| **error > nominal_ns);
        Ok(Self {
            packets: stamps.len() as u64,
            rate_ratio: nominal_ns * errors.len() as f64 / span.max(1.0),
            held_up: holes.sum::<f64>() / span.max(1.0),
            median_ns: nearest_rank(&errors, 0.5),
            p95_ns: nearest_rank(&errors, 0.95),
            first_ns: errors[0],
            others_ns: nearest_rank(&errors[1..], 0.5),
        })
    }
}

/// Returns the median gap within pairs, in nanoseconds; each stream holds one pair, or all.
///
/// # Errors
/// A packet is missing, so pairs cannot be assigned.
pub(super) fn pair_gap(streams: &[Vec<i64>], pairs: u64) -> Result<f64> {
    let whole = streams.iter().all(|stream| stream.len() % 2 == 0);
    let stamps = streams.concat();
    ensure!(
        whole && stamps.len() as u64 == 2 * pairs,
        "{} packets arrived of {pairs} pairs",
        stamps.len()
    );
    let gaps: Vec<f64> = stamps.chunks_exact(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    Ok(nearest_rank(&gaps, 0.5))
}

/// Nearest rank: the smallest value that at least a share `q` of the values does not exceed.
fn nearest_rank(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * q).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_stream_has_no_error_and_its_rate() {
        let stamps: Vec<i64> = (0..50).map(|i| 1_000 + i * 46_080).collect();
        let gaps = Gaps::of(&stamps, 46_080.0).unwrap();
        assert_eq!((gaps.median_ns, gaps.p95_ns, gaps.first_ns), (0.0, 0.0, 0.0));
        assert_eq!((gaps.rate_ratio, gaps.packets), (1.0, 50));
    }

    #[test]
    fn late_first_packet_has_its_own_figure() {
        let mut stamps: Vec<i64> = (0..50).map(|i| i * 1_000).collect();
        stamps[0] = 700;
        let gaps = Gaps::of(&stamps, 1_000.0).unwrap();
        assert_eq!((gaps.first_ns, gaps.others_ns), (700.0, 0.0));
    }

    #[test]
    fn the_rate_of_a_stream_that_never_catches_up_is_too_low() {
        let stamps: Vec<i64> = (0..50).map(|i| i * 2_000).collect();
        let gaps = Gaps::of(&stamps, 1_000.0).unwrap();
        assert_eq!((gaps.rate_ratio, gaps.median_ns), (0.5, 1_000.0));
    }

    #[test]
    fn catching_up_still_counts_as_stalled() {
        // Nothing for three gaps, then three packets at once.
        let stamps: Vec<i64> =
            (0..50).map(|i| if (20..23).contains(&i) { 23 } else { i } * 1_000).collect();
        let gaps = Gaps::of(&stamps, 1_000.0).unwrap();
        assert_eq!((gaps.rate_ratio, gaps.held_up), (1.0, 3.0 / 49.0));
        let even: Vec<i64> = (0..50).map(|i| i * 1_900).collect();
        assert_eq!(Gaps::of(&even, 1_000.0).unwrap().held_up, 0.0);
    }

    #[test]
    fn gaps_between_pairs_are_not_gaps_of_pairs() {
        let stamps = [0, 900, 1_000_000, 1_000_950, 2_000_000, 2_000_910];
        assert_eq!(pair_gap(&[stamps.to_vec()], 3).unwrap(), 910.0);
        let each: Vec<_> = stamps.chunks(2).map(<[i64]>::to_vec).collect();
        assert_eq!(pair_gap(&each, 3).unwrap(), 910.0);
        assert!(pair_gap(&each, 4).is_err());
        assert!(pair_gap(&[vec![0, 900, 1_000_950], vec![5]], 2).is_err());
    }

    #[test]
    fn a_stream_that_hardly_arrived_has_no_figures() {
        assert!(Gaps::of(&[0, 1_000], 1_000.0).is_err());
    }
}
