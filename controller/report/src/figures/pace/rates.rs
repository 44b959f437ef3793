//! Measured against requested rate on logarithmic axes, as in figures 3 and 4 of Mok 2015.

use dwell_stats::median;
use dwell_units::{BitRate, Bytes};
use serde_json::{Value, json};

use super::panels::{engine_colours, engine_shapes, sizes, stacked};
use crate::analysis::paced::{NodeTrials, PacedTrial, cross_traffic};
use crate::figures::figure::{Figure, WIDTH, round_ticks, without_legend};
use crate::model::PublishedRate;
use crate::model::quantity::{share, significant};
use crate::model::table::Table;

/// Maximum relative deviation from the requested rate that is not reported.
const MAX_DEVIATION: f64 = 0.05;

/// One trial.
struct Mark<'a> {
    engine: &'a str,
    size: u64,
    requested: BitRate,
    measured: f64,
}

/// Returns figures for the lowest and the highest cross traffic.
pub(crate) fn rates(node: &NodeTrials) -> Vec<Figure> {
    node.flow_ends().into_iter().filter_map(|flows| at(node, flows)).collect()
}

/// One panel per size. Returns `None` if no rate was measured.
fn at(node: &NodeTrials, flows: u32) -> Option<Figure> {
    let trials = || node.trials.iter().copied().filter(move |paced| paced.sender.flows == flows);
    let marks: Vec<Mark> = trials().filter_map(mark).collect();
    let (least, most) = ends(&marks)?;
    let sizes = sizes(trials().filter(|paced| paced.measured_bps().is_some()));
    let domain = [mega(least * 0.8), mega(most * 1.25)];
    let published = published(node, flows, &sizes, domain);
    let panels: Vec<Value> = sizes
        .iter()
        .enumerate()
        .map(|(i, size)| {
            let of_size: Vec<_> =
                published.iter().copied().filter(|rate| rate.ip.0 == *size).collect();
            panel(node, &marks, *size, &of_size, domain, i == 0)
        })
        .collect();
    let mut table = Table::new([
        "engine",
        "IP packet",
        "requested [Mbit/s]",
        "measured [Mbit/s]",
        "share of requested",
    ]);
    for mark in &marks {
        table.row([
            mark.engine.to_owned(),
            Bytes(mark.size).to_string(),
            mega(mark.requested.0 as f64).to_string(),
            mega(mark.measured).to_string(),
            share(mark.measured / mark.requested.0 as f64),
        ]);
    }
    for rate in &published {
        table.row([
            rate.label(),
            format!("frame {}", rate.frame),
            requested_of(rate),
            mega(rate.measured.0 as f64).to_string(),
            rate.requested_rate().map_or_else(
                || "-".to_owned(),
                |requested| share(rate.measured.0 as f64 / requested.0 as f64),
            ),
        ]);
    }
    let title = format!("Measured against requested rate, {}{}", cross_traffic(flows), node.named);
    let body = stacked(panels);
    let finding = finding(&marks) + &drawn(&marks, &published);
    Some(Figure::new(format!("rates-{flows}"), title, finding, node.caption, body, table))
}

fn mark<'a>(paced: &'a PacedTrial<'a>) -> Option<Mark<'a>> {
    Some(Mark {
        engine: &paced.sender.engine,
        size: paced.sender.ip_size,
        requested: paced.rate.filter(|rate| rate.0 > 0)?,
        measured: paced.measured_bps().filter(|bps| *bps > 0.0)?,
    })
}

/// Smallest and largest of all requested and measured rates, in bit/s.
fn ends(marks: &[Mark]) -> Option<(f64, f64)> {
    let all = || marks.iter().flat_map(|mark| [mark.requested.0 as f64, mark.measured]);
    let least = all().min_by(f64::total_cmp)?;
    Some((least, all().max_by(f64::total_cmp)?))
}

