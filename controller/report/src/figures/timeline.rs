//! Delay over the time of a trial: bands for many samples, dots for few, with outliers (Miya 2020,
//! S0.11) and a strip of losses below.

use dwell_stats::Quantile;
use serde_json::{Value, json};

use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::analysis::timeline_trials::{series, timeline_trials};
use crate::figures::figure::{Figure, WIDTH, delay_axis};
use crate::model::distribution::SampleDistribution;
use crate::model::quantity::{Unit, capital, count, count_noun, delay_ns};
use crate::model::table::Table;
use crate::model::{Hampel, Point, RunData, Series, TimeBin, TrialData};

/// Maximum number of outliers per panel; the largest are drawn.
const MAX_OUTLIERS: usize = 150;
/// Maximum number of samples that are drawn as single dots.
const MAX_DOTS: u64 = 300;

/// Returns `None` without data to draw.
pub(super) fn timeline(subject: &Subject) -> Option<Figure> {
    let (shown, of) = timeline_trials(subject);
    let all = || shown.iter().filter_map(|trial| Some((*trial, series(trial, subject)?)));
    let steps = || all().flat_map(|(_, series)| &series.steps).filter(|step| step.count > 0);
    let min = steps().map(|step| step.value_ns).min()? as f64;
    let max = steps().map(|step| step.value_ns).max()? as f64;
    let longest = all().filter_map(|(_, series)| end(series)).max()? as f64;
    let time = Unit::fitting((longest / 2.0).max(1e6));
    let (scale, axis) = delay_axis("delay", subject.unit, min, max);
    let most_lost =
        all().flat_map(|(_, series)| &series.bins).map(|bin| bin.lost).max().unwrap_or(0);
    let frame = Frame { unit: subject.unit, time, until: time.of(longest), scale, axis, most_lost };
    let count = shown.len();
    let panels = all().enumerate().map(|(i, (trial, series))| {
        frame.panel(&group::trial_label(subject.run, trial), series, i + 1 == count)
    });
    let body = json!({"vconcat": panels.collect::<Vec<_>>(), "spacing": 14});
    let mut finding = finding(subject.run, &shown, subject);
    if of > count {
        finding += &format!(" Shown: {count} of {of} cells; the table has all.");
    }
    let title = format!("{} over time", subject.title());
    let table = table(subject);
    let figure = Figure::new("timeline", title, finding, &subject.caption, body, table);
    Some(figure.explained(how_to_read(&shown, subject)))
}

fn end(series: &Series) -> Option<i64> {
    let bins = series.bins.iter().map(|bin| bin.to_ns);
    bins.chain(series.points.iter().map(|point| point.at_ns)).max()
}

fn samples(series: &Series) -> u64 {
    series.steps.iter().fold(0, |sum, step| sum.saturating_add(step.count))
}

/// Whether each sample is drawn as a dot.
fn single(series: &Series) -> bool {
    samples(series) <= MAX_DOTS && !series.points.is_empty()
}

/// Whether an outlier is below the median of its bin.
fn low(point: &Point, series: &Series) -> bool {
    let bin = series.bins.iter().find(|bin| (bin.from_ns..bin.to_ns).contains(&point.at_ns));
    let steps = || SampleDistribution::merged([series.steps.as_slice()]).quantile(Quantile::P50);
    bin.and_then(|bin| bin.p50_ns).or_else(steps).is_some_and(|median| point.value_ns < median)
}

/// Settings shared by all panels.
struct Frame {
    unit: Unit,
    time: Unit,
    /// End of the longest trial in `time` units.
    until: f64,
    scale: Value,
    axis: Value,
    /// Maximum number of losses in one bin.
    most_lost: u64,
}

