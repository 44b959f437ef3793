//! Verdicts on senders as sentences and tables.

use std::collections::BTreeMap;

use dwell_stats::accuracy::verdict_lines;
use dwell_units::{BitRate, Bytes};

use super::verdict::{RateVerdict, RateVerdictKind, engine_rates, tolerance, verdicts};
use crate::model::RunData;
use crate::model::quantity::listed;
use crate::model::table::Table;

/// Verdict lines per node: the best engine, every engine, and engines that were not run; then the
/// definition of accurate. Empty for a run without trains.
pub fn verdict_words(run: &RunData) -> Vec<String> {
    let all = verdicts(run);
    let mut lines = Vec::new();
    let mut groups: Vec<(&str, &BTreeMap<String, String>)> = Vec::new();
    for verdict in &all {
        let group = (verdict.node.as_str(), &verdict.parameters);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for (node, others) in groups {
        let of = || all.iter().filter(move |it| it.node == node && it.parameters == *others);
        let table = engine_rates(of());
        let name = name(node, others);
        if !table.is_empty() {
            lines.extend(verdict_lines(&table).into_iter().map(|line| format!("{name}: {line}")));
        }
        lines.extend(not_run(of()).map(|text| format!("{name}: {text}")));
    }
    if !lines.is_empty() {
        lines.push(tolerance(run).to_string());
    }
    lines
}

/// Sentences about engines without any trial that ran.
fn not_run<'a>(all: impl Iterator<Item = &'a RateVerdict> + Clone) -> Option<String> {
    let mut seen: Vec<String> = Vec::new();
    let mut reasons = Vec::new();
    for verdict in all.clone().filter(|verdict| verdict.verdict == RateVerdictKind::NotRun) {
        let elsewhere = |other: &RateVerdict| {
            other.engine == verdict.engine && other.verdict != RateVerdictKind::NotRun
        };
        if seen.contains(&verdict.engine) || all.clone().any(elsewhere) {
            continue;
        }
        seen.push(verdict.engine.clone());
        let reason = verdict.reason.as_deref().unwrap_or("unknown reason");
        reasons.push(format!("{}: {reason}", verdict.engine));
    }
    (!seen.is_empty()).then(|| {
        let (engines, reasons) = (listed(&seen), reasons.join("; "));
        format!("not run, not supported on this node: {engines}. Reasons: {reasons}")
    })
}

/// Node, with the other varied parameters.
fn name(node: &str, others: &BTreeMap<String, String>) -> String {
    let others: Vec<_> = others.iter().map(|(name, value)| format!("{name} {value}")).collect();
    match others.is_empty() {
        true => node.to_owned(),
        false => format!("{node}, {}", others.join(", ")),
    }
}

/// One row per node, engine, size and number of flows, then the published senders; empty for a run
/// without trains.
pub fn verdict_table(run: &RunData) -> Table {
    let mut table =
        Table::new(["node", "engine", "IP packet", "cross flows", "largest rate", "reason"]);
    let all = verdicts(run);
    let mut not_run: Vec<(String, &str)> = Vec::new();
    for verdict in &all {
        let node = name(&verdict.node, &verdict.parameters);
        let engine = verdict.engine.as_str();
        let same = |other: &&RateVerdict| {
            (&other.node, &other.parameters, other.engine.as_str())
                == (&verdict.node, &verdict.parameters, engine)
        };
        // An engine that the node does not support is one row.
        if all.iter().filter(same).all(|other| other.verdict == RateVerdictKind::NotRun) {
            if !not_run.contains(&(node.clone(), engine)) {
                let reason = verdict.reason.clone().unwrap_or_default();
                let [size, flows] = ["all", "all"].map(str::to_owned);
                table.row([node.clone(), engine.to_owned(), size, flows, rate(verdict), reason]);
                not_run.push((node, engine));
            }
            continue;
        }
        table.row([
            name(&verdict.node, &verdict.parameters),
            verdict.engine.clone(),
            Bytes(verdict.ip_size).to_string(),
            verdict.flows.to_string(),
            rate(verdict),
            verdict.reason.clone().unwrap_or_else(|| "the largest tested rate".to_owned()),
        ]);
    }
    if !table.rows.is_empty() {
        for sender in &run.published.senders {
            let reason = format!("published ({}): {}", sender.cite, sender.hardware);
            for (sizes, largest) in &sender.largest {
                let [name, engine, sizes, flows] =
                    [sender.name, sender.engine, sizes, "-"].map(str::to_owned);
                table.row([name, engine, sizes, flows, largest.to_string(), reason.clone()]);
            }
        }
    }
    table
}

fn rate(verdict: &RateVerdict) -> String {
    match (verdict.verdict, verdict.largest.rate()) {
        (RateVerdictKind::NotRun, _) => "not run".to_owned(),
        (RateVerdictKind::None, _) => "none of the tested rates".to_owned(),
        (_, Some(BitRate(bps))) => BitRate(bps).to_string(),
        (_, None) => "cannot tell".to_owned(),
    }
}

/// Largest accurate rates of several runs side by side; `None` unless all runs have verdicts.
pub fn rates_of_runs(runs: &[RunData]) -> Option<Table> {
    let all: Vec<Vec<RateVerdict>> = runs.iter().map(verdicts).collect();
    if all.iter().any(Vec::is_empty) {
        return None;
    }
    let key = |verdict: &RateVerdict| {
        let others = verdict.parameters.clone();
        (others, verdict.engine.clone(), verdict.flows, verdict.ip_size)
    };
    let mut keys = Vec::new();
    for verdict in all.iter().flatten() {
        if !keys.contains(&key(verdict)) {
            keys.push(key(verdict));
        }
    }
    let mut columns = vec!["engine".to_owned(), "IP packet".to_owned(), "cross flows".to_owned()];
    let several = keys.iter().any(|(others, ..)| !others.is_empty());
    if several {
        columns.insert(0, "parameters".to_owned());
    }
    for (i, (run, verdicts)) in runs.iter().zip(&all).enumerate() {
        let mut nodes: Vec<&str> = verdicts.iter().map(|verdict| verdict.node.as_str()).collect();
        nodes.dedup();
        columns.push(format!("{} ({})", run.lettered_id(i), nodes.join(", ")));
    }
    let rows = keys.into_iter().map(|wanted| {
        let (others, engine, flows, size) = &wanted;
        let mut row = vec![engine.clone(), Bytes(*size).to_string(), flows.to_string()];
        if several {
            let others: Vec<_> = others.iter().map(|(name, it)| format!("{name} {it}")).collect();
            row.insert(0, others.join(", "));
        }
        for verdicts in &all {
            let of: Vec<_> = verdicts.iter().filter(|it| key(it) == wanted).map(rate).collect();
            row.push(if of.is_empty() { "-".to_owned() } else { of.join(", ") });
        }
        row
    });
    Some(Table { columns, rows: rows.collect() })
}