fn mega(bps: f64) -> f64 {
    significant(bps / 1e6, 6)
}

fn panel(
    node: &NodeTrials,
    marks: &[Mark],
    size: u64,
    published: &[&PublishedRate],
    domain: [f64; 2],
    is_first: bool,
) -> Value {
    let scale = json!({"type": "log", "nice": false, "domain": domain});
    let values = round_ticks(domain[0], domain[1]);
    let channel = |field: &str, title: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": scale,
            "axis": {"title": title, "values": values, "format": "~g"}
        })
    };
    let of_size = || marks.iter().filter(move |mark| mark.size == size);
    let rows: Vec<Value> =
        of_size().map(|mark| row(mark.engine, mark.requested, mark.measured)).collect();
    let (mut colour, mut shape) = (engine_colours(&node.engines), engine_shapes(&node.engines));
    if !is_first {
        (colour, shape) = (without_legend(&colour), without_legend(&shape));
    }
    let mut layer = vec![
        json!({
            "data": {"values": [{"requested": domain[0], "measured": domain[0]}, {"requested": domain[1], "measured": domain[1]}]},
            "mark": {"type": "line", "style": "limit", "strokeDash": [4, 3]}
        }),
        json!({
            "data": {"values": medians(of_size())},
            "mark": {"type": "line", "opacity": 0.7},
            "encoding": {"color": colour}
        }),
        json!({
            "data": {"values": rows},
            "mark": {"type": "point", "filled": true, "size": 60, "tooltip": true},
            "encoding": {"color": colour, "shape": shape}
        }),
    ];
    let (at_one, at_each): (Vec<&PublishedRate>, _) =
        published.iter().copied().partition(|rate| rate.requested_rate().is_some());
    layer.extend(marks_of(&at_one));
    layer.extend(lines_of(&at_each, domain));
    json!({
        "title": {"text": format!("IP packets of {} B", size), "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
        "width": WIDTH, "height": 260,
        "encoding": {
            "x": channel("requested", "requested rate [Mbit/s, logarithmic]"),
            "y": channel("measured", "measured rate [Mbit/s, logarithmic]")
        },
        "layer": layer
    })
}

fn row(engine: &str, requested: BitRate, measured: f64) -> Value {
    json!({"group": engine, "requested": mega(requested.0 as f64), "measured": mega(measured)})
}

/// Median over trials per engine and requested rate, because a line through each repetition would
/// zigzag.
fn medians<'a>(marks: impl Iterator<Item = &'a Mark<'a>>) -> Vec<Value> {
    let mut all: Vec<((&str, BitRate), Vec<f64>)> = Vec::new();
    for mark in marks {
        let key = (mark.engine, mark.requested);
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, measured)) => measured.push(mark.measured),
            None => all.push((key, vec![mark.measured])),
        }
    }
    let rows = all.into_iter().filter_map(|((engine, requested), measured)| {
        Some(row(engine, requested, median(&measured)?))
    });
    rows.collect()
}

/// Published rates of these sizes within the range of the axes.
fn published<'a>(
    node: &NodeTrials<'a, '_>,
    flows: u32,
    sizes: &[u64],
    domain: [f64; 2],
) -> Vec<&'a PublishedRate> {
    let inside = |rate: &&PublishedRate| {
        let measured = mega(rate.measured.0 as f64);
        let (from, to) = between(rate);
        (domain[0]..=domain[1]).contains(&measured) && from <= domain[1] && to >= domain[0]
    };
    let drawn = |rate: &&PublishedRate| rate.flows == flows && sizes.contains(&rate.ip.0);
    node.published.rates.iter().filter(drawn).filter(inside).collect()
}

fn between(rate: &PublishedRate) -> (f64, f64) {
    let (from, to) = rate.requested;
    (mega(from.0 as f64), mega(to.0 as f64))
}

