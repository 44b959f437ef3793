//! Where delay arises: the means of its parts, stacked (S0.15). Means, because the mean of a whole
//! is the sum of the means of its parts; percentiles do not add.

use serde_json::{Value, json};

use super::Subject;
use crate::figure::{Figure, Table, WIDTH};
use crate::group::{self, Group};
use crate::quantity::{Unit, delay, share};

/// The parts of a node delay by the stamps of DESIGN.md section 1, in the order a packet meets them.
const NODE: [(&str, &str); 4] = [
    ("queueing_in_ns", "queueing on arrival"),
    ("processing_ns", "processing"),
    ("queueing_out_ns", "queueing on departure"),
    ("qdisc_ns", "queueing discipline"),
];
/// What those leave of a node delay.
const NODE_REST: &str = "rest of the node";
const LINKS: &str = "links";
/// A round trip is what the reflector kept it, the way between the near stamps, and the rest.
const ROUND_TRIP: [(&str, &str); 2] = [
    ("residence_ns", "in the reflector"),
    ("rtt_minus_residence_ns", "on the way, both directions"),
];
const SENDER: &str = "in the sender";

/// The mean of a delay taken apart.
struct Parts<'g> {
    label: &'g str,
    /// The delay's name in results.
    metric: &'static str,
    whole: f64,
    /// In the order in which a packet meets them.
    parts: Vec<(&'static str, f64)>,
    /// Node delay over link delay, where both are known (S0.15).
    nlr: Option<f64>,
}

/// `None` when no delay of the run comes with two of its parts.
pub(super) fn breakdown(subject: &Subject) -> Option<Figure> {
    let (shown, note) = group::overlaid(subject.run, subject.metric);
    let mut groups: Vec<Parts> =
        shown.iter().filter_map(|group| relayed(group).or_else(|| round_trip(group))).collect();
    let metric = groups.first()?.metric;
    groups.retain(|group| group.metric == metric);
    let noun = crate::metric::words(metric);
    let unit = Unit::fitting(groups.iter().map(|group| group.whole).fold(0.0, f64::max));
    let order = NODE.iter().map(|(_, words)| *words).chain([NODE_REST, LINKS]);
    let order = order.chain(ROUND_TRIP.iter().map(|(_, words)| *words)).chain([SENDER]);
    let has = |name: &&str| groups.iter().any(|g| g.parts.iter().any(|(part, _)| part == name));
    let names: Vec<&str> = order.filter(has).collect();
    let mut table = Table { columns: vec!["group".to_owned()], rows: Vec::new() };
    table.columns.extend(names.iter().map(|name| format!("{name} [{}]", unit.name())));
    table.columns.push(format!("{noun} [{}]", unit.name()));
    for group in &groups {
        let mut row = vec![group.label.to_owned()];
        row.extend(names.iter().map(|name| {
            unit.cell(group.parts.iter().find(|(part, _)| part == name).map(|(_, ns)| *ns))
        }));
        row.push(unit.cell(Some(group.whole)));
        table.rows.push(row);
    }
    let title = format!("Where the {noun} arises, on average");
    let body = body(&groups, &names, unit, noun);
    let note = note.map_or_else(String::new, |note| format!(" {}", note));
    let finding = finding(&groups, noun) + &note;
    Some(Figure::new("breakdown", title, finding, &subject.caption, body, table))
}

/// A node delay, with the links on both sides where they are known; `None` without two parts.
fn relayed<'g>(group: &'g Group) -> Option<Parts<'g>> {
    let node = mean(group, "node_delay_ns")?;
    let link = mean(group, "link_delay_ns").filter(|link| *link > 0.0);
    let mut parts = known(group, &NODE);
    add_rest(&mut parts, NODE_REST, node)?;
    parts.extend(link.map(|link| (LINKS, link)));
    let metric = if link.is_some() { "end_to_end_ns" } else { "node_delay_ns" };
    let (label, whole) = (group.label.as_str(), node + link.unwrap_or(0.0));
    let nlr = link.map(|link| node / link);
    (parts.len() > 1).then_some(Parts { label, metric, whole, parts, nlr })
}

