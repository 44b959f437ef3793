//! 95th percentile of node and processing delay against a parameter, one line per relay mode (Miya
//! 2020, S0.13, Fig 6).

use dwell_stats::Quantile;
use serde_json::{Value, json};

use super::bands;
use crate::analysis::condition::{Condition, Links};
use crate::analysis::group::Group;
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, delay_axis, group_channel, slug};
use crate::model::axes::{RELAY, axis_words};
use crate::model::quantity::{Unit, capital, count, delay_ns, listed, share};
use crate::model::table::Table;
use crate::model::{Axis, TrialData, metric};

/// Confidence of the bands.
const CONFIDENCE: f64 = 0.95;
const PROCESSING: &str = "processing_ns";

/// 95th percentile of a mode at a level of the parameter.
struct P95Point<'a> {
    metric: &'a str,
    mode: &'a str,
    /// Index of the level on the axis.
    place: usize,
    samples: u64,
    trials: usize,
    p95: i64,
    /// Confidence interval, widened to the range of the repetitions; `None` with too few samples.
    bounds: Option<(i64, i64)>,
}

/// Returns `None` unless two levels of the axis have a 95th percentile.
pub(super) fn p95_by_parameter(subject: &Subject, axis: &Axis) -> Option<Figure> {
    let condition =
        Condition::of(subject.run, subject.metric, Links::Unlimited).without(&[&axis.name]);
    let mut points = points(subject, axis, &condition, subject.metric);
    let places = |points: &[P95Point]| {
        let mut places: Vec<usize> = points.iter().map(|point| point.place).collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    };
    if places(&points) < 2 {
        return None;
    }
    points.extend(self::points(subject, axis, &condition, PROCESSING));
    let mut finding = [subject.metric, PROCESSING]
        .iter()
        .filter_map(|metric| percentile_sentence(&points, metric, axis))
        .collect::<Vec<_>>()
        .join(" ");
    if let Some(words) = condition.words() {
        finding += &format!(" Fixed: {words}.");
    }
    let without = without_processing(subject, &points);
    if !without.is_empty() {
        finding += &format!(
            " No processing delay at {}: the kernel forwards the packets.",
            listed(&without)
        );
    }
    let how_to_read = match points.iter().any(|point| point.bounds.is_some()) {
        true => "Bands: 95 % CI of the percentile, widened to the range of repetitions.",
        false => "",
    };
    let middle = points.iter().map(|point| point.p95).max()? as f64;
    let table = table(&points, axis, Unit::fitting(middle));
    let title = format!(
        "{} and processing delay against {}, 95th percentile",
        subject.title(),
        axis_words(&axis.name)
    );
    let body = body(subject, axis, &points);
    let id = format!("p95-{}", slug(&axis.name));
    Some(Figure::new(id, title, finding, &subject.caption, body, table).explained(how_to_read))
}

fn points<'a>(
    subject: &Subject<'a>,
    axis: &Axis,
    condition: &Condition,
    metric: &'a str,
) -> Vec<P95Point<'a>> {
    let mut points = Vec::new();
    for mode in subject.run.modes() {
        for (place, value) in axis.values.iter().enumerate() {
            let trials = subject.run.finished_trials().filter(|trial| {
                condition.holds(trial) && trial.is_at(RELAY, mode) && trial.is_at(&axis.name, value)
            });
            let group = Group::new(mode.clone(), trials.collect(), metric);
            let Some(p95) = group.quantile(Quantile::P95) else { continue };
            let p95 = p95.round() as i64;
            points.push(P95Point {
                metric,
                mode,
                place,
                samples: group.steps.count(),
                trials: group.over_trials(Quantile::P95).count(),
                p95,
                bounds: bounds(&group),
            });
        }
    }
    points
}

/// Confidence interval of the percentile under the assumption of independent packets, widened to
/// the range of the repetitions.
fn bounds(group: &Group) -> Option<(i64, i64)> {
    let samples = group.steps.interval_at(Quantile::P95, CONFIDENCE)?;
    let each = group.over_trials(Quantile::P95).map(|(_, ns)| ns);
    Some(each.fold(samples, |(low, high), ns| (low.min(ns), high.max(ns))))
}

/// Modes with node delay but no processing delay.
fn without_processing(subject: &Subject, points: &[P95Point]) -> Vec<String> {
    let has = |mode: &str, metric: &str| {
        points.iter().any(|point| point.mode == mode && point.metric == metric)
    };
    let without = |mode: &&String| has(mode, subject.metric) && !has(mode, PROCESSING);
    subject.run.modes().iter().filter(without).cloned().collect()
}

/// Percentiles of each mode at the first and the last level.
fn percentile_sentence(points: &[P95Point], metric: &str, axis: &Axis) -> Option<String> {
    let mut modes: Vec<&str> = Vec::new();
    for point in points.iter().filter(|point| point.metric == metric) {
        if !modes.contains(&point.mode) {
            modes.push(point.mode);
        }
    }
    let one = |mode: &&str| {
        let mut of = points.iter().filter(|point| point.metric == metric && point.mode == *mode);
        let first = of.next()?;
        let last = of.next_back();
        let at =
            |point: &P95Point| format!("{} at {}", delay_ns(point.p95), axis.values[point.place]);
        Some(match last {
            Some(last) => format!("{mode} {}, {}", at(first), at(last)),
            None => format!("{mode} {}", at(first)),
        })
    };
    let all: Vec<String> = modes.iter().filter_map(one).collect();
    let noun = capital(metric::words(metric));
    (!all.is_empty()).then(|| {
        format!("{noun}, 95th percentile by {}: {}.", axis_words(&axis.name), all.join("; "))
    })
}

