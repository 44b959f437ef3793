//! What machines did during a trial, thinned out for one figure: however long the trial was, some
//! hundred values of each quantity of each machine are left, and one for each window of its delay.

mod quantity;
mod together;

use std::collections::BTreeMap;

use dwell_stats::Quantile;
use serde::{Deserialize, Serialize};

use crate::data::{RunData, TimeBin};
use crate::figures::{Subject, shown};
use crate::steps::Steps;

pub use quantity::Quantity;
pub(crate) use together::{MOST_WINDOWS, Together, stands_out, together};

/// Values of a quantity of a machine that are drawn, at most.
const DRAWN: usize = 100;

/// Machines that are told apart, at most: colours end there.
const NODES: usize = 6;

/// The narrowest window: a few readings of a machine, which come five times a second.
const NARROWEST_NS: i64 = 500_000_000;

/// Samples that a window holds on average, at least: its 99th percentile needs a hundred.
const FULL: u64 = 120;

/// The trial that is to be shown with what machines did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostWanted {
    /// Its number in the run.
    pub trial: u32,
    /// The delay that the run is about.
    pub metric: String,
    /// How wide the windows of the delay are to be, in nanoseconds.
    pub window_ns: i64,
    /// When its first sample was sent, in nanoseconds since the epoch.
    pub started_ns: i64,
    /// How long it took, in nanoseconds.
    pub length_ns: i64,
}

/// What machines did during one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostData {
    /// Which one.
    pub wanted: HostWanted,
    /// The delay in windows.
    pub windows: Vec<TimeBin>,
    /// By quantity, then by machine.
    pub series: Vec<HostSeries>,
    /// Machines beyond those that can be told apart.
    pub nodes_left_out: usize,
    /// The nodes that share one machine, as those of a lab do; empty where each has its own.
    #[serde(default)]
    pub on_one_machine: Vec<String>,
}

/// What puts names that end in numbers in the order of counting: n2 comes before n10.
fn counted(name: &str) -> (&str, u64) {
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (word, name[word.len()..].parse().unwrap_or(0))
}

/// What nodes of a lab are called where they are one machine.
pub(crate) const ONE_MACHINE: &str = "the one machine";

impl HostData {
    /// The same of nodes that share one machine, such as those of a lab: what is of the machine is
    /// kept once, as the first of them told it.
    pub fn shared(mut self) -> Self {
        let mut nodes: Vec<String> = Vec::new();
        for series in &self.series {
            if !nodes.contains(&series.node) {
                nodes.push(series.node.clone());
            }
        }
        nodes.sort_by(|a, b| counted(a).cmp(&counted(b)));
        let first = nodes.first().cloned();
        self.series.retain_mut(|series| {
            let whole = series.quantity.is_of_the_machine();
            let kept = !whole || Some(&series.node) == first.as_ref();
            if whole {
                series.node = ONE_MACHINE.to_owned();
            }
            kept
        });
        self.on_one_machine = nodes;
        self
    }
}

/// A quantity of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSeries {
    /// Which one.
    pub quantity: Quantity,
    /// The machine.
    pub node: String,
    /// Means of stretches of the trial: nanoseconds since its first sample, value.
    pub points: Vec<(i64, f64)>,
    /// The mean in each window of the delay, where there is any.
    pub by_window: Vec<Option<f64>>,
    /// The lowest of all values.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
}

/// The trial whose delay was largest at its 99th percentile, of those that a timeline shows; `None`
/// where nothing was measured.
pub fn host_wanted(run: &RunData) -> Option<HostWanted> {
    let subject = Subject::of(run)?;
    let (trials, _) = shown(&subject);
    // Of equal ones the last is taken: the first trial.
    let (_, trial, started_ns) = trials
        .into_iter()
        .rev()
        .filter_map(|trial| {
            let steps = Steps::merged([trial.series.get(subject.metric)?.steps.as_slice()]);
            let slow = steps.quantile(Quantile::P99).or(steps.max())?;
            Some((slow, trial, trial.started_ns?))
        })
        .max_by_key(|(slow, ..)| *slow)?;
    let bins = &trial.series.get(subject.metric)?.bins;
    let length_ns = bins.last()?.to_ns.max(1);
    let samples = bins.iter().fold(0_u64, |sum, bin| sum.saturating_add(bin.count));
    let windows = (samples / FULL).min((length_ns / NARROWEST_NS) as u64).min(MOST_WINDOWS);
    Some(HostWanted {
        trial: trial.trial,
        metric: subject.metric.to_owned(),
        window_ns: length_ns / windows.max(1) as i64,
        started_ns,
        length_ns,
    })
}

