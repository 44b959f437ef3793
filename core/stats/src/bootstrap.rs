//! Block bootstrap of the quantiles of a time series.
//!
//! Resampling blocks of consecutive samples (Künsch 1989; non-overlapping, Carlstein 1986) keeps
//! the dependence between neighbours. A resampled series is represented by how often each block was
//! drawn and is never built. Its quantile is found by walking the sorted values near the quantile,
//! each weighted by the draws of its block. The result is exact, and the cost depends on the number
//! of values near the quantile, not on the length of the series.

use rand::{Rng, RngExt};

use crate::dependence::Dependence;
use crate::distribution::Quantile;
use crate::interval::share_below;
use crate::percentile::ranked;

/// Maximum number of blocks. It keeps blocks long enough to include slow changes of the series.
const MAX_BLOCKS: usize = 64;
/// Minimum number of blocks to draw from.
const MIN_BLOCKS: usize = 8;
/// Width of the searched range to either side, in standard errors of the rank.
const SEARCH_RANGE_SIGMAS: f64 = 8.0;
/// Maximum number of cells per quantile; more values than this are grouped.
const MAX_CELLS: usize = 4_000;

/// A series cut into blocks, prepared for drawing.
pub(crate) struct Blocks {
    sizes: Vec<u64>,
    reaches: Vec<QuantileRange>,
}

/// The values around one quantile.
struct QuantileRange {
    quantile: Quantile,
    /// Number of values below the range, per block.
    below: Vec<u64>,
    /// Values within the range, smallest first.
    cells: Vec<Cell>,
}

struct Cell {
    value: i64,
    block: u32,
    count: u32,
}

impl Blocks {
    /// Cuts a series in time order into blocks; `None` if it is too short. Linear in its length for
    /// each quantile.
    pub(crate) fn of(values: &[i64], quantiles: &[Quantile]) -> Option<Self> {
        let blocks = block_count(values)?;
        let sizes =
            (0..blocks).map(|b| (edge(b + 1, blocks, values) - edge(b, blocks, values)) as u64);
        let reaches = quantiles.iter().map(|&quantile| QuantileRange::of(values, blocks, quantile));
        Some(Self { sizes: sizes.collect(), reaches: reaches.collect::<Option<_>>()? })
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Draws as many blocks as there are, with replacement; returns how often each block was drawn.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> Vec<u64> {
        let blocks = self.count();
        let mut drawn = vec![0; blocks];
        (0..blocks).for_each(|_| drawn[rng.random_range(0..blocks)] += 1);
        drawn
    }

    /// Returns each quantile, in the requested order, of the series formed by the drawn blocks.
    pub(crate) fn quantiles(&self, drawn: Vec<u64>) -> impl Iterator<Item = i64> {
        let n = weighted_sum(&drawn, &self.sizes);
        self.reaches.iter().map(move |reach| reach.quantile(&drawn, n))
    }
}

impl QuantileRange {
    fn of(values: &[i64], blocks: usize, quantile: Quantile) -> Option<Self> {
        let n = values.len();
        let rank = quantile.rank(n as u64)? as usize;
        let mut scratch = values.to_vec();
        let estimate = ranked(&mut scratch, rank);
        let series = Dependence::of(n, |i| share_below(values[i], estimate))?;
        let margin = (SEARCH_RANGE_SIGMAS * (series.long_run * n as f64).sqrt()) as usize + 40;
        let low = ranked(&mut scratch, rank.saturating_sub(margin).max(1));
        let high = ranked(&mut scratch, (rank + margin).min(n));
        let mut below = vec![0; blocks];
        let mut within = Vec::new();
        for (block, below) in below.iter_mut().enumerate() {
            for &value in &values[edge(block, blocks, values)..edge(block + 1, blocks, values)] {
                *below += u64::from(value < low);
                if low <= value && value <= high {
                    within.push((value, block as u32));
                }
            }
        }
        within.sort_unstable();
        Some(Self { quantile, below, cells: cells(within) })
    }

