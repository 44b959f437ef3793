//! Where delay arises: the means of its parts, stacked (S0.15). Means, because the mean of a whole
//! is the sum of the means of its parts; percentiles do not add.

use serde_json::{Value, json};

use super::Subject;
use crate::data::TrialData;
use crate::figure::{Figure, Table, WIDTH};
use crate::group::{self, Group};
use crate::quantity::{Unit, delay, share};

/// Sizes of packets of which each mode of relaying has a bar, at most.
const SIZES: usize = 4;

/// The parts of the way of a packet that was relayed by a program, then of one that was not, in
/// packet order; those of the second are of the first rung that the trials have.
const BEFORE: [(&str, &str); 2] =
    [("sender_out_ns", "at the sender"), ("link_in_ns", "link to the node")];
const ROUTED: [(&str, &str); 2] = [
    ("node_delay_driver_ns", "in the node's kernel"),
    ("node_delay_netfilter_ns", "in the node's kernel"),
];
const BEHIND: [(&str, &str); 2] =
    [("link_out_ns", "link from the node"), ("receiver_in_ns", "at the receiver")];

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
/// What the parts leave of a way.
const REST: &str = "not stamped";
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
    let (shown, note) = match modes_and_sizes(subject) {
        Some(groups) => (groups, None),
        None => group::overlaid(subject.run, subject.metric),
    };
    let mut groups: Vec<Parts> = shown
        .iter()
        .filter_map(|group| way(group).or_else(|| relayed(group)).or_else(|| round_trip(group)))
        .collect();
    let metric = groups.first()?.metric;
    groups.retain(|group| group.metric == metric);
    let noun = crate::metric::words(metric);
    let unit = Unit::fitting(groups.iter().map(|group| group.whole).fold(0.0, f64::max));
    let words = |parts: &[(&'static str, &'static str)]| -> Vec<&'static str> {
        parts.iter().map(|(_, words)| *words).collect()
    };
    let order = words(&BEFORE).into_iter().chain(words(&NODE)).chain(words(&ROUTED[..1]));
    let order = order.chain([NODE_REST, LINKS]).chain(words(&BEHIND)).chain([REST]);
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

/// One group for each mode of relaying, each link rate and some sizes; `None` unless the run has
/// these axes.
fn modes_and_sizes<'a>(subject: &Subject<'a>) -> Option<Vec<Group<'a>>> {
    let axis = |name: &str| subject.run.axes.iter().find(|axis| axis.name == name);
    let (modes, sizes) = (axis("relay")?, axis("size")?);
    let sizes = group::evenly((0..sizes.values.len()).map(|n| &sizes.values[n]).collect(), SIZES);
    let rate = "topology.link.rate";
    let rates =
        axis(rate).map_or_else(|| vec![None], |axis| axis.values.iter().map(Some).collect());
    let mut groups = Vec::new();
    for link in rates {
        for (mode, size) in modes.values.iter().flat_map(|m| sizes.iter().map(move |s| (m, *s))) {
            let wanted = [("relay", Some(mode)), ("size", Some(size)), (rate, link)];
            let has = |trial: &&TrialData| {
                let fits = |(name, value): &(&str, Option<&String>)| {
                    value.is_none_or(|value| trial.parameters.get(*name) == Some(value))
                };
                wanted.iter().all(fits)
            };
            let trials: Vec<_> = group::finished(subject.run).filter(has).collect();
            let on = link.map_or_else(String::new, |rate| format!(", link {rate}"));
            groups.push(Group::new(format!("{mode}, {size}{on}"), trials, subject.metric));
        }
    }
    Some(groups)
}

/// The way of packets that go one way, from end to end; `None` where the ends did not stamp them.
fn way<'g>(group: &'g Group) -> Option<Parts<'g>> {
    let whole = mean(group, "end_to_end_ns")?;
    let mut parts = known(group, &BEFORE);
    let inside = known(group, &NODE);
    let node = if inside.is_empty() {
        let routed = ROUTED.iter().map(|part| known(group, &[*part]));
        routed.into_iter().find(|known| !known.is_empty()).unwrap_or_default()
    } else {
        inside
    };
    let (before, link) = (parts.len(), mean(group, "link_delay_ns").filter(|link| *link > 0.0));
    parts.extend(node);
    let node: f64 = parts[before..].iter().map(|(_, ns)| ns).sum();
    parts.extend(known(group, &BEHIND));
    if !parts.iter().any(|(words, _)| *words == BEFORE[1].1) {
        parts.extend(link.map(|link| (LINKS, link)));
    }
    add_rest(&mut parts, REST, whole)?;
    let nlr = link.filter(|_| node > 0.0).map(|link| node / link);
    let metric = "end_to_end_ns";
    (parts.len() > 1).then_some(Parts { label: &group.label, metric, whole, parts, nlr })
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
