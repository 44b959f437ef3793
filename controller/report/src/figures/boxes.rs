//! Box plot: one box per group, with whiskers from p1 to p99, extremes, and medians of trials.

use dwell_stats::Quantile;
use serde_json::{Value, json};

use super::overlay::Overlay;
use crate::analysis::condition::{Condition, Links};
use crate::analysis::effect::effect;
use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, delay_axis, slug};
use crate::model::Axis;
use crate::model::axes::{RELAY, axis_words};
use crate::model::quantity::{Unit, capital, count, delay};
use crate::model::table::Table;

/// One box per value of an axis, over all other parameters.
pub(super) fn by_axis(subject: &Subject, axis: &Axis) -> Option<Figure> {
    let groups = group::comparable(subject.run, subject.metric, axis);
    let groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    if groups.len() < 2 {
        return None;
    }
    let overlay = Overlay {
        noun: subject.noun,
        unit: subject.unit,
        caption: &subject.caption,
        groups: &groups,
        by: "",
        note: None,
        finding: None,
    };
    let title = format!("{} by {}", capital(subject.noun), axis.name);
    let finding = effect(subject, axis);
    boxes(&overlay, format!("boxes-{}", slug(&axis.name)), title, finding)
}

/// One box per mode and level of a non-numeric parameter, such as a load.
pub(super) fn by_mode_and_level(subject: &Subject, axis: &Axis) -> Option<Figure> {
    if axis.numbers.is_some() {
        return None;
    }
    let condition = Condition::of(subject.run, subject.metric, Links::Unlimited);
    let held = condition.without(&[&axis.name]);
    let part = subject.run.at(&held.levels());
    let here = Subject::about(&part, subject.metric)?;
    let mut groups = Vec::new();
    for mode in subject.run.modes() {
        for value in &axis.values {
            let trials = subject.run.finished_trials().filter(|trial| {
                held.holds(trial) && trial.is_at(RELAY, mode) && trial.is_at(&axis.name, value)
            });
            let label = format!("{mode}, {} {value}", axis_words(&axis.name));
            groups.push(Group::new(label, trials.collect(), subject.metric));
        }
    }
    groups.retain(|group| group.steps.count() > 0);
    let name = axis_words(&axis.name);
    let note = held.words().map(|words| format!("Fixed: {words}."));
    let overlay = Overlay {
        noun: here.noun,
        unit: here.unit,
        caption: &here.caption,
        groups: &groups,
        by: "",
        note: note.as_deref(),
        finding: None,
    };
    let finding = medians(&groups);
    let title = format!("{} by mode and {name}", here.title());
    boxes(&overlay, format!("boxes-{}", slug(&axis.name)), title, finding)
}

/// One box per group of an overlay.
pub(super) fn overlaid(overlay: &Overlay) -> Option<Figure> {
    let finding = overlay.finding.map_or_else(|| medians(overlay.groups), str::to_owned);
    boxes(overlay, format!("boxes-{}", overlay.by), capital(overlay.noun), finding)
}

/// Median of each group, without a verdict.
fn medians(groups: &[Group]) -> String {
    let median = |group: &Group| {
        let median = group.quantile(Quantile::P50)?;
        Some(format!("{} ({})", delay(median), group.label))
    };
    let all: Vec<String> = groups.iter().filter_map(median).collect();
    format!("Medians: {}.", all.join(", "))
}

