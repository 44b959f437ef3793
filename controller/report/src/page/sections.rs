//! Sections of the page without figures.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use dwell_record::{Scalar, Summary};
use dwell_stats::Quantile;

use crate::analysis::group::{self, Group};
use crate::analysis::key_figures::KeyFigure;
use crate::analysis::subject::Subject;
use crate::analysis::trust::{self, TrustBadge};
use crate::analysis::{effect, witness};
use crate::model::quantity::{Unit, count, count_noun, share, three_digits};
use crate::model::table::Table;
use crate::model::{JudgedClaims, RunData, TrialData, TrialState, metric};
use crate::page::html::{escape, table};

pub(super) const HOW_TO_READ: &str = include_str!("../../assets/how-to-read.html");

/// Which run it was, when, and with which version.
pub(super) fn about(run: &RunData) -> String {
    let finished =
        run.finished.as_deref().map_or_else(|| "not finished".to_owned(), |at| format!("to {at}"));
    let measured = run.finished_trials().count();
    let trials = count_noun(run.trials.len() as u64, "trial");
    let axes: Vec<String> = run
        .axes
        .iter()
        .map(|axis| match axis.values.as_slice() {
            values if values.len() <= 4 => format!("{}: {}", axis.name, values.join(", ")),
            [first, .., last] => {
                format!("{}: {} values from {first} to {last}", axis.name, axis.values.len())
            }
            _ => axis.name.clone(),
        })
        .collect();
    let varied = if axes.is_empty() {
        String::new()
    } else {
        format!("<br>Varied: {}", escape(&axes.join("; ")))
    };
    format!(
        "<p class=\"about\">Run {} of {}, {} {}; {measured} of {trials} measured, by dwell {}.{varied}</p>\n",
        escape(&run.id),
        escape(&run.name),
        escape(&run.started),
        escape(&finished),
        escape(&run.dwell)
    )
}

/// Which runs are compared.
pub(super) fn about_runs(runs: &[RunData]) -> String {
    let one = |(i, run): (usize, &RunData)| {
        let named = format!("{} ({}, {})", run.lettered_id(i), run.name, run.started);
        format!("<li>{}{}</li>", escape(&named), if i == 0 { ", the baseline" } else { "" })
    };
    let list: String = runs.iter().enumerate().map(one).collect();
    format!("<p>{} on shared axes:</p><ul>{list}</ul>", count_noun(runs.len() as u64, "run"))
}

/// The numbers to read first, beside a badge that links to the trust panel.
pub(super) fn key_figures(run: &RunData, figures: &[KeyFigure]) -> String {
    let (class, text) = match trust::badge(run) {
        TrustBadge::Kept => ("good", "Trust limits kept".to_owned()),
        TrustBadge::Warnings(n) => ("warn", count_noun(n as u64, "trust warning")),
        TrustBadge::Unknown => ("unknown", "Trust unknown".to_owned()),
    };
    let mut html = "<section id=\"key\" aria-labelledby=\"key-title\">\
        <h2 id=\"key-title\" class=\"hidden\">Key figures</h2>"
        .to_owned();
    if !figures.is_empty() {
        html += "<dl class=\"key\">";
        for KeyFigure { value, condition, interval, .. } in figures {
            let interval = interval
                .as_ref()
                .map_or_else(String::new, |text| format!("<span>{}</span>", escape(text)));
            let _ = write!(
                html,
                "<div><dt>{}</dt><dd><b>{}</b>{interval}</dd></div>",
                escape(condition),
                escape(value)
            );
        }
        html += "</dl>";
    }
    if figures.iter().any(|figure| figure.finding.starts_with("effect-")) {
        let _ = write!(html, "<p class=\"about\">{}</p>", effect::simultaneous(run));
    }
    let _ = write!(html, "<p><a class=\"badge {class}\" href=\"#trust\">{text}</a></p>");
    html + "</section>\n"
}

