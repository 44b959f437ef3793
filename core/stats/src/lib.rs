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
mod text_histogram;
mod blocked_comparison;
mod bootstrap;
mod compare;
mod delays;
pub mod departures;
mod dependence;
mod direction;
mod distribution;
mod ecdf;
mod fit;
pub mod glossary;
mod hampel;
mod histogram;
mod interval;
mod log_counts;
mod loss_runs;
mod metric;
mod moments;
mod delay_component;
mod path;
mod percentile;
mod probability;
mod rank_test;
mod recent_ids;
mod repetitions;
mod round_trip;
mod shift;
mod decimated_series;
mod threshold;
mod variation;
mod one_way_path;

pub use text_histogram::render;
pub use blocked_comparison::{
    Block, BlockedShift, MIN_TRIALS, blocked_difference, blocked_level, blocked_mean,
    blocked_shift,
};
pub use compare::{Compare, Comparison, NanosInterval, QuantileShift};
pub use delays::Delays;
pub use direction::LossByDirection;
pub use distribution::{Distribution, MAX_EXACT_VALUES, Figures, Quantile, Resolution};
pub use ecdf::{EcdfPoint, PercentilePoint, CumulativeCounts};
pub use fit::{
    Coefficient, LineFit, MAX_ROBUST_POINTS, RobustFit, grouped_least_squares, least_squares, theil_sen,
};
pub use hampel::{Hampel, OutlierClass};
pub use histogram::{Bin, bins};
pub use interval::{
    Interval, RealInterval, independent_quantile_interval, independent_quantile_ranks,
    mean_interval, quantile_interval, series_share_interval, share_interval,
};
pub use log_counts::{LogBin, LogCounts};
pub use loss_runs::LossRuns;
pub use metric::Metric;
pub use moments::extremes;
pub use delay_component::{DelayComponent, ComponentFigures};
pub use path::{PathDelays, PathPosition, PathPositionFigures};
pub use percentile::{median, percentile, percentile_of_sorted, percentiles};
pub use rank_test::{RankTest, mann_whitney};
pub use round_trip::{Packets, RoundTrip};
pub use shift::Shift;
pub use decimated_series::DecimatedSeries;
pub use threshold::{
    Change, Decision, UndecidedReason, Evidence, Observed, Threshold, ThresholdError, Values, ThresholdVerdict,
};
pub use variation::{Ipdv, Jitter};
pub use one_way_path::{Leg, LinkEndpoints, PathComponent, OneWayPath};
