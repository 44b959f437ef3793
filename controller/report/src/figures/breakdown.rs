//! Where delay arises: the means of its parts, stacked (S0.15). Means, because the mean of a whole
//! is the sum of the means of its parts; percentiles do not add.

use serde_json::{Value, json};

use super::{RELAY, Subject, modes, parts};
use crate::condition::{Condition, LINK_RATE, Links};
use crate::data::TrialData;
use crate::figure::{Figure, Table, WIDTH, told_apart};
use crate::group::{self, Group};
use crate::quantity::{Unit, delay, share};

/// Sizes of packets of which each mode of relaying has a bar, at most.
const SIZES: usize = 4;

/// The parts of the way of a packet before the node and behind it, in packet order.
const BEFORE: [&str; 2] = ["sender_out_ns", "link_in_ns"];
const BEHIND: [&str; 2] = ["link_out_ns", "receiver_in_ns"];

/// The node of a packet that was relayed by a program, by the stamps of DESIGN.md section 1, in the
/// order a packet meets them; of one that was not, the first rung that the trials have.
const NODE: [&str; 4] = ["queueing_in_ns", "processing_ns", "queueing_out_ns", "qdisc_ns"];
const ROUTED: [&str; 2] = ["node_delay_driver_ns", "node_delay_netfilter_ns"];

/// A round trip is what the reflector kept it, the way between the near stamps, and the rest.
const ROUND_TRIP: [(&str, &str); 2] = [
    ("residence_ns", "in the reflector"),
    ("rtt_minus_residence_ns", "on the way, both directions"),
];
const SENDER: &str = "in the sender";

/// Trials of which the means are taken apart together.
struct Bar<'a> {
    /// What sets it apart from others of its panel: `encrypt, 700B`.
    label: String,
    /// In which panel it stands: `link rate none`; empty where there is one.
    panel: String,
    /// Whether it is of the mode's packets that are nearest to S0's.
    near: bool,
    group: Group<'a>,
}

/// The mean of a delay taken apart.
struct Parts<'g> {
    bar: &'g Bar<'g>,
    /// The delay's name in results.
    metric: &'static str,
    whole: f64,
    /// In the order in which a packet meets them.
    parts: Vec<(&'static str, f64)>,
}

/// `None` when no delay of the run comes with two of its parts.
pub(super) fn breakdown(subject: &Subject) -> Option<Figure> {
    let (bars, note) = bars(subject);
    let apart = |bar| way(bar).or_else(|| relayed(bar)).or_else(|| round_trip(bar));
    let mut groups: Vec<Parts> = bars.iter().filter_map(apart).collect();
    let metric = groups.first()?.metric;
    groups.retain(|group| group.metric == metric);
    let noun = crate::metric::words(metric);
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
    let title = format!("Where the {noun} arises, on average");
    let body = body(&groups, &names, unit, noun);
    let note = note.map_or_else(String::new, |note| format!(" {note}"));
    let finding = finding(&groups, noun) + &note;
    Some(Figure::new("breakdown", title, finding, &subject.caption, body, table))
}

