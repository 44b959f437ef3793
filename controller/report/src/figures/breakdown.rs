//! Stacked mean delay components (Miya 2020, S0.15). Means of components sum to the mean of the
//! whole; percentiles do not.

use serde_json::{Value, json};

use super::parts;
use crate::analysis::condition::{Condition, Links};
use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, group_channel};
use crate::model::TrialData;
use crate::model::axes::{LINK_RATE, RELAY};
use crate::model::quantity::{Unit, delay, share};
use crate::model::table::Table;

/// Maximum number of packet sizes, with one bar per relay mode each.
const MAX_SIZES: usize = 4;

/// Components before and behind the node, in packet order.
const UPSTREAM: [&str; 2] = ["sender_out_ns", "link_in_ns"];
const DOWNSTREAM: [&str; 2] = ["link_out_ns", "receiver_in_ns"];

/// Components of the node if a program relays, by their timestamps (docs/anatomy.md), in packet
/// order; and the node-delay metrics for kernel routing, of which the first available one is used.
const NODE: [&str; 4] = ["queueing_in_ns", "processing_ns", "queueing_out_ns", "qdisc_ns"];
const ROUTED_NODE: [&str; 2] = ["node_delay_driver_ns", "node_delay_netfilter_ns"];

/// Components of a round trip; the rest is in the sender.
const ROUND_TRIP: [(&str, &str); 2] =
    [("residence_ns", "in the reflector"), ("rtt_minus_residence_ns", "path, both directions")];
const SENDER: &str = "in the sender";

/// Trials that form one bar.
struct Bar<'a> {
    /// Label within the panel: `encrypt, 700B`.
    label: String,
    /// Panel: `link rate none`; empty with a single panel.
    panel: String,
    /// Whether it is at the condition nearest to the published one.
    near: bool,
    group: Group<'a>,
}

/// Mean delay and its components.
struct Parts<'g> {
    bar: &'g Bar<'g>,
    /// Metric of the whole.
    metric: &'static str,
    whole: f64,
    /// Components in packet order.
    parts: Vec<(&'static str, f64)>,
}

/// Returns `None` if no delay of the run has two known components.
pub(super) fn breakdown(subject: &Subject) -> Option<Figure> {
    let (bars, note) = bars(subject);
    let split = |bar| one_way(bar).or_else(|| relayed(bar)).or_else(|| round_trip(bar));
    let mut groups: Vec<Parts> = bars.iter().filter_map(split).collect();
    let metric = groups.first()?.metric;
    groups.retain(|group| group.metric == metric);
    let noun = crate::model::metric::words(metric);
    let unit = Unit::fitting(groups.iter().map(|group| group.whole).fold(0.0, f64::max));
    let has = |name: &str| groups.iter().any(|g| g.parts.iter().any(|(part, _)| *part == name));
    let mut names = parts::present(has);
    let trip = ROUND_TRIP.iter().map(|(_, words)| *words).chain([SENDER]);
    names.extend(trip.filter(|name| has(name)));
    let mut table = Table { columns: vec!["group".to_owned()], rows: Vec::new() };
    table.columns.extend(names.iter().map(|name| format!("{name} [{}]", unit.name())));
    table.columns.push(format!("{noun} [{}]", unit.name()));
    for group in &groups {
        let mut row = vec![group.bar.full()];
        row.extend(names.iter().map(|name| {
            unit.cell(group.parts.iter().find(|(part, _)| part == name).map(|(_, ns)| *ns))
        }));
        row.push(unit.cell(Some(group.whole)));
        table.rows.push(row);
    }
    let title = format!("Mean {noun} by component");
    let body = body(&groups, &names, unit, noun);
    let note = note.map_or_else(String::new, |note| format!(" {note}"));
    let finding = finding(&groups, noun) + &note;
    Some(Figure::new("breakdown", title, finding, &subject.caption, body, table))
}

