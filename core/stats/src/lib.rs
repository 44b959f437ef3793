//! Delay statistics: what a stream of probe fates says about delay, its variation and loss.
//!
//! Pure and streaming: samples go in one by one, in the order in which their fates were decided,
//! memory stays bounded however many there are, and no clock is read. Where the samples came from
//! and how the figures are printed is not known here.

#![forbid(unsafe_code)]

mod bars;
mod delays;
mod direction;
mod distribution;
mod histogram;
mod metric;
mod recent;
mod round_trip;
mod threshold;
mod variation;

pub use bars::render;
pub use delays::Delays;
pub use direction::LossByDirection;
pub use distribution::{Distribution, EXACT_LIMIT, Figures, Quantile, Resolution};
pub use histogram::{Bin, bins};
pub use metric::Metric;
pub use round_trip::{Packets, RoundTrip};
pub use threshold::{Observed, Threshold, ThresholdError, Verdict};
pub use variation::{Ipdv, Jitter};
