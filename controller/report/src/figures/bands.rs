//! Delay against a numeric parameter as percentile bands (Miya 2020, S0.13).

use dwell_stats::Quantile;
use serde_json::{Value, json};

use crate::analysis::effect::effect;
use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, delay_axis, slug};
use crate::model::quantity::count;
use crate::model::table::Table;
use crate::model::{Axis, TrialData};

/// Maximum number of panels for the values of a second axis.
const MAX_PANELS: usize = 6;

/// Returns `None` unless the axis has at least three numbers with samples.
pub(super) fn bands(subject: &Subject, axis: &Axis) -> Option<Figure> {
    let numbers = axis.numbers.as_ref()?;
    let mut along = group::comparable(subject.run, subject.metric, axis);
    along.retain(|(place, _)| numbers.get(*place).is_some());
    if along.len() < 3 {
        return None;
    }
    let panels = panels(subject, axis);
    let mut values = Vec::new();
    let mut table =
        Table::new(["group", "value", "samples", "p1", "p25", "p50", "p75", "p99", "max"]);
    table.columns[1] = axis.name.clone();
    for column in &mut table.columns[3..] {
        *column = format!("{column} [{}]", subject.unit.name());
    }
    let (mut min, mut max) = (f64::MAX, f64::MIN);
    for (label, trials) in &panels {
        for (i, group) in along.iter() {
            let here = group
                .trials
                .iter()
                .copied()
                .filter(|trial| trials.iter().any(|t| std::ptr::eq(*t, *trial)));
            let group = Group::new(group.label.clone(), here.collect(), subject.metric);
            let Some(row) = row(subject, label, numbers[*i], &group) else { continue };
            let lowest = group.steps.min()? as f64;
            min = min.min(group.quantile(Quantile::from_ppm(10_000)?).unwrap_or(lowest));
            max = max.max(group.steps.max()? as f64);
            values.push(row);
            table.rows.push(cells(subject, label, &axis.values[*i], &group));
        }
    }
    let finding = effect(subject, axis);
    let (scale, y_axis) = delay_axis("delay", subject.unit, min, max);
    let labels: Vec<&str> = panels.iter().map(|(label, _)| label.as_str()).collect();
    let body = body(&values, &labels, x(axis, numbers), scale, y_axis);
    let title = format!("{} against {}", subject.title(), axis.name);
    let id = format!("bands-{}", slug(&axis.name));
    let table = table.label_intervals();
    let figure = Figure::new(id, title, finding, &subject.caption, body, table);
    Some(figure.explained("Dark band: p25 to p75; light band: p1 to p99; dashes: maximum."))
}

/// Trials by the value of another axis with few values, or all in one panel.
fn panels<'a>(subject: &Subject<'a>, axis: &Axis) -> Vec<(String, Vec<&'a TrialData>)> {
    let other =
        subject.run.axes.iter().find(|other| {
            other.name != axis.name && (2..=MAX_PANELS).contains(&other.values.len())
        });
    match other {
        Some(other) => {
            let groups = group::by_axis(subject.run, subject.metric, other).into_iter();
            groups.map(|(_, group)| (group.label, group.trials)).collect()
        }
        None => vec![("all trials".to_owned(), subject.run.finished_trials().collect())],
    }
}

/// Channel of a numeric axis in its base unit.
pub(super) fn x(axis: &Axis, numbers: &[f64]) -> Value {
    let unit = axis.unit.as_deref().filter(|unit| !matches!(*unit, "" | "1"));
    let (min, max) = numbers.iter().fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
    // Rates usually vary by factors, sizes by steps.
    let logarithmic = min > 0.0 && max / min > 50.0;
    let title = unit.map_or_else(|| axis.name.clone(), |unit| format!("{} [{unit}]", axis.name));
    let scale = if logarithmic {
        json!({"type": "log", "nice": false})
    } else {
        json!({"zero": false, "nice": false, "padding": 8})
    };
    let format = if max >= 1e5 { "~s" } else { ",.6~r" };
    json!({
        "field": "x", "type": "quantitative", "scale": scale,
        "axis": {"title": title, "format": format, "grid": false}
    })
}

fn row(subject: &Subject, label: &str, x: f64, group: &Group) -> Option<Value> {
    let steps = &group.steps;
    let (min, max) = (steps.min()? as f64, steps.max()? as f64);
    let at = |ppm, instead: f64| {
        let quantile = Quantile::from_ppm(ppm).and_then(|quantile| group.quantile(quantile));
        subject.unit.of(quantile.unwrap_or(instead))
    };
    Some(json!({
        "panel": label, "x": x, "samples": steps.count(),
        "p1": at(10_000, min), "p25": at(250_000, min), "p50": at(500_000, min),
        "p75": at(750_000, max), "p99": at(990_000, max), "max": subject.unit.of(max)
    }))
}

fn cells(subject: &Subject, label: &str, value: &str, group: &Group) -> Vec<String> {
    let cell = |ns: Option<i64>| subject.unit.cell(ns.map(|ns| ns as f64));
    let mut row = vec![label.to_owned(), value.to_owned(), count(group.steps.count())];
    row.extend([10_000, 250_000, 500_000, 750_000, 990_000].map(|ppm| {
        Quantile::from_ppm(ppm).map_or_else(|| cell(None), |q| group.cell(subject.unit, q))
    }));
    row.push(cell(group.steps.max()));
    row
}

fn body(values: &[Value], labels: &[&str], x: Value, scale: Value, axis: Value) -> Value {
    let y =
        |field: &str| json!({"field": field, "type": "quantitative", "scale": scale, "axis": axis});
    let layer = json!([
        {"mark": {"type": "area", "style": "outer"}, "encoding": {"y": y("p1"), "y2": {"field": "p99"}}},
        {"mark": {"type": "area", "style": "inner"}, "encoding": {"y": y("p25"), "y2": {"field": "p75"}}},
        {"mark": {"type": "line", "style": "median"}, "encoding": {"y": y("p50")}},
        {"mark": {"type": "point", "filled": true, "size": 40, "tooltip": {"content": "data"}}, "encoding": {"y": y("p50")}},
        {"mark": {"type": "line", "style": "limit", "strokeDash": [4, 3]}, "encoding": {"y": y("max")}}
    ]);
    let height = if labels.len() > 1 { 150 } else { 280 };
    let unit = json!({"width": WIDTH, "height": height, "encoding": {"x": x}, "layer": layer});
    if labels.len() < 2 {
        let mut body = unit;
        body["data"] = json!({"values": values});
        return body;
    }
    json!({
        "data": {"values": values},
        "facet": {"row": {
            "field": "panel", "type": "nominal", "title": null, "sort": labels,
            "header": {"labelOrient": "top", "labelAngle": 0}
        }},
        "spacing": 12,
        "spec": unit
    })
}
