//! Delay components of example packets, one after another.

use serde_json::{Value, json};

use super::parts;
use crate::analysis::group;
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH};
use crate::model::axes::RELAY;
use crate::model::quantity::{Unit, delay_ns, share};
use crate::model::table::Table;
use crate::model::{PacketData, metric};

/// Components in packet order. A trial has those of one timestamp level.
const COMPONENT_ORDER: [&str; 11] = [
    "sender_out_ns",
    "link_in_ns",
    "node_delay_driver_ns",
    "node_delay_netfilter_ns",
    "queueing_in_ns",
    "processing_ns",
    "queueing_out_ns",
    "qdisc_ns",
    "link_out_ns",
    "link_delay_ns",
    "receiver_in_ns",
];

/// A packet with its row label and its full name.
struct LabelledPacket<'a> {
    packet: &'a PacketData,
    row: String,
    full: String,
}

/// Returns `None` without example packets.
pub(super) fn waterfall(subject: &Subject) -> Option<Figure> {
    let packets: Vec<LabelledPacket> =
        subject.run.packets.iter().map(|one| labelled(subject, one)).collect();
    let longest = packets.iter().map(|it| it.packet.end_to_end_ns).max()?;
    let unit = Unit::fitting(longest as f64 / 10.0);
    let has = |name: &&str| packets.iter().any(|it| it.packet.parts.contains_key(*name));
    let names: Vec<&str> = COMPONENT_ORDER.into_iter().filter(has).collect();
    let mut table = Table::new(["packet", "id"]);
    table.columns.extend(names.iter().map(|name| heading(name, unit)));
    table.columns.push(format!("end-to-end delay [{}]", unit.name()));
    for LabelledPacket { packet, full, .. } in &packets {
        let mut row = vec![full.clone(), packet.id.to_string()];
        let part = |name: &&str| packet.parts.get(*name).map(|ns| *ns as f64);
        row.extend(names.iter().map(|name| unit.cell(part(name))));
        row.push(unit.cell(Some(packet.end_to_end_ns as f64)));
        table.rows.push(row);
    }
    let body = body(&packets, &names, unit);
    let finding = finding(&packets)?;
    let title = "Delay components of single packets".to_owned();
    Some(Figure::new("waterfall", title, finding, &subject.caption, body, table))
}

fn labelled<'a>(subject: &Subject, packet: &'a PacketData) -> LabelledPacket<'a> {
    let trial = subject.run.trials.iter().find(|trial| trial.trial == packet.trial);
    let mode = trial.and_then(|trial| trial.parameters.get(RELAY).cloned());
    let cell = trial.map_or_else(String::new, |trial| group::trial_label(subject.run, trial));
    LabelledPacket {
        packet,
        row: mode.unwrap_or_else(|| format!("trial {}", packet.trial)),
        full: format!("{} of {cell}", packet.which),
    }
}

/// Timestamps that delimit a component.
fn between(name: &str) -> &'static str {
    match name {
        "sender_out_ns" => "sender: tx_app to the driver",
        "link_in_ns" => "sender's driver to the node",
        "node_delay_driver_ns" => "node: rx_driver to tx_tcx",
        "node_delay_netfilter_ns" => "node: pre_routing to post_routing",
        "queueing_in_ns" => "node: rx_kernel to rx_app",
        "processing_ns" => "node: rx_app to tx_app",
        "queueing_out_ns" => "node: tx_app to tx_sched",
        "qdisc_ns" => "node: tx_sched to tx_kernel",
        "link_out_ns" => "node to the receiver's rx_kernel",
        "link_delay_ns" => "sender's driver to the receiver's rx_kernel",
        _ => "receiver: rx_kernel to rx_app",
    }
}

fn heading(name: &str, unit: Unit) -> String {
    format!("{}, {} [{}]", metric::words(name), between(name), unit.name())
}

/// One panel per kind of packet, each with its own scale, because the slowest of some thousand
/// packets would flatten the others.
fn body(packets: &[LabelledPacket], names: &[&str], unit: Unit) -> Value {
    let words = parts::present(|part| names.iter().any(|name| parts::name(name) == part));
    let mut kinds: Vec<&str> = Vec::new();
    for it in packets {
        if !kinds.contains(&it.packet.which.as_str()) {
            kinds.push(&it.packet.which);
        }
    }
    let panels = kinds.iter().map(|kind| {
        let of: Vec<&LabelledPacket> =
            packets.iter().filter(|it| it.packet.which == *kind).collect();
        let title = match *kind {
            "median" => "median packet",
            "p99" => "p99 packet",
            "slowest" => "slowest packet",
            other => other,
        };
        panel(&of, names, &words, unit, title)
    });
    let panels: Vec<Value> = panels.collect();
    json!({"vconcat": panels, "spacing": 16})
}

fn panel(
    packets: &[&LabelledPacket],
    names: &[&str],
    words: &[&str],
    unit: Unit,
    title: &str,
) -> Value {
    let mut rows = Vec::new();
    for LabelledPacket { packet, row, full } in packets {
        let mut from = 0;
        for name in names {
            let Some(ns) = packet.parts.get(*name).copied() else { continue };
            rows.push(json!({
                "row": row, "full": full, "group": parts::name(name), "from": unit.of(from as f64),
                "to": unit.of((from + ns) as f64), "took": delay_ns(ns), "between": between(name)
            }));
            from += ns;
        }
    }
    let labels: Vec<&str> = packets.iter().map(|it| it.row.as_str()).collect();
    let axis = format!("time since tx_app at the sender [{}]", unit.name());
    json!({
        "data": {"values": rows}, "width": WIDTH, "height": {"step": 28},
        "title": {"text": title, "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
        "mark": {"type": "bar", "size": 18, "style": "part"},
        "encoding": {
            "y": {
                "field": "row", "type": "nominal", "sort": labels,
                "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8}
            },
            "x": {
                "field": "from", "type": "quantitative", "scale": {"zero": true, "nice": false},
                "axis": {"title": axis, "format": ",.6~r"}
            },
            "x2": {"field": "to"},
            "color": parts::colour(words),
            "tooltip": [
                {"field": "full", "title": "packet"}, {"field": "group", "title": "part"},
                {"field": "between", "title": "between"}, {"field": "took", "title": "took"}
            ]
        }
    })
}

fn finding(packets: &[LabelledPacket]) -> Option<String> {
    let slowest = packets.iter().max_by_key(|it| it.packet.end_to_end_ns)?;
    let packet = slowest.packet;
    let (name, ns) = packet.parts.iter().max_by_key(|(_, ns)| **ns)?;
    Some(format!(
        "Slowest: {}, {} end to end; largest component {} ({}): {} ({}).",
        slowest.full,
        delay_ns(packet.end_to_end_ns),
        delay_ns(*ns),
        share(*ns as f64 / packet.end_to_end_ns.max(1) as f64),
        metric::words(name),
        between(name)
    ))
}
