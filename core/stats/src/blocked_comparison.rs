//! Tests whether one condition shifts a per-trial figure, such as the median, against another. A
//! block compares only trials that were otherwise measured alike.
//!
//! Repeated trials differ by more than the samples within them show (thread placement, processor
//! warm-up). A trial is therefore one observation, whatever its number of samples. Without
//! repetitions there is no verdict, however large the difference.

use crate::interval::RealInterval;
use crate::probability::{is_confidence, student_quantile};
use crate::shift::Shift;

/// Minimum number of trials per side of a block, or of blocks, for a verdict. With two per side,
/// trials that have two levels separate by chance in one case out of eight.
pub const MIN_TRIALS: usize = 3;

/// Figures of trials that differ only in the condition under test: one figure per trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Baseline trials.
    pub a: Vec<f64>,
    /// Other trials.
    pub b: Vec<f64>,
}

/// Shift of the trials of B against the baseline A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockedShift {
    /// Mean of A over blocks; geometric if `relative`.
    pub baseline: f64,
    /// Mean of B over blocks; geometric if `relative`.
    pub other: f64,
    /// Whether the comparison is by ratio: if all figures are positive, because the spread of
    /// delays is proportional to their size. Otherwise it is by difference.
    pub relative: bool,
    /// Interval of the true B / A, or B - A if not `relative`; `None` with too few repetitions.
    pub interval: Option<RealInterval>,
    /// Verdict of the interval.
    pub shift: Shift,
    /// Number of trials of A and of B used.
    pub trials: [usize; 2],
}

/// Compares trials within each block and averages over blocks of equal weight, with a Student
/// interval. If enough blocks have at least two trials on both sides, its width comes from the
/// spread within them, each with its own variance (Welch, Satterthwaite; Cochran's strata). With
/// single trials it comes from the spread of the difference over blocks.
///
/// Returns `None` if no block has both sides or a figure is not finite. Assumes independent trials,
/// so run them in random or alternating order.
///
/// ```
/// use dwell_stats::{Block, Shift, blocked_shift};
///
/// // Medians of trials in us: three idle and three loaded ones at each of two packet sizes.
/// let blocks = [
///     Block { a: vec![20.1, 20.4, 19.8], b: vec![31.0, 30.2, 30.9] },
///     Block { a: vec![25.0, 25.3, 24.9], b: vec![38.1, 37.2, 37.7] },
/// ];
/// let load = blocked_shift(&blocks, 0.95).expect("both blocks have both sides");
/// assert!(load.relative && load.shift == Shift::Rises);
///
/// let once = blocked_shift(&[Block { a: vec![20.1], b: vec![31.0] }], 0.95);
/// assert_eq!(once.map(|shift| shift.shift), Some(Shift::CannotTell));
/// ```
pub fn blocked_shift(blocks: &[Block], confidence: f64) -> Option<BlockedShift> {
    let figures = || blocks.iter().filter(|block| block.has_both()).flat_map(Block::figures);
    compare_blocks(blocks, confidence, figures().all(|figure| *figure > 0.0))
}

/// Like [`blocked_shift`], but always by difference: for a threshold that is a delay.
pub fn blocked_difference(blocks: &[Block], confidence: f64) -> Option<BlockedShift> {
    compare_blocks(blocks, confidence, false)
}

/// Estimates the typical figure of one condition over cells of equal weight; each cell holds the
/// figures of trials that were measured alike. The estimate is `other`, its interval is `interval`.
/// Geometric if all figures are positive.
///
/// Only cells measured at least twice count, because the spread between cells reflects their
/// parameters. `interval` is `None` with too few of them, as in [`blocked_shift`]. Returns `None`
/// without figures or if a figure is not finite.
///
/// ```
/// use dwell_stats::blocked_level;
///
/// // Medians of trials in us, three at each of two packet sizes.
/// let cells = [vec![20.1, 20.4, 19.8], vec![80.3, 79.6, 80.1]];
/// let level = blocked_level(&cells, 0.95).expect("there are figures");
/// let interval = level.interval.expect("three trials per cell");
/// assert!((39.5..40.5).contains(&level.other), "geometric mean over cells");
/// assert!(interval.low < level.other && level.other < interval.high);
/// ```
pub fn blocked_level(cells: &[Vec<f64>], confidence: f64) -> Option<BlockedShift> {
    let positive = cells.iter().flatten().all(|figure| *figure > 0.0);
    // Against a side without variation, only the spread of these figures remains.
    let against_constant = |cell: &Vec<f64>| Block {
        a: vec![if positive { 1.0 } else { 0.0 }; cell.len()],
        b: cell.clone(),
    };
    let blocks: Vec<Block> = cells.iter().map(against_constant).collect();
    let found = compare_blocks(&blocks, confidence, positive)?;
    let repeated = cells.iter().filter(|cell| cell.len() > 1).count();
    let has_min_trials = cells.iter().any(|cell| cell.len() >= MIN_TRIALS);
    let is_sufficient = repeated >= MIN_TRIALS || has_min_trials;
    let without_interval = BlockedShift { interval: None, shift: Shift::CannotTell, ..found };
    Some(if is_sufficient { found } else { without_interval })
}

