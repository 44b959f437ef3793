//! A few packets on their way: what each spent where, one part after another.

use serde_json::{Value, json};

use super::Subject;
use crate::data::PacketData;
use crate::figure::{Figure, Table, WIDTH};
use crate::group;
use crate::metric;
use crate::quantity::{Unit, delay_ns, share};

/// The parts that may make up a way, in packet order. A trial has those of one rung.
const ORDER: [&str; 11] = [
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

/// `None` where no packet was picked out.
pub(super) fn waterfall(subject: &Subject) -> Option<Figure> {
    let packets = &subject.run.packets;
    let longest = packets.iter().map(|packet| packet.end_to_end_ns).max()?;
    let unit = Unit::fitting(longest as f64);
    let labels: Vec<String> = packets.iter().map(|packet| label(subject, packet)).collect();
    let has = |name: &&str| packets.iter().any(|packet| packet.parts.contains_key(*name));
    let names: Vec<&str> = ORDER.into_iter().filter(has).collect();
    let mut table = Table::new(["packet", "id"]);
    table.columns.extend(names.iter().map(|name| heading(name, unit)));
    table.columns.push(format!("end-to-end delay [{}]", unit.name()));
    let mut rows = Vec::new();
    for (packet, label) in packets.iter().zip(&labels) {
        let mut from = 0;
        let mut row = vec![label.clone(), packet.id.to_string()];
        for name in &names {
            let part = packet.parts.get(*name).copied();
            row.push(unit.cell(part.map(|ns| ns as f64)));
            let Some(ns) = part else { continue };
            rows.push(json!({
                "row": label, "group": metric::words(name), "from": unit.of(from as f64),
                "to": unit.of((from + ns) as f64), "took": delay_ns(ns), "between": between(name)
            }));
            from += ns;
        }
        row.push(unit.cell(Some(packet.end_to_end_ns as f64)));
        table.rows.push(row);
    }
    let words: Vec<&str> = names.iter().map(|name| metric::words(name)).collect();
    let body = body(&rows, &labels, &words, unit);
    let finding = finding(packets, &labels)?;
    let title = "Single packets on their way".to_owned();
    Some(Figure::new("waterfall", title, finding, &subject.caption, body, table))
}

fn label(subject: &Subject, packet: &PacketData) -> String {
    let trial = subject.run.trials.iter().find(|trial| trial.trial == packet.trial);
    let cell = trial.map_or_else(String::new, |trial| group::trial_label(subject.run, trial));
    format!("{} of {cell}", packet.which)
}

/// Between which stamps a part lies.
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

fn body(rows: &[Value], labels: &[String], words: &[&str], unit: Unit) -> Value {
    let title = format!("time since tx_app at the sender [{}]", unit.name());
    let x = json!({
        "field": "from", "type": "quantitative", "scale": {"zero": true, "nice": false},
        "axis": {"title": title, "format": ",.6~r"}
    });
    json!({
        "data": {"values": rows}, "width": WIDTH, "height": {"step": 30},
        "mark": {"type": "bar", "size": 18},
        "encoding": {
            "y": {
                "field": "row", "type": "nominal", "sort": labels,
                "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8}
            },
            "x": x, "x2": {"field": "to"},
            "color": crate::figure::told_apart(words.iter().copied()),
            "tooltip": [
                {"field": "row", "title": "packet"}, {"field": "group", "title": "part"},
                {"field": "between", "title": "between"}, {"field": "took", "title": "took"}
            ]
        }
    })
}

fn finding(packets: &[PacketData], labels: &[String]) -> Option<String> {
    let slowest = packets.iter().zip(labels).max_by_key(|(packet, _)| packet.end_to_end_ns)?;
    let (packet, label) = slowest;
    let (name, ns) = packet.parts.iter().max_by_key(|(_, ns)| **ns)?;
    Some(format!(
        "The longest of these, the {label}, took {} from end to end, {} of it ({}) as {} ({}).",
        delay_ns(packet.end_to_end_ns),
        delay_ns(*ns),
        share(*ns as f64 / packet.end_to_end_ns.max(1) as f64),
        metric::words(name),
        between(name)
    ))
}
