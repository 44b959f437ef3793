//! Delay by percentile, on an axis where every further nine has the same width.

use dwell_stats::Quantile;
use serde_json::json;

use super::cumulative::table;
use super::overlay::Overlay;
use crate::analysis::group::Group;
use crate::figures::figure::{Figure, WIDTH, delay_axis, group_channel};
use crate::model::quantity::{capital, compared, delay_ns, significant};

/// One line per group, up to the highest percentile that the sample count supports.
pub(crate) fn percentiles(overlay: &Overlay) -> Option<Figure> {
    let unit = overlay.unit;
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    let (mut min, mut max, mut most) = (f64::MAX, f64::MIN, 1.0f64);
    for group in overlay.groups {
        let line = line(group);
        for &(odds, value_ns) in &line {
            (min, max) = (min.min(value_ns as f64), max.max(value_ns as f64));
            most = most.max(odds);
            values.push(json!({
                "group": group.label, "odds": significant(odds, 5), "delay": unit.of(value_ns as f64)
            }));
        }
        if let Some(&(odds, value_ns)) = line.last() {
            ends.push(json!({
                "group": group.label, "odds": significant(odds, 5), "delay": unit.of(value_ns as f64)
            }));
        }
    }
    if values.is_empty() {
        return None;
    }
    let (scale, axis) = delay_axis(&capital(overlay.noun), unit, min, max);
    let marks: Vec<f64> = [1.0, 2.0, 4.0]
        .into_iter()
        .chain((1..7).map(|e| 10f64.powi(e)))
        .filter(|m| *m <= most * 1.01)
        .collect();
    let channel = group_channel(overlay.labels());
    let encoding = json!({
        "x": {
            "field": "odds", "type": "quantitative",
            "scale": {"type": "log", "domain": [1, most * 1.3], "nice": false},
            "axis": {
                "title": "percentile [spaced by 1/(1 - q)]", "values": marks,
                "labelExpr": "format(100 * (1 - 1 / datum.value), '.6~r') + ' %'"
            }
        },
        "y": {"field": "delay", "type": "quantitative", "scale": scale, "axis": axis},
        "color": channel
    });
    let body = json!({
        "width": WIDTH, "height": 300, "encoding": encoding,
        "layer": [
            {
                "data": {"values": values}, "mark": {"type": "line"},
                "encoding": {"strokeDash": channel}
            },
            {
                "data": {"values": ends}, "mark": {"type": "point", "filled": true, "size": 70, "tooltip": true},
                "encoding": {"shape": channel}
            }
        ]
    });
    let title = format!("{} by percentile", capital(overlay.noun));
    let (finding, table) = (finding(overlay), table(overlay));
    let figure = Figure::new("percentiles", title, finding, overlay.caption, body, table);
    Some(figure.explained("Lines end at the last percentile that the sample count supports."))
}

/// Pairs of 1/(1 - q) and the percentile, from q = 0 to the highest supported one.
fn line(group: &Group) -> Vec<(f64, i64)> {
    const PER_DECADE: i32 = 24;
    let exponents = 0..=6 * PER_DECADE;
    let odds = exponents.map(|i| 10f64.powf(f64::from(i) / f64::from(PER_DECADE)));
    let supported = odds.map_while(|odds| {
        let ppm = ((1.0 - 1.0 / odds) * 1e6).round() as u32;
        Some((odds, group.steps.quantile(Quantile::from_ppm(ppm)?)?))
    });
    supported.collect()
}

fn finding(overlay: &Overlay) -> String {
    let part = |group: &Group| {
        let (p50, p99) =
            (group.pooled_quantile(Quantile::P50)?, group.pooled_quantile(Quantile::P99)?);
        let ratio = compared(p50 as f64, p99 as f64)?;
        let label = &group.label;
        Some(format!("{label}: median {}, p99 {} ({ratio})", delay_ns(p50), delay_ns(p99)))
    };
    let parts: Vec<String> = overlay.groups.iter().filter_map(part).collect();
    if parts.is_empty() {
        return "Cannot tell p99: fewer than 100 samples.".to_owned();
    }
    overlay.noted(format!("{}.{}", parts.join("; "), overlay.pooled()))
}