/// Mean of the figures over cells of equal weight; each cell holds the figures of trials that were
/// measured alike. Geometric if all are positive. Equals the two means of [`blocked_shift`] if both
/// sides have these cells. `None` without figures or if a figure is not finite.
pub fn blocked_mean(cells: &[Vec<f64>]) -> Option<f64> {
    let measured: Vec<&Vec<f64>> = cells.iter().filter(|cell| !cell.is_empty()).collect();
    let figures = || measured.iter().copied().flatten();
    if measured.is_empty() || figures().any(|figure| !figure.is_finite()) {
        return None;
    }
    let is_relative = figures().all(|figure| *figure > 0.0);
    let sum: f64 = measured.iter().map(|cell| Mean::of(cell, is_relative).value).sum();
    let mean = sum / measured.len() as f64;
    Some(if is_relative { mean.exp() } else { mean })
}

impl Block {
    fn has_both(&self) -> bool {
        !self.a.is_empty() && !self.b.is_empty()
    }

    fn figures(&self) -> impl Iterator<Item = &f64> {
        self.a.iter().chain(&self.b)
    }
}

fn compare_blocks(blocks: &[Block], confidence: f64, relative: bool) -> Option<BlockedShift> {
    let both: Vec<&Block> = blocks.iter().filter(|block| block.has_both()).collect();
    if both.is_empty() || both.iter().flat_map(|b| b.figures()).any(|figure| !figure.is_finite()) {
        return None;
    }
    let repeated: Vec<&Block> =
        both.iter().copied().filter(|block| block.a.len() > 1 && block.b.len() > 1).collect();
    let has_min_trials =
        |block: &&Block| block.a.len() >= MIN_TRIALS && block.b.len() >= MIN_TRIALS;
    let is_sufficient = repeated.len() >= MIN_TRIALS || repeated.iter().any(has_min_trials);
    let used = if is_sufficient { repeated } else { both };
    let strata: Vec<[Mean; 2]> = used
        .iter()
        .map(|block| [Mean::of(&block.a, relative), Mean::of(&block.b, relative)])
        .collect();
    let count = strata.len() as f64;
    let mean = |side: usize| strata.iter().map(|pair| pair[side].value).sum::<f64>() / count;
    let spread = if is_sufficient {
        Some(within(&strata))
    } else {
        (strata.len() >= MIN_TRIALS).then(|| between(&strata))
    };
    let to_figure = |log: f64| if relative { log.exp() } else { log };
    let mut shift = BlockedShift {
        baseline: to_figure(mean(0)),
        other: to_figure(mean(1)),
        relative,
        interval: None,
        shift: Shift::CannotTell,
        trials: trials(&used),
    };
    if let Some(spread) = spread.filter(|_| is_confidence(confidence)) {
        // Rounding errors of equal figures are not a difference.
        let grain = 1e-9 * if relative { 1.0 } else { mean(0).abs().max(mean(1).abs()) };
        let margin = spread.margin(confidence) + grain;
        let difference = mean(1) - mean(0);
        let (low, high) = (difference - margin, difference + margin);
        shift.interval = Some(RealInterval { low: to_figure(low), high: to_figure(high) });
        shift.shift = Shift::of(low, high);
    }
    Some(shift)
}

/// Mean of a few figures and its squared standard error.
#[derive(Clone, Copy)]
struct Mean {
    value: f64,
    /// Squared standard error of the mean; 0 for a single figure.
    square_error: f64,
    freedom: f64,
}

impl Mean {
    fn of(figures: &[f64], logarithmic: bool) -> Self {
        let scaled =
            || figures.iter().map(|figure| if logarithmic { figure.ln() } else { *figure });
        let n = figures.len() as f64;
        let value = scaled().sum::<f64>() / n;
        let freedom = n - 1.0;
        let squares: f64 = scaled().map(|figure| (figure - value).powi(2)).sum();
        let square_error = if figures.len() > 1 { squares / freedom / n } else { 0.0 };
        Self { value, square_error, freedom }
    }
}

