//! Host activity during a trial, reduced for one figure: at most 100 values per quantity and
//! machine, and one value per window of the delay.

mod quantity;

use std::collections::BTreeMap;

use dwell_record::series::TimeBin;

pub use quantity::Quantity;

/// Maximum number of drawn values per quantity and machine.
const MAX_POINTS: usize = 100;

/// Maximum number of machines, limited by the colours of the theme.
const MAX_NODES: usize = 6;

/// Trial whose host activity is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostWanted {
    /// Number of the trial.
    pub trial: u32,
    /// Main delay metric of the run.
    pub metric: String,
    /// Width of the delay windows in nanoseconds.
    pub window_ns: i64,
    /// Send time of the first sample, in nanoseconds since the epoch.
    pub started_ns: i64,
    /// Duration in nanoseconds.
    pub length_ns: i64,
}

/// Host activity during one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct HostData {
    /// The trial.
    pub wanted: HostWanted,
    /// Delay by window.
    pub windows: Vec<TimeBin>,
    /// Series, by quantity and machine.
    pub series: Vec<HostSeries>,
    /// Number of machines that are not shown.
    pub nodes_left_out: usize,
    /// Nodes that share one machine, as in a lab; empty if each has its own.
    pub on_one_machine: Vec<String>,
}

/// Key for natural sorting: n2 before n10.
fn natural_key(name: &str) -> (&str, u64) {
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (word, name[word.len()..].parse().unwrap_or(0))
}

/// Name for the machine that the nodes of a lab share.
pub(crate) const SHARED_MACHINE: &str = "the shared machine";

impl HostData {
    /// Merges nodes that share one machine, such as those of a lab: quantities of the machine are
    /// kept once, from the first node.
    pub fn shared(mut self) -> Self {
        let mut nodes: Vec<String> = Vec::new();
        for series in &self.series {
            if !nodes.contains(&series.node) {
                nodes.push(series.node.clone());
            }
        }
        nodes.sort_by(|a, b| natural_key(a).cmp(&natural_key(b)));
        let first = nodes.first().cloned();
        self.series.retain_mut(|series| {
            let whole = series.quantity.is_machine_wide();
            let kept = !whole || Some(&series.node) == first.as_ref();
            if whole {
                series.node = SHARED_MACHINE.to_owned();
            }
            kept
        });
        self.on_one_machine = nodes;
        self
    }
}

/// One quantity of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSeries {
    /// Quantity.
    pub quantity: Quantity,
    /// Machine.
    pub node: String,
    /// Means over parts of the trial: nanoseconds since its first sample, value.
    pub points: Vec<(i64, f64)>,
    /// Mean per window of the delay; `None` without a reading.
    pub by_window: Vec<Option<f64>>,
    /// Minimum of all values.
    pub lowest: f64,
    /// Maximum of all values.
    pub highest: f64,
}

/// Accumulates host samples value by value.
#[derive(Debug)]
pub(crate) struct HostAccumulator {
    wanted: HostWanted,
    windows: Vec<TimeBin>,
    nodes: Vec<String>,
    left_out: Vec<String>,
    builders: BTreeMap<(Quantity, usize), SeriesBuilder>,
    /// Reading whose values are being taken.
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    node: usize,
    at: i64,
    before: Option<i64>,
    /// Combined value and number of values.
    values: BTreeMap<Quantity, (f64, u32)>,
}

#[derive(Clone, Debug)]
struct SeriesBuilder {
    /// Per part of the trial: sum of times, sum of values, count.
    segments: Vec<(f64, f64, u32)>,
    windows: Vec<(f64, u32)>,
    lowest: f64,
    highest: f64,
}

impl HostAccumulator {
    /// Creates an accumulator for a trial with the given delay windows.
    pub(crate) fn new(wanted: HostWanted, windows: Vec<TimeBin>) -> Self {
        let (nodes, left_out, builders) = Default::default();
        Self { wanted, windows, nodes, left_out, builders, reading: None }
    }