/// Of a run over modes of relaying a bar for each mode, each link rate and some sizes, all else held
/// at one level; else what is overlaid elsewhere, too. And what a reader must know of it.
fn bars<'a>(subject: &Subject<'a>) -> (Vec<Bar<'a>>, Option<String>) {
    let run = subject.run;
    if modes(run).is_empty() {
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
        let axis = run.axes.iter().find(|axis| axis.name == name);
        axis.map_or_else(|| vec![None], |axis| axis.values.iter().map(|v| Some(&**v)).collect())
    };
    let condition = Condition::of(run, subject.metric, Links::Rated);
    let (size, link) = (condition.level("size"), condition.level(LINK_RATE));
    let held = condition.but(&["size", LINK_RATE]);
    let sizes = group::evenly(levels("size"), SIZES);
    let mut bars = Vec::new();
    for rate in levels(LINK_RATE) {
        for mode in modes(run) {
            for bytes in &sizes {
                let fits = |trial: &&TrialData| {
                    let is = |name: &str, value: &str| {
                        trial.parameters.get(name).is_some_and(|of_trial| of_trial == value)
                    };
                    held.holds(trial)
                        && is(RELAY, mode)
                        && bytes.is_none_or(|bytes| is("size", bytes))
                        && rate.is_none_or(|rate| is(LINK_RATE, rate))
                };
                let trials = group::finished(run).filter(fits).collect();
                bars.push(Bar {
                    label: bytes.map_or_else(|| mode.clone(), |bytes| format!("{mode}, {bytes}")),
                    panel: rate.map_or_else(String::new, |rate| format!("link rate {rate}")),
                    near: (*bytes == size || bytes.is_none()) && (rate == link || rate.is_none()),
                    group: Group::new(String::new(), trials, subject.metric),
                });
            }
        }
    }
    // Sizes that are drawn need not have the one that is nearest.
    if !bars.iter().any(|bar| bar.near) {
        bars.iter_mut().for_each(|bar| bar.near = true);
    }
    (bars, held.words().map(|words| format!("Held: {words}.")))
}

impl Bar<'_> {
    /// What it is, wherever it stands.
    fn full(&self) -> String {
        if self.panel.is_empty() {
            self.label.clone()
        } else {
            format!("{}, {}", self.label, self.panel)
        }
    }
}

/// The way of packets that go one way, from end to end; `None` where the ends did not stamp them.
fn way<'g>(bar: &'g Bar) -> Option<Parts<'g>> {
    let whole = mean(&bar.group, "end_to_end_ns")?;
    let mut parts = known(&bar.group, &BEFORE);
    let inside = known(&bar.group, &NODE);
    parts.extend(if inside.is_empty() {
        let routed = ROUTED.iter().map(|part| known(&bar.group, &[*part]));
        routed.into_iter().find(|known| !known.is_empty()).unwrap_or_default()
    } else {
        inside
    });
    if !parts.iter().any(|(words, _)| *words == parts::LINK_IN) {
        parts.extend(known(&bar.group, &["link_delay_ns"]));
    }
    parts.extend(known(&bar.group, &BEHIND));
    add_rest(&mut parts, parts::REST, whole)?;
    (parts.len() > 1).then_some(Parts { bar, metric: "end_to_end_ns", whole, parts })
}

/// A node delay, with the links on both sides where they are known; `None` without two parts.
fn relayed<'g>(bar: &'g Bar) -> Option<Parts<'g>> {
    let node = mean(&bar.group, "node_delay_ns")?;
    let link = known(&bar.group, &["link_delay_ns"]);
    let mut parts = known(&bar.group, &NODE);
    add_rest(&mut parts, parts::REST, node)?;
    let metric = if link.is_empty() { "node_delay_ns" } else { "end_to_end_ns" };
    let whole = node + link.iter().map(|(_, ns)| ns).sum::<f64>();
    parts.extend(link);
    (parts.len() > 1).then_some(Parts { bar, metric, whole, parts })
}

/// A round trip; `None` unless both of its parts are known.
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

/// The parts of which the group has a mean above zero.
fn known(group: &Group, metrics: &[&str]) -> Vec<(&'static str, f64)> {
    let means = metrics.iter().filter_map(|name| Some((parts::name(name), mean(group, name)?)));
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
    // Panels have scales of their own: slow links would flatten what bare ones show.
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
    let colour = if trip { told_apart(names.iter().copied()) } else { parts::colour(names) };
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
                // Letters stand above their part: no colour of the palette carries every letter.
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
        Some(format!("{label}: {} of {whole} ({of}), {name}", delay(*ns)))
    };
    let near = groups.iter().filter(|group| group.bar.near);
    let parts: Vec<String> = near.take(3).filter_map(part).collect();
    format!("Largest part of the mean {noun}, at {}.", parts.join("; at "))
}
