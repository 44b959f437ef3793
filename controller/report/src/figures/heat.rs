//! Heat map of the delay over two parameters.

use dwell_stats::Quantile;
use serde_json::{Value, json};

use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, slug};
use crate::model::quantity::{count, delay};
use crate::model::table::Table;
use crate::model::{Axis, TrialData};

/// Maximum number of cells with their value printed.
const MAX_LABELS: usize = 120;

struct HeatCell<'a> {
    at: [String; 2],
    group: Group<'a>,
}

/// p50 and p99 over the two axes with the most values. Returns `None` with fewer than two axes.
pub(super) fn heat(subject: &Subject) -> Option<Figure> {
    let mut axes: Vec<&Axis> =
        subject.run.axes.iter().filter(|axis| axis.values.len() > 1).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.values.len()));
    let [across, up, ..] = axes.as_slice() else { return None };
    let cells = cells(subject, across, up);
    if cells.len() < 4 {
        return None;
    }
    let quantiles = [("p50", Quantile::P50), ("p99", Quantile::P99)];
    let panels =
        quantiles.into_iter().filter_map(|(name, q)| panel(subject, across, up, &cells, name, q));
    let body = json!({"vconcat": panels.collect::<Vec<_>>(), "spacing": 24, "resolve": {"scale": {"color": "independent"}}});
    let mut table = Table::new(["a", "b", "samples", "p50", "p99"]);
    table.columns[0] = across.name.clone();
    table.columns[1] = up.name.clone();
    for column in &mut table.columns[3..] {
        *column = format!("{column} [{}]", subject.unit.name());
    }
    for heat_cell in &cells {
        let cell = |q| heat_cell.group.cell(subject.unit, q);
        let [a, b] = heat_cell.at.clone();
        table.row([
            a,
            b,
            count(heat_cell.group.steps.count()),
            cell(Quantile::P50),
            cell(Quantile::P99),
        ]);
    }
    let title = format!("{} over {} and {}", subject.title(), across.name, up.name);
    let id = format!("heat-{}-{}", slug(&across.name), slug(&up.name));
    Some(Figure::new(id, title, finding(&cells), &subject.caption, body, table.label_intervals()))
}

fn cells<'a>(subject: &Subject<'a>, across: &Axis, up: &Axis) -> Vec<HeatCell<'a>> {
    let metric = subject.metric;
    let columns = group::by_axis(subject.run, metric, across);
    let rows = group::by_axis(subject.run, metric, up);
    let mut cells = Vec::new();
    for (i, column) in &columns {
        for (j, row) in &rows {
            let both =
                |trial: &&'a TrialData| column.trials.iter().any(|t| std::ptr::eq(*t, *trial));
            let trials: Vec<_> = row.trials.iter().copied().filter(both).collect();
            let group = Group::new(format!("{}, {}", column.label, row.label), trials, metric);
            if group.steps.count() > 0 {
                cells.push(HeatCell {
                    at: [across.values[*i].clone(), up.values[*j].clone()],
                    group,
                });
            }
        }
    }
    cells
}

fn panel(
    subject: &Subject,
    across: &Axis,
    up: &Axis,
    cells: &[HeatCell],
    name: &str,
    quantile: Quantile,
) -> Option<Value> {
    let unit = subject.unit;
    let known = cells.iter().filter_map(|cell| {
        let value = unit.of(cell.group.quantile(quantile)?);
        Some((value, json!({"a": cell.at[0], "b": cell.at[1], "delay": value})))
    });
    let (values, rows): (Vec<f64>, Vec<Value>) = known.unzip();
    let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
    if rows.is_empty() {
        return None;
    }
    let logarithmic = min > 0.0 && max / min > 8.0;
    // Cividis is dark below its middle, so the text colour changes there.
    let middle = if logarithmic { (min * max).sqrt() } else { (min + max) / 2.0 };
    let kind = if logarithmic { "log" } else { "linear" };
    let mut layer = vec![json!({
        "mark": {"type": "rect", "tooltip": true},
        "encoding": {"color": {
            "field": "delay", "type": "quantitative",
            "scale": {"type": kind, "scheme": "cividis", "domain": [min, max], "nice": false},
            "legend": {"title": format!("{name} [{}]", unit.name()), "orient": "right", "direction": "vertical", "format": ",.4~r"}
        }}
    })];
    if rows.len() <= MAX_LABELS {
        layer.push(json!({
            "mark": {"type": "text", "fontSize": 11},
            "encoding": {
                "text": {"field": "delay", "type": "quantitative", "format": ",.3~r"},
                "color": {
                    "condition": {"test": {"field": "delay", "gt": middle}, "value": "#000000"},
                    "value": "#ffffff"
                }
            }
        }));
    }
    let place = |field: &str, axis: &Axis| {
        json!({
            "field": field, "type": "ordinal", "sort": axis.values,
            "axis": {"title": axis.name, "labelAngle": 0, "domain": false, "ticks": false}
        })
    };
    Some(json!({
        "title": {"text": format!("{name} [{}]", unit.name()), "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
        "data": {"values": rows},
        "width": 560, "height": {"step": 30},
        "encoding": {"x": place("a", across), "y": place("b", up)},
        "layer": layer
    }))
}

fn finding(cells: &[HeatCell]) -> String {
    let said = |name: &str, quantile: Quantile| {
        let mut values: Vec<(f64, &str)> = cells
            .iter()
            .filter_map(|cell| Some((cell.group.quantile(quantile)?, cell.group.label.as_str())))
            .collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
        let ((low, at_low), (high, at_high)) = (values.first()?, values.last()?);
        Some(format!(
            "{name} {} at {at_low} (lowest) to {} at {at_high} (highest)",
            delay(*low),
            delay(*high)
        ))
    };
    let parts: Vec<String> =
        [said("Median", Quantile::P50), said("p99", Quantile::P99)].into_iter().flatten().collect();
    let mean = cells.iter().find_map(|cell| cell.group.mean(Quantile::P50));
    let mean =
        mean.map_or_else(String::new, |mean| format!(" Each is the {mean} over its trials."));
    if parts.is_empty() {
        "Cannot tell: too few samples.".to_owned()
    } else {
        format!("{}.{mean}", parts.join("; "))
    }
}