/// Takes a host series value by value.
#[derive(Debug)]
pub struct HostGather {
    wanted: HostWanted,
    windows: Vec<TimeBin>,
    nodes: Vec<String>,
    left_out: Vec<String>,
    growing: BTreeMap<(Quantity, usize), Growing>,
    /// Of the reading whose values come now: machine, when, and when the one before was.
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    node: usize,
    at: i64,
    before: Option<i64>,
    /// Value so far and of how many.
    values: BTreeMap<Quantity, (f64, u32)>,
}

#[derive(Clone, Debug)]
struct Growing {
    /// Of each stretch the sums of times and values, and how many.
    stretches: Vec<(f64, f64, u32)>,
    windows: Vec<(f64, u32)>,
    lowest: f64,
    highest: f64,
}

impl HostGather {
    /// Of the trial that is wanted; `windows` are those of its delay.
    pub fn new(wanted: HostWanted, windows: Vec<TimeBin>) -> Self {
        let (nodes, left_out, growing) = Default::default();
        Self { wanted, windows, nodes, left_out, growing, reading: None }
    }

    /// Takes a value of `node`, those of each reading after each other and readings of a machine in
    /// order of time. `at_ns` is since the epoch; names that are not known are left out.
    pub fn take(&mut self, node: &str, at_ns: i64, name: &str, value: f64) {
        let Some(quantity) = Quantity::of(name).filter(|_| value.is_finite()) else { return };
        let Some(node) = self.number(node) else { return };
        let at = at_ns.saturating_sub(self.wanted.started_ns);
        if self.reading.as_ref().is_none_or(|it| it.node != node || it.at != at) {
            let before = self.reading.as_ref().filter(|it| it.node == node).map(|it| it.at);
            self.settle();
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

    /// `None` where nothing of it happened during the trial.
    pub fn finish(mut self) -> Option<HostData> {
        self.settle();
        let Self { wanted, windows, nodes, left_out, growing, .. } = self;
        let mut series: Vec<HostSeries> = growing
            .into_iter()
            .filter_map(|((quantity, node), growing)| {
                Some(growing.finish(quantity, nodes.get(node)?.clone()))
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        // What a hypervisor took is worth its place only where it took anything.
        let stolen = |it: &HostSeries| it.quantity == Quantity::Steal && it.highest > 0.0;
        let any_stolen = series.iter().any(stolen);
        series.retain(|it| any_stolen || it.quantity != Quantity::Steal);
        series.sort_by(|a, b| (a.quantity, counted(&a.node)).cmp(&(b.quantity, counted(&b.node))));
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
        if self.nodes.len() < NODES {
            self.nodes.push(node.to_owned());
            return Some(self.nodes.len() - 1);
        }
        if !self.left_out.iter().any(|known| known == node) {
            self.left_out.push(node.to_owned());
        }
        None
    }

    /// Takes in the reading whose values have all come.
    fn settle(&mut self) {
        let Some(Reading { node, at, before, values }) = &self.reading else { return };
        let length = self.wanted.length_ns.max(1);
        if !(0..=length).contains(at) {
            return;
        }
        for (quantity, (value, count)) in values {
            let value = quantity.joined(*value, *count);
            let growing = self.growing.entry((*quantity, *node)).or_insert_with(|| Growing {
                stretches: vec![(0.0, 0.0, 0); DRAWN],
                windows: vec![(0.0, 0); self.windows.len()],
                lowest: value,
                highest: value,
            });
            growing.lowest = growing.lowest.min(value);
            growing.highest = growing.highest.max(value);
            let place = (i128::from(*at) * DRAWN as i128 / i128::from(length)) as usize;
            let (times, values, count) = &mut growing.stretches[place.min(DRAWN - 1)];
            *times += *at as f64;
            *values += value;
            *count += 1;
            // A share or a rate is of the time since the reading before.
            let middle = match before {
                Some(before) if quantity.is_of_a_time() => {
                    at - at.saturating_sub(*before).max(0) / 2
                }
                _ => *at,
            };
            let window = self.windows.partition_point(|window| window.to_ns <= middle);
            if let Some((sum, count)) = growing.windows.get_mut(window) {
                *sum += value;
                *count += 1;
            }
        }
    }
}

impl Growing {
    fn finish(self, quantity: Quantity, node: String) -> HostSeries {
        let Self { stretches, windows, lowest, highest } = self;
        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        let points = stretches.into_iter().filter_map(|(times, values, count)| {
            Some((mean((times, count))? as i64, mean((values, count))?))
        });
        let points = points.collect();
        let by_window = windows.into_iter().map(mean).collect();
        HostSeries { quantity, node, points, by_window, lowest, highest }
    }
}

#[cfg(test)]
mod tests;