/// Bars and a note. In a run over relay modes: one bar per mode, link rate and size, with other
/// parameters fixed; otherwise the same groups as in overlaid figures.
fn bars<'a>(subject: &Subject<'a>) -> (Vec<Bar<'a>>, Option<String>) {
    let run = subject.run;
    if run.modes().is_empty() {
        let (groups, note) = group::overlaid(run, subject.metric);
        let bar = |group: Group<'a>| Bar {
            label: group.label.clone(),
            panel: String::new(),
            near: true,
            group,
        };
        return (groups.into_iter().map(bar).collect(), note);
    }
    let levels = |name: &str| -> Vec<Option<&'a str>> {
        let axis = run.axis(name);
        axis.map_or_else(|| vec![None], |axis| axis.values.iter().map(|v| Some(&**v)).collect())
    };
    let condition = Condition::of(run, subject.metric, Links::Rated);
    let (size, link) = (condition.level("size"), condition.level(LINK_RATE));
    let held = condition.without(&["size", LINK_RATE]);
    let sizes = group::evenly(levels("size"), MAX_SIZES);
    let mut bars = Vec::new();
    for rate in levels(LINK_RATE) {
        for mode in run.modes() {
            for bytes in &sizes {
                let fits = |trial: &&TrialData| {
                    held.holds(trial)
                        && trial.is_at(RELAY, mode)
                        && bytes.is_none_or(|bytes| trial.is_at("size", bytes))
                        && rate.is_none_or(|rate| trial.is_at(LINK_RATE, rate))
                };
                let trials = run.finished_trials().filter(fits).collect();
                bars.push(Bar {
                    label: bytes.map_or_else(|| mode.clone(), |bytes| format!("{mode}, {bytes}")),
                    panel: rate.map_or_else(String::new, |rate| format!("link rate {rate}")),
                    near: (*bytes == size || bytes.is_none()) && (rate == link || rate.is_none()),
                    group: Group::new(String::new(), trials, subject.metric),
                });
            }
        }
    }
    // The drawn sizes may not include the nearest one.
    if !bars.iter().any(|bar| bar.near) {
        bars.iter_mut().for_each(|bar| bar.near = true);
    }
    (bars, held.words().map(|words| format!("Fixed: {words}.")))
}

impl Bar<'_> {
    /// Label with the panel.
    fn full(&self) -> String {
        if self.panel.is_empty() {
            self.label.clone()
        } else {
            format!("{}, {}", self.label, self.panel)
        }
    }
}

/// Components of a one-way delay; `None` without timestamps of both ends.
fn one_way<'g>(bar: &'g Bar) -> Option<Parts<'g>> {
    let whole = mean(&bar.group, "end_to_end_ns")?;
    let mut parts = known(&bar.group, &UPSTREAM);
    let inside = known(&bar.group, &NODE);
    parts.extend(if inside.is_empty() {
        let routed = ROUTED_NODE.iter().map(|part| known(&bar.group, &[*part]));
        routed.into_iter().find(|known| !known.is_empty()).unwrap_or_default()
    } else {
        inside
    });
    if !parts.iter().any(|(words, _)| *words == parts::LINK_IN) {
        parts.extend(known(&bar.group, &["link_delay_ns"]));
    }
    parts.extend(known(&bar.group, &DOWNSTREAM));
    add_rest(&mut parts, parts::UNSTAMPED, whole)?;
    (parts.len() > 1).then_some(Parts { bar, metric: "end_to_end_ns", whole, parts })
}

/// Components of a node delay, with the links if known; `None` with fewer than two components.
fn relayed<'g>(bar: &'g Bar) -> Option<Parts<'g>> {
    let node = mean(&bar.group, "node_delay_ns")?;
    let link = known(&bar.group, &["link_delay_ns"]);
    let mut parts = known(&bar.group, &NODE);
    add_rest(&mut parts, parts::UNSTAMPED, node)?;
    let metric = if link.is_empty() { "node_delay_ns" } else { "end_to_end_ns" };
    let whole = node + link.iter().map(|(_, ns)| ns).sum::<f64>();
    parts.extend(link);
    (parts.len() > 1).then_some(Parts { bar, metric, whole, parts })
}

/// Components of a round trip; `None` unless both are known.
fn round_trip<'g>(bar: &'g Bar) -> Option<Parts<'g>> {
    let whole = mean(&bar.group, "rtt_ns")?;
    let both = ROUND_TRIP.iter().filter_map(|(metric, words)| {
        Some((*words, mean(&bar.group, metric).filter(|ns| *ns > 0.0)?))
    });
    let mut parts: Vec<_> = both.collect();
    if parts.len() < ROUND_TRIP.len() {
        return None;
    }
    add_rest(&mut parts, SENDER, whole)?;
    Some(Parts { bar, metric: "rtt_ns", whole, parts })
}

