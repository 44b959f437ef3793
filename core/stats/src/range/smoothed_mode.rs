//! Mode of the density smoothed with a triangular kernel, and its interval.
//!
//! With a kernel of fixed width the mode is a smooth function of the sample, unlike the mode
//! without smoothing, for which the bootstrap fails. The bootstrap draws overlapping blocks of
//! consecutive values (Künsch 1989), which keeps the dependence between neighbours.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::RANGE_CONFIDENCE;
use super::estimators::{Estimate, Settings};
use crate::dependence::Dependence;
use crate::interval::share_below;
use crate::percentile::ranked;

/// Number of cells per half width of the kernel.
const CELLS_PER_KERNEL: usize = 16;
/// Maximum number of cells; with a wider range of values, cells are wider.
const MAX_CELLS: usize = 8_192;
/// Number of bootstrap samples.
const RESAMPLES: usize = 400;
/// Minimum number of values for an interval.
const MIN_VALUES: usize = 16;
/// Minimum number of independent blocks in a series.
const MIN_BLOCKS: usize = 8;

/// Estimates the mode of at least one value.
pub(super) fn estimate(values: &[i64], settings: Settings, seed: u64) -> Estimate {
    let grid = Grid::of(values, settings.kernel_ps);
    let cells: Vec<u32> = values.iter().map(|&value| grid.cell(value)).collect();
    let mut counts = vec![0_u32; grid.len];
    cells.iter().for_each(|&cell| counts[cell as usize] += 1);
    let mut sums = Vec::new();
    let rtt_ps = grid.peak(&counts, &mut sums);
    if values.len() < MIN_VALUES {
        return Estimate { rtt_ps, interval_ps: None };
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let block = block_len(values);
    let n = cells.len();
    let mut peaks: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            counts.fill(0);
            let mut drawn = 0;
            while drawn < n {
                let start = random.random_range(0..n);
                let len = block.min(n - drawn);
                // The series is a circle, so that its ends are drawn as often as its middle.
                for i in start..start + len {
                    counts[cells[if i < n { i } else { i - n }] as usize] += 1;
                }
                drawn += len;
            }
            grid.peak(&counts, &mut sums)
        })
        .collect();
    peaks.sort_unstable_by(f64::total_cmp);
    let tail = ((1.0 - RANGE_CONFIDENCE) / 2.0 * RESAMPLES as f64) as usize;
    let (low, high) = (peaks[tail - 1], peaks[RESAMPLES - tail]);
    Estimate { rtt_ps, interval_ps: Some((low.min(rtt_ps), high.max(rtt_ps))) }
}

/// Length of the blocks: n^(1/3), longer the more neighbours depend on one another.
fn block_len(values: &[i64]) -> usize {
    let n = values.len();
    let middle = ranked(&mut values.to_vec(), n.div_ceil(2));
    let inflation = Dependence::of(n, |i| share_below(values[i], middle))
        .filter(|found| found.variance > 0.0)
        .map_or(1.0, |found| (found.long_run / found.variance).max(1.0));
    let len = (n as f64).cbrt() * inflation.powf(2.0 / 3.0);
    (len.ceil() as usize).clamp(1, (n / MIN_BLOCKS).max(1))
}

/// Cells of equal width that hold all values and a margin.
struct Grid {
    origin: i64,
    width: f64,
    len: usize,
    /// Width of a box in cells; two boxes in succession are a triangle.
    box_len: usize,
}

impl Grid {
    fn of(values: &[i64], kernel_ps: f64) -> Self {
        let lowest = values.iter().copied().min().unwrap_or(0);
        let highest = values.iter().copied().max().unwrap_or(0);
        let range = highest.abs_diff(lowest) as f64;
        let width = (kernel_ps.max(1.0) / CELLS_PER_KERNEL as f64).max(range / MAX_CELLS as f64);
        let box_len = ((kernel_ps / width).round() as usize).clamp(1, CELLS_PER_KERNEL);
        Self { origin: lowest, width, len: (range / width) as usize + 1, box_len }
    }

    fn cell(&self, value: i64) -> u32 {
        let cell = (value.abs_diff(self.origin) as f64 / self.width) as usize;
        cell.min(self.len - 1) as u32
    }

    /// Position of the highest smoothed count, interpolated between cells. `sums` is scratch space.
    fn peak(&self, counts: &[u32], sums: &mut Vec<u64>) -> f64 {
        let box_len = self.box_len;
        sums.clear();
        sums.extend(counts.iter().map(|&count| u64::from(count)));
        box_sums(sums, box_len);
        box_sums(sums, box_len);
        let highest = sums.iter().copied().max().unwrap_or(0);
        // The middle of all equally high cells next to the first of them.
        let first = sums.iter().position(|&sum| sum == highest).unwrap_or(0);
        let equal = sums[first..].iter().take_while(|&&sum| sum == highest).count();
        let last = first + equal - 1;
        let neighbour = |i: Option<usize>| i.and_then(|i| sums.get(i)).copied().unwrap_or(0) as f64;
        let left = neighbour(first.checked_sub(1));
        let right = neighbour(Some(last + 1));
        let curvature = 2.0 * highest as f64 - left - right;
        let shift = if curvature > 0.0 { 0.5 * (right - left) / curvature } else { 0.0 };
        // Both boxes together shift by a box length minus one; cells are read at their middle.
        let cell = (first + last) as f64 / 2.0 + shift - (box_len - 1) as f64 + 0.5;
        self.origin as f64 + cell * self.width
    }
}

/// Replaces each entry by the sum of the `len` entries that end there, and appends the sums that end
/// after the last entry.
fn box_sums(values: &mut Vec<u64>, len: usize) {
    values.resize(values.len() + len - 1, 0);
    let mut total = 0;
    for value in values.iter_mut() {
        total += *value;
        *value = total;
    }
    // From the last on, so that each total is still there when it is subtracted.
    for i in (len..values.len()).rev() {
        values[i] -= values[i - len];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_of_a_symmetric_triangle_is_its_middle() {
        let mut values = Vec::new();
        for step in 0..41_i64 {
            let count = 21 - (step - 20).abs();
            values.extend(std::iter::repeat_n(1_000_000 + step * 1_000, count as usize));
        }
        let grid = Grid::of(&values, 8_000.0);
        let mut counts = vec![0; grid.len];
        values.iter().for_each(|&value| counts[grid.cell(value) as usize] += 1);
        let peak = grid.peak(&counts, &mut Vec::new());
        assert!((peak - 1_020_000.0).abs() < 600.0, "{peak}");
    }

    #[test]
    fn boxes_sum_the_entries_that_end_in_them() {
        let mut values = vec![1, 0, 0, 5];
        box_sums(&mut values, 2);
        assert_eq!(values, [1, 1, 0, 5, 5]);
    }

    #[test]
    fn dependent_series_has_longer_blocks() {
        let mixed: Vec<i64> = (0..1_000).map(|i| i * 7_919 % 1_000).collect();
        let slow: Vec<i64> = (0..1_000).map(|i| i / 100 * 37 % 10 * 1_000 + i % 7).collect();
        assert!(block_len(&mixed) <= 12, "{}", block_len(&mixed));
        assert!(block_len(&slow) > 40, "{}", block_len(&slow));
    }
}