/// A round trip; `None` unless both of its parts are known.
fn round_trip<'g>(group: &'g Group) -> Option<Parts<'g>> {
    let whole = mean(group, "rtt_ns")?;
    let mut parts = known(group, &ROUND_TRIP);
    if parts.len() < ROUND_TRIP.len() {
        return None;
    }
    add_rest(&mut parts, SENDER, whole)?;
    Some(Parts { label: &group.label, metric: "rtt_ns", whole, parts, nlr: None })
}

/// The parts of which the group has a mean above zero.
fn known(group: &Group, parts: &[(&'static str, &'static str)]) -> Vec<(&'static str, f64)> {
    let means = parts.iter().filter_map(|(metric, words)| Some((*words, mean(group, metric)?)));
    means.filter(|(_, ns)| *ns > 0.0).collect()
}

/// Adds what the parts leave of the whole; `None` when they exceed it. Parts are measured with
/// other stamps than the whole: up to a hundredth is their disagreement and no part of its own.
fn add_rest(parts: &mut Vec<(&'static str, f64)>, name: &'static str, whole: f64) -> Option<()> {
    let rest = whole - parts.iter().map(|(_, ns)| ns).sum::<f64>();
    if rest < -0.01 * whole {
        return None;
    }
    if rest > 0.01 * whole {
        parts.push((name, rest));
    }
    Some(())
}

/// The mean over all trials of a group, each by its number of samples.
fn mean(group: &Group, metric: &str) -> Option<f64> {
    let summaries = group.trials.iter().filter_map(|trial| trial.summary.as_ref());
    let means = summaries.filter_map(|summary| {
        let figures = summary.metrics.get(metric)?;
        Some((figures.count as f64, figures.mean?))
    });
    let (n, sum) =
        means.fold((0.0, 0.0), |(n, sum), (count, mean)| (n + count, sum + count * mean));
    (n > 0.0).then(|| sum / n)
}

fn body(groups: &[Parts], names: &[&str], unit: Unit, noun: &str) -> Value {
    let widest = groups.iter().map(|group| group.whole).fold(0.0, f64::max);
    let mut rows = Vec::new();
    for group in groups {
        let mut from = 0.0;
        for (part, ns) in &group.parts {
            let label = if *ns > 0.09 * widest { delay(*ns) } else { String::new() };
            rows.push(json!({
                "row": group.label, "group": part, "from": unit.of(from), "to": unit.of(from + ns),
                "middle": unit.of(from + ns / 2.0), "label": label, "mean": delay(*ns)
            }));
            from += ns;
        }
    }
    let labels: Vec<&str> = groups.iter().map(|group| group.label).collect();
    let title = format!("mean {noun} [{}]", unit.name());
    let x = |field: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": {"zero": true, "nice": false},
            "axis": {"title": title, "format": ",.6~r"}
        })
    };
    let tooltip = json!([{"field": "row", "title": "group"}, {"field": "group", "title": "part"}, {"field": "mean"}]);
    json!({
        "data": {"values": rows}, "width": WIDTH, "height": {"step": 48},
        "encoding": {"y": {
            "field": "row", "type": "nominal", "sort": labels,
            "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8}
        }},
        "layer": [
            {
                "mark": {"type": "bar", "size": 20, "yOffset": 8},
                "encoding": {
                    "x": x("from"), "x2": {"field": "to"},
                    "color": crate::figure::told_apart(names.iter().copied()), "tooltip": tooltip
                }
            },
            {
                // Letters stand above their part: no colour of the palette carries every letter.
                "mark": {"type": "text", "style": "label", "fontSize": 11, "yOffset": -10},
                "encoding": {"x": x("middle"), "text": {"field": "label", "type": "nominal"}}
            }
        ]
    })
}

fn finding(groups: &[Parts], noun: &str) -> String {
    let part = |group: &Parts| {
        let (name, ns) = group.parts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let (label, whole) = (group.label, delay(group.whole));
        let nlr = group.nlr.map_or_else(String::new, |nlr| {
            format!(", node delay is {} of link delay (NLR)", share(nlr))
        });
        let of = share(ns / group.whole);
        Some(format!("{label}: {} of {whole} ({of}), {name}{nlr}", delay(*ns)))
    };
    let parts: Vec<String> = groups.iter().take(3).filter_map(part).collect();
    format!("Largest part of the mean {noun}, at {}.", parts.join("; at "))
}