/// What was measured, in words, and the text of the plan.
pub(super) fn measured(run: &RunData, id: &str, heading: &str) -> String {
    let facts = crate::analysis::measurement::measured(run);
    if facts.is_empty() && run.plan.is_none() {
        return String::new();
    }
    let mut html = format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\
         <h2 id=\"{id}-title\">{}</h2><dl class=\"measured\">\n",
        escape(heading)
    );
    for fact in facts {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", fact.name, escape(&fact.text));
    }
    html += "</dl>";
    if let Some(plan) = &run.plan {
        let text = escape(&plan.text);
        let _ = write!(
            html,
            "<details><summary>Text of the plan</summary>\
             <pre class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Text of the plan: {}\">{text}</pre></details>",
            escape(heading)
        );
    }
    html + "</section>\n"
}

/// Trust panel: a banner with the warnings, if any, then the facts.
pub(super) fn trust(run: &RunData, heading: &str, id: &str) -> String {
    let warnings = trust::warnings(run);
    let known = run.finished_trials().any(|trial| trial.summary.is_some());
    let mut html = format!(
        "<section class=\"trust\" id=\"{id}\" aria-labelledby=\"{id}-title\">\
         <h2 id=\"{id}-title\">{}</h2>\n",
        escape(heading)
    );
    if !warnings.is_empty() {
        let _ = write!(
            html,
            "<div class=\"banner warn\"><p><b><span aria-hidden=\"true\">&#9888; </span>Warning: read {} before quoting a number.</b></p><ul>",
            if warnings.len() == 1 { "this" } else { "these" }
        );
        for warning in &warnings {
            let _ = write!(html, "<li>{}</li>", escape(warning));
        }
        html += "</ul></div>";
    } else if trust::has_schedule_errors(run) {
        let _ = write!(
            html,
            "<p class=\"banner good\"><b><span aria-hidden=\"true\">&#10003; </span>All limits kept.</b> {}</p>",
            escape(&trust::kept_limits_text(run))
        );
    } else {
        html += "<p class=\"banner unknown\"><b><span aria-hidden=\"true\">? </span>Unknown.</b> Not all trials recorded clocks and schedule errors.</p>";
    }
    if !known {
        return html + "</section>\n";
    }
    let facts = trust::facts(run);
    html += "<dl class=\"facts\">";
    for fact in &facts {
        let (name, value) = (fact.name, escape(&fact.value));
        let folded = fact.folded.as_ref().map_or_else(String::new, |all| {
            let summary = format!("Full list<span class=\"hidden\">: {name}</span>");
            format!("<details><summary>{summary}</summary>{}</details>", escape(all))
        });
        let _ = write!(html, "<div><dt>{name}</dt><dd>{value}{folded}</dd></div>");
    }
    html += "</dl><details><summary>Explanation</summary><dl class=\"meanings\">";
    for fact in &facts {
        let _ = write!(html, "<dt>{}</dt><dd>{}</dd>", fact.name, escape(fact.meaning));
    }
    html + "</dl></details></section>\n"
}

/// Failed trials with their reasons.
pub(super) fn failed(run: &RunData) -> String {
    let failed: Vec<&TrialData> =
        run.trials.iter().filter(|t| t.state == TrialState::Failed).collect();
    if failed.is_empty() {
        return String::new();
    }
    let mut html = "<h3>Failed trials</h3><ul class=\"failed\">".to_owned();
    for trial in failed {
        let reason = trial.reason.as_deref().unwrap_or("unknown reason");
        let label = group::trial_label(run, trial);
        let _ =
            write!(html, "<li>Trial {}, {}: {}</li>", trial.trial, escape(&label), escape(reason));
    }
    html + "</ul>"
}

/// Largest accurate rate per sender, beside published ones; empty for a run without trains.
pub(super) fn verdicts(run: &RunData) -> String {
    let all = crate::analysis::paced::verdict_table(run);
    if all.rows.is_empty() {
        return String::new();
    }
    let definition = escape(&crate::analysis::paced::tolerance(run).to_string());
    let remarks = escape(&run.published.remarks.join(" "));
    let table = table(&all, "Largest accurate rate by node, engine, size and cross flows");
    format!(
        "<section id=\"verdicts\" aria-labelledby=\"verdicts-title\">\
         <h2 id=\"verdicts-title\">Largest accurate rate per sender</h2>\
         <p>The largest rate such that this rate and every smaller one tried are accurate; {definition}. \
         {remarks}</p>{table}</section>\n"
    )
}

