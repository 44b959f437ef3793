//! Bound of one-way delays between machines whose clocks differ.

use dwell_record::clock_error_value;
use dwell_stats::{Leg, Metric};

use crate::model::RunData;
use crate::model::quantity::delay;

/// Returns the largest bound of this delay in any trial; `None` if it depends on one clock only.
pub(crate) fn bound_of(run: &RunData, metric: &str) -> Option<String> {
    let name = clock_error_value(metric);
    let bounds = run.summaries().filter_map(|summary| summary.value(&name));
    bounds.max_by(f64::total_cmp).map(delay)
}

/// Returns the largest bound of any one-way delay of the run.
pub(crate) fn largest_bound(run: &RunData) -> Option<String> {
    let legs = Leg::ALL.map(Leg::name).into_iter();
    let metrics = legs.chain([Metric::OneWayForward.name(), Metric::OneWayBackward.name()]);
    let names: Vec<String> = metrics.map(clock_error_value).collect();
    let bounds =
        run.summaries().flat_map(|summary| names.iter().filter_map(|name| summary.value(name)));
    bounds.max_by(f64::total_cmp).map(delay)
}
