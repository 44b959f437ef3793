//! The largest rate that each sender keeps accurately, with S2's boards beside it.

use dwell_stats::accuracy::S2_DEVICES;
use dwell_units::BitRate;
use serde_json::{Value, json};

use super::{beside, firsts, stacked};
use crate::data::RunData;
use crate::figure::{Figure, WIDTH, handy, told_apart, without_legend};
use crate::paced::{RateVerdict, Verdict, verdict_table};
use crate::quantity::significant;

/// One panel for each number of flows; `None` where no sender keeps any rate.
pub(super) fn largest(run: &RunData, all: &[RateVerdict], caption: &str) -> Option<Figure> {
    let known = || all.iter().filter_map(|verdict| verdict.largest.rate());
    let least = known().min()?;
    let published = || S2_DEVICES.iter().flat_map(|it| [it.all_sizes, it.large_packets]);
    let rates = || known().chain(published().filter_map(|it| it.rate()));
    let domain =
        [mega(rates().min().unwrap_or(least)) * 0.8, mega(rates().max().unwrap_or(least)) * 1.25];
    let mut flows: Vec<u32> = all.iter().map(|verdict| verdict.flows).collect();
    flows.sort_unstable();
    flows.dedup();
    let mut sizes: Vec<u64> = all.iter().map(|verdict| verdict.ip_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut groups: Vec<String> = sizes.iter().map(|size| size_name(*size)).collect();
    groups.extend(S2_GROUPS.map(str::to_owned));
    let rows: Vec<String> = firsts(all.iter().map(|verdict| row_name(all, verdict)));
    let panels: Vec<Value> = flows
        .iter()
        .enumerate()
        .map(|(i, flows)| panel(all, *flows, i == 0, &groups, &rows, domain))
        .collect();
    let title = "Largest rate that is kept accurately".to_owned();
    let body = stacked(panels);
    Some(Figure::new("largest-rates", title, finding(all), caption, body, verdict_table(run)))
}

const S2_GROUPS: [&str; 2] = ["S2: all sizes", "S2: large packets"];

fn mega(rate: BitRate) -> f64 {
    significant(rate.0 as f64 / 1e6, 6)
}

fn size_name(size: u64) -> String {
    format!("IP {size} B")
}

/// The engine, with what tells senders apart beside it.
fn row_name(all: &[RateVerdict], verdict: &RateVerdict) -> String {
    let mut name = verdict.engine.clone();
    if all.iter().any(|other| other.node != verdict.node) {
        name = format!("{}: {name}", verdict.node);
    }
    verdict.parameters.iter().fold(name, |name, (axis, value)| format!("{name}, {axis} {value}"))
}

fn panel(
    all: &[RateVerdict],
    flows: u32,
    is_first: bool,
    groups: &[String],
    rows: &[String],
    domain: [f64; 2],
) -> Value {
    let mut values: Vec<Value> = all
        .iter()
        .filter(|verdict| verdict.flows == flows)
        .filter_map(|verdict| {
            Some(json!({
                "row": row_name(all, verdict), "group": size_name(verdict.ip_size),
                "rate": mega(verdict.largest.rate()?)
            }))
        })
        .collect();
    let mut order: Vec<&str> = rows.iter().map(String::as_str).collect();
    // S2 does not say whether its verdicts hold beside cross traffic.
    if is_first {
        for device in &S2_DEVICES {
            order.push(device.name);
            for (group, largest) in S2_GROUPS.iter().zip([device.all_sizes, device.large_packets]) {
                let Some(rate) = largest.rate() else { continue };
                values.push(json!({
                    "row": device.name, "group": group, "rate": mega(rate),
                    "published": largest.to_string()
                }));
            }
        }
    }
    let mut colour = told_apart(groups.iter().map(String::as_str));
    let mut shape = colour.clone();
    if !is_first {
        (colour, shape) = (without_legend(&colour), without_legend(&shape));
    }
    json!({
        "title": {"text": capital(beside(flows)), "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
        "data": {"values": values},
        "width": WIDTH, "height": {"step": 26, "for": "position"},
        "mark": {"type": "point", "filled": true, "size": 80, "opacity": 0.85, "tooltip": true},
        "encoding": {
            "x": {
                "field": "rate", "type": "quantitative",
                "scale": {"type": "log", "nice": false, "domain": domain},
                "axis": {"title": "largest rate [Mbit/s, logarithmic]", "values": handy(domain[0], domain[1]), "format": "~g"}
            },
            "y": {
                "field": "row", "type": "nominal", "sort": order,
                "scale": {"domain": order},
                "axis": {"title": null, "ticks": false, "domain": false, "grid": true}
            },
            // Sizes with the same rate lie beside each other.
            "yOffset": {"field": "group", "type": "nominal", "scale": {"domain": groups}},
            "color": colour, "shape": shape
        }
    })
}

fn capital(text: String) -> String {
    crate::figures::capital(&text)
}

fn finding(all: &[RateVerdict]) -> String {
    let best = all
        .iter()
        .max_by_key(|verdict| (verdict.largest.rate(), std::cmp::Reverse(verdict.ip_size)));
    let count = |wanted: Verdict| all.iter().filter(|verdict| verdict.verdict == wanted).count();
    let best = best.and_then(|best| {
        Some(format!(
            "The largest is {}, by {} with IP packets of {} B {}.",
            best.largest.rate()?,
            best.engine,
            best.ip_size,
            beside(best.flows)
        ))
    });
    let mut text = best.unwrap_or_default();
    for (n, what) in [
        (count(Verdict::None), "keep none of the rates tried"),
        (count(Verdict::CannotTell), "cannot be told"),
        (count(Verdict::NotRun), "were not run"),
    ] {
        if n > 0 {
            text += &format!(" {n} of {} {what}.", all.len());
        }
    }
    text
}
