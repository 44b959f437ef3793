//! Inter-packet delay variation (IPDV) against a parameter: mean, and band from minimum to maximum
//! (Miya 2020, S0.12).

use std::collections::BTreeSet;

use dwell_record::Figures;
use serde_json::{Value, json};

use super::bands;
use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, delay_axis, slug};
use crate::model::quantity::{Unit, count, delay, delay_ns, listed};
use crate::model::table::Table;
use crate::model::{Axis, metric};

/// Magnitude of the IPDV (RFC 3393), as in the summaries of trials.
const METRIC: &str = "ipdv_ns";

/// Count, minimum, mean and maximum, which merge exactly over trials, unlike percentiles.
struct Variation {
    count: u64,
    min: i64,
    mean: f64,
    max: i64,
}

/// Returns `None` unless two values of the axis have IPDV.
pub(super) fn jitter(subject: &Subject, axis: &Axis) -> Option<Figure> {
    let along: Vec<(usize, Group, Variation)> = group::by_axis(subject.run, METRIC, axis)
        .into_iter()
        .filter_map(|(i, group)| variation(&group).map(|variation| (i, group, variation)))
        .collect();
    if along.len() < 2 {
        return None;
    }
    let (_, most, largest) = along.iter().max_by_key(|(_, _, v)| v.max)?;
    let finding = format!(
        "Mean IPDV of the {}: {}; max {} at {}.",
        whole(subject),
        listed(&averages(&along)),
        delay_ns(largest.max),
        most.label,
    );
    let unit = Unit::fitting(along.iter().map(|(_, _, v)| v.mean).fold(0.0, f64::max));
    let mut table = Table::new(["value", "differences", "min", "mean", "max"]);
    table.columns[0] = axis.name.clone();
    for column in &mut table.columns[2..] {
        *column = format!("{column} [{}]", unit.name());
    }
    for (i, _, v) in &along {
        let [min, mean, max] = [v.min as f64, v.mean, v.max as f64].map(|ns| unit.cell(Some(ns)));
        table.row([axis.values[*i].clone(), count(v.count), min, mean, max]);
    }
    let body = body(axis, &along, unit);
    let title = format!("Inter-packet delay variation (IPDV) against {}", axis.name);
    let id = format!("jitter-{}", slug(&axis.name));
    let figure = Figure::new(id, title, finding, &subject.caption, body, table);
    let ipdv = "IPDV: magnitude of the delay difference between successive packets (RFC 3393).";
    Some(figure.explained(ipdv))
}

/// Delay whose variation is shown.
fn whole(subject: &Subject) -> &'static str {
    if metric::has_samples(subject.run, "end_to_end_ns") { "end-to-end delay" } else { "delay" }
}

/// Means by axis value; of more than five, only the first, last, smallest and largest.
fn averages(along: &[(usize, Group, Variation)]) -> Vec<String> {
    const MAX_LISTED: usize = 5;
    let by_mean = |a: &usize, b: &usize| along[*a].2.mean.total_cmp(&along[*b].2.mean);
    let last = along.len().saturating_sub(1);
    let places: BTreeSet<usize> = if along.len() <= MAX_LISTED {
        (0..along.len()).collect()
    } else {
        let extremes = [(0..=last).min_by(by_mean), (0..=last).max_by(by_mean)];
        extremes.into_iter().flatten().chain([0, last]).collect()
    };
    let said = |place: usize| {
        let (_, group, variation) = &along[place];
        format!("{} at {}", delay(variation.mean), group.label)
    };
    places.into_iter().map(said).collect()
}

fn body(axis: &Axis, along: &[(usize, Group, Variation)], unit: Unit) -> Value {
    let numbers = axis
        .numbers
        .as_ref()
        .filter(|numbers| along.len() > 2 && numbers.len() == axis.values.len());
    let rows = along.iter().map(|(i, _, v)| json!({
        "x": numbers.map_or_else(|| json!(axis.values[*i]), |numbers| json!(numbers[*i])),
        // A logarithmic axis has no zero; one nanosecond is the clock resolution.
        "min": unit.of(v.min.max(1) as f64), "mean": unit.of(v.mean), "max": unit.of(v.max as f64)
    }));
    // The smallest differences are clock resolution; showing seven decades would leave no room.
    let min = along.iter().map(|(_, _, v)| v.min.max(1)).min().unwrap_or(1) as f64;
    let mean = along.iter().map(|(_, _, v)| v.mean).fold(f64::MAX, f64::min);
    let max = along.iter().map(|(_, _, v)| v.max).max().unwrap_or(1) as f64;
    let cut = min < mean / 50.0;
    let title = if cut { "delay variation, cut below" } else { "delay variation" };
    let (scale, y_axis) = delay_axis(title, unit, if cut { mean / 50.0 } else { min }, max);
    let y = |field: &str| json!({"field": field, "type": "quantitative", "scale": scale, "axis": y_axis});
    let (x, range, middle) = match numbers {
        Some(numbers) => (bands::x(axis, numbers), "area", "line"),
        None => (
            json!({
                "field": "x", "type": "ordinal", "sort": axis.values,
                "axis": {"title": axis.name, "labelAngle": 0}
            }),
            "rule",
            "point",
        ),
    };
    let range_style = if range == "area" { "outer" } else { "whisker" };
    json!({
        "data": {"values": rows.collect::<Vec<_>>()},
        "width": WIDTH, "height": 240,
        "encoding": {"x": x},
        "layer": [
            {"mark": {"type": range, "style": range_style, "clip": true}, "encoding": {"y": y("min"), "y2": {"field": "max"}}},
            {"mark": {"type": middle, "style": "median"}, "encoding": {"y": y("mean")}},
            {"mark": {"type": "point", "filled": true, "size": 60, "tooltip": {"content": "data"}}, "encoding": {"y": y("mean")}}
        ]
    })
}

fn variation(group: &Group) -> Option<Variation> {
    let figures = |metric: &str| -> Vec<Figures> {
        let summaries = group.trials.iter().filter_map(|trial| trial.summary.as_ref());
        summaries.filter_map(|summary| summary.metrics.get(metric).copied()).collect()
    };
    let parts = figures(METRIC);
    let known = parts.iter().filter_map(|f| {
        Some(Variation { count: f.count, min: f.min?, mean: f.mean?, max: f.max? })
    });
    known.filter(|v| v.count > 0).reduce(|a, b| {
        let count = a.count.saturating_add(b.count);
        let mean = (a.mean * a.count as f64 + b.mean * b.count as f64) / count as f64;
        Variation { count, min: a.min.min(b.min), mean, max: a.max.max(b.max) }
    })
}
