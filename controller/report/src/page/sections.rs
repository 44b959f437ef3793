//! Sections of the page without figures.

use std::collections::BTreeSet;

use askama::Template;
use dwell_record::{Scalar, Severity, Summary};
use dwell_stats::Quantile;

use crate::analysis::group::{self, Group};
use crate::analysis::key_figures::KeyFigure;
use crate::analysis::measurement::{self, MeasurementAspect};
use crate::analysis::subject::Subject;
use crate::analysis::trust::{self, Fact, TrustLevel};
use crate::analysis::warnings::{RunWarning, warnings};
use crate::analysis::{effect, paced, witness};
use crate::model::quantity::{Unit, count, count_noun, delay, share, three_digits};
use crate::model::table::Table;
use crate::model::{JudgedClaims, RunData, TrialData, TrialState, metric};
use crate::page::html::TableView;

/// Which run it was, when, and with which version.
#[derive(Template)]
#[template(path = "about.html")]
struct About<'a> {
    run: &'a RunData,
    finished: String,
    measured: usize,
    trials: String,
    varied: String,
}

pub(super) fn about(run: &RunData) -> String {
    let finished =
        run.finished.as_deref().map_or_else(|| "not finished".to_owned(), |at| format!("to {at}"));
    let varied = run.axes.iter().map(|axis| match axis.values.as_slice() {
        values if values.len() <= 4 => format!("{}: {}", axis.name, values.join(", ")),
        [first, .., last] => {
            format!("{}: {} values from {first} to {last}", axis.name, axis.values.len())
        }
        _ => axis.name.clone(),
    });
    let varied = varied.collect::<Vec<_>>().join("; ");
    let trials = count_noun(run.trials.len() as u64, "trial");
    About { run, finished, measured: run.finished_trials().count(), trials, varied }.to_string()
}

/// Which runs are compared.
#[derive(Template)]
#[template(path = "about-runs.html")]
struct AboutRuns {
    count: String,
    runs: Vec<String>,
}

pub(super) fn about_runs(runs: &[RunData]) -> String {
    let one = |(i, run): (usize, &RunData)| {
        format!("{} ({}, {})", run.lettered_id(i), run.name, run.started)
    };
    let count = count_noun(runs.len() as u64, "run");
    AboutRuns { count, runs: runs.iter().enumerate().map(one).collect() }.to_string()
}

/// The numbers to read first, beside a badge that links to the trust panel.
#[derive(Template)]
#[template(path = "key-figures.html")]
struct KeyFigures<'a> {
    figures: &'a [KeyFigure],
    /// Sentence about the intervals of effects.
    simultaneous: Option<String>,
    badge_class: &'static str,
    badge: String,
}

pub(super) fn key_figures(run: &RunData, figures: &[KeyFigure]) -> String {
    let (badge_class, badge) = match TrustLevel::of(run, &warnings(run)) {
        TrustLevel::Ok => ("good", "No trust warnings".to_owned()),
        TrustLevel::Unknown => ("unknown", "Trust unknown".to_owned()),
        TrustLevel::Warnings(n) => ("warn", count_noun(n as u64, "trust warning")),
        TrustLevel::DoNotQuote => ("invalid", "Do not quote".to_owned()),
    };
    let effects = figures.iter().any(|figure| figure.finding.starts_with("effect-"));
    let simultaneous = effects.then(|| effect::simultaneous(run));
    KeyFigures { figures, simultaneous, badge_class, badge }.to_string()
}

/// Description of the measurement, and the text of the plan.
#[derive(Template)]
#[template(path = "measured.html")]
struct Measured<'a> {
    id: &'a str,
    heading: &'a str,
    facts: Vec<MeasurementAspect>,
    plan: Option<&'a str>,
}

pub(super) fn measurement(run: &RunData, id: &str, heading: &str) -> String {
    let facts = measurement::measurement_aspects(run);
    let plan = run.plan.as_ref().map(|plan| plan.text.as_str());
    if facts.is_empty() && plan.is_none() {
        return String::new();
    }
    Measured { id, heading, facts, plan }.to_string()
}