    /// Adds a value of `node`. Values of a reading must follow each other, and readings of a
    /// machine must be in time order. `at_ns` counts from the epoch; unknown names are ignored.
    pub(crate) fn take(&mut self, node: &str, at_ns: i64, name: &str, value: f64) {
        let Some(quantity) = Quantity::of(name).filter(|_| value.is_finite()) else { return };
        let Some(node) = self.number(node) else { return };
        let at = at_ns.saturating_sub(self.wanted.started_ns);
        if self.reading.as_ref().is_none_or(|it| it.node != node || it.at != at) {
            let before = self.reading.as_ref().filter(|it| it.node == node).map(|it| it.at);
            self.finish_reading();
            self.reading = Some(Reading { node, at, before, values: BTreeMap::new() });
        }
        if let Some(reading) = &mut self.reading {
            let (sum, count) = reading.values.entry(quantity).or_insert((value, 0));
            if *count > 0 {
                *sum = quantity.join(*sum, value);
            }
            *count += 1;
        }
    }

    /// Returns the series; `None` without two readings during the trial.
    pub(crate) fn finish(mut self) -> Option<HostData> {
        self.finish_reading();
        let Self { wanted, windows, nodes, left_out, builders, .. } = self;
        let mut series: Vec<HostSeries> = builders
            .into_iter()
            .filter_map(|((quantity, node), builder)| {
                Some(builder.finish(quantity, nodes.get(node)?.clone()))
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        // Steal is shown only if there was any.
        let stolen = |it: &HostSeries| it.quantity == Quantity::Steal && it.highest > 0.0;
        let any_stolen = series.iter().any(stolen);
        series.retain(|it| any_stolen || it.quantity != Quantity::Steal);
        series.sort_by(|a, b| {
            (a.quantity, natural_key(&a.node)).cmp(&(b.quantity, natural_key(&b.node)))
        });
        let some = series.iter().any(|series| series.points.len() > 1);
        some.then_some(HostData {
            wanted,
            windows,
            series,
            nodes_left_out: left_out.len(),
            on_one_machine: Vec::new(),
        })
    }

    fn number(&mut self, node: &str) -> Option<usize> {
        if let Some(known) = self.nodes.iter().position(|known| known == node) {
            return Some(known);
        }
        if self.nodes.len() < MAX_NODES {
            self.nodes.push(node.to_owned());
            return Some(self.nodes.len() - 1);
        }
        if !self.left_out.iter().any(|known| known == node) {
            self.left_out.push(node.to_owned());
        }
        None
    }

    /// Adds the complete reading to the series.
    fn finish_reading(&mut self) {
        let Some(Reading { node, at, before, values }) = &self.reading else { return };
        let length = self.wanted.length_ns.max(1);
        if !(0..=length).contains(at) {
            return;
        }
        for (quantity, (value, count)) in values {
            let value = quantity.combined(*value, *count);
            let builder =
                self.builders.entry((*quantity, *node)).or_insert_with(|| SeriesBuilder {
                    segments: vec![(0.0, 0.0, 0); MAX_POINTS],
                    windows: vec![(0.0, 0); self.windows.len()],
                    lowest: value,
                    highest: value,
                });
            builder.lowest = builder.lowest.min(value);
            builder.highest = builder.highest.max(value);
            let place = (i128::from(*at) * MAX_POINTS as i128 / i128::from(length)) as usize;
            let (times, values, count) = &mut builder.segments[place.min(MAX_POINTS - 1)];
            *times += *at as f64;
            *values += value;
            *count += 1;
            // Ratios and rates cover the time since the previous reading.
            let middle = match before {
                Some(before) if quantity.is_interval_value() => {
                    at - at.saturating_sub(*before).max(0) / 2
                }
                _ => *at,
            };
            let window = self.windows.partition_point(|window| window.to_ns <= middle);
            if let Some((sum, count)) = builder.windows.get_mut(window) {
                *sum += value;
                *count += 1;
            }
        }
    }
}

impl SeriesBuilder {
    fn finish(self, quantity: Quantity, node: String) -> HostSeries {
        let Self { segments, windows, lowest, highest } = self;
        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        let points = segments.into_iter().filter_map(|(times, values, count)| {
            Some((mean((times, count))? as i64, mean((values, count))?))
        });
        let points = points.collect();
        let by_window = windows.into_iter().map(mean).collect();
        HostSeries { quantity, node, points, by_window, lowest, highest }
    }
}

#[cfg(test)]
mod tests;