/// Requested rate in Mbit/s.
fn requested_of(rate: &PublishedRate) -> String {
    match (rate.requested_rate(), between(rate)) {
        (Some(_), (requested, _)) => requested.to_string(),
        (None, (from, to)) => format!("each from {from} to {to}"),
    }
}

/// Labelled marks of rates published for one requested rate.
fn marks_of(rates: &[&PublishedRate]) -> Vec<Value> {
    if rates.is_empty() {
        return Vec::new();
    }
    let rows: Vec<Value> = rates
        .iter()
        .map(|rate| {
            json!({
                "requested": between(rate).0, "measured": mega(rate.measured.0 as f64),
                "device": rate.label()
            })
        })
        .collect();
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

/// Horizontal lines of rates published for all requested rates, over the range tried on the board.
fn lines_of(rates: &[&PublishedRate], domain: [f64; 2]) -> Vec<Value> {
    let lines = rates.iter().flat_map(|rate| {
        let (from, to) = between(rate);
        let (measured, device) = (mega(rate.measured.0 as f64), rate.label());
        // The name is right of the line, where accurate senders have no marks, or below it without
        // room.
        let end = to.min(domain[1]);
        let room = (domain[1] / end).ln() / (domain[1] / domain[0]).ln();
        let label = if room > 0.4 {
            json!({"type": "text", "style": "label", "align": "left", "baseline": "middle", "dx": 6})
        } else {
            json!({"type": "text", "style": "label", "align": "right", "dx": -4, "dy": 14})
        };
        [
            json!({
                "data": {"values": [{
                    "requested": from, "to": to, "measured": measured, "device": device,
                    "requested rate": format!("every rate tried, {from} to {to} Mbit/s")
                }]},
                // The smallest published rates may lie left of the plot.
                "mark": {
                    "type": "rule", "style": "extreme", "strokeWidth": 2, "strokeDash": [6, 3],
                    "clip": true, "tooltip": {"content": "data"}
                },
                "encoding": {"x2": {"field": "to"}}
            }),
            json!({
                "data": {"values": [{"requested": end, "measured": measured, "device": format!("{device}, any requested rate")}]},
                "mark": label,
                "encoding": {"text": {"field": "device", "type": "nominal"}}
            }),
        ]
    });
    lines.collect()
}

/// Explanation of the lines.
fn drawn(marks: &[Mark], published: &[&PublishedRate]) -> String {
    let mut text = String::new();
    let key = |mark: &Mark| (mark.engine.to_owned(), mark.size, mark.requested);
    if marks.iter().enumerate().any(|(i, mark)| marks[..i].iter().any(|it| key(it) == key(mark))) {
        text += " Lines connect the median of the trials at each rate.";
    }
    for rate in published.iter().filter(|rate| rate.requested_rate().is_none()) {
        let (from, to) = rate.requested;
        text += &format!(
            " Horizontal line: {}, about {} at every rate tried, {from} to {to}.",
            rate.label(),
            rate.measured
        );
    }
    text
}

fn finding(marks: &[Mark]) -> String {
    let ratio = |mark: &Mark| mark.measured / mark.requested.0 as f64;
    let off: Vec<&Mark> =
        marks.iter().filter(|mark| (ratio(mark) - 1.0).abs() > MAX_DEVIATION).collect();
    let worst = off.iter().min_by(|a, b| {
        let away = |mark: &Mark| -ratio(mark).ln().abs();
        away(a).total_cmp(&away(b))
    });
    let Some(worst) = worst else {
        return format!(
            "Every median rate is within {} of the requested rate.",
            share(MAX_DEVIATION)
        );
    };
    format!(
        "{} of {} median rates are more than {} off the requested rate; worst is {} with IP packets of \
         {} B: {} instead of {}.",
        off.len(),
        marks.len(),
        share(MAX_DEVIATION),
        worst.engine,
        worst.size,
        BitRate((significant(worst.measured, 3)) as u64),
        worst.requested
    )
}