/// Trust panel: a banner with the warnings, if any, then notes and facts.
#[derive(Template)]
#[template(path = "trust.html")]
struct Trust<'a> {
    id: &'a str,
    heading: &'a str,
    /// Whether a warning makes the numbers invalid.
    is_invalid: bool,
    warnings: Vec<RunWarning>,
    notes: Vec<RunWarning>,
    /// The limits, if all are known and kept.
    kept: Option<String>,
    facts: Vec<Fact>,
}

pub(super) fn trust(run: &RunData, heading: &str, id: &str) -> String {
    let known = run.finished_trials().any(|trial| trial.summary.is_some());
    let (notes, warnings): (Vec<_>, Vec<_>) =
        warnings(run).into_iter().partition(|warning| warning.severity == Severity::Note);
    let panel = Trust {
        id,
        heading,
        is_invalid: warnings.iter().any(|warning| warning.severity == Severity::Invalid),
        warnings,
        notes,
        kept: trust::has_schedule_errors(run).then(|| trust::kept_limits_text(run)),
        facts: if known { trust::facts(run) } else { Vec::new() },
    };
    panel.to_string()
}

/// Failed trials with their reasons.
pub(super) fn failed(run: &RunData) -> Vec<String> {
    let failed = run.trials.iter().filter(|trial| trial.state == TrialState::Failed);
    let words = |trial: &TrialData| {
        let reason = trial.reason.as_deref().unwrap_or("unknown reason");
        format!("Trial {}, {}: {reason}", trial.trial, group::trial_label(run, trial))
    };
    failed.map(words).collect()
}

/// A section with a table.
#[derive(Template)]
#[template(path = "section.html")]
struct Section<'a> {
    id: &'static str,
    /// Whether the section is a landmark named by its title.
    labelled: bool,
    title: &'a str,
    intro: &'a str,
    folded: bool,
    table: TableView<'a>,
}

impl<'a> Section<'a> {
    fn new(id: &'static str, title: &'a str, table: &'a Table, caption: &'a str) -> Self {
        let table = TableView::new(table, caption);
        Self { id, labelled: true, title, intro: "", folded: false, table }
    }

    /// The HTML; empty without rows.
    fn html(self) -> String {
        if self.table.rows() == 0 { String::new() } else { self.to_string() }
    }
}

/// Largest accurate rate per sender, beside published ones; empty for a run without trains.
pub(super) fn verdicts(run: &RunData) -> String {
    let intro = format!(
        "The largest rate such that this rate and every smaller one tried are accurate; {}. {}",
        paced::tolerance(run),
        run.published.remarks.join(" ")
    );
    let (title, caption) = (
        "Largest accurate rate per sender",
        "Largest accurate rate by node, engine, size and cross flows",
    );
    let table = paced::verdict_table(run);
    Section { intro: &intro, ..Section::new("verdicts", title, &table, caption) }.html()
}

/// Largest accurate rates of several runs side by side.
pub(super) fn rates_of_runs(runs: &[RunData]) -> String {
    let table = paced::rates_of_runs(runs).unwrap_or_default();
    let title = "Largest accurate rate per sender, by run";
    Section::new("verdicts", title, &table, "Largest accurate rate by run").html()
}

/// Published claims with their verdicts; empty if the plan names none.
pub(super) fn claims(run: &RunData) -> String {
    let Some(JudgedClaims { cite, claims, .. }) = &run.claims else { return String::new() };
    let mut all = Table::new(["id", "claim", "verdict", "found", "published", "own limit", "why"]);
    for claim in claims {
        let [value, published, own] = claim.numbers();
        let interval = claim.interval.map_or_else(String::new, |(low, high)| {
            let [low, high] = [low, high].map(|end| claim.unit.text(end));
            format!(" ({low} to {high})")
        });
        let why = claim.why.as_ref().map_or_else(String::new, |why| format!(" Why: {why}."));
        all.row([
            claim.id.clone(),
            claim.claim.clone(),
            claim.verdict.words().to_owned(),
            value + &interval,
            published,
            own,
            format!("{}{why}", claim.found),
        ]);
    }
    let (title, caption) =
        (format!("Claims of {cite}"), "Published claims and their verdicts for this run");
    let intro = "Each claim is judged for the machines of this run. A failed claim is a finding about \
                 them, not an error. Where the document gives no number, the limit is dwell's own. \
                 Intervals: 95 % for all claims together (Bonferroni).";
    Section { intro, ..Section::new("claims", &title, &all, caption) }.html()
}

