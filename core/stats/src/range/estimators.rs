//! Estimators of the location of a sample of round-trip times, with intervals.
//!
//! Each estimates a property of the distribution that does not depend on the number of samples, so
//! that a calibration and a measurement of different lengths are comparable. The size of the blocks
//! and the width of the kernel are therefore taken from the calibration ([`Settings`]).

use super::{RANGE_CONFIDENCE, RangeRtts, smoothed_mode};
use crate::distribution::Quantile;
use crate::interval::{independent_quantile_ranks, quantile_interval};
use crate::percentile::ranked;

/// Number of values from which dependence between neighbours is always included.
const MIN_LONG: usize = 200;
/// Share of effective values below which dependence is included in shorter series. Their number is
/// uncertain in a short series, and including it without evidence widens the interval by half.
const MAX_EFFECTIVE: f64 = 0.6;

dwell_units::named! {
    /// Estimator of the location of a sample of round-trip times.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Estimator {
        /// Median of the minima of blocks of equal size. The smallest value of all has no
        /// interval of stated coverage: it depends on the number of samples and on the unknown lower end of the
        /// distribution.
        Minimum = "minimum",
        /// Nearest-rank median.
        Median = "median",
        /// Maximum of the density smoothed with a triangular kernel.
        Mode = "mode",
    }
}

/// Settings that a calibration determines and that its measurements reuse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Number of consecutive values per block of the minimum.
    pub block: usize,
    /// Half width of the kernel of the mode, in picoseconds.
    pub kernel_ps: f64,
}

/// Location of a sample, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub rtt_ps: f64,
    /// 95 % interval; `None` if there are too few values.
    pub interval_ps: Option<(f64, f64)>,
}

impl Settings {
    /// Number of blocks that the block size aims at.
    const BLOCKS: usize = 40;
    /// Minimum and maximum block size.
    const BLOCK_RANGE: (usize, usize) = (4, 1_000);
    /// Half width of the triangular kernel in standard deviations, times n^(1/5): the width of
    /// Silverman's rule for a normal distribution.
    const KERNEL_SIGMAS: f64 = 2.6;
    /// Interquartile range of a normal distribution in standard deviations.
    const QUARTILES_PER_SIGMA: f64 = 1.349;

    /// Settings for a calibration.
    pub fn of(rtts: &RangeRtts) -> Self {
        let n = rtts.values().len();
        let (smallest, largest) = Self::BLOCK_RANGE;
        let sigma = rtts.quartile_spread_ps() as f64 / Self::QUARTILES_PER_SIGMA;
        let kernel_ps = Self::KERNEL_SIGMAS * sigma * (n as f64).powf(-0.2);
        Self {
            block: (n / Self::BLOCKS).clamp(smallest, largest),
            // Two steps of the clock: a narrower kernel would show only the steps.
            kernel_ps: kernel_ps.max(2.0 * rtts.resolution_ps()),
        }
    }
}

impl Estimate {
    /// Locates the sample. The seed is that of the bootstrap of the mode. `None` if the minimum has
    /// no complete block.
    pub fn of(
        rtts: &RangeRtts,
        estimator: Estimator,
        settings: Settings,
        seed: u64,
    ) -> Option<Self> {
        match estimator {
            Estimator::Minimum => {
                let blocks = rtts.values().chunks_exact(settings.block.max(1));
                let minima: Vec<i64> = blocks.filter_map(|b| b.iter().copied().min()).collect();
                Self::median(&minima)
            }
            Estimator::Median => Self::median(rtts.values()),
            Estimator::Mode => Some(smoothed_mode::estimate(rtts.values(), settings, seed)),
        }
    }

    /// The median with an interval of order statistics, whose coverage is exact for any number of
    /// independent values. If neighbours depend on one another, it also contains the interval for
    /// dependent series.
    fn median(values: &[i64]) -> Option<Self> {
        let n = values.len();
        let mut sorted = values.to_vec();
        let rank = n.div_ceil(2);
        if rank == 0 {
            return None;
        }
        let rtt_ps = ranked(&mut sorted, rank) as f64;
        let confidence = RANGE_CONFIDENCE;
        let ranks = independent_quantile_ranks(n as u64, Quantile::P50, confidence);
        let interval_ps = ranks.map(|(low, high)| {
            let low = ranked(&mut sorted, low as usize);
            let high = ranked(&mut sorted, high as usize);
            let dependent = quantile_interval(values, Quantile::P50, confidence)
                .filter(|found| n >= MIN_LONG || found.effective_n < MAX_EFFECTIVE * n as f64)
                .map(|found| (low.min(found.low.0), high.max(found.high.0)));
            let (low, high) = dependent.unwrap_or((low, high));
            (low as f64, high as f64)
        });
        Some(Self { rtt_ps, interval_ps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtts(values: &[i64]) -> RangeRtts {
        RangeRtts::clean(values, 1_000.0).unwrap()
    }

    #[test]
    fn too_few_values_have_an_estimate_and_no_interval() {
        let few = rtts(&[1_000_000, 1_001_000, 1_002_000, 1_003_000, 1_004_000]);
        let settings = Settings::of(&few);
        for estimator in Estimator::ALL {
            let found = Estimate::of(&few, estimator, settings, 1).unwrap();
            assert_eq!(found.interval_ps, None, "{estimator:?}");
            assert!((1_000_000.0..=1_004_000.0).contains(&found.rtt_ps), "{estimator:?} {found:?}");
        }
        let none = Estimate::of(&few, Estimator::Minimum, Settings { block: 9, ..settings }, 1);
        assert_eq!(none, None);
    }

    #[test]
    fn estimators_find_their_part_of_a_skewed_sample() {
        // Quantiles of an exponential distribution of mean 1 us above 10 us, in mixed order.
        let n = 4_000_i64;
        let exponential = |i: i64| {
            let share = (i * 1_237 % n) as f64 / n as f64;
            10_000_000 + (-(1.0 - share).ln() * 1e6) as i64
        };
        let sample = rtts(&(0..n).map(exponential).collect::<Vec<_>>());
        let settings = Settings::of(&sample);
        let at = |estimator| Estimate::of(&sample, estimator, settings, 1).unwrap().rtt_ps / 1e6;
        let [minimum, median, mode] = Estimator::ALL.map(at);
        assert!((10.0..10.05).contains(&minimum), "{minimum}");
        assert!((10.60..10.70).contains(&median), "{median}");
        assert!((10.0..10.5).contains(&mode) && minimum < mode, "{mode}");
    }

    #[test]
    fn equal_values_have_an_interval_of_no_width() {
        let equal = rtts(&[5_000; 100]);
        let settings = Settings::of(&equal);
        for estimator in Estimator::ALL {
            let found = Estimate::of(&equal, estimator, settings, 1).unwrap();
            let (low, high) = found.interval_ps.unwrap();
            assert!((low - 5_000.0).abs() <= 100.0 && (high - low) <= 200.0, "{found:?}");
        }
    }
}
