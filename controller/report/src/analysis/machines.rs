//! Table of the nodes of a relay path: role, engine, timestamps, quota.

use dwell_record::{Kind, Scalar, Summary, quota_value};
use serde_json::Value;

use crate::model::axes::RELAY;
use crate::model::quantity::{count, share};
use crate::model::table::Table;
use crate::model::{RunData, TrialData};

/// Role of a node in some trials.
struct NodeRole {
    /// Cells up to `CPU quota`.
    cells: [String; 7],
    modes: Vec<String>,
    /// Minimum and maximum CPU use of the node, as a share of one CPU.
    burnt: Option<(f64, f64)>,
    trials: u64,
}

/// Returns one row per node and role, over the trials and relay modes in which all cells are equal.
/// Columns without any value are omitted; empty for a run without one-way packets through a relay.
///
/// `stamps` are the timestamps that delimit the node's delay, or that a trace recorded; `bytes
/// added` is the growth of an encrypted packet.
pub fn machines(run: &RunData) -> Table {
    let mut roles: Vec<NodeRole> = Vec::new();
    for trial in run.finished_trials() {
        let Some(path) = trial.summary.as_ref().filter(|it| it.kind == Kind::Relay) else {
            continue;
        };
        let mode = mode(trial, path);
        let routes = routing(path).map(|cells| (cells, text(path, "relay_node")));
        let cells = trial.machines.iter().map(|it| (cells(path, &it.node, &it.summary), &*it.node));
        for (cells, node) in cells.map(|(cells, node)| (cells, node.to_owned())).chain(routes) {
            let burnt = quota(path, &node, "burnt_ratio");
            let span = burnt.map(|ratio| (ratio, ratio));
            match roles.iter_mut().find(|role| role.cells == cells) {
                Some(role) => {
                    role.trials += 1;
                    if !role.modes.contains(&mode) {
                        role.modes.push(mode.clone());
                    }
                    role.burnt = match (role.burnt, span) {
                        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                        (a, b) => a.or(b),
                    };
                }
                None => roles.push(NodeRole {
                    cells,
                    modes: vec![mode.clone()],
                    burnt: span,
                    trials: 1,
                }),
            }
        }
    }
    let order = run.modes();
    let place = |name: &String| order.iter().position(|mode| mode == name);
    roles.iter_mut().for_each(|role| role.modes.sort_by_key(place));
    roles.sort_by_key(|role| {
        (role.cells[0].clone(), role.modes.first().and_then(place), role.cells[1].clone())
    });
    let mut table = Table::new([
        "node",
        "does",
        "engine",
        "AES by",
        "bytes added",
        "stamps",
        "CPU quota",
        "CPU used",
        "modes",
        "trials",
    ]);
    for NodeRole { cells, modes, burnt, trials } in roles {
        let burnt = burnt.map_or_else(none, |(least, most)| match (share(least), share(most)) {
            (least, most) if least == most => least,
            (least, most) => format!("{least} to {most}"),
        });
        let mode = modes.join(", ");
        table.rows.push(cells.into_iter().chain([burnt, mode, count(trials)]).collect());
    }
    without_empty(table)
}

/// Removes columns without any value, such as quotas that no node has.
fn without_empty(mut table: Table) -> Table {
    let filled: Vec<bool> = (0..table.columns.len())
        .map(|column| table.rows.iter().any(|row| row.get(column).is_some_and(|it| *it != none())))
        .collect();
    for row in table.rows.iter_mut().chain([&mut table.columns]) {
        let mut kept = filled.iter();
        row.retain(|_| kept.next() == Some(&true));
    }
    table
}

fn mode(trial: &TrialData, path: &Summary) -> String {
    trial.parameters.get(RELAY).cloned().unwrap_or_else(|| text(path, RELAY))
}

/// Cells of a machine from its summary.
fn cells(path: &Summary, node: &str, summary: &Summary) -> [String; 7] {
    let (engine, aes) = match summary.engine.split_once("; AES: ") {
        Some((engine, aes)) => (engine, aes.to_owned()),
        None => (summary.engine.as_str(), none()),
    };
    let (does, stamps) = match (summary.kind, text(summary, "load").as_str()) {
        (Kind::Relay, _) => ("relays", node_points(path)),
        (Kind::Trace, _) => ("traces", list(summary, "points", ", ")),
        (Kind::Load, "traffic") => ("sends", format!("tx_app to {}", text(path, "link_from"))),
        (Kind::Load, "sink") => ("receives", format!("{} to rx_app", text(path, "link_to"))),
        _ => ("takes part", none()),
    };
    let bytes = |name: &str| match summary.values.get(name).copied().flatten() {
        Some(Scalar::Count(bytes)) if summary.kind == Kind::Relay => Some(bytes),
        _ => None,
    };
    // Relays without authentication tags have no `tag_bytes`.
    let added = bytes("nonce_bytes").map(|nonce| nonce + bytes("tag_bytes").unwrap_or(0));
    let added = added.map_or_else(none, |bytes| bytes.to_string());
    let asked = quota(path, node, "asked_ratio").map_or_else(none, share);
    [node.to_owned(), does.into(), engine.into(), aes, added, stamps, asked]
}

/// Cells of the node whose kernel routes, which has no summary of its own.
fn routing(path: &Summary) -> Option<[String; 7]> {
    let node = path.text("relay_node").filter(|_| path.engine == "kernel")?;
    let asked = quota(path, node, "asked_ratio").map_or_else(none, share);
    let stamps = node_points(path);
    let [does, engine] = ["routes", "kernel"].map(str::to_owned);
    Some([node.to_owned(), does, engine, none(), none(), stamps, asked])
}

/// Value of the CPU quota of a node.
fn quota(path: &Summary, node: &str, what: &str) -> Option<f64> {
    path.value(&quota_value(node, what))
}

fn text(summary: &Summary, parameter: &str) -> String {
    summary.text(parameter).map_or_else(none, str::to_owned)
}

/// Points that delimit the node delay; runs before 0.2 call them `node_rung`.
fn node_points(path: &Summary) -> String {
    let renamed = path.parameters.contains_key("node_points");
    list(path, if renamed { "node_points" } else { "node_rung" }, " to ")
}

fn list(summary: &Summary, parameter: &str, between: &str) -> String {
    let all = summary.parameters.get(parameter).and_then(Value::as_array);
    let all: Vec<&str> = all.into_iter().flatten().filter_map(Value::as_str).collect();
    if all.is_empty() { none() } else { all.join(between) }
}

fn none() -> String {
    "-".to_owned()
}
