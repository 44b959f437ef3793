//! Delay statistics: delay, delay variation and loss computed from probe samples.
//!
//! Statistics of a running measurement are streaming: samples arrive one by one, in the order in
//! which their states were decided, and memory is bounded. Statistics of a finished measurement
//! (intervals, outliers, fits, comparisons) take all samples as a slice of nanoseconds in time
//! order. `docs/statistics.md` defines each one and states how it was verified.
//!
//! Reads no clock and takes random seeds as arguments. Knows neither the source of the samples nor
//! the output format.

#![forbid(unsafe_code)]

pub mod accuracy;
mod blocked_comparison;
mod bootstrap;
mod clock_bounds;
mod compare;
mod decimated_series;
mod delay_component;
mod delays;
pub mod departures;
mod dependence;
mod direction;
mod distribution;
mod far_clock;
mod fit;
pub mod glossary;
mod hampel;
mod histogram;
mod interval;
mod log_counts;
mod metric;
mod moments;
mod multiple_fit;
mod one_way_path;
mod path;
mod percentile;
mod probability;
pub mod range;
mod rank_test;
mod recent_ids;
mod repetitions;
mod round_trip;
mod shift;
mod spike_limit;
mod text_histogram;
mod threshold;
mod variation;

pub use blocked_comparison::{
    Block, BlockedShift, MIN_TRIALS, blocked_difference, blocked_level, blocked_mean, blocked_shift,
};
pub use clock_bounds::{
    ClockBounds, ClockExchange, ClockFault, ClockReading, ClockRelation, RateAssumption,
};
pub use compare::{Compare, Comparison, NanosInterval, QuantileShift};
pub use decimated_series::DecimatedSeries;
pub use delay_component::{ComponentFigures, DelayComponent};
pub use delays::Delays;
pub use dependence::effective_sample_size;
pub use direction::LossByDirection;
pub use distribution::{Distribution, Figures, MAX_EXACT_VALUES, Quantile, Resolution};
pub use far_clock::{FarClock, FarClockResult};
pub use fit::{
    Coefficient, LineFit, MAX_ROBUST_POINTS, RobustFit, grouped_least_squares, theil_sen,
};
pub use hampel::{Hampel, OutlierClass};
pub use histogram::{Bin, bins};
pub use interval::{
    Interval, RealInterval, independent_quantile_ranks, quantile_interval, share_interval,
};
pub use log_counts::{LogBin, LogCounts};
pub use metric::Metric;
pub use moments::extremes;
pub use multiple_fit::{MultipleFit, multiple_least_squares};
pub use one_way_path::{Leg, LinkEndpoints, Machine, OneWayPath, PathComponent};
pub use path::{PathDelays, PathPosition, PathPositionFigures};
pub use percentile::{median, percentile, percentile_of_sorted, percentiles};
pub use rank_test::{RankTest, mann_whitney};
pub use round_trip::{Packets, RoundTrip};
pub use shift::Shift;
pub use spike_limit::spike_limit;
pub use text_histogram::render;
pub use threshold::{
    Change, Decision, Evidence, Observed, Threshold, ThresholdError, ThresholdVerdict,
    UndecidedReason, Values,
};
pub use variation::{Ipdv, Jitter};