/// Components with a positive mean.
fn known(group: &Group, metrics: &[&str]) -> Vec<(&'static str, f64)> {
    let means = metrics.iter().filter_map(|name| Some((parts::name(name), mean(group, name)?)));
    means.filter(|(_, ns)| *ns > 0.0).collect()
}

/// Adds the remainder of the whole; `None` if the components exceed it. Components and whole use
/// different timestamps: a difference of up to 1 % is ignored.
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

/// Mean over the trials of a group, weighted by samples.
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
    let mut panels: Vec<&str> = Vec::new();
    for group in groups {
        if !panels.contains(&group.bar.panel.as_str()) {
            panels.push(&group.bar.panel);
        }
    }
    let title = format!("mean {noun} [{}]", unit.name());
    let drawn = panels.iter().map(|name| {
        let of: Vec<&Parts> = groups.iter().filter(|group| group.bar.panel == *name).collect();
        let mut panel = panel(&of, names, unit, &title);
        if !name.is_empty() {
            let heading = json!({"text": name, "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6});
            panel["title"] = heading;
        }
        panel
    });
    let mut drawn: Vec<Value> = drawn.collect();
    // Each panel has its own scale, because slow links would flatten the others.
    if drawn.len() == 1 { drawn.remove(0) } else { json!({"vconcat": drawn, "spacing": 20}) }
}

fn panel(groups: &[&Parts], names: &[&str], unit: Unit, title: &str) -> Value {
    let widest = groups.iter().map(|group| group.whole).fold(0.0, f64::max);
    let mut rows = Vec::new();
    for group in groups {
        let mut from = 0.0;
        for (part, ns) in &group.parts {
            let label = if *ns > 0.09 * widest { delay(*ns) } else { String::new() };
            rows.push(json!({
                "row": group.bar.label, "full": group.bar.full(), "group": part,
                "from": unit.of(from), "to": unit.of(from + ns),
                "middle": unit.of(from + ns / 2.0), "label": label, "mean": delay(*ns)
            }));
            from += ns;
        }
    }
    let labels: Vec<&str> = groups.iter().map(|group| group.bar.label.as_str()).collect();
    let x = |field: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": {"zero": true, "nice": false},
            "axis": {"title": title, "format": ",.6~r"}
        })
    };
    let tooltip = json!([
        {"field": "full", "title": "group"}, {"field": "group", "title": "part"}, {"field": "mean"}
    ]);
    let trip = ROUND_TRIP.iter().any(|(_, words)| names.contains(words));
    let colour = if trip { group_channel(names.iter().copied()) } else { parts::colour(names) };
    json!({
        "data": {"values": rows}, "width": WIDTH, "height": {"step": 40},
        "encoding": {"y": {
            "field": "row", "type": "nominal", "sort": labels,
            "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8}
        }},
        "layer": [
            {
                "mark": {"type": "bar", "size": 18, "yOffset": 7, "style": "part"},
                "encoding": {
                    "x": x("from"), "x2": {"field": "to"}, "color": colour, "tooltip": tooltip
                }
            },
            {
                // Labels are above their component, because no text colour suits all component
                // colours.
                "mark": {"type": "text", "style": "label", "fontSize": 11, "yOffset": -9},
                "encoding": {"x": x("middle"), "text": {"field": "label", "type": "nominal"}}
            }
        ]
    })
}

fn finding(groups: &[Parts], noun: &str) -> String {
    let part = |group: &Parts| {
        let (name, ns) = group.parts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let (label, whole) = (group.bar.full(), delay(group.whole));
        let of = share(ns / group.whole);
        Some(format!("{} of {whole} ({of}, {name}) at {label}", delay(*ns)))
    };
    let near = groups.iter().filter(|group| group.bar.near);
    let parts: Vec<String> = near.take(3).filter_map(part).collect();
    format!("Largest component of the mean {noun}: {}.", parts.join("; "))
}
