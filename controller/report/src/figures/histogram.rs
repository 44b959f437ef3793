//! Delay histogram on logarithmic axes (Roedlach/Vock, S4.3).

use serde_json::{Value, json};

use super::overlay::Overlay;
use crate::analysis::group::Group;
use crate::figures::figure::{Figure, WIDTH, delay_axis, group_channel, without_legend};
use crate::model::distribution;
use crate::model::quantity::{capital, count, delay_ns, significant};
use crate::model::table::Table;

/// Number of bars per distribution. Roedlach/Vock drew 1,200; a small panel cannot show more than
/// this.
const BARS: u32 = 80;

/// One panel per group, stacked on shared axes.
pub(crate) fn histogram(overlay: &Overlay) -> Option<Figure> {
    let (min, max) = overlay.extremes()?;
    let unit = overlay.unit;
    let edges = distribution::edges(min, max, BARS);
    let mut values = Vec::new();
    let mut most = 1;
    let mut table = Table::new(["group", "from", "to", "samples"]);
    for column in &mut table.columns[1..3] {
        *column = format!("{column} [{}]", unit.name());
    }
    for group in overlay.groups {
        for (i, bar) in group.steps.bars(&edges).into_iter().enumerate().filter(|(_, bar)| *bar > 0)
        {
            let (from, to) = (edges[i], edges[i + 1]);
            most = most.max(bar);
            values.push(json!({
                "group": group.label, "from": unit.of(from), "to": unit.of(to), "count": bar
            }));
            let cells = [unit.cell(Some(from)), unit.cell(Some(to))];
            let [from, to] = cells;
            table.row([group.label.clone(), from, to, count(bar)]);
        }
    }
    let (scale, axis) = delay_axis(&capital(overlay.noun), unit, min as f64, max as f64);
    let body = body(overlay, values, scale, axis, most);
    let title = format!("{} histogram", capital(overlay.noun));
    Some(Figure::new("histogram", title, finding(overlay), overlay.caption, body, table))
}

fn body(overlay: &Overlay, values: Vec<Value>, scale: Value, axis: Value, most: u64) -> Value {
    // Bars start at one half, so that a bar of one sample is visible on a logarithmic axis.
    let counts = json!({
        "type": "log", "domain": [0.5, significant(most as f64 * 1.5, 2)], "nice": false
    });
    let powers: Vec<f64> = (0..).map(|e| 10f64.powi(e)).take_while(|p| *p <= most as f64).collect();
    let height = if overlay.groups.len() > 1 { 96 } else { 240 };
    json!({
        "data": {"values": values},
        "facet": {"row": {
            "field": "group", "type": "nominal", "title": null,
            "sort": overlay.labels().collect::<Vec<_>>(),
            "header": {"labelOrient": "top", "labelAngle": 0}
        }},
        "spacing": 8,
        "spec": {
            "width": WIDTH, "height": height,
            "mark": {"type": "rect", "stroke": null, "tooltip": true},
            "encoding": {
                "x": {"field": "from", "type": "quantitative", "scale": scale, "axis": axis},
                "x2": {"field": "to"},
                "y": {
                    "field": "count", "type": "quantitative", "scale": counts,
                    "axis": {"title": "samples [log.]", "values": powers, "format": "~s"}
                },
                "y2": {"datum": 0.5},
                "color": without_legend(&group_channel(overlay.labels())),
            }
        }
    })
}

fn finding(overlay: &Overlay) -> String {
    let middle = |group: &Group| {
        let n = group.steps.count();
        let five = (n / 20).max(1);
        let low = group.steps.at_rank(five)?;
        let high = group.steps.at_rank(n - five + 1)?;
        let max = group.steps.max()?;
        Some(format!(
            "{}: 90 % from {} to {}, max {}",
            group.label,
            delay_ns(low),
            delay_ns(high),
            delay_ns(max)
        ))
    };
    let few = overlay.groups.iter().all(|group| group.steps.count() < 20);
    if few {
        return "Cannot tell the shape: fewer than 20 samples per group.".to_owned();
    }
    let said: Vec<String> = overlay.groups.iter().filter_map(middle).collect();
    overlay.noted(format!("{}.", said.join("; ")))
}