/// Every trial, also failed ones.
pub(super) fn trials(run: &RunData) -> String {
    let subject = Subject::of(run);
    let mut all = Table {
        columns: vec!["trial".into(), "ran as".into(), "repetition".into()],
        rows: Vec::new(),
    };
    all.columns.extend(run.axes.iter().map(|axis| axis.name.clone()));
    all.columns.extend(["state", "sent", "received", "lost or late"].map(str::to_owned));
    if let Some(subject) = &subject {
        all.columns
            .extend(["p50", "p99", "max"].map(|name| format!("{name} [{}]", subject.unit.name())));
    }
    for trial in &run.trials {
        all.rows.push(trial_row(run, trial, subject.as_ref()));
    }
    let all = all.label_intervals();
    let caption = subject.as_ref().map_or_else(
        || "All trials".to_owned(),
        |subject| format!("All trials; p50, p99 and max of the {}", subject.noun),
    );
    let section = Section::new("trials", "Trials", &all, &caption);
    let intro = if run.trials.is_empty() { "This run has no trials." } else { "" };
    Section { labelled: false, intro, ..section }.to_string()
}

fn trial_row(run: &RunData, trial: &TrialData, subject: Option<&Subject>) -> Vec<String> {
    let mut row =
        vec![trial.trial.to_string(), trial.order.to_string(), trial.repetition.to_string()];
    let value =
        |name: &String| trial.parameters.get(name).cloned().unwrap_or_else(|| "-".to_owned());
    row.extend(run.axes.iter().map(|axis| value(&axis.name)));
    let state = match trial.state {
        TrialState::Planned => "planned",
        TrialState::Running => "running",
        TrialState::Finished => "measured",
        TrialState::Failed => "failed",
        TrialState::NotRun => "not run",
    };
    row.push(state.to_owned());
    let packets = trial.summary.as_ref().and_then(|summary| summary.packets);
    let counted = packets.map(|p| [p.sent, p.received, p.lost.saturating_add(p.late)].map(count));
    row.extend(counted.unwrap_or_else(|| {
        // A one-way sender without receive counts still knows how many packets it sent.
        let left = trial.summary.as_ref().and_then(|summary| *summary.values.get("packets")?);
        let left = left.map_or("-".to_owned(), |left| count(left.as_f64() as u64));
        [left, "-".to_owned(), "-".to_owned()]
    }));
    if let Some(subject) = subject {
        let group = Group::new(String::new(), vec![trial], subject.metric);
        row.extend([Quantile::P50, Quantile::P99].map(|q| group.cell(subject.unit, q)));
        row.push(subject.unit.cell(group.steps.max().map(|ns| ns as f64)));
    }
    row
}

/// Every metric of every cell.
pub(super) fn delays(run: &RunData) -> String {
    let mut metrics: BTreeSet<&str> = BTreeSet::new();
    for trial in run.finished_trials() {
        metrics.extend(trial.series.keys().map(String::as_str));
    }
    let columns =
        ["delay", "group", "samples", "min [us]", "p50 [us]", "mean [us]", "p99 [us]", "max [us]"];
    let mut all = Table::new(columns);
    for metric in metrics {
        for cell in group::cells(run, metric) {
            let steps = &cell.steps;
            let us = |ns: Option<f64>| {
                ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns / 1e3))
            };
            let at = |quantile| cell.cell(Unit::Microsecond, quantile);
            if steps.count() == 0 {
                continue;
            }
            all.row([
                metric::words(metric).to_owned(),
                cell.label.clone(),
                count(steps.count()),
                us(steps.min().map(|ns| ns as f64)),
                at(Quantile::P50),
                us(steps.mean()),
                at(Quantile::P99),
                us(steps.max().map(|ns| ns as f64)),
            ]);
        }
    }
    let all = all.label_intervals();
    let section = Section::new("delays", "All delays", &all, "All delays, repetitions merged");
    Section { labelled: false, folded: true, ..section }.html()
}

