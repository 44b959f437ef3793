//! Sums of independent delays, by convolution on a grid.

use crate::quantile_function::QuantileFunction;

/// Number of steps of a grid.
pub const BINS: usize = 4_096;

/// Distribution of a delay on a grid: the share `mass[k]` of the delays is `offset + k step`.
///
/// Every value is divided between the two nearest points of the grid such that its mean is kept.
/// A value moves by less than one step, and means are exact. Values beyond the last point are
/// counted in `above`.
#[derive(Clone, Debug)]
pub struct DelayGrid {
    step: f64,
    offset: f64,
    mass: Vec<f64>,
    above: f64,
}

impl DelayGrid {
    /// A delay of 0.
    ///
    /// # Panics
    /// If the step is not positive.
    pub fn zero(step: f64) -> Self {
        assert!(step > 0.0, "the step of a grid is positive");
        Self { step, offset: 0.0, mass: vec![1.0], above: 0.0 }
    }

    /// A single delay on a grid with this step.
    ///
    /// # Panics
    /// If the step is not positive.
    pub fn of(delay: &QuantileFunction, step: f64) -> Self {
        let mut grid = Self::zero(step);
        grid.offset = delay.min();
        grid.mass.clear();
        for (share, low, high) in delay.segments().filter(|segment| segment.0 > 0.0) {
            let position = |value: f64| (value - grid.offset) / step;
            grid.add_uniform(share, position(low), position(high));
        }
        grid
    }

    /// Adds a share that is uniform between two positions, counted in steps.
    fn add_uniform(&mut self, share: f64, low: f64, high: f64) {
        let last = BINS as f64;
        if low >= last {
            self.above += share;
            return;
        }
        if high - low < 1e-9 {
            self.add_point(share, low);
            return;
        }
        let density = share / (high - low);
        if high > last {
            self.above += density * (high - last);
        }
        let end = high.min(last);
        let mut from = low;
        while from < end {
            // The end of the step, or of the segment; a position on a step's end takes the next one.
            let to = (from.floor() + 1.0).min(end);
            self.add_point(density * (to - from), (from + to) / 2.0);
            from = to;
        }
    }

    /// Adds a share at a position between two points of the grid.
    fn add_point(&mut self, share: f64, position: f64) {
        let place = position.floor().max(0.0);
        let upper = position - place;
        let index = place as usize;
        if self.mass.len() < index + 2 {
            self.mass.resize(index + 2, 0.0);
        }
        self.mass[index] += share * (1.0 - upper);
        self.mass[index + 1] += share * upper;
    }

    /// The sum with another, independent delay on a grid with the same step.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        debug_assert!((self.step - other.step).abs() <= f64::EPSILON * self.step);
        let length = (self.mass.len() + other.mass.len() - 1).min(BINS + 2);
        let mut mass = vec![0.0; length];
        let (short, long) = if self.mass.len() < other.mass.len() {
            (&self.mass, &other.mass)
        } else {
            (&other.mass, &self.mass)
        };
        for (i, share) in short.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let Some(target) = mass.get_mut(i..) else { break };
            for (to, from) in target.iter_mut().zip(long) {
                *to += share * from;
            }
        }
        while mass.len() > 1 && mass[mass.len() - 1] == 0.0 {
            mass.pop();
        }
        let kept: f64 = mass.iter().sum();
        Self {
            step: self.step,
            offset: self.offset + other.offset,
            mass,
            above: (1.0 - kept).max(0.0),
        }
    }

    /// Smallest value below or at which the share `p` of the delays lies; `None` if it is beyond
    /// the grid.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        // Rounding errors of the sums must not move a quantile.
        const TOLERANCE: f64 = 1e-12;
        let mut sum = 0.0;
        let reached = |share: &f64| {
            sum += share;
            sum >= p - TOLERANCE
        };
        let index = self.mass.iter().position(reached)?;
        Some(self.offset + index as f64 * self.step)
    }

    /// Share of the delays that are at most `limit`.
    pub fn share_up_to(&self, limit: f64) -> f64 {
        let steps = (limit - self.offset) / self.step;
        if steps < 0.0 {
            return 0.0;
        }
        let count = (steps.floor() as usize).saturating_add(1).min(self.mass.len());
        self.mass[..count].iter().sum::<f64>().min(1.0)
    }

    /// Share of the delays beyond the grid.
    pub fn above(&self) -> f64 {
        self.above
    }

    /// Mean of the delays on the grid.
    pub fn mean(&self) -> f64 {
        let total: f64 = self.mass.iter().sum();
        let sum: f64 = self.mass.iter().enumerate().map(|(i, share)| i as f64 * share).sum();
        self.offset + self.step * sum / total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uniform(low: f64, high: f64) -> QuantileFunction {
        vec![(0.0, low), (1.0, high)].try_into().unwrap()
    }

    #[test]
    fn sum_of_two_uniform_delays_is_a_triangle() {
        let one = DelayGrid::of(&uniform(100.0, 200.0), 0.25);
        let sum = one.plus(&one);
        assert!((sum.mean() - 300.0).abs() < 1e-6, "{}", sum.mean());
        // P(sum <= 200 + x) = x^2 / 20,000 up to x = 100.
        for x in [20.0, 50.0, 80.0_f64] {
            let share = sum.share_up_to(200.0 + x);
            assert!((share - x * x / 20_000.0).abs() < 0.005, "{x}: {share}");
        }
        let p95 = sum.quantile(0.95).unwrap();
        let exact = 400.0 - (0.05 * 20_000.0_f64).sqrt();
        assert!((p95 - exact).abs() <= 0.5, "{p95} instead of {exact}");
        assert_eq!(sum.share_up_to(199.0), 0.0);
        assert!((sum.share_up_to(1e9) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn constants_add_exactly() {
        let constant = DelayGrid::of(&QuantileFunction::constant(1_234.5), 100.0);
        let sum = constant.plus(&constant).plus(&DelayGrid::zero(100.0));
        assert_eq!(sum.quantile(0.99), Some(2_469.0));
    }

    #[test]
    fn delays_beyond_the_grid_are_counted() {
        let wide = uniform(0.0, 2.0 * BINS as f64);
        let grid = DelayGrid::of(&wide, 1.0);
        assert!((grid.above() - 0.5).abs() < 1e-9, "{}", grid.above());
        assert_eq!(grid.quantile(0.6), None);
        let sum = grid.plus(&grid);
        assert!((sum.above() - 0.875).abs() < 0.01, "{}", sum.above());
        let limit = BINS as f64 / 2.0;
        assert!((sum.share_up_to(limit) - 1.0 / 32.0).abs() < 0.001);
    }

    proptest! {
        #[test]
        fn convolution_keeps_mass_and_mean(
            ends in proptest::collection::vec((0.0..500.0_f64, 0.0..300.0_f64), 1..8)
        ) {
            let step = 1.0;
            let mut sum = DelayGrid::zero(step);
            let mut mean = 0.0;
            for (low, width) in &ends {
                let delay = uniform(*low, low + width);
                mean += delay.mean();
                sum = sum.plus(&DelayGrid::of(&delay, step));
            }
            prop_assert!(sum.above() < 1e-9);
            prop_assert!((sum.mean() - mean).abs() < 1e-6, "{} and {mean}", sum.mean());
            // Every delay moves by less than a step.
            let least: f64 = ends.iter().map(|(low, _)| low).sum();
            prop_assert!(sum.share_up_to(least - step * ends.len() as f64) == 0.0);
        }
    }
}
