//! Largest rate that each sender keeps accurately, with published ones for comparison.

use dwell_units::BitRate;
use serde_json::{Value, json};

use super::panels::stacked;
use crate::analysis::paced::{
    RateVerdict, RateVerdictKind, cross_traffic, distinct, verdict_table, verdicts,
};
use crate::analysis::subject::caption;
use crate::figures::figure::{Figure, WIDTH, group_channel, round_ticks, without_legend};
use crate::model::quantity::{capital, significant};
use crate::model::{PublishedLimit, PublishedSender, RunData};

/// One panel per number of flows. Returns `None` if no sender keeps any rate.
pub(crate) fn largest(run: &RunData) -> Option<Figure> {
    let all = &verdicts(run);
    let known = || all.iter().filter_map(|verdict| verdict.largest.rate());
    let least = known().min()?;
    let senders = &run.published.senders;
    let published = || senders.iter().flat_map(|it| &it.largest);
    let rates = || known().chain(published().filter_map(|(_, limit)| limit.rate()));
    let domain =
        [mega(rates().min().unwrap_or(least)) * 0.8, mega(rates().max().unwrap_or(least)) * 1.25];
    let mut flows: Vec<u32> = all.iter().map(|verdict| verdict.flows).collect();
    flows.sort_unstable();
    flows.dedup();
    let mut sizes: Vec<u64> = all.iter().map(|verdict| verdict.ip_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut groups: Vec<String> = sizes.iter().map(|size| size_name(*size)).collect();
    groups.extend(distinct(senders.iter().flat_map(published_groups)));
    let rows: Vec<String> = distinct(all.iter().map(|verdict| row_name(all, verdict)));
    let panels: Vec<Value> = flows
        .iter()
        .enumerate()
        .map(|(i, flows)| {
            // Documents do not say whether their verdicts hold with cross traffic.
            let senders = if i == 0 { senders.as_slice() } else { &[] };
            panel(all, *flows, i == 0, senders, &groups, &rows, domain)
        })
        .collect();
    let title = "Largest accurate rate by engine".to_owned();
    let body = stacked(panels);
    Some(Figure::new("largest-rates", title, finding(all), &caption(run), body, verdict_table(run)))
}

/// Names of the packet sizes of a published sender.
fn published_groups(sender: &PublishedSender) -> impl Iterator<Item = String> {
    sender.largest.iter().map(|(sizes, _)| format!("{}: {sizes}", sender.cite))
}

fn mega(rate: BitRate) -> f64 {
    significant(rate.0 as f64 / 1e6, 6)
}

fn size_name(size: u64) -> String {
    format!("IP {size} B")
}

/// Engine, with the node and parameters that distinguish senders.
fn row_name(all: &[RateVerdict], verdict: &RateVerdict) -> String {
    let mut name = verdict.engine.clone();
    if all.iter().any(|other| other.node != verdict.node) {
        name = format!("{}: {name}", verdict.node);
    }
    verdict.parameters.iter().fold(name, |name, (axis, value)| format!("{name}, {axis} {value}"))
}

/// Name of a row and its results by size.
type Row<'a> = (&'a str, Vec<(String, RateResult)>);

/// Result for one size in a row.
enum RateResult {
    /// Largest accurate rate.
    Rate(BitRate),
    /// Below this published rate.
    Below(BitRate),
    /// Reason without a rate.
    Words(&'static str),
}

impl RateResult {
    fn of(verdict: &RateVerdict) -> Self {
        match (verdict.verdict, verdict.largest.rate()) {
            (RateVerdictKind::NotRun, _) => Self::Words("not run"),
            (RateVerdictKind::None, _) => Self::Words("none of the tested rates"),
            (_, Some(rate)) => Self::Rate(rate),
            (_, None) => Self::Words("cannot tell"),
        }
    }

    fn published(largest: PublishedLimit) -> Self {
        match largest {
            PublishedLimit::UpTo(rate) => Self::Rate(rate),
            PublishedLimit::Below(rate) => Self::Below(rate),
            PublishedLimit::NotSuitable => Self::Words(PublishedLimit::NOT_SUITABLE),
        }
    }

