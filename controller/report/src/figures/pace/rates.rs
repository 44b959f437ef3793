//! The rate measured against the rate asked for, on logarithmic axes: S2's figures 3 and 4.

use dwell_stats::accuracy::S2_RATES;
use dwell_units::{BitRate, Bytes};
use serde_json::{Value, json};

use super::{Part, apart, beside, shapes, sizes, stacked};
use crate::figure::{Figure, Table, WIDTH, handy, without_legend};
use crate::paced::Paced;
use crate::quantity::{share, significant};

/// A rate further from the one asked for than this is told of.
const OFF: f64 = 0.05;

/// S2's frames of 1514 B.
const LARGE: u64 = 1_500;

struct Mark<'a> {
    engine: &'a str,
    size: u64,
    asked: BitRate,
    measured: f64,
}

/// One panel for each size; `None` where no rate was measured.
pub(super) fn rates(part: &Part, flows: u32, caption: &str) -> Option<Figure> {
    let trials = || part.trials.iter().copied().filter(move |paced| paced.sender.flows == flows);
    let marks: Vec<Mark> = trials().filter_map(mark).collect();
    let (least, most) = ends(&marks)?;
    let sizes = sizes(trials().filter(|paced| paced.measured_bps().is_some()));
    let panels: Vec<Value> = sizes
        .iter()
        .enumerate()
        .map(|(i, size)| panel(part, &marks, *size, flows, (least, most), i == 0))
        .collect();
    let mut table = Table::new([
        "engine",
        "IP packet",
        "asked [Mbit/s]",
        "measured [Mbit/s]",
        "of what was asked",
    ]);
    for mark in &marks {
        table.row([
            mark.engine.to_owned(),
            Bytes(mark.size).to_string(),
            mega(mark.asked.0 as f64).to_string(),
            mega(mark.measured).to_string(),
            share(mark.measured / mark.asked.0 as f64),
        ]);
    }
    let title = format!("Rate measured against rate asked for, {}{}", beside(flows), part.named);
    let body = stacked(panels);
    Some(Figure::new(format!("rates-{flows}"), title, finding(&marks), caption, body, table))
}

fn mark<'a>(paced: &'a Paced<'a>) -> Option<Mark<'a>> {
    Some(Mark {
        engine: &paced.sender.engine,
        size: paced.sender.ip_size,
        asked: paced.rate.filter(|rate| rate.0 > 0)?,
        measured: paced.measured_bps().filter(|bps| *bps > 0.0)?,
    })
}

/// The smallest and the largest of all rates, asked or measured, in bit/s.
fn ends(marks: &[Mark]) -> Option<(f64, f64)> {
    let all = || marks.iter().flat_map(|mark| [mark.asked.0 as f64, mark.measured]);
    let least = all().min_by(f64::total_cmp)?;
    Some((least, all().max_by(f64::total_cmp)?))
}

fn mega(bps: f64) -> f64 {
    significant(bps / 1e6, 6)
}

fn panel(
    part: &Part,
    marks: &[Mark],
    size: u64,
    flows: u32,
    (least, most): (f64, f64),
    is_first: bool,
) -> Value {
    let domain = [mega(least * 0.8), mega(most * 1.25)];
    let scale = json!({"type": "log", "nice": false, "domain": domain});
    let values = handy(domain[0], domain[1]);
    let channel = |field: &str, title: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": scale,
            "axis": {"title": title, "values": values, "format": "~g"}
        })
    };
    let rows: Vec<Value> = marks
        .iter()
        .filter(|mark| mark.size == size)
        .map(|mark| {
            json!({
                "group": mark.engine, "asked": mega(mark.asked.0 as f64),
                "measured": mega(mark.measured)
            })
        })
        .collect();
    let (mut colour, mut shape) = (apart(&part.engines), shapes(&part.engines));
    if !is_first {
        (colour, shape) = (without_legend(&colour), without_legend(&shape));
    }
    let mut layer = vec![
        json!({
            "data": {"values": [{"asked": domain[0], "measured": domain[0]}, {"asked": domain[1], "measured": domain[1]}]},
            "mark": {"type": "line", "style": "limit", "strokeDash": [4, 3]}
        }),
        json!({
            "data": {"values": rows},
            "mark": {"type": "line", "opacity": 0.7},
            "encoding": {"color": colour}
        }),
        json!({
            "data": {"values": rows},
            "mark": {"type": "point", "filled": true, "size": 60, "tooltip": true},
            "encoding": {"color": colour, "shape": shape}
        }),
    ];
    if size == LARGE {
        layer.extend(published(flows, domain));
    }
    json!({
        "title": {"text": format!("IP packets of {} B", size), "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
        "width": WIDTH, "height": 260,
        "encoding": {
            "x": channel("asked", "rate asked for [Mbit/s, logarithmic]"),
            "y": channel("measured", "rate measured [Mbit/s, logarithmic]")
        },
        "layer": layer
    })
}

/// The rates that S2 gives as numbers, as marks with names.
fn published(flows: u32, domain: [f64; 2]) -> Vec<Value> {
    let inside = |mega: f64| (domain[0]..=domain[1]).contains(&mega);
    let rows: Vec<Value> = S2_RATES
        .iter()
        .filter(|rate| rate.flows == flows)
        .filter_map(|rate| {
            let asked = rate.asked.map_or(domain[1] / 1.25, |asked| mega(asked.0 as f64));
            let measured = mega(rate.measured.0 as f64);
            let text = format!("{} (S2)", rate.device);
            (inside(asked) && inside(measured))
                .then(|| json!({"asked": asked, "measured": measured, "device": text}))
        })
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    vec![
        json!({
            "data": {"values": rows},
            "mark": {"type": "point", "shape": "cross", "size": 90, "style": "extreme", "tooltip": true}
        }),
        json!({
            "data": {"values": rows},
            "mark": {"type": "text", "style": "label", "align": "right", "dx": -8, "dy": 8},
            "encoding": {"text": {"field": "device", "type": "nominal"}}
        }),
    ]
}

fn finding(marks: &[Mark]) -> String {
    let ratio = |mark: &Mark| mark.measured / mark.asked.0 as f64;
    let off: Vec<&Mark> = marks.iter().filter(|mark| (ratio(mark) - 1.0).abs() > OFF).collect();
    let worst = off.iter().min_by(|a, b| {
        let away = |mark: &Mark| -ratio(mark).ln().abs();
        away(a).total_cmp(&away(b))
    });
    let Some(worst) = worst else {
        return format!("Every median rate is within {} of the one asked for.", share(OFF));
    };
    format!(
        "{} of {} median rates are further than {} from the one asked for; the furthest is {}, which \
         sent IP packets of {} B at {} instead of {}.",
        off.len(),
        marks.len(),
        share(OFF),
        worst.engine,
        worst.size,
        BitRate((significant(worst.measured, 3)) as u64),
        worst.asked
    )
}
