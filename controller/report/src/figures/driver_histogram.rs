//! Histogram of round trips by the timestamps of program and driver, on a linear axis with an
//! overflow bar (Ramstetter, S1.7, Fig 5 to 10).

use dwell_stats::Quantile;
use serde_json::{Value, json};

use crate::analysis::group::{self, Group, MAX_OVERLAID};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, group_channel};
use crate::model::distribution::SampleDistribution;
use crate::model::metric::{self, RTT_DRIVER};
use crate::model::quantity::{Unit, count, delay, delay_ns};
use crate::model::table::Table;

/// Round trip by the program's timestamps.
const PROGRAM: &str = "rtt_ns";

/// Maximum number of bars before the overflow bar.
const MAX_BARS: f64 = 60.0;

/// Width of the overflow bar in bars.
const OVERFLOW_BARS: f64 = 3.0;

/// Both delays of a cell.
struct Panel<'a> {
    /// By the timestamps of the program, and of the driver.
    by: [(&'static str, Group<'a>); 2],
}

/// Bars of equal width from `start`, and one for all that is longer.
struct Bars {
    edges: Vec<f64>,
    width: f64,
}

/// Returns `None` if no trial has timestamps of the driver.
pub(super) fn driver_histogram(subject: &Subject) -> Option<Figure> {
    if !metric::has_samples(subject.run, RTT_DRIVER) {
        return None;
    }
    let (programs, note) = group::overlaid(subject.run, PROGRAM);
    let panels: Vec<Panel> = programs
        .into_iter()
        .take(MAX_OVERLAID)
        .map(|program| {
            let driver = Group::new(program.label.clone(), program.trials.clone(), RTT_DRIVER);
            Panel { by: [("program", program), ("driver", driver)] }
        })
        .collect();
    let groups = || panels.iter().flat_map(|panel| &panel.by).map(|(_, group)| group);
    let all = SampleDistribution::merged(groups().map(|group| group.steps.as_slice()));
    let bars = Bars::of(&all)?;
    let unit = Unit::fitting(all.quantile(Quantile::P50)? as f64);
    let (mut values, mut table) =
        (Vec::new(), Table::new(["group", "by", "from", "to", "samples"]));
    for column in &mut table.columns[2..4] {
        *column = format!("{column} [{}]", unit.name());
    }
    for (by, group) in panels.iter().flat_map(|panel| &panel.by) {
        for (from, to, samples) in bars.counts(&group.steps) {
            let end = to.unwrap_or(from + OVERFLOW_BARS * bars.width);
            values.push(json!({
                "panel": group.label, "group": by, "from": unit.of(from), "to": unit.of(end),
                "count": samples
            }));
            let to = to.map_or_else(|| "inf".to_owned(), |to| unit.cell(Some(to)));
            let label = group.label.clone();
            table.row([label, (*by).to_owned(), unit.cell(Some(from)), to, count(samples)]);
        }
    }
    let labels: Vec<&str> = panels.iter().map(Panel::label).collect();
    let body = body(values, &labels, unit);
    let mut finding = finding(&panels);
    if let Some(note) = note {
        finding += &format!(" {note}");
    }
    let how_to_read = format!(
        "Bars of {}; the last bar of a panel has all round trips of {} and more.",
        delay(bars.width),
        delay(bars.overflow_from())
    );
    let title = "Round trips by timestamps of program and driver";
    let figure = Figure::new("driver-histogram", title, finding, &subject.caption, body, table);
    Some(figure.explained(how_to_read))
}

impl Panel<'_> {
    fn label(&self) -> &str {
        &self.by[0].1.label
    }
}

impl Bars {
    /// Bars of 1, 2 or 5 times a power of ten from the minimum to the 99th percentile. `None` without
    /// samples.
    fn of(all: &SampleDistribution) -> Option<Self> {
        let (min, max) = (all.min()? as f64, all.max()? as f64);
        let usual = all.quantile(Quantile::P99).map_or(max, |p99| p99 as f64);
        let least = ((usual - min) / MAX_BARS).max(1.0);
        let power = 10f64.powf(least.log10().floor());
        let width =
            power * [1.0, 2.0, 5.0].into_iter().find(|it| it * power >= least).unwrap_or(10.0);
        let start = (min / width).floor();
        let ends = (usual / width).floor() + 1.0 - start;
        let mut edges: Vec<f64> =
            (0..=ends as u32).map(|n| (start + f64::from(n)) * width).collect();
        // The overflow bar ends behind the longest delay.
        let last = edges.last().copied().unwrap_or(max);
        edges.push(max.max(last) + width);
        Some(Self { edges, width })
    }

    fn overflow_from(&self) -> f64 {
        self.edges.iter().rev().nth(1).copied().unwrap_or(0.0)
    }

    /// Start, end and count of each bar with samples; the overflow bar has no end.
    fn counts(&self, steps: &SampleDistribution) -> Vec<(f64, Option<f64>, u64)> {
        let counts = steps.bars(&self.edges);
        let last = counts.len().saturating_sub(1);
        let bar = |(n, count): (usize, u64)| {
            (self.edges[n], (n < last).then(|| self.edges[n + 1]), count)
        };
        counts.into_iter().enumerate().filter(|(_, count)| *count > 0).map(bar).collect()
    }
}

fn body(values: Vec<Value>, labels: &[&str], unit: Unit) -> Value {
    let title = format!("round-trip delay [{}]", unit.name());
    json!({
        "data": {"values": values},
        "facet": {"row": {
            "field": "panel", "type": "nominal", "title": null, "sort": labels,
            "header": {"labelOrient": "top", "labelAngle": 0}
        }},
        "spacing": 8,
        "spec": {
            "width": WIDTH, "height": 110,
            "mark": {"type": "rect", "opacity": 0.6, "tooltip": true},
            "encoding": {
                "x": {
                    "field": "from", "type": "quantitative",
                    "scale": {"zero": false, "nice": false, "padding": 4},
                    "axis": {"title": title, "format": ",.6~r", "grid": false}
                },
                "x2": {"field": "to"},
                "y": {
                    "field": "count", "type": "quantitative", "stack": null,
                    "axis": {"title": "samples", "format": "~s", "tickCount": 4}
                },
                "y2": {"datum": 0},
                "color": group_channel(["program", "driver"])
            }
        }
    })
}

/// Median and middle of the reported delays of each panel.
fn finding(panels: &[Panel]) -> String {
    let one = |(by, group): &(&'static str, Group)| {
        let at = |quantile| group.steps.quantile(quantile);
        let (median, p99) = (at(Quantile::P50)?, at(Quantile::P99));
        let p99 = p99.map_or_else(String::new, |p99| format!(" (p99 {})", delay_ns(p99)));
        Some(format!("{by} {}{p99}", delay_ns(median)))
    };
    let panel = |panel: &Panel| {
        let both: Vec<String> = panel.by.iter().filter_map(one).collect();
        format!("{}: {}", panel.label(), both.join(", "))
    };
    let all: Vec<String> = panels.iter().map(panel).collect();
    format!("Medians: {}.", all.join("; "))
}
