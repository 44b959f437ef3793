//! Packet captures taken outside dwell (witnesses), compared with a run: one sentence and one
//! table.

use std::collections::BTreeSet;

use dwell_record::Summary;
use serde_json::Value;

use crate::analysis::group;
use crate::model::RunData;
use crate::model::quantity::{count, count_noun, delay_ns};
use crate::model::table::Table;

/// Metrics of a witness (`dwell import --witness`) and their names in the table.
const METRIC_NAMES: [(&str, &str); 5] = [
    ("left_to_witness_ns", "from the sender's timestamp to the witness"),
    ("witness_gap_ns", "gap between probes, by the witness"),
    ("gap_error_ns", "run's gap minus the witness's"),
    ("witness_rtt_ns", "round trip, by the witness"),
    ("rtt_minus_witness_ns", "run's round trip minus the witness's"),
];

/// Sentence with the number of probes captured and the largest median difference of round trips.
pub(crate) fn in_words(run: &RunData) -> Option<String> {
    let all: Vec<&Summary> = run.trials.iter().flat_map(|trial| &trial.witnesses).collect();
    // Several captures may contain the same probes: per trial, the most complete one counts.
    let counts = run.trials.iter().filter_map(|trial| {
        let counts = trial.witnesses.iter().map(|witness| {
            let [seen, unseen] = ["matched", "unseen"].map(|name| number(witness, name));
            (seen.unwrap_or(0), unseen.unwrap_or(0))
        });
        counts.max_by_key(|(seen, _)| *seen)
    });
    let (seen, unseen) = counts.fold((0_u64, 0_u64), |all, one| {
        (all.0.saturating_add(one.0), all.1.saturating_add(one.1))
    });
    let probes = count_noun(seen.saturating_add(unseen), "probe");
    let first = all.first()?;
    // Different captures may share a file name.
    let hash = |witness: &Summary| witness.parameters.get("sha256").map(Value::to_string);
    let captures: BTreeSet<_> =
        all.iter().map(|witness| (witness.target.as_str(), hash(witness))).collect();
    let more = match captures.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let difference = all
        .iter()
        .filter_map(|witness| witness.metrics.get("rtt_minus_witness_ns")?.p50)
        .max_by_key(|ns| ns.unsigned_abs());
    let difference = difference.map_or_else(String::new, |ns| {
        let than = if ns < 0 { "shorter" } else { "longer" };
        let by = delay_ns(ns.saturating_abs());
        format!(" The run's round trips are {by} {than} than the witness's (median).")
    });
    Some(format!("A witness ({}{more}) saw {} of {probes}.{difference}", first.target, count(seen)))
}

/// One row per trial, capture and metric; empty without a witness.
pub(crate) fn table(run: &RunData) -> Table {
    let columns =
        ["trial", "capture", "seen", "not seen", "delay", "count", "min", "p50", "p99", "max"];
    let mut table = Table::new(columns);
    for trial in &run.trials {
        for witness in &trial.witnesses {
            let counted = |name| number(witness, name).map_or_else(|| "-".to_owned(), count);
            for (metric, figures) in &witness.metrics {
                let words = METRIC_NAMES.iter().find(|(name, _)| name == metric);
                let ns = |ns: Option<i64>| ns.map_or_else(|| "-".to_owned(), delay_ns);
                table.row([
                    format!("{}: {}", trial.trial, group::trial_label(run, trial)),
                    witness.target.clone(),
                    counted("matched"),
                    counted("unseen"),
                    words.map_or(metric.as_str(), |(_, words)| words).to_owned(),
                    count(figures.count),
                    ns(figures.min),
                    ns(figures.p50),
                    ns(figures.p99),
                    ns(figures.max),
                ]);
            }
        }
    }
    table
}

fn number(witness: &Summary, name: &str) -> Option<u64> {
    witness.number(name).map(|number| number as u64)
}