/// One box per group with samples.
pub(super) fn boxes(
    overlay: &Overlay,
    id: String,
    title: String,
    finding: String,
) -> Option<Figure> {
    let (min, max) = overlay.extremes()?;
    let with_samples = overlay.groups.iter().filter(|group| group.steps.count() > 0);
    let values: Vec<Value> = with_samples.clone().map(|group| row(group, overlay.unit)).collect();
    let trials: Vec<Value> = with_samples
        .clone()
        .flat_map(|group| {
            let each: Vec<i64> = group.over_trials(Quantile::P50).map(|(_, ns)| ns).collect();
            let shown = if each.len() > 1 { each } else { Vec::new() };
            shown.into_iter().map(
                |ns| json!({"group": group.label, "median of a trial": overlay.unit.of(ns as f64)}),
            )
        })
        .collect();
    let (scale, mut axis) =
        delay_axis(&capital(overlay.noun), overlay.unit, min as f64, max as f64);
    axis["grid"] = json!(true);
    let x =
        |field: &str| json!({"field": field, "type": "quantitative", "scale": scale, "axis": axis});
    let labels: Vec<&str> = with_samples.map(|group| group.label.as_str()).collect();
    let y = json!({
        "field": "group", "type": "nominal", "sort": labels,
        "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8}
    });
    let mut layer = vec![
        json!({
            "mark": {"type": "rule", "style": "whisker", "tooltip": true},
            "encoding": {"x": x("p1 or min"), "x2": {"field": "p99 or max"}}
        }),
        json!({
            "mark": {"type": "bar", "style": "box", "size": 18, "tooltip": true},
            "encoding": {"x": x("p25"), "x2": {"field": "p75"}}
        }),
        json!({
            "mark": {"type": "tick", "style": "middle", "size": 24, "tooltip": true},
            "encoding": {"x": x("p50")}
        }),
        json!({
            "mark": {"type": "point", "style": "extreme", "shape": "triangle-right", "size": 50, "tooltip": true},
            "encoding": {"x": x("max")}
        }),
        json!({
            "mark": {"type": "point", "style": "extreme", "shape": "triangle-left", "size": 50, "tooltip": true},
            "encoding": {"x": x("min")}
        }),
    ];
    if !trials.is_empty() {
        layer.push(json!({
            "data": {"values": trials},
            "mark": {"type": "point", "style": "trial", "shape": "diamond", "size": 32, "tooltip": true, "yOffset": 14},
            "encoding": {"x": x("median of a trial")}
        }));
    }
    let body = json!({
        "data": {"values": values},
        "width": WIDTH, "height": {"step": 44},
        "encoding": {"y": y}, "layer": layer
    });
    let mean = overlay.groups.iter().find_map(|group| group.mean(Quantile::P50));
    let how_to_read = format!(
        "Box: p25 to p75; line: p1 to p99; triangles: extremes{}.",
        mean.map_or("", |_| " of all trials; diamonds: medians of trials")
    );
    let mean = mean.map_or_else(String::new, |mean| {
        format!(" Box ends and median are the {mean} over trials.")
    });
    let finding = overlay.noted(finding + &mean);
    let figure = Figure::new(id, title, finding, overlay.caption, body, table(overlay));
    Some(figure.explained(how_to_read))
}

fn row(group: &Group, unit: Unit) -> Value {
    let steps = &group.steps;
    let at = |ppm| Quantile::from_ppm(ppm).and_then(|quantile| group.quantile(quantile));
    let [min, max] = [steps.min(), steps.max()].map(|end| end.map(|ns| ns as f64));
    let value = |ns: Option<f64>| ns.map(|ns| unit.of(ns));
    // With fewer than 100 samples the extremes replace p1 and p99.
    json!({
        "group": group.label, "samples": steps.count(), "min": value(min),
        "p1 or min": value(at(10_000).filter(|_| steps.count() >= 100).or(min)),
        "p25": value(at(250_000).or(min)), "p50": value(at(500_000).or(min)),
        "p75": value(at(750_000).or(max)),
        "p99 or max": value(at(990_000).or(max)), "max": value(max)
    })
}

fn table(overlay: &Overlay) -> Table {
    let unit = overlay.unit.name();
    let columns = ["p25", "p50", "p75", "p99", "smallest p50", "largest p50"]
        .map(|name| format!("{name} [{unit}]"));
    let mut table = Table {
        columns: ["group", "samples", "trials"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    table.columns.extend(columns);
    for group in overlay.groups {
        let cell = |ns: Option<i64>| overlay.unit.cell(ns.map(|ns| ns as f64));
        let at = |ppm| {
            Quantile::from_ppm(ppm).map_or_else(|| cell(None), |q| group.cell(overlay.unit, q))
        };
        let each: Vec<i64> = group.over_trials(Quantile::P50).map(|(_, ns)| ns).collect();
        let mut row =
            vec![group.label.clone(), count(group.steps.count()), count(each.len() as u64)];
        row.extend([250_000, 500_000, 750_000, 990_000].map(at));
        row.extend([cell(each.iter().min().copied()), cell(each.iter().max().copied())]);
        table.rows.push(row);
    }
    table.label_intervals()
}
