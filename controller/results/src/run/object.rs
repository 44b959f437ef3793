//! Runs as JSON objects, as `dwell show --json` and `dwell runs --json` print them.

use dwell_record::{Kind, Summary};
use dwell_report::model::{Claim, MachineData, RunData};
use dwell_store::{RunKind, RunNode, RunRow};
use serde_json::{Value, json};

/// Returns an element of `runs` in `dwell.runs/1`.
pub fn run_row_object(run: &RunRow, samples_bytes: u64) -> Value {
    json!({
        "run": run.run,
        "kind": run.kind,
        "name": run.name,
        "title": run.title,
        "state": run.state,
        "started": run.started,
        "finished": run.finished,
        "trials": run.trials,
        "trials_finished": run.trials_finished,
        "trials_failed": run.trials_failed,
        "trials_not_run": run.trials_not_run,
        "samples_bytes": samples_bytes,
        "dwell": run.dwell,
        "owner": run.owner,
    })
}

/// Returns the `dwell.run/1` object.
pub fn run_object(row: &RunRow, nodes: &[RunNode], run: &RunData) -> Value {
    let trials: Vec<_> = run
        .trials
        .iter()
        .map(|trial| {
            let summary = trial.summary.as_ref();
            json!({
                "trial": trial.trial,
                "repetition": trial.repetition,
                "order": trial.order,
                "state": trial.state,
                "reason": trial.reason,
                "parameters": trial.parameters,
                "mode": summary.and_then(dwell_report::mode_of),
                "packets": summary.map(|summary| summary.packets),
                "metrics": summary.map(|summary| &summary.metrics),
                "values": summary.map(|summary| &summary.values),
                "trust": summary.map(trust),
                "environment": summary.map(|summary| &summary.environment),
                "measurement": summary.map(measurement),
                "machines": trial.machines.iter().map(machine).collect::<Vec<_>>(),
                "loads": trial.loads,
                "witnesses": trial.witnesses,
            })
        })
        .collect();
    json!({
        "schema": "dwell.run/1",
        "run": run.id,
        "plan": run.name,
        "title": run.title,
        "state": row.state,
        "seed": (row.kind == RunKind::Run).then_some(row.seed),
        "settings": row.settings,
        "started": run.started,
        "finished": run.finished,
        "dwell": run.dwell,
        "owner": row.owner,
        "nodes": nodes.iter().map(node).collect::<Vec<_>>(),
        "axes": run.axes,
        "measured": dwell_report::measurement_aspects(run),
        "trials": trials,
        "findings": findings(run),
        "notes": run.notes,
        "fits": dwell_report::fits(run),
        "verdicts": dwell_report::verdicts(run),
        "claims": claims(run),
    })
}

/// Describes a node, with the device that it was bound to.
fn node(node: &RunNode) -> Value {
    json!({
        "node": node.node,
        "dwell": node.dwell,
        "clock": node.clock,
        "device": node.device,
    })
}

/// Claims of the document that the plan names.
fn claims(run: &RunData) -> &[Claim] {
    run.claims.as_ref().map_or(&[], |judged| &judged.claims)
}

/// Describes the measurement: kind, target, parameters and timestamps.
fn measurement(summary: &Summary) -> Value {
    json!({
        "kind": summary.kind,
        "target": summary.target,
        "parameters": summary.parameters,
        "stamps": summary.stamps,
        "engine": summary.engine,
    })
}

fn machine(machine: &MachineData) -> Value {
    json!({ "node": machine.node, "summary": machine.summary })
}

/// Returns the trust record of a trial. Values that files of other programs do not state are null,
/// not 0.
fn trust(summary: &Summary) -> Value {
    let mut trust = json!(summary.trust);
    if summary.kind == Kind::Import {
        let unknown: &[&str] = match summary.is_imported_segment() {
            true => &["warm_up_sent"],
            false => &["warm_up_sent", "void"],
        };
        unknown.iter().for_each(|name| trust[*name] = Value::Null);
        trust["ring_dropped"] = json!(summary.ring_dropped());
    }
    trust
}

fn findings(run: &RunData) -> Vec<Value> {
    dwell_report::findings(run)
        .into_iter()
        .map(|finding| json!({ "id": finding.id, "text": finding.text }))
        .collect()
}