impl Frame {
    fn panel(&self, label: &str, series: &Series, last: bool) -> Value {
        let mut layer = if single(series) { self.dots(series) } else { self.bands(series) };
        layer.extend(self.outliers(series));
        let main = json!({
            "width": WIDTH, "height": 110,
            "title": {"text": label, "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
            "layer": layer,
            "encoding": {"x": self.x(self.most_lost == 0, last)}
        });
        if self.most_lost == 0 {
            return main;
        }
        json!({"vconcat": [main, self.strip(series, last)], "spacing": 2, "resolve": {"scale": {"x": "shared"}}})
    }

    /// Time axis; if a panel has a strip of losses, only the strip has labels.
    fn x(&self, labels: bool, last: bool) -> Value {
        let title = if labels && last {
            json!(format!("time since the trial began [{}]", self.time.name()))
        } else {
            json!(null)
        };
        json!({
            "field": "time", "type": "quantitative", "scale": {"nice": false, "domain": [0, self.until]},
            "axis": {"title": title, "labels": labels, "ticks": labels, "grid": false}
        })
    }

    fn y(&self, field: &str) -> Value {
        json!({"field": field, "type": "quantitative", "scale": self.scale, "axis": self.axis})
    }

    fn bands(&self, series: &Series) -> Vec<Value> {
        let rows: Vec<Value> = series.bins.iter().map(|bin| self.bin(bin)).collect();
        let longest = json!({
            "mark": {"type": "tick", "style": "extreme", "size": 5, "thickness": 1.5, "orient": "horizontal"},
            "encoding": {"y": self.y("max")}
        });
        vec![json!({
            "data": {"values": rows},
            "layer": [
                {
                    "mark": {"type": "area", "style": "outer", "interpolate": "step-after"},
                    "encoding": {"y": self.y("p1"), "y2": {"field": "p99"}}
                },
                {
                    "mark": {"type": "line", "style": "median", "interpolate": "step-after"},
                    "encoding": {"y": self.y("p50")}
                },
                longest
            ]
        })]
    }

    /// A bin as a row; with too few values for percentiles, its extremes form the band.
    fn bin(&self, bin: &TimeBin) -> Value {
        let value = |ns: Option<i64>| ns.map(|ns| self.unit.of(ns as f64));
        json!({
            "time": self.time.of(bin.from_ns as f64), "samples": bin.count,
            "p1": value(bin.p1_ns.or(bin.min_ns)), "p50": value(bin.p50_ns),
            "p99": value(bin.p99_ns.or(bin.max_ns)), "max": value(bin.max_ns)
        })
    }

    fn dots(&self, series: &Series) -> Vec<Value> {
        let rows: Vec<Value> = series.points.iter().filter(|point| !point.outlier).map(|point| {
            json!({"time": self.time.of(point.at_ns as f64), "delay": self.unit.of(point.value_ns as f64)})
        }).collect();
        vec![json!({
            "data": {"values": rows},
            "mark": {"type": "point", "filled": true, "size": 18, "tooltip": true},
            "encoding": {"y": self.y("delay")}
        })]
    }

    fn outliers(&self, series: &Series) -> Option<Value> {
        let mut outliers: Vec<_> = series.points.iter().filter(|point| point.outlier).collect();
        outliers.sort_by_key(|point| std::cmp::Reverse(point.value_ns));
        outliers.truncate(MAX_OUTLIERS);
        let rows: Vec<Value> = outliers.iter().map(|point| {
            let direction = if low(point, series) { "low" } else { "high" };
            json!({"time": self.time.of(point.at_ns as f64), "outlier": self.unit.of(point.value_ns as f64), "direction": direction})
        }).collect();
        (!rows.is_empty()).then(|| json!({
            "data": {"values": rows},
            "mark": {"type": "point", "style": "outlier", "size": 32, "tooltip": true},
            "encoding": {
                "y": self.y("outlier"),
                "shape": {
                    "field": "direction", "type": "nominal", "legend": null,
                    "scale": {"domain": ["high", "low"], "range": ["triangle-up", "triangle-down"]}
                }
            }
        }))
    }

    fn strip(&self, series: &Series, last: bool) -> Value {
        let lost = series.bins.iter().filter(|bin| bin.lost > 0).map(|bin| {
            let middle = (bin.from_ns as f64 + bin.to_ns as f64) / 2.0;
            json!({"time": self.time.of(middle), "lost": bin.lost, "row": "lost"})
        });
        json!({
            "data": {"values": lost.collect::<Vec<_>>()},
            "width": WIDTH, "height": 16,
            "mark": {"type": "point", "style": "lost", "shape": "cross", "filled": true, "angle": 45, "tooltip": true},
            "encoding": {
                "x": self.x(true, last),
                "y": {"field": "row", "type": "nominal", "scale": {"domain": ["lost"]}, "axis": {"title": null, "ticks": false, "domain": false}},
                "size": {"field": "lost", "type": "quantitative", "scale": {"range": [30, 130], "domain": [0, self.most_lost]}, "legend": null}
            }
        })
    }
}

fn finding(run: &RunData, shown: &[&TrialData], subject: &Subject) -> String {
    let part = |trial: &&TrialData| {
        let series = series(trial, subject)?;
        let mut medians: Vec<i64> = series.bins.iter().filter_map(|bin| bin.p50_ns).collect();
        medians.sort_unstable();
        let label = group::trial_label(run, trial);
        let spikes = series.hampel.as_ref().map(|hampel| {
            let n = samples(series);
            let of = match hampel.judged {
                None => count_noun(n, "sample"),
                Some(judged) => format!("{} judged", count_noun(judged, "sample")),
            };
            let out = hampel.upper.saturating_add(hampel.lower);
            match hampel.lower {
                0 => format!("{} of {of} are outliers", count(out)),
                lower => {
                    format!("{} of {of} are outliers, {} of them low", count(out), count(lower))
                }
            }
        });
        let wander = match medians.as_slice() {
            [low, .., high] => Some(format!("median {} to {}", delay_ns(*low), delay_ns(*high))),
            _ => None,
        };
        let said: Vec<String> = spikes.into_iter().chain(wander).collect();
        (!said.is_empty()).then(|| format!("{label}: {}", said.join(", ")))
    };
    // At most three, for readability.
    let parts: Vec<String> = shown.iter().filter_map(part).take(3).collect();
    if parts.is_empty() {
        return "Cannot tell whether delays changed over time: too few samples.".to_owned();
    }
    format!("{}.", parts.join("; "))
}

/// Explanation of the marks.
fn how_to_read(shown: &[&TrialData], subject: &Subject) -> String {
    let all = || shown.iter().filter_map(|trial| series(trial, subject));
    let key = if all().all(single) { "dots: samples" } else { "band: p1 to p99; ticks: maximum" };
    let filter = all().find_map(|series| series.hampel).map_or_else(String::new, |hampel| {
        format!(
            "; triangles: outliers by Hampel's filter ({} sigma, {} samples; down: low)",
            hampel.sigmas,
            2 * u64::from(hampel.half_window) + 1
        )
    });
    format!("{}{filter}.", capital(key))
}

fn table(subject: &Subject) -> Table {
    let mut table = Table::new([
        "trial",
        "samples",
        "judged",
        "outliers up",
        "outliers down",
        "lost",
        "p50",
        "p99",
        "max",
    ]);
    for column in &mut table.columns[6..] {
        *column = format!("{column} [{}]", subject.unit.name());
    }
    for trial in subject.cells.iter().flat_map(|cell| &cell.trials) {
        let Some(series) = series(trial, subject) else { continue };
        let group = Group::new(String::new(), vec![*trial], subject.metric);
        let steps = &group.steps;
        let cell = |ns: Option<i64>| subject.unit.cell(ns.map(|ns| ns as f64));
        let outliers = |of: fn(&Hampel) -> u64| {
            series.hampel.as_ref().map_or_else(|| "-".to_owned(), |hampel| count(of(hampel)))
        };
        let lost =
            trial.summary.as_ref().and_then(|summary| summary.packets).map(|p| count(p.lost));
        table.row([
            group::trial_label(subject.run, trial),
            count(steps.count()),
            series.hampel.map_or_else(
                || "-".to_owned(),
                |hampel| count(hampel.judged.unwrap_or_else(|| samples(series))),
            ),
            outliers(|hampel| hampel.upper),
            outliers(|hampel| hampel.lower),
            lost.unwrap_or_else(|| "-".to_owned()),
            group.cell(subject.unit, Quantile::P50),
            group.cell(subject.unit, Quantile::P99),
            cell(steps.max()),
        ]);
    }
    table.label_intervals()
}