/// Largest accurate rates of several runs side by side.
pub(super) fn rates_of_runs(runs: &[RunData]) -> String {
    let Some(all) = crate::analysis::paced::rates_of_runs(runs) else { return String::new() };
    let table = table(&all, "Largest accurate rate by run");
    format!(
        "<section id=\"verdicts\" aria-labelledby=\"verdicts-title\">\
         <h2 id=\"verdicts-title\">Largest accurate rate per sender, by run</h2>{table}</section>\n"
    )
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
    let table = table(&all, "Published claims and their verdicts for this run");
    format!(
        "<section id=\"claims\" aria-labelledby=\"claims-title\">\
         <h2 id=\"claims-title\">Claims of {cite}</h2>\
         <p>Each claim is judged for the machines of this run. A failed claim is a finding about them, \
         not an error. Where the document gives no number, the limit is dwell's own. Intervals: 95 % \
         for all claims together (Bonferroni).</p>{table}</section>\n"
    )
}

/// Every trial, also failed ones.
pub(super) fn trials(run: &RunData) -> String {
    if run.trials.is_empty() {
        return "<section id=\"trials\"><h2>Trials</h2><p>This run has no trials.</p></section>\n"
            .to_owned();
    }
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
    format!("<section id=\"trials\"><h2>Trials</h2>{}</section>\n", table(&all, &caption))
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
    if all.rows.is_empty() {
        return String::new();
    }
    let all = all.label_intervals();
    let table = table(&all, "All delays, repetitions merged");
    format!(
        "<section id=\"delays\"><h2>All delays</h2>\
         <details><summary>Show the table ({} rows)</summary>{table}</details></section>\n",
        all.rows.len()
    )
}

/// Nodes of the relay path: role, engine, timestamps.
pub(super) fn machines(run: &RunData) -> String {
    let all = crate::analysis::machines::machines(run);
    if all.rows.is_empty() {
        return String::new();
    }
    let table = table(&all, "Role, engine and timestamps of each node");
    format!(
        "<section id=\"machines\" aria-labelledby=\"machines-title\">\
         <h2 id=\"machines-title\">Nodes of the relay path</h2>{table}</section>\n"
    )
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
    if all.rows.is_empty() {
        return String::new();
    }
    let table = table(&all, "Level that each load reached, as reported by its node");
    format!("<section id=\"loads\"><h2>Loads</h2>{table}</section>\n")
}

fn reached(load: &Summary) -> String {
    let value = |(name, value): (&String, &Option<Scalar>)| {
        let value = match value {
            None => "unknown".to_owned(),
            Some(Scalar::Count(n)) => count(*n),
            Some(Scalar::Real(real)) if name.ends_with("_ratio") => share(*real),
            Some(Scalar::Real(real)) => three_digits(*real),
        };
        format!("{name} {value}")
    };
    load.values.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// Packet captures taken outside dwell, beside the run's own timestamps.
pub(super) fn witnesses(run: &RunData) -> String {
    let all = witness::table(run);
    if all.rows.is_empty() {
        return String::new();
    }
    let table = table(&all, "Packets of this run in captures, matched by packet id");
    format!(
        "<section id=\"witnesses\"><h2>Witness captures</h2>\
         <p>Captures by another program with its own timestamps.</p>{table}</section>\n"
    )
}

/// User notes about the run.
pub(super) fn notes(run: &RunData) -> String {
    if run.notes.is_empty() {
        return String::new();
    }
    let mut html = "<section id=\"notes\"><h2>Notes</h2><ul>".to_owned();
    for note in &run.notes {
        let _ = write!(html, "<li>{}</li>", escape(note));
    }
    html + "</ul></section>\n"
}