    /// Returns the quantile of the drawn blocks, which hold `n` values, clamped to the searched
    /// range.
    fn quantile(&self, drawn: &[u64], n: u64) -> i64 {
        let rank = self.quantile.rank(n).unwrap_or(n);
        let mut passed = weighted_sum(drawn, &self.below);
        for cell in &self.cells {
            passed += u64::from(cell.count) * drawn[cell.block as usize];
            if passed >= rank {
                return cell.value;
            }
        }
        self.cells.last().map_or(0, |cell| cell.value)
    }
}

/// Groups values of nearly equal rank within each block.
fn cells(mut within: Vec<(i64, u32)>) -> Vec<Cell> {
    let width = within.len().div_ceil(MAX_CELLS).max(1);
    for cell in within.chunks_mut(width) {
        let value = cell[cell.len() / 2].0;
        cell.iter_mut().for_each(|member| member.0 = value);
    }
    within.sort_unstable();
    let same = within.chunk_by(|a, b| a == b);
    same.map(|same| Cell { value: same[0].0, block: same[0].1, count: same.len() as u32 }).collect()
}

/// Chooses the number of blocks: three quarters of the square root of the number of samples, halved
/// while neighbouring blocks are still correlated, because such blocks are too short to contain the
/// dependence.
fn block_count(values: &[i64]) -> Option<usize> {
    let mut blocks = (values.len().isqrt() * 3 / 4).min(MAX_BLOCKS);
    if blocks < MIN_BLOCKS {
        return None;
    }
    let middle = ranked(&mut values.to_vec(), values.len().div_ceil(2));
    while blocks / 2 >= MIN_BLOCKS && neighbours_resemble(values, blocks, middle) {
        blocks /= 2;
    }
    Some(blocks)
}

/// Returns whether the shares of samples below `threshold` in neighbouring blocks are correlated,
/// at a one-sided significance of 2.5 %.
fn neighbours_resemble(values: &[i64], blocks: usize, threshold: i64) -> bool {
    let share = |block: usize| {
        let block = &values[edge(block, blocks, values)..edge(block + 1, blocks, values)];
        block.iter().map(|&v| share_below(v, threshold)).sum::<f64>() / block.len() as f64
    };
    let shares: Vec<_> = (0..blocks).map(share).collect();
    let mean = shares.iter().sum::<f64>() / blocks as f64;
    let products: f64 = shares.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    products > 1.96 / (blocks as f64).sqrt() * squares
}

/// Index of the first sample of a block.
fn edge(block: usize, blocks: usize, values: &[i64]) -> usize {
    (block as u128 * values.len() as u128 / blocks as u128) as usize
}

fn weighted_sum(drawn: &[u64], counts: &[u64]) -> u64 {
    drawn.iter().zip(counts).map(|(times, count)| times * count).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SEED: u64 = 8;

    fn random(n: usize) -> Vec<i64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        (0..n).map(|_| rng.random_range(0..1_000_000)).collect()
    }

    #[test]
    fn blocks_grow_until_neighbours_are_uncorrelated() {
        assert_eq!(block_count(&random(100)), None);
        assert_eq!(block_count(&random(2_500)), Some(37), "seed {SEED}");
        assert_eq!(block_count(&random(1_000_000)), Some(MAX_BLOCKS), "seed {SEED}");
        // Five levels: the samples within one level are one observation.
        let levels: Vec<i64> = random(10_000)
            .iter()
            .enumerate()
            .map(|(i, v)| v + [0, 9, 2, 7, 1][i / 2_000] * 1_000_000)
            .collect();
        assert!(block_count(&levels).unwrap() < 20, "seed {SEED}");
    }

    #[test]
    fn grouped_values_keep_enough_resolution() {
        let values: Vec<i64> = (0..400_000).map(|i| (i / 1_000) * 1_000 + i * 7 % 1_000).collect();
        let blocks = Blocks::of(&values, &[Quantile::P50]).unwrap();
        assert!(blocks.reaches[0].cells.len() <= MAX_CELLS * blocks.count());
        let once = vec![1; blocks.count()];
        let found = blocks.quantiles(once).next().unwrap();
        assert!((found - 200_000).abs() <= 200, "{found}");
    }

    proptest! {
        #[test]
        fn quantile_of_drawn_blocks_matches_the_built_series(
            values in proptest::collection::vec(0..400_i64, 130..400),
            draws in proptest::collection::vec(any::<prop::sample::Index>(), 8..14),
            ppm in 100_000..900_000_u32,
        ) {
            let quantile = Quantile::from_ppm(ppm).unwrap();
            let blocks = Blocks::of(&values, &[quantile]).unwrap();
            let mut drawn = vec![0; blocks.count()];
            let mut series = Vec::new();
            for draw in draws {
                let block = draw.index(blocks.count());
                drawn[block] += 1;
                let (from, to) = (
                    edge(block, blocks.count(), &values),
                    edge(block + 1, blocks.count(), &values),
                );
                series.extend_from_slice(&values[from..to]);
            }
            let cells = &blocks.reaches[0].cells;
            let reach = cells[0].value..=cells[cells.len() - 1].value;
            let naive = crate::percentile(&series, quantile).unwrap().0;
            let expected = naive.clamp(*reach.start(), *reach.end());
            prop_assert_eq!(blocks.quantiles(drawn).next(), Some(expected));
        }
    }
}
