//! Published figures of Roedlach/Vock: UDP round trips between a Raspberry Pi 4 and a Pi 3.
//!
//! The table gives minimum, maximum and mean. Its means are those of the *distinct* values, so that
//! frequent short round trips count as little as rare long ones. The means over all cycles, where
//! the data are available, are lower.

use super::Case;

/// One row of the paper's table, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    /// Shortest round trip.
    pub(super) min: f64,
    /// Mean as printed.
    pub(super) mean: f64,
    /// Mean over all cycles; the data of 500,000 cycles are lost.
    pub(super) true_mean: Option<f64>,
    /// Longest round trip.
    pub(super) max: f64,
}

impl Published {
    /// Returns the row of this set-up. Without load there is a separate one for 500,000 cycles.
    pub(super) fn of(case: Case, cycles: u64) -> Self {
        let (min, mean, true_mean, max) = match case {
            Case::Idle if cycles >= 500_000 => (167.0, 340.0, None, 3_688.0),
            Case::Idle => (170.0, 296.0, Some(281.35), 3_256.0),
            Case::Network => (147.0, 288.0, Some(278.66), 3_699.0),
            Case::Cpu => (160.0, 414.0, Some(288.39), 12_267.0),
        };
        Self { min, mean, true_mean, max }
    }
}