/// A standard error with its degrees of freedom.
#[derive(Clone, Copy)]
struct Spread {
    error: f64,
    freedom: f64,
}

impl Spread {
    fn margin(self, confidence: f64) -> f64 {
        if self.error == 0.0 {
            return 0.0;
        }
        student_quantile(0.5 + confidence / 2.0, self.freedom) * self.error
    }
}

/// Spread of trials within each side of each block.
fn within(strata: &[[Mean; 2]]) -> Spread {
    let each = || strata.iter().flatten();
    let sum: f64 = each().map(|mean| mean.square_error).sum();
    let parts: f64 = each().map(|mean| mean.square_error.powi(2) / mean.freedom).sum();
    let freedom = if parts > 0.0 { sum * sum / parts } else { 1.0 };
    Spread { error: sum.sqrt() / strata.len() as f64, freedom }
}

/// Spread of the difference over blocks.
fn between(strata: &[[Mean; 2]]) -> Spread {
    let differences: Vec<f64> = strata.iter().map(|[a, b]| b.value - a.value).collect();
    let mean = Mean::of(&differences, false);
    Spread { error: mean.square_error.sqrt(), freedom: mean.freedom }
}

fn trials(blocks: &[&Block]) -> [usize; 2] {
    blocks.iter().fold([0, 0], |[a, b], block| [a + block.a.len(), b + block.b.len()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(a: &[f64], b: &[f64]) -> Block {
        Block { a: a.to_vec(), b: b.to_vec() }
    }

    #[test]
    fn single_trials_give_no_interval() {
        let found = blocked_shift(&[block(&[17.2], &[137.0])], 0.95).unwrap();
        assert_eq!((found.interval, found.shift), (None, Shift::CannotTell));
        assert!((found.baseline - 17.2).abs() < 1e-9 && (found.other - 137.0).abs() < 1e-9);
        let two = blocked_shift(&[block(&[1.0, 1.1], &[9.0, 9.1])], 0.95).unwrap();
        assert_eq!((two.interval, two.trials), (None, [2, 2]));
    }

    #[test]
    fn separated_trials_in_two_blocks_differ() {
        // Medians in milliseconds at 100 B and 1400 B, idle and busy.
        let idle = block(&[0.31, 0.30, 0.33], &[4.68, 4.70, 4.75]);
        let busy = block(&[0.9, 1.44, 1.1], &[5.2, 6.9, 8.1]);
        let found = blocked_shift(&[idle, busy], 0.99).unwrap();
        assert_eq!((found.shift, found.trials), (Shift::Rises, [6, 6]));
        let interval = found.interval.unwrap();
        let ratio = found.other / found.baseline;
        assert!(interval.low > 4.0 && interval.low < ratio && ratio < interval.high, "{found:?}");
    }

    #[test]
    fn three_trials_per_side_match_welch_on_logarithms() {
        let e = f64::exp;
        let found =
            blocked_shift(&[block(&[e(0.0), e(0.1), e(0.2)], &[e(1.0), e(1.2), e(1.4)])], 0.95);
        // Standard errors 0.0577 and 0.1155, 2.94 degrees of freedom: t is 3.22.
        let interval = found.unwrap().interval.unwrap();
        let (low, high) = (interval.low.ln(), interval.high.ln());
        assert!((low - 0.684).abs() < 0.01 && (high - 1.516).abs() < 0.01, "{low} to {high}");
    }

    #[test]
    fn single_trials_use_the_spread_over_blocks() {
        let steady: Vec<Block> =
            [100.0, 300.0, 900.0, 200.0].map(|level| block(&[level], &[level * 1.5])).into();
        assert_eq!(blocked_shift(&steady, 0.95).unwrap().shift, Shift::Rises);
        assert_eq!(blocked_shift(&steady[..2], 0.95).unwrap().shift, Shift::CannotTell);
        let unsteady = [1.5, 0.7, 1.2, 0.9].map(|factor| block(&[100.0], &[100.0 * factor]));
        assert_eq!(blocked_shift(&unsteady, 0.95).unwrap().shift, Shift::CannotTell);
    }

    #[test]
    fn non_positive_figures_are_compared_by_difference() {
        let found = blocked_shift(&[block(&[-5.0, -4.0, -6.0], &[5.0, 4.0, 6.0])], 0.95).unwrap();
        assert_eq!((found.relative, found.shift), (false, Shift::Rises));
        assert_eq!((found.baseline, found.other), (-5.0, 5.0));
        assert_eq!(blocked_shift(&[block(&[f64::NAN], &[1.0])], 0.95), None);
        assert_eq!(blocked_shift(&[block(&[1.0], &[])], 0.95), None);
        assert_eq!(blocked_shift(&[], 0.95), None);
    }

    #[test]
    fn level_interval_ignores_the_spread_between_cells() {
        // Three cells far apart, each steady within itself: the geometric mean is 0.3.
        let cells = [vec![0.03, 0.0301], vec![0.3, 0.301], vec![3.0, 3.01]];
        let interval = blocked_level(&cells, 0.99).unwrap().interval.unwrap();
        assert!(interval.low > 0.295 && interval.high < 0.306, "{interval:?}");
        let once = [vec![0.3], vec![0.3], vec![0.3], vec![0.31]];
        assert_eq!(blocked_level(&once, 0.95).unwrap().interval, None);
        assert_eq!(blocked_level(&cells[..2], 0.95).unwrap().interval, None);
        assert!(blocked_level(&[vec![-1.0, 2.0, 0.5]], 0.95).unwrap().interval.is_some());
        assert_eq!(blocked_level(&[vec![f64::NAN, 1.0]], 0.95), None);
        assert_eq!(blocked_level(&[], 0.95), None);
    }

    #[test]
    fn blocked_mean_weighs_cells_equally() {
        let cells = [vec![1.0, 1.0, 1.0], vec![100.0]];
        assert!((blocked_mean(&cells).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(blocked_mean(&[vec![-1.0, 4.0]]), Some(1.5));
        assert_eq!(blocked_mean(&[vec![f64::NAN]]), None);
        assert_eq!(blocked_mean(&[Vec::new()]), None);
        let (a, b) = ([31.0, 35.0, 30.0], [61.0, 66.0, 60.0]);
        let found = blocked_shift(&[block(&a, &b)], 0.95).unwrap();
        let typical = |side: &[f64]| blocked_mean(&[side.to_vec()]).unwrap();
        assert_eq!((found.baseline, found.other), (typical(&a), typical(&b)));
    }

    #[test]
    fn difference_of_delays_is_in_their_unit() {
        let found = blocked_difference(&[block(&[30.0, 31.0, 32.0], &[130.0, 133.0, 136.0])], 0.95)
            .unwrap();
        assert_eq!((found.relative, found.shift), (false, Shift::Rises));
        let interval = found.interval.unwrap();
        assert!(interval.low > 90.0 && interval.high < 115.0, "{interval:?}");
    }

    fn blocks() -> impl Strategy<Value = Vec<Block>> {
        let side = || prop::collection::vec(1.0..1e6_f64, 0..5);
        let block = (side(), side()).prop_map(|(a, b)| Block { a, b });
        prop::collection::vec(block, 0..5)
    }

    proptest! {
        #[test]
        fn swapping_the_sides_swaps_the_verdict(blocks in blocks()) {
            let swapped: Vec<Block> =
                blocks.iter().map(|b| block(&b.b, &b.a)).collect();
            let (there, back) = (blocked_shift(&blocks, 0.9), blocked_shift(&swapped, 0.9));
            prop_assert_eq!(there.is_some(), back.is_some());
            if let Some((there, back)) = there.zip(back) {
                let opposite = match there.shift {
                    Shift::Rises => Shift::Falls,
                    Shift::Falls => Shift::Rises,
                    Shift::CannotTell => Shift::CannotTell,
                };
                prop_assert_eq!(back.shift, opposite);
                prop_assert!((there.baseline / back.other - 1.0).abs() < 1e-9);
            }
        }

        #[test]
        fn identical_sides_never_differ(blocks in blocks()) {
            let same: Vec<Block> =
                blocks.iter().map(|b| block(&b.a, &b.a)).collect();
            let found = blocked_shift(&same, 0.5);
            prop_assert!(found.is_none_or(|found| found.shift == Shift::CannotTell));
        }

        #[test]
        fn verdict_is_independent_of_the_time_unit(blocks in blocks(), scale in 0.001..1_000.0_f64) {
            let scaled = |side: &[f64]| side.iter().map(|x| x * scale).collect::<Vec<_>>();
            let other: Vec<Block> =
                blocks.iter().map(|b| Block { a: scaled(&b.a), b: scaled(&b.b) }).collect();
            if let Some((one, other)) =
                blocked_shift(&blocks, 0.9).zip(blocked_shift(&other, 0.9))
            {
                prop_assert!((other.baseline / one.baseline / scale - 1.0).abs() < 1e-6);
                if let Some((one, other)) = one.interval.zip(other.interval) {
                    prop_assert!((one.low / other.low - 1.0).abs() < 1e-5);
                    prop_assert!((one.high / other.high - 1.0).abs() < 1e-5);
                }
            }
        }
    }
}
