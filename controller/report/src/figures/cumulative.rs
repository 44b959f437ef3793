//! Empirical distribution function of delays (ECDF; Miya 2020, S0.14) and its complement (CCDF).

use dwell_stats::Quantile;
use serde_json::{Value, json};

use super::overlay::Overlay;
use crate::analysis::group::Group;
use crate::figures::figure::{Figure, WIDTH, delay_axis, group_channel};
use crate::model::quantity::{capital, count, delay_ns, significant};
use crate::model::table::Table;

/// Empirical cumulative distribution function of each group.
pub(crate) fn ecdf(overlay: &Overlay) -> Option<Figure> {
    let share = |up_to: u64, _: u64, n: u64| up_to as f64 / n as f64;
    let y = json!({
        "field": "share", "type": "quantitative", "scale": {"domain": [0, 1]},
        "axis": {"title": "share of samples up to this delay", "format": ".0%"}
    });
    let finding = percentile_sentence(overlay, "Median", Quantile::P50);
    let title = format!("{} ECDF", capital(overlay.noun));
    let body = body(overlay, share, y)?;
    Some(Figure::new("ecdf", title, finding, overlay.caption, body, table(overlay)))
}

/// Complement on a logarithmic axis, which shows the tail.
pub(crate) fn ccdf(overlay: &Overlay) -> Option<Figure> {
    let share = |_: u64, from: u64, n: u64| from as f64 / n as f64;
    let most = overlay.groups.iter().map(|group| group.steps.count()).max()?;
    let powers: Vec<f64> =
        (0..).map(|e| 1.0 / 10f64.powi(e)).take_while(|p| *p >= 0.5 / most as f64).collect();
    let y = json!({
        "field": "share", "type": "quantitative",
        "scale": {"type": "log", "domain": [0.7 / most as f64, 1], "nice": false},
        "axis": {
            "title": "share at or above this delay [logarithmic]", "values": powers,
            "format": "~%"
        }
    });
    let supported = |q: &Quantile| overlay.groups.iter().all(|g| g.pooled_quantile(*q).is_some());
    let tail = [Quantile::P99_9, Quantile::P99, Quantile::P90].into_iter().find(supported);
    let finding = match tail {
        Some(q) if q == Quantile::P99_9 => percentile_sentence(overlay, "p99.9", q),
        Some(q) if q == Quantile::P99 => percentile_sentence(overlay, "p99", q),
        Some(q) => percentile_sentence(overlay, "p90", q),
        None => "Cannot tell the tail: too few samples.".to_owned(),
    };
    let title = format!("{} tail (complementary ECDF)", capital(overlay.noun));
    let body = body(overlay, share, y)?;
    Some(Figure::new("ccdf", title, finding, overlay.caption, body, table(overlay)))
}

fn body(overlay: &Overlay, share: fn(u64, u64, u64) -> f64, y: Value) -> Option<Value> {
    let (min, max) = overlay.extremes()?;
    let (scale, axis) = delay_axis(&capital(overlay.noun), overlay.unit, min as f64, max as f64);
    let values = overlay.groups.iter().flat_map(|group| {
        group.steps.curve().into_iter().map(|point| {
            json!({
                "group": group.label,
                "delay": overlay.unit.of(point.value_ns as f64),
                "share": significant(share(point.up_to, point.from, group.steps.count()), 5)
            })
        })
    });
    let channel = group_channel(overlay.labels());
    Some(json!({
        "data": {"values": values.collect::<Vec<_>>()},
        "width": WIDTH, "height": 300,
        // A single sample is a line of zero length; the dot shows it.
        "mark": {
            "type": "line", "interpolate": "step-after",
            "point": overlay.groups.iter().any(|group| group.steps.count() < 50)
        },
        "encoding": {
            "x": {"field": "delay", "type": "quantitative", "scale": scale, "axis": axis},
            "y": y,
            "color": channel, "strokeDash": channel,
            "order": {"field": "delay", "type": "quantitative"}
        }
    }))
}

/// Percentile of every group as a sentence.
fn percentile_sentence(overlay: &Overlay, what: &str, quantile: Quantile) -> String {
    let part = |group: &Group| {
        let value = group.pooled_quantile(quantile)?;
        Some(format!("{} ({})", delay_ns(value), group.label))
    };
    let parts: Vec<String> = overlay.groups.iter().filter_map(part).collect();
    if parts.is_empty() {
        return "Cannot tell: too few samples.".to_owned();
    }
    overlay.noted(format!("{what}: {}.{}", parts.join(", "), overlay.pooled()))
}

pub(super) fn table(overlay: &Overlay) -> Table {
    const TABLE_PERCENTILES: [(&str, u32); 7] = [
        ("p1", 10_000),
        ("p10", 100_000),
        ("p50", 500_000),
        ("p90", 900_000),
        ("p99", 990_000),
        ("p99.9", 999_000),
        ("p99.99", 999_900),
    ];
    let unit = overlay.unit;
    let mut columns =
        vec!["group".to_owned(), "samples".to_owned(), format!("min [{}]", unit.name())];
    columns.extend(TABLE_PERCENTILES.iter().map(|(name, _)| format!("{name} [{}]", unit.name())));
    columns.push(format!("max [{}]", unit.name()));
    let row = |group: &Group| {
        let cell = |value: Option<i64>| unit.cell(value.map(|ns| ns as f64));
        let mut row =
            vec![group.label.clone(), count(group.steps.count()), cell(group.steps.min())];
        row.extend(TABLE_PERCENTILES.iter().map(|(_, ppm)| {
            Quantile::from_ppm(*ppm).map_or_else(|| cell(None), |q| group.pooled_cell(unit, q))
        }));
        row.push(cell(group.steps.max()));
        row
    };
    Table { columns, rows: overlay.groups.iter().map(row).collect() }.label_intervals()
}