/// Nodes of the relay path: role, engine, timestamps.
pub(super) fn machines(run: &RunData) -> String {
    let all = crate::analysis::machines::machines(run);
    let caption = "Role, engine and timestamps of each node";
    Section::new("machines", "Nodes of the relay path", &all, caption).html()
}

/// Level that each load reached.
pub(super) fn loads(run: &RunData) -> String {
    let mut all = Table::new(["trial", "load", "on", "reached"]);
    for trial in &run.trials {
        for load in &trial.loads {
            all.row([
                format!("{}: {}", trial.trial, group::trial_label(run, trial)),
                load.engine.clone(),
                load.target.clone(),
                reached(load),
            ]);
        }
    }
    let caption = "Level that each load reached, as reported by its node";
    Section { labelled: false, ..Section::new("loads", "Loads", &all, caption) }.html()
}

fn reached(load: &Summary) -> String {
    let value = |(name, value): (&String, &Option<Scalar>)| reached_value(name, *value);
    load.values.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// Formats a number in a unit.
type UnitFormat = fn(f64) -> String;

/// Formats a value of a load, whose name may end with its unit.
fn reached_value(name: &str, value: Option<Scalar>) -> String {
    let formats: [(&str, UnitFormat); 4] = [
        ("_ratio", share),
        ("_ns", delay),
        ("_bps", |bps| format!("{} Mbit/s", three_digits(bps / 1e6))),
        ("_pps", |pps| format!("{} packets/s", three_digits(pps))),
    ];
    let known = formats.iter().find_map(|(unit, text)| Some((name.strip_suffix(unit)?, text)));
    let text = match (value, known) {
        (None, _) => "unknown".to_owned(),
        (Some(Scalar::Count(n)), None) => count(n),
        (Some(Scalar::Count(n)), Some((_, text))) => text(n as f64),
        (Some(Scalar::Real(real)), None) => three_digits(real),
        (Some(Scalar::Real(real)), Some((_, text))) => text(real),
    };
    format!("{} {text}", known.map_or(name, |(stem, _)| stem).replace('_', " "))
}

/// Packet captures taken outside dwell, beside the run's own timestamps.
pub(super) fn witnesses(run: &RunData) -> String {
    let all = witness::table(run);
    let caption = "Packets of this run in captures, matched by packet id";
    let section = Section::new("witnesses", "Witness captures", &all, caption);
    let intro = "Captures by another program with its own timestamps.";
    Section { labelled: false, intro, ..section }.html()
}

/// User notes about the run.
#[derive(Template)]
#[template(path = "notes.html")]
struct Notes<'a> {
    notes: &'a [String],
}

pub(super) fn notes(run: &RunData) -> String {
    if run.notes.is_empty() {
        return String::new();
    }
    Notes { notes: &run.notes }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_loads_have_units() {
        for (name, value, text) in [
            ("burnt_ratio", Scalar::Real(0.0844), "burnt 8.44 %"),
            ("duration_ns", Scalar::Count(6_431_188_829), "duration 6.43 s"),
            ("payload_rate_bps", Scalar::Real(53_500_000.0), "payload rate 53.5 Mbit/s"),
            ("rate_pps", Scalar::Real(477.0), "rate 477 packets/s"),
            ("send_failed", Scalar::Count(1_200), "send failed 1,200"),
        ] {
            assert_eq!(reached_value(name, Some(value)), text);
        }
        assert_eq!(reached_value("rate_bps", None), "rate unknown");
    }
}