fn body(subject: &Subject, axis: &Axis, points: &[P95Point]) -> Value {
    let numbers = axis.numbers.as_ref().filter(|numbers| numbers.len() == axis.values.len());
    let levels: Vec<String> =
        axis.values.iter().map(|value| level_label(subject, axis, value)).collect();
    let x = match numbers {
        Some(numbers) => bands::x(axis, numbers),
        None => json!({
            "field": "x", "type": "ordinal", "sort": levels, "scale": {"domain": levels},
            "axis": {"title": axis_words(&axis.name), "labelAngle": 0, "grid": false}
        }),
    };
    let panels = [subject.metric, PROCESSING].into_iter().filter_map(|metric| {
        let of: Vec<&P95Point> = points.iter().filter(|point| point.metric == metric).collect();
        let ends = of.iter().flat_map(|point| {
            let (low, high) = point.bounds.unwrap_or((point.p95, point.p95));
            [low, high]
        });
        let (min, max) = (ends.clone().min()? as f64, ends.max()? as f64);
        let mut middle: Vec<i64> = of.iter().map(|point| point.p95).collect();
        middle.sort_unstable();
        let unit = Unit::fitting(middle[middle.len() / 2] as f64);
        let (scale, y_axis) = delay_axis("p95", unit, min, max);
        let y = |field: &str| {
            json!({"field": field, "type": "quantitative", "scale": scale, "axis": y_axis})
        };
        let rows: Vec<Value> = of
            .iter()
            .map(|point| {
                let x = match numbers {
                    Some(numbers) => json!(numbers[point.place]),
                    None => json!(levels[point.place]),
                };
                let value = |ns: i64| unit.of(ns as f64);
                let (low, high) = point.bounds.map_or((None, None), |(low, high)| (Some(low), Some(high)));
                json!({
                    "group": format!("{RELAY} {}", point.mode), "x": x, "p95": value(point.p95),
                    "low": low.map(value), "high": high.map(value), "samples": point.samples
                })
            })
            .collect();
        let labels: Vec<String> =
            subject.run.modes().iter().map(|mode| format!("{RELAY} {mode}")).collect();
        let mut channel = group_channel(labels.iter().map(String::as_str));
        // Without this, the legend would be as pale as the bands.
        channel["legend"] = json!({"symbolOpacity": 1});
        let heading = format!("{} [{}]", capital(metric::words(metric)), unit.name());
        Some(json!({
            "data": {"values": rows}, "width": WIDTH, "height": 200,
            "title": {"text": heading, "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
            "encoding": {"x": x, "color": channel},
            "layer": [
                {
                    "mark": {"type": "area", "opacity": 0.16},
                    "encoding": {"y": y("low"), "y2": {"field": "high"}}
                },
                {
                    "mark": {"type": "line"},
                    "encoding": {"y": y("p95"), "strokeDash": channel}
                },
                {
                    "mark": {"type": "point", "filled": true, "size": 64, "opacity": 1, "tooltip": {"content": "data"}},
                    "encoding": {"y": y("p95"), "shape": channel}
                }
            ]
        }))
    });
    json!({"vconcat": panels.collect::<Vec<_>>(), "spacing": 18})
}

/// Label of a level; for a load, with the requested and the achieved CPU load (medians of the
/// trials).
fn level_label(subject: &Subject, axis: &Axis, value: &str) -> String {
    let of = |trial: &TrialData, name: &str| {
        trial.loads.iter().filter_map(|load| load.value(name)).reduce(f64::max)
    };
    let here = |trial: &&TrialData| trial.is_at(&axis.name, value);
    if axis.name != "load" {
        return value.to_owned();
    }
    let all = |name| {
        let trials = subject.run.finished_trials().filter(here);
        let mut all: Vec<f64> = trials.filter_map(|trial| of(trial, name)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    match (all("asked_ratio"), all("burnt_ratio")) {
        (Some(requested), Some(burnt)) => {
            format!("{value} ({} requested, {} achieved)", share(requested), share(burnt))
        }
        (Some(requested), None) => format!("{value} ({} requested)", share(requested)),
        (None, _) => value.to_owned(),
    }
}

fn table(points: &[P95Point], axis: &Axis, unit: Unit) -> Table {
    let mut table =
        Table::new(["delay", "mode", "level", "samples", "trials", "p95", "at least", "at most"]);
    table.columns[2] = axis_words(&axis.name).to_owned();
    for column in &mut table.columns[5..] {
        *column = format!("{column} [{}]", unit.name());
    }
    for point in points {
        let cell = |ns: Option<i64>| unit.cell(ns.map(|ns| ns as f64));
        table.row([
            metric::words(point.metric).to_owned(),
            point.mode.to_owned(),
            axis.values[point.place].clone(),
            count(point.samples),
            point.trials.to_string(),
            cell(Some(point.p95)),
            cell(point.bounds.map(|(low, _)| low)),
            cell(point.bounds.map(|(_, high)| high)),
        ]);
    }
    table
}
