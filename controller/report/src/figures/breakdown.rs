//! Where delay arises: the means of its parts, stacked (S0.15). Means, because the mean of a whole
//! is the sum of the means of its parts; percentiles do not add.

use serde_json::{Value, json};

use super::Subject;
use crate::figure::{Figure, Table, WIDTH};
use crate::group::{self, Group};
use crate::quantity::{Unit, delay, share};

/// A way to take a delay apart: the whole, its parts with their names in words, and what is left.
struct Split {
    whole: &'static str,
    parts: &'static [(&'static str, &'static str)],
    rest: &'static str,
}

/// In order of preference. The parts of a node delay are those of DESIGN.md section 1; a round trip
/// is what the reflector kept it, the way at the near stamps, and the rest in the sender.
const SPLITS: [Split; 3] = [
    Split {
        whole: "end_to_end_ns",
        parts: &[
            ("queueing_in_ns", "queueing on arrival"),
            ("processing_ns", "processing"),
            ("queueing_out_ns", "queueing on departure"),
            ("qdisc_ns", "queueing discipline"),
            ("link_delay_ns", "links"),
        ],
        rest: "rest",
    },
    Split {
        whole: "node_delay_ns",
        parts: &[
            ("queueing_in_ns", "queueing on arrival"),
            ("processing_ns", "processing"),
            ("queueing_out_ns", "queueing on departure"),
            ("qdisc_ns", "queueing discipline"),
        ],
        rest: "rest of the node",
    },
    Split {
        whole: "rtt_ns",
        parts: &[
            ("residence_ns", "in the reflector"),
            ("rtt_minus_residence_ns", "on the way, both directions"),
        ],
        rest: "in the sender",
    },
];

/// A group's mean whole and its parts in the split's order, the rest last.
struct Parts<'g> {
    label: &'g str,
    whole: f64,
    parts: Vec<(&'static str, f64)>,
}

/// `None` when no delay of the run comes with two of its parts.
pub(super) fn breakdown(subject: &Subject) -> Option<Figure> {
    let (shown, note) = group::overlaid(subject.run, subject.metric);
    let (split, groups) = SPLITS.iter().find_map(|split| {
        let groups: Vec<Parts> = shown.iter().filter_map(|cell| parts(cell, split)).collect();
        (!groups.is_empty()).then_some((split, groups))
    })?;
    let noun = crate::metric::words(split.whole);
    let unit = Unit::fitting(groups.iter().map(|group| group.whole).fold(0.0, f64::max));
    let mut names: Vec<&str> = split.parts.iter().map(|(_, words)| *words).collect();
    names.push(split.rest);
    names
        .retain(|name| groups.iter().any(|group| group.parts.iter().any(|(part, _)| part == name)));
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

/// The parts of a group's mean; `None` with fewer than two, or when they exceed the whole.
fn parts<'g>(group: &'g Group, split: &Split) -> Option<Parts<'g>> {
    let whole = mean(group, split.whole)?;
    let known =
        split.parts.iter().filter_map(|(metric, words)| Some((*words, mean(group, metric)?)));
    let mut parts: Vec<(&str, f64)> = known.filter(|(_, ns)| *ns > 0.0).collect();
    let rest = whole - parts.iter().map(|(_, ns)| ns).sum::<f64>();
    // Parts are measured with other stamps than the whole; a hundredth is their disagreement.
    if parts.len() < 2 && (parts.is_empty() || rest <= 0.01 * whole) || rest < -0.01 * whole {
        return None;
    }
    if rest > 0.01 * whole {
        parts.push((split.rest, rest));
    }
    Some(Parts { label: &group.label, whole, parts })
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
        let (whole, label) = (delay(group.whole), group.label);
        Some(format!(
            "{label}: of {whole} on average, {} ({}) {}",
            delay(*ns),
            share(ns / group.whole),
            at(name)
        ))
    };
    let parts: Vec<String> = groups.iter().take(3).filter_map(part).collect();
    format!("Largest part of the {noun}: {}.", parts.join("; "))
}

fn at(name: &str) -> String {
    if name.starts_with("in ") || name.starts_with("on ") {
        name.to_owned()
    } else {
        format!("are {name}")
    }
}