    fn rate(&self) -> Option<BitRate> {
        match self {
            Self::Rate(rate) | Self::Below(rate) => Some(*rate),
            Self::Words(_) => None,
        }
    }
}

fn panel(
    all: &[RateVerdict],
    flows: u32,
    is_first: bool,
    senders: &[PublishedSender],
    groups: &[String],
    rows: &[String],
    domain: [f64; 2],
) -> Value {
    let mut lines: Vec<Row> = rows
        .iter()
        .map(|row| {
            let of =
                |verdict: &&RateVerdict| verdict.flows == flows && row_name(all, verdict) == *row;
            let known = all.iter().filter(of).map(|it| (size_name(it.ip_size), RateResult::of(it)));
            (row.as_str(), known.collect())
        })
        .collect();
    lines.extend(senders.iter().map(|sender| {
        let known = sender.largest.iter().map(|(_, limit)| RateResult::published(*limit));
        (sender.name, published_groups(sender).zip(known).collect())
    }));
    let order: Vec<&str> = lines.iter().map(|(row, _)| *row).collect();
    json!({
        "title": {"text": capital(&cross_traffic(flows)), "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
        "width": WIDTH, "height": {"step": 26, "for": "position"},
        "encoding": {
            "x": {
                "field": "rate", "type": "quantitative",
                "scale": {"type": "log", "nice": false, "domain": domain},
                "axis": {"title": "largest rate [Mbit/s, logarithmic]", "values": round_ticks(domain[0], domain[1]), "format": "~g"}
            },
            "y": {
                "field": "row", "type": "nominal", "sort": order,
                // Texts have no offset and are centred in their row.
                "scale": {"type": "band", "domain": order},
                "axis": {"title": null, "ticks": false, "domain": false, "grid": true}
            }
        },
        "layer": layers(&lines, groups, domain, is_first)
    })
}

/// Marks and texts of rows.
fn layers(lines: &[Row], groups: &[String], domain: [f64; 2], is_first: bool) -> Vec<Value> {
    let words: Vec<Value> =
        lines.iter().filter_map(|(row, known)| in_words(row, known, domain)).collect();
    let marks = |wanted: fn(&RateResult) -> bool| -> Vec<Value> {
        let all = lines.iter().flat_map(|(row, known)| known.iter().map(move |it| (row, it)));
        all.filter(|(_, (_, known))| wanted(known))
            .filter_map(|(row, (group, known))| {
                let rate = known.rate()?;
                let label = match known {
                    RateResult::Below(_) => format!("below {rate}"),
                    _ => rate.to_string(),
                };
                Some(json!({"row": row, "group": group, "rate": mega(rate), "largest rate": label}))
            })
            .collect()
    };
    let (rates, below) = (
        marks(|it| matches!(it, RateResult::Rate(_))),
        marks(|it| matches!(it, RateResult::Below(_))),
    );
    let mut colour = group_channel(groups.iter().map(String::as_str));
    let mut shape = colour.clone();
    if !is_first {
        (colour, shape) = (without_legend(&colour), without_legend(&shape));
    }
    // The offset separates sizes with the same rate.
    let offset = json!({"field": "group", "type": "nominal", "scale": {"domain": groups}});
    let tooltip = json!({"content": "data"});
    let mut layer = vec![json!({
        "data": {"values": rates},
        "mark": {"type": "point", "filled": true, "size": 80, "opacity": 0.85, "tooltip": tooltip},
        "encoding": {"yOffset": offset, "color": colour, "shape": shape}
    })];
    if !below.is_empty() {
        layer.push(json!({
            "data": {"values": below},
            "mark": {
                "type": "point", "shape": "triangle-left", "filled": false, "strokeWidth": 2,
                "size": 70, "tooltip": tooltip
            },
            "encoding": {"yOffset": offset, "color": colour}
        }));
        layer.push(json!({
            "data": {"values": below},
            "mark": {"type": "text", "style": "note", "align": "right", "dx": -9, "text": "below"},
            "encoding": {"yOffset": offset}
        }));
    }
    if !words.is_empty() {
        layer.push(json!({
            "data": {"values": words},
            // Above the grid line, which would strike the text through.
            "mark": {"type": "text", "style": "note", "align": "left", "baseline": "bottom", "dx": 10, "dy": -1},
            "encoding": {"text": {"field": "words", "type": "nominal"}}
        }));
    }
    layer
}

/// Text of a row for sizes without a mark, placed in the widest gap between marks. Sizes are named
/// unless the text holds for all of them.
fn in_words(row: &str, known: &[(String, RateResult)], domain: [f64; 2]) -> Option<Value> {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for (group, known) in known {
        let RateResult::Words(words) = known else { continue };
        match said.iter_mut().find(|(it, _)| it == words) {
            Some((_, groups)) => groups.push(group),
            None => said.push((words, vec![group])),
        }
    }
    let words = match said.as_slice() {
        [] if known.is_empty() => "not tried".to_owned(),
        [] => return None,
        [(words, groups)] if groups.len() == known.len() => (*words).to_owned(),
        said => {
            let each = said.iter().map(|(words, groups)| format!("{}: {words}", groups.join(", ")));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    let mut ends: Vec<f64> = known.iter().filter_map(|(_, it)| it.rate()).map(mega).collect();
    ends.extend(domain);
    ends.sort_by(f64::total_cmp);
    let room = |pair: &&[f64]| pair[1] / pair[0];
    let widest = ends.windows(2).max_by(|a, b| room(a).total_cmp(&room(b)))?;
    Some(json!({"row": row, "rate": widest[0], "words": words}))
}

fn finding(all: &[RateVerdict]) -> String {
    let best = all
        .iter()
        .max_by_key(|verdict| (verdict.largest.rate(), std::cmp::Reverse(verdict.ip_size)));
    let count =
        |wanted: RateVerdictKind| all.iter().filter(|verdict| verdict.verdict == wanted).count();
    let best = best.and_then(|best| {
        Some(format!(
            "Largest accurate rate {}: {} with IP packets of {} B {}.",
            best.largest.rate()?,
            best.engine,
            best.ip_size,
            cross_traffic(best.flows)
        ))
    });
    let mut text = best.unwrap_or_default();
    for (n, what) in [
        (count(RateVerdictKind::None), "keep none of the tested rates"),
        (count(RateVerdictKind::CannotTell), "are undecided"),
        (count(RateVerdictKind::NotRun), "were not run"),
    ] {
        if n > 0 {
            text += &format!(" {n} of {} senders {what}.", all.len());
        }
    }
    text
}
